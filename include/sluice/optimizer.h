/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer settings and learning rate schedules. */
#ifndef SLUICE_OPTIMIZER_H
#define SLUICE_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sl_op;

/* Value that sets a field to zero (no decay, no clipping, no momentum), since a field that is 0
 * takes its default. */
#define SL_OFF (-__builtin_inff())

/* Learning rate schedule. During the first `warmup` steps the rate rises from lr/warmup to lr;
 * then:
 *   DEFAULT   COSINE with decay_steps, CONSTANT without
 *   CONSTANT  lr
 *   LINEAR    straight down to min_lr at decay_steps
 *   COSINE    down half a cosine to min_lr at decay_steps
 *   WSD       lr until decay_begin, then straight down to min_lr at decay_steps (warm-up, stable,
 *             decay: Hu et al., arXiv 2404.06395)
 * After decay_steps it stays at min_lr. */
typedef enum sl_rate {
  SL_RATE_DEFAULT,
  SL_RATE_CONSTANT,
  SL_RATE_LINEAR,
  SL_RATE_COSINE,
  SL_RATE_WSD
} sl_rate;

/* Settings of an update. Defaults are in brackets; they may differ by optimizer
 * (sl_update.defaults; docs/training.md has a table). */
typedef struct sl_optimizer {
  float lr;                 /* peak learning rate [Muon 0.02, others 1e-3] */
  float min_lr;             /* rate at the end of the decay [lr/10] */
  int64_t warmup;           /* steps of linear warm-up [0] */
  int64_t decay_steps;      /* step at which the rate reaches min_lr [0] */
  float beta1, beta2;       /* [AdamW and Adam 0.9, 0.95; Lion 0.9, 0.99] */
  float eps;                /* [1e-8] */
  float weight_decay;       /* decay of tensors of two dims or more [Adam and SGD 0, others 0.1] */
  float clip;               /* maximum global gradient norm [1.0] */
  const struct sl_op *rule; /* the optimizer's op [sl_op_adamw]: see below */
  float momentum;           /* momentum of SGD [0] and Muon [0.95] */
  bool nesterov;            /* SGD: Nesterov momentum, which Muon always uses */
  sl_rate schedule;
  int64_t decay_begin; /* WSD: step at which the decay begins [9/10 of decay_steps] */
  bool decay_all;      /* weight decay also applies to tensors with fewer than two dims */
  float lr_scale;      /* factor of the schedule's rate [1] */
  float adamw_lr;      /* Muon: peak rate of the parameters that AdamW updates [1e-3] */
  /* Replaces the schedule: returns the learning rate of a step, counted from 0. May read `user`.
   * Any thread may call it, more than once per step; it must always return the same value for a
   * step. */
  float (*rate)(const struct sl_optimizer *o, int64_t step);
  const void *user; /* data for `rate` and for user-defined ops; must outlive the run */
} sl_optimizer;

/* Returns the learning rate of step `step`, counted from 0; `o` must have its defaults filled
 * in. */
float sl_optimizer_lr(const sl_optimizer *o, int64_t step);
/* Returns the weight decay of a tensor with ndim dims. */
float sl_optimizer_decay(const sl_optimizer *o, int ndim);

/* ---- optimizer ops --------------------------------------------------------- */

/* Optimizer state: an array of the parameter's shape that only the update reads and writes. */
typedef struct sl_update_state {
  const char *name; /* "m": checkpoints store it as "w:m" for parameter "w" */
  float start;      /* initial value of all elements */
} sl_update_state;

/* Makes an op an optimizer (sl_op.update). The op is called
 *
 *     rule(scale scalar, g0, g1, ...), attrs.user = sl_optimizer -> p, state 0, state 1, ...
 *
 * once per step for each parameter, or for each device's part of it. Outputs are updated in place
 * (sl_op_memory.updates) and have the type of g0; the gradient is scale (g0 + g1 + ...). After the
 * parameter, the op has an output for each possible state; settings may need fewer. It works
 * element by element: a part of a parameter is updated as it would be in the whole. With `whole`,
 * parameters of two dims are not sharded, and the op gets all of each. */
enum { SL_UPDATE_STATES = 4 };
typedef struct sl_update {
  sl_update_state states[SL_UPDATE_STATES];
  int nstates;
  /* Returns the number of states, the first ones, that these settings need. NULL: all. */
  int (*needs)(const sl_optimizer *o);
  sl_optimizer defaults; /* default of each field; if that is 0 too, the default of sl_optimizer */
  bool whole;            /* updates whole matrices */
  /* Optimizer for all other parameters, if this one updates only hidden matrices: matrices that
   * only products read, without the output projection. NULL: this optimizer updates all
   * parameters. */
  const struct sl_op *others;
} sl_update;

/* Returns the settings with defaults filled in, and 0 for SL_OFF. NULL: all defaults. */
sl_optimizer sl_optimizer_defaults(const sl_optimizer *o);
/* sl_op.hash for a user's optimizer op: covers all settings, and `rate` at sample steps. */
struct sl_attrs;
uint64_t sl_optimizer_hash(uint64_t hash, const struct sl_attrs *attrs, int nin);

#ifdef __cplusplus
}
#endif
#endif
