/* SPDX-License-Identifier: Apache-2.0 */
/* Common parts of the grid tests. A shipped model is trained for some steps with parallelism
 * within stages, in one process or in several. */
#ifndef SLUICE_TESTS_SUPPORT_GRIDS_H
#define SLUICE_TESTS_SUPPORT_GRIDS_H

#include "tests/support/gpt_params.h"
#include "tests/support/schedules.h"

#if defined(__SANITIZE_THREAD__)
enum { GRID_STEPS = 6 };
#else
enum { GRID_STEPS = 20 };
#endif

/* A model and its data. */
typedef struct grid_model {
  const char *name;
  char *const *words; /* as on its command line, without "--data" */
  int microbatches, pieces;
} grid_model;

/* A GPT of the given shape; `words` are its options. */
typedef struct gpt_words {
  char *of[16];
  char number[5][16];
} gpt_words;
grid_model gpt_model(const gpt_shape *s, int microbatches, gpt_words *words);

/* Placement of stages on devices, and order of passes. Fields that are 0 or NULL behave like
 * options that are not given. */
typedef struct grid {
  int data, sequence, tensor, experts, expert_tensor;
  const char *shard;
  /* attention over a sharded sequence: heads or ring; positions of each device; states of linear
   * attention: heads or exchange */
  const char *attention, *positions, *states;
  int stages;
  /* waits per microbatch if the vocabulary is split over all stages, else 0 */
  int barriers;
  const char *schedule, *grain, *recompute, *piece_order, *boundary;
  int workers;
  uint64_t jitter_seed;
  sl_home_options homes;
  int processes;
  int nquotas;
  sl_quota quotas[2];
  int ngiven; /* number of given signatures; the search finds the others */
  const sl_given_sbp *given;
  int steps; /* 0: GRID_STEPS */
} grid;

typedef struct grid_losses {
  int count, most;
  double loss[GRID_STEPS], norm[GRID_STEPS];
  sl_runtime_counts counts; /* counts of all processes */
  uint64_t carried_bytes;   /* bytes sent between processes */
} grid_losses;

/* Describes a case: "gpt, 2 x 2, gradients, zb-v, 2 stages, 3 processes". */
enum { GRID_TEXT = 240 };
const char *grid_format(char out[GRID_TEXT], const grid_model *m, const grid *g);

/* Lowers the model for the given process; ends the test if that fails. */
void grid_lower(lowered_model *x, const grid_model *m, const grid *g, grid_losses *losses);

/* Returns whether offloading saves memory; lowering rejects it otherwise. */
bool grid_saves(const grid_model *m, const grid *g);

/* Trains the model, from the same values for any grid. Ends the test unless the plan can be
 * proved and finishes, and no register exceeds its quota. */
grid_losses grid_train(const grid_model *m, const grid *g);

/* Ends the test unless `got`, trained with this grid, equals `want` bit for bit in losses and
 * norms. */
void grid_same_bits(const grid_model *m, const grid *g, const grid_losses *want,
                    const grid_losses *got);

/* Signatures of a GPT's tensors along the tensor axis. Matrices are split in pairs, by columns and
 * by rows, as is the vocabulary. `between` is the signature of norms and residuals. */
enum { GPT_LIES = 16 * GPT_BLOCKS };
typedef struct gpt_lying {
  int n;
  sl_given_sbp all[GPT_LIES];
  char names[GPT_LIES][64];
} gpt_lying;
void gpt_lie_in_pairs(gpt_lying *l, sl_sbp between);

#endif
