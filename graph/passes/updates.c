/* SPDX-License-Identifier: Apache-2.0 */
/* Part of pass 2: the update nodes of all trained parameters.
 *
 * The update has three phases, because the gradient norm is a barrier: the sum of squares of every
 * parameter's gradient, then one clip over all of them, then the optimizer steps. The optimizer's
 * op does a step and declares the state that it keeps per parameter. Without clipping the norm is
 * only reported, and no step waits for it. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"

#include <math.h>
#include <string.h>

static sli_node *add_update(sl_graph *g, const sl_op *op, const char *name, int block, int rank,
                            int phase, sl_attrs attrs, int nin, sl_tensor *const *in) {
  sli_node *n = sli_graph_node(g, op, name, &attrs, SL_CLASS_U, block, nin, in, op->nout);
  n->rank = rank;
  n->phase = phase;
  n->per_step = true;
  sl_status status = sli_node_infer(n);
  SLI_CHECK(!status, "update node %s: %s", name, sl_detail());
  return n;
}

/* Names an update: "wte:adamw", or "wte:adamw#3" on the fourth device of a stage. */
static const char *update_name(sl_graph *g, const sl_tensor *param, const char *what) {
  return param->rank ? sli_arena_format(&g->arena, "%s:%s#%d", param->name, what, param->rank)
                     : sli_arena_format(&g->arena, "%s:%s", param->name, what);
}

static void add_state(sl_graph *g, sli_node *n, const sl_tensor *param, int number) {
  const sl_update_state *state = &n->op->update->states[number];
  const char *name = sli_arena_format(&g->arena, "%s:%s", param->name, state->name);
  sl_tensor *t = sli_node_output(g, n, 1 + number, name);
  t->rank = param->rank;
  t->shard = param->shard;
  t->replica = param->replica;
  t->init = SL_CONSTANT(state->start);
}

/* Returns the gradients of a parameter in f32; exact sums are in f64. */
static sl_tensor **gradients_of(sl_graph *g, const sl_tensor *param) {
  if (!sli_is_exact(g)) return param->grads;
  sl_tensor **out = sli_arena_alloc(&g->arena, (size_t)param->ngrads * sizeof *out);
  for (int u = 0; u < param->ngrads; u++) {
    out[u] = param->grads[u];
    if (out[u]->type.dtype != SL_F64) continue;
    const char *name = update_name(g, param, sli_arena_format(&g->arena, "gradient.%d", u));
    sli_node *n = add_update(g, &sl_op_to_f32, name, param->home, param->rank, SLI_PHASE_NORM,
                             (sl_attrs){.numbers.exact = true}, 1, &param->grads[u]);
    out[u] = sli_node_output(g, n, 0, name);
    out[u]->rank = param->rank;
  }
  return out;
}

static bool clips(const sl_graph *g) { return g->training.optimizer.clip > 0; }

/* Adds the factor of a step's gradient if nothing is clipped: a constant 1. */
static sl_tensor *add_one(sl_graph *g, const sl_tensor *param) {
  static const sl_values one = {.type = {.dtype = SL_F32}};
  const char *name = update_name(g, param, "scale");
  sli_node *n = add_update(g, &sl_op_constant, name, param->home, param->rank, SLI_PHASE_UPDATE,
                           (sl_attrs){.fill.value = 1, .user = &one}, 0, NULL);
  return sli_node_output(g, n, 0, name);
}

static void add_step(sl_graph *g, sl_tensor *param, sl_tensor *const *grads, sl_tensor *scale) {
  const sl_op *rule = param->update->rule;
  const sl_update *update = rule->update;
  sl_tensor *in[1 + param->ngrads];
  in[0] = clips(g) ? scale : add_one(g, param);
  memcpy(in + 1, grads, (size_t)param->ngrads * sizeof *in);
  sli_node *n = add_update(
      g, rule, update_name(g, param, rule->name), param->home, param->rank, SLI_PHASE_UPDATE,
      (sl_attrs){.numbers.exact = update->whole && sli_is_exact(g), .user = param->update},
      1 + param->ngrads, in);
  n->out[0] = param;
  int count = update->needs ? update->needs(param->update) : update->nstates;
  for (int i = 0; i < count; i++) add_state(g, n, param, i);
}

/* Computes the new value of a running statistic, so that the old one has a reader even if the
 * model has none. */
static sl_tensor *add_running(sl_graph *g, sl_tensor *param) {
  double left = pow(1 - (double)param->running->momentum, g->options.microbatches);
  const char *name = update_name(g, param, "running");
  sli_node *n = add_update(g, &sl_op_running, name, param->home, param->rank, SLI_PHASE_NORM,
                           (sl_attrs){.running.factor = (float)left}, 2,
                           (sl_tensor *[]){param->grads[0], param});
  sl_tensor *value = sli_node_output(g, n, 0, name);
  value->rank = param->rank;
  return value;
}

/* Adds the update of a running statistic, which does not involve the optimizer. */
static void replace(sl_graph *g, sl_tensor *param, sl_tensor *value) {
  sli_node *n = add_update(g, &sl_op_replace, update_name(g, param, "replace"), param->home,
                           param->rank, SLI_PHASE_UPDATE, (sl_attrs){0}, 1, &value);
  n->out[0] = param;
}

/* Adds the update of a frozen parameter, which carries it over to the next step. Readers and
 * checkpoints then treat it like any parameter; the update waits for nothing. */
static void keep(sl_graph *g, sl_tensor *param) {
  sli_node *n = add_update(g, &sl_op_keep, update_name(g, param, "keep"), param->home, param->rank,
                           SLI_PHASE_UPDATE, (sl_attrs){.user = &param->type}, 0, NULL);
  n->out[0] = param;
}

/* Adds the norm of a parameter; *square: its result. Returns false for replicas, whose norm
 * another device computes, and for running statistics. */
static bool add_norm(sl_graph *g, const sl_tensor *param, sl_tensor *const *grads,
                     sl_tensor **square) {
  if (!param->update || param->replica || param->running) return false;
  const char *name = update_name(g, param, "norm");
  sli_node *n =
      add_update(g, &sl_op_sumsq, name, param->home, param->rank, SLI_PHASE_NORM,
                 (sl_attrs){.numbers.exact = sli_is_exact(g), .user = &g->training.optimizer},
                 param->ngrads, grads);
  *square = sli_node_output(g, n, 0, name);
  return true;
}

void sli_graph_add_updates(sl_graph *g) {
  sl_tensor **squares = sli_arena_alloc(&g->arena, (size_t)g->nparams * sizeof *squares);
  int count = 0;
  sl_tensor ***grads = sli_arena_alloc(&g->arena, (size_t)g->nparams * sizeof *grads);
  sl_tensor **values = sli_arena_alloc(&g->arena, (size_t)g->nparams * sizeof *values);
  for (int i = 0; i < g->nparams; i++) {
    grads[i] = gradients_of(g, g->params[i]);
    count += add_norm(g, g->params[i], grads[i], &squares[count]);
    if (g->params[i]->running) values[i] = add_running(g, g->params[i]);
  }
  sli_node *clip = add_update(
      g, &sl_op_clip, "clip", -1, 0, SLI_PHASE_CLIP,
      (sl_attrs){.numbers.exact = sli_is_exact(g), .user = &g->training.optimizer}, count, squares);
  sl_tensor *scale = clips(g) ? sli_node_output(g, clip, 0, "clip:scale") : NULL;
  g->grad_norm = sli_node_output(g, clip, 1, "clip:norm");
  for (int i = 0; i < g->nparams; i++) {
    sl_tensor *param = g->params[i];
    if (param->running) replace(g, param, values[i]);
    else if (param->update) add_step(g, param, grads[i], scale);
    else if (param->home >= 0) keep(g, param);
  }
}
