/* What the tests of grids share: a shipped model, trained for some steps on devices that
 * share it out, in one process or in several. */
#ifndef SLUICE_TESTS_GRIDS_H
#define SLUICE_TESTS_GRIDS_H

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
  char *const *words; /* as on its command line, "--data" excepted */
  int microbatches, pieces;
} grid_model;

/* A GPT of that shape; `words` are its options. */
typedef struct gpt_words {
  char *of[16];
  char number[5][16];
} gpt_words;
grid_model gpt_model(const gpt_shape *s, int microbatches, gpt_words *words);

/* How its stages lie on devices, and when what runs. What is 0 or NULL is as if the option
 * were not given. */
typedef struct grid {
  int data, sequence, tensor, experts, expert_tensor;
  const char *shard;
  const char *attention, *positions; /* of a sequence: heads or ring, and which each device has */
  int stages;
  int barriers;           /* the vocabulary lies on all stages, for whom a microbatch waits so often; 0: it
                             does not */
  const char *schedule, *grain, *recompute, *piece_order;
  int workers;
  uint64_t jitter_seed;
  sl_home_options homes;
  int processes;
  int nquotas;
  sl_quota quotas[2];
  int ngiven;             /* how tensors lie, where that is not searched for */
  const sl_given_sbp *given;
  int steps;              /* 0: GRID_STEPS */
} grid;

typedef struct grid_losses {
  int count, most;
  double loss[GRID_STEPS], norm[GRID_STEPS];
  sl_runtime_counts counts; /* of all processes */
  uint64_t carried_bytes;   /* from process to process */
} grid_losses;

/* "gpt, 2 x 2, gradients, zb-v, 2 stages, 3 processes" */
enum { GRID_TEXT = 240 };
const char *grid_format(char out[GRID_TEXT], const grid_model *m, const grid *g);

/* Lowers the model as said, for the given process's run; ends the test if that cannot be. */
void grid_lower(lowered_model *x, const grid_model *m, const grid *g, grid_losses *losses);

/* Do its homes save anything? Where they take as much as they save they are refused. */
bool grid_saves(const grid_model *m, const grid *g);

/* Trains it, from the same values whatever the grid. Ends the test unless the
 * plan can be proved, runs to its end, and no register goes over its quota. */
grid_losses grid_train(const grid_model *m, const grid *g);

/* Ends the test unless `got`, trained with this grid, has the losses and norms of `want`, bit for bit. */
void grid_same_bits(const grid_model *m, const grid *g, const grid_losses *want, const grid_losses *got);

/* How a GPT's tensors lie along the tensor axis: matrices in pairs, by columns and by rows, the
 * vocabulary too, and norms and residuals `between` these as said. */
enum { GPT_LIES = 16 * GPT_BLOCKS };
typedef struct gpt_lying {
  int n;
  sl_given_sbp all[GPT_LIES];
  char names[GPT_LIES][64];
} gpt_lying;
void gpt_lie_in_pairs(gpt_lying *l, sl_sbp between);

#endif
