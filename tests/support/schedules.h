/* What the tests of schedules share: models lowered for the virtual clock, the
 * timetable of a step, and a second, independent way to make one: published
 * orders of passes, replayed one after another. */
#ifndef SLUICE_TESTS_SCHEDULES_H
#define SLUICE_TESTS_SCHEDULES_H

#include <sluice/sluice.h>

/* ---- a model on modelled devices ------------------------------------------------ */

typedef struct lowered_model {
  sl_args *args;
  sl_graph *graph;
  sl_lowered *lowered;
  const sl_plan *plan;
} lowered_model;

/* Lowers a shipped model for a step of m microbatches in k pieces, with `words`
 * as on its command line, ending with NULL. Returns what sl_lower says; all else
 * that fails ends the test. */
sl_status lowered_model_init(lowered_model *x, const char *model, char *const *words, int m, int k,
                             const sl_lower_options *options);
void lowered_model_fini(lowered_model *x);

/* The abstract pipeline on timed devices; ends the test if it cannot be. */
void pipeline_init(lowered_model *x, int m, int k, const sl_lower_options *options);

/* ---- durations by stage ---------------------------------------------------------- */

/* For op_seconds: each pass of stage s of the abstract pipeline (chunk s of the
 * model) takes seconds[s][class]. */
typedef struct stage_seconds {
  int stages;
  double (*of)[SL_CLASS_COUNT];
} stage_seconds;
double stage_op_seconds(void *ctx, const char *op);

/* ---- timetables ------------------------------------------------------------------- */

/* One pass: its class's letter, its stage along the model, and its tick in the step:
 * the number of the microbatch or, where those are cut, of the piece. */
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
/* First start to last end of the device with the longest. */
double timetable_span(const timetable *t);
/* 1 - what devices computed on average / timetable_span. */
double timetable_bubble(const timetable *t);
/* Largest span minus busy time of a device. */
double timetable_idle(const timetable *t);
/* "F0 F0 B0", to be freed. */
char *timetable_text(const timetable *t, int device);

/* Step 1 of a run on the virtual clock, with the most activations that a device
 * held and, unless NULL, the figures of the run. Ends the test if it gets stuck
 * or a register ever has more slots in use than its quota. */
timetable measure(const sl_plan *plan, uint64_t jitter_seed, uint64_t jitter_ns, double *peak);

/* The same passes in the order that `order` lists (times are not looked at), one
 * after another as early as their inputs allow, with the durations of the pass
 * of the same class, stage and number in `durations` and `comm` seconds for every
 * step to another device. Ends the test if that order cannot be. */
timetable replay(const timetable *order, const timetable *durations, double comm);

/* ---- published orders ---------------------------------------------------------------- */

/* Written down from the papers, not from quotas. Times are 0. */
timetable gpipe_order(int p, int m);
/* Narayanan et al.: `warm` forwards ahead on each device, then one forward, one
 * backward, then the backwards that are left. */
timetable one_f_one_b_order(int p, int m);
timetable eager_order(int p, int m);
/* Megatron's interleaving: microbatches in groups of p, chunk by chunk. p divides m. */
timetable interleaved_order(int p, int v, int m);
/* Qi et al.: 1F1B's order of F and B, and the weight gradients of device d begin
 * d microbatches late. */
timetable zb_h1_order(int p, int m);
/* Sun et al.: 1F1B over the pieces, k - 1 more of them ahead; the backward of a
 * microbatch goes through its pieces from the last to the first. */
timetable seq1f1b_order(int p, int m, int k);

#endif
