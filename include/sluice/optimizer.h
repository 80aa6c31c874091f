/* How parameters are updated: the optimizer's settings and the schedule of its learning rate. */
#ifndef SLUICE_OPTIMIZER_H
#define SLUICE_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sl_op;

/* A field that is 0 takes its default. SL_OFF is how to say that it is to be 0: no decay, no
 * clipping, no momentum. */
#define SL_OFF (-__builtin_inff())

/* How the learning rate goes on after `warmup` steps, in which it rises from lr/warmup to lr.
 *   DEFAULT   COSINE with decay_steps, CONSTANT without
 *   CONSTANT  lr
 *   LINEAR    straight down to min_lr at decay_steps
 *   COSINE    down half a cosine to min_lr at decay_steps
 *   WSD       lr until decay_begin, then straight down to min_lr at decay_steps (warm-up, stable,
 *             decay: Hu et al., arXiv 2404.06395)
 * After decay_steps it stays at min_lr. */
typedef enum sl_rate {
  SL_RATE_DEFAULT, SL_RATE_CONSTANT, SL_RATE_LINEAR, SL_RATE_COSINE, SL_RATE_WSD
} sl_rate;

/* Settings of an update. Defaults stand in brackets; where rows differ, each says its own
 * (sl_update.defaults; docs/training.md has them in a table). */
typedef struct sl_optimizer {
  float lr;            /* peak learning rate [1e-3] */
  float min_lr;        /* where the decay ends [lr/10] */
  int64_t warmup;      /* steps of linear warm-up [0] */
  int64_t decay_steps; /* step at which the rate reaches min_lr [0] */
  float beta1, beta2;  /* [AdamW and Adam 0.9, 0.95; Lion 0.9, 0.99] */
  float eps;           /* [1e-8] */
  float weight_decay;  /* on tensors of two dims or more [AdamW and Lion 0.1, others 0] */
  float clip;          /* global gradient norm [1.0] */
  const struct sl_op *rule; /* the row that updates [sl_op_adamw]: see below */
  float momentum;      /* of SGD [0] */
  bool nesterov;       /* SGD looks ahead by its momentum */
  sl_rate schedule;
  int64_t decay_begin; /* WSD: step at which the decay begins [9/10 of decay_steps] */
  bool decay_all;      /* decay of tensors of less than two dims as well */
  float lr_scale;      /* the rate of a step is the schedule's times this [1] */
  /* A schedule of the user's own instead: the rate of a step, from 0. It may read `user`; it is
   * called on any thread, more than once for a step, and must always say the same. */
  float (*rate)(const struct sl_optimizer *o, int64_t step);
  const void *user;    /* for `rate` and for rows of the user's own; outlives the run */
} sl_optimizer;

/* Learning rate of step `step` (from 0), of settings with their defaults in place. */
float sl_optimizer_lr(const sl_optimizer *o, int64_t step);
/* The decay of a tensor of so many dims. */
float sl_optimizer_decay(const sl_optimizer *o, int ndim);

/* ---- rows that update ------------------------------------------------------ */

/* An array that a row keeps for each parameter, shaped as that, private to the update. */
typedef struct sl_update_state {
  const char *name; /* "m": of parameter "w" it is called "w:m" in checkpoints */
  float start;      /* what all of its elements are before the first step */
} sl_update_state;

/* What makes a row an optimizer (sl_op.update). The row is called
 *
 *     rule(scale scalar, g0, g1, ...), attrs.user = sl_optimizer -> p, state 0, state 1, ...
 *
 * once a step for each parameter, or for each device's part of it: outputs are updated in
 * place (sl_op.updates), typed as g0, and the gradient is scale (g0 + g1 + ...). The row has
 * an output for each state it can have, behind the parameter; settings may need fewer. It
 * works element by element: a part of a parameter is updated as it would be in the whole. */
enum { SL_UPDATE_STATES = 4 };
typedef struct sl_update {
  sl_update_state states[SL_UPDATE_STATES];
  int nstates;
  /* How many of them these settings need: the first ones. NULL: all. */
  int (*needs)(const sl_optimizer *o);
  sl_optimizer defaults; /* what a field that is 0 means; one that is 0 here, too: see above */
} sl_update;

/* Settings with their defaults in place, and 0 where they say SL_OFF. NULL: all defaults. */
sl_optimizer sl_optimizer_defaults(const sl_optimizer *o);
/* For sl_op.hash of a row of the user's own: all settings, and what `rate` says of some steps. */
struct sl_attrs;
uint64_t sl_optimizer_hash(uint64_t hash, const struct sl_attrs *attrs, int nin);

#ifdef __cplusplus
}
#endif
#endif
