/* What the tests of grids share: a shipped model, trained for some steps on devices that
 * share it out, in one process or in several. */
#ifndef SLUICE_TESTS_GRIDS_H
#define SLUICE_TESTS_GRIDS_H

#include "tests/schedules.h"

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

/* How its stages lie on devices, and when what runs. What is 0 or NULL is as if the option
 * were not given. */
typedef struct grid {
  int data, tensor;
  const char *shard;
  int stages;
  const char *schedule, *grain;
  int workers;
  uint64_t jitter_seed;
  int processes;
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

/* Trains it, from the same values whatever the grid. Ends the test unless the
 * plan can be proved, runs to its end, and no register goes over its quota. */
grid_losses grid_train(const grid_model *m, const grid *g);

#endif
