/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation metrics besides the loss, and counters of a training step. */
#include "graph/build/build.h"

#include <string.h>

sli_mean sli_mean_of(sl_graph *g, const char *name, sl_tensor *t) {
  sli_mean mean = {.name = sli_arena_strdup(&g->arena, name), .tensor = t, .nparts = 1};
  mean.parts = sli_arena_alloc(&g->arena, sizeof *mean.parts);
  mean.parts[0] = (struct sli_mean_part){t, NULL};
  return mean;
}

static bool adds_up(const sl_tensor *t);

/* True if a call maps the parts of its inputs to parts of its first output. */
static bool is_linear(const sli_node *n) {
  sl_signature ways[SL_SIGNATURES] = {0};
  int count = sli_op_signatures(n->op, &n->attrs, n->nin, n->in_type, ways);
  for (int i = 0; i < n->nin; i++)
    if (!n->in[i] || !adds_up(n->in[i])) return false;
  for (int w = 0; w < count; w++) {
    bool all = ways[w].out[0].kind == SL_PARTIAL;
    for (int i = 0; i < n->nin; i++)
      all &= ways[w].in[SLI_MIN(i, SL_SIGNATURE_ARGS - 1)].kind == SL_PARTIAL;
    if (all) return true;
  }
  return false;
}

/* True for a scalar whose parts add up if rows are sharded or sequences cut: like a loss, a mean, a
 * sum, or a sum of these. */
static bool adds_up(const sl_tensor *t) {
  const sli_node *n = t->producer;
  if (t->type.ndim || !n || t->output) return false;
  return sli_op_cut(n->op)->pieces == SL_PIECES_MEAN ||
         sli_op_cut(n->op)->pieces == SL_PIECES_SUM || is_linear(n);
}

static const char *fault(sl_graph *g, const char *name, const sl_tensor *t) {
  char text[SL_TYPE_TEXT];
  if (!*name || !strcmp(name, "loss")) return "needs a name other than loss";
  for (int i = 0; i < g->metrics.count; i++)
    if (!strcmp(g->metrics.items[i].name, name)) return "already exists";
  if (!t) return "is NULL";
  if (adds_up(t) || (t->type.ndim && t->type.dtype == SL_F32)) return NULL;
  return sli_arena_format(&g->arena,
                          "must be f32 with at least one dim, or a mean or sum of means, got %s",
                          sl_type_format(text, &t->type));
}

/* Adds a last dim of 1, so that all dims of t are rows and may be cut. */
static sl_tensor *with_last(sl_here at, sl_graph *g, sl_tensor *t) {
  sl_type shape = t->type;
  if (shape.ndim == SL_MAX_DIMS) return t;
  shape.dim[shape.ndim++] = 1;
  return sl_reshape_at(at, g, t, shape);
}

void sl_metric_at(sl_here at, sl_graph *g, const char *name, sl_tensor *t) {
  if (g->status || g->options.infer || g->frozen.builds) return;
  const char *wrong = fault(g, name, t);
  if (wrong) {
    sli_graph_fail_at(g, at, SL_E_USAGE, "metric %s %s", name, wrong);
    return;
  }
  if (!adds_up(t)) t = sl_mean_at(at, g, with_last(at, g, t), 0, false);
  if (g->status) return;
  struct sli_metrics *m = &g->metrics;
  SLI_GROW(m->items, (size_t)m->count, m->capacity);
  m->items[m->count++] = sli_mean_of(g, name, t);
}

void sl_counter_at(sl_here at, sl_graph *g, const char *name, sl_tensor *t) {
  char text[SL_TYPE_TEXT];
  if (g->status || g->options.infer || g->frozen.builds) return;
  bool fits = t && t->type.dtype == SL_F32 && t->type.ndim == 1 && !t->needs_grad;
  if (!fits) {
    sli_graph_fail_at(g, at, SL_E_USAGE, "counter %s must be f32 [n] and need no gradient, got %s",
                      name, t ? sl_type_format(text, &t->type) : "NULL");
    return;
  }
  struct sli_counters *m = &g->metrics.counters;
  SLI_GROW(m->of, (size_t)m->count, m->capacity);
  m->of[m->count++] = sli_mean_of(g, name, t);
}

void sl_step_value_at(sl_here at, sl_graph *g, const char *name, sl_tensor *t, sl_over over) {
  char text[SL_TYPE_TEXT];
  if (g->status || g->options.infer || g->frozen.builds) return;
  if (!t || t->type.dtype != SL_F32 || !t->type.ndim) {
    sli_graph_fail_at(g, at, SL_E_USAGE,
                      "value %s of a step must be f32 with at least one dim, got %s", name,
                      t ? sl_type_format(text, &t->type) : "NULL");
    return;
  }
  double elements = (double)sl_type_elements(&t->type) * g->options.microbatches;
  uint32_t rest = (1u << t->type.ndim) - 2; /* all but dim 0, which devices may share */
  t = sl_op1_at(at, g, &sl_op_detach, NULL, t);
  if (over == SL_OVER_MAX) t = rest ? sl_max_at(at, g, t, rest, false) : t;
  else t = sl_reshape_at(at, g, sl_sum_at(at, g, t, 0, true), SL_TYPE(SL_F32, 1));
  sl_counter_at(at, g, name, t);
  if (g->status) return;
  sli_mean *value = &g->metrics.counters.of[g->metrics.counters.count - 1];
  value->value = true;
  value->largest = over == SL_OVER_MAX;
  value->divisor = over == SL_OVER_MEAN ? elements : 1;
}

const char *sl_graph_step_value(const sl_graph *g, int i) {
  const struct sli_counters *all = &g->metrics.counters;
  for (int k = 0; k < all->count; k++)
    if (all->of[k].value && !i--) return all->of[k].name;
  return NULL;
}

const char *sl_graph_metric(const sl_graph *g, int i) {
  return i < g->metrics.count ? g->metrics.items[i].name : NULL;
}

/* Computes accuracy; its constants are made from `largest`, so they have the same layout. */
sl_tensor *sl_accuracy_at(sl_here at, sl_graph *g, sl_tensor *logits, sl_tensor *targets) {
  sl_tensor *best = sl_argmax_at(at, g, logits, -1);
  sl_tensor *right = sl_op2_at(at, g, &sl_op_eq, NULL, best, targets);
  sl_tensor *largest = best ? best->producer->out[0] : NULL;
  return sl_op3_at(at, g, &sl_op_where, NULL, right, sl_clamp_at(at, g, largest, 1, 1),
                   sl_clamp_at(at, g, largest, 0, 0));
}
