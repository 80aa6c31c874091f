/* SPDX-License-Identifier: Apache-2.0 */
/* Common parts of the schedule tests. Models are lowered for the virtual clock, and a step's
 * timetable is measured. A second, independent timetable replays published orders of passes one
 * after another. */
#ifndef SLUICE_TESTS_SUPPORT_SCHEDULES_H
#define SLUICE_TESTS_SUPPORT_SCHEDULES_H

#include <sluice/sluice.h>

/* ---- a model on modelled devices ------------------------------------------------ */

typedef struct lowered_model {
  sl_args *args;
  sl_graph *graph;
  sl_lowered *lowered;
  const sl_plan *plan;
} lowered_model;

/* Lowers a shipped model for a step of m microbatches in k pieces, with the options in `words`,
 * which end with NULL. Returns the status of sl_lower; any other failure ends the test. */
sl_status lowered_model_init(lowered_model *x, const char *model, char *const *words, int m, int k,
                             const sl_lower_options *options);
void lowered_model_fini(lowered_model *x);

/* Lowers the abstract pipeline on timed devices; ends the test if that fails. */
void pipeline_init(lowered_model *x, int m, int k, const sl_lower_options *options);

/* ---- durations by stage ---------------------------------------------------------- */

/* Durations for op_seconds: each pass of stage s of the abstract pipeline (chunk s of the model)
 * takes seconds[s][class]. */
typedef struct stage_seconds {
  int stages;
  double (*of)[SL_CLASS_COUNT];
} stage_seconds;
double stage_op_seconds(void *ctx, const char *op);

/* ---- timetables ------------------------------------------------------------------- */

/* One pass: the letter of its class, its stage along the model, and its tick in the step. The
 * tick is the number of the microbatch, or of the piece if microbatches are cut. */
typedef struct pass {
  char cls;
  int stage, number;
  double start, end; /* seconds since the step's first pass */
} pass;

/* The passes of one step, device by device, each in order of start. */
typedef struct timetable {
  int p;
  int *n;        /* [p] */
  pass **passes; /* [p][n] */
} timetable;

void timetable_free(timetable *t);
/* Returns the longest time of a device from first start to last end. */
double timetable_span(const timetable *t);
/* Returns 1 - the devices' mean busy time / timetable_span. */
double timetable_bubble(const timetable *t);
/* Returns the largest difference of span and busy time of a device. */
double timetable_idle(const timetable *t);
/* Returns "F0 F0 B0"; the caller frees it. */
char *timetable_text(const timetable *t, int device);

/* Measures step 1 of a run on the virtual clock. *peak (unless NULL): the most activations that
 * a device held. Ends the test if the run gets stuck or a register exceeds its quota. */
timetable measure(const sl_plan *plan, uint64_t jitter_seed, uint64_t jitter_ns, double *peak);

/* Replays passes in the order of `order`, whose times are ignored, each as early as its inputs
 * allow. Durations are those of the same class, stage and number in `durations`; each transfer
 * to another device takes `comm` seconds. Ends the test if the order is impossible. */
timetable replay(const timetable *order, const timetable *durations, double comm);

/* ---- published orders ---------------------------------------------------------------- */

/* Orders written down from the papers, not derived from quotas. Times are 0. */
timetable gpipe_order(int p, int m);
/* Narayanan et al.: `warm` forwards ahead on each device, then one forward, one backward, then
 * the remaining backwards. */
timetable one_f_one_b_order(int p, int m);
timetable eager_order(int p, int m);
/* Megatron's interleaving: microbatches in groups of p, chunk by chunk. p divides m. */
timetable interleaved_order(int p, int v, int m);
/* Qi et al.: 1F1B's order of F and B, with the weight gradients of device d starting d
 * microbatches late. */
timetable zb_h1_order(int p, int m);
/* Sun et al.: 1F1B over pieces, with k - 1 more of them ahead. A microbatch's backward passes go
 * from its last piece to its first. */
timetable seq1f1b_order(int p, int m, int k);

#endif
