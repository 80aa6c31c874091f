/* SPDX-License-Identifier: Apache-2.0 */
/* Linear maps, and adapters (LoRA: Hu et al., arXiv 2106.09685). For a linear map whose weight
 * matches a pattern, a product of two small matrices is trained instead of the weight.
 *
 *     y = W x + b + (alpha / rank) B A x
 *
 * A starts random and B starts at 0, so new adapters do not change the model's results. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/build/build.h"

/* ---- rules --------------------------------------------------------------------------------- */

void sl_lora_at(sl_here at, sl_graph *g, const char *pattern, int rank, float alpha) {
  struct sli_adapters *all = &g->training.adapters;
  if (g->status || g->frozen.builds) return;
  if (rank < 1 || !(alpha > 0) || !isfinite(alpha)) {
    sli_graph_fail_at(g, at, SL_E_USAGE, "lora %s: rank %d and alpha %g must be positive", pattern,
                      rank, (double)alpha);
    return;
  }
  SLI_GROW(all->rules, (size_t)all->nrules, all->capacity);
  all->rules[all->nrules++] =
      (sli_adapter_rule){sli_arena_strdup(&g->arena, pattern), at, rank, alpha, false};
}

/* Reads "h.*.attn=8" or "h.*.attn=8,alpha=16". */
static void read_text(sl_graph *g, const char *text) {
  const char *equals = strchr(text, '='), *comma = strstr(text, ",alpha=");
  char *end = NULL;
  long rank = equals ? strtol(equals + 1, &end, 10) : 0;
  double alpha = (double)rank;
  bool good = equals && equals > text && end > equals + 1 && rank > 0 && rank < 1 << 20;
  if (good && comma && end == comma) alpha = strtod(comma + strlen(",alpha="), &end);
  if (!good || *end || !(alpha > 0)) {
    sl_graph_fail(g, SL_E_USAGE, "lora %s: must be PATTERN=RANK or PATTERN=RANK,alpha=NUMBER",
                  text);
    return;
  }
  char *pattern = sli_arena_format(&g->arena, "%.*s", (int)(equals - text), text);
  sl_lora_at((sl_here){0}, g, pattern, (int)rank, (float)alpha);
}

/* Adds the rules given by the user who runs the model, after the model's rules. */
static void add_texts(sl_graph *g) {
  const sl_training *by = g->options.training;
  if (g->training.adapters.read) return;
  g->training.adapters.read = true;
  for (int i = 0; by && i < by->nlora; i++) read_text(g, by->lora[i]);
}

/* ---- one adapter ------------------------------------------------------------------------- */

/* Returns the last rule that matches; marks all matching rules as used. */
static const sli_adapter_rule *rule_of(sl_graph *g, const sl_tensor *weight) {
  const sli_adapter_rule *found = NULL;
  add_texts(g);
  for (int i = 0; i < g->training.adapters.nrules; i++) {
    sli_adapter_rule *rule = &g->training.adapters.rules[i];
    if (!sli_pattern_finds(rule->pattern, weight->name)) continue;
    rule->used = true;
    found = rule;
  }
  return found;
}

/* Returns "h.3.attn.c_attn" for "h.3.attn.c_attn.weight". */
static const char *module_of(sl_graph *g, const sl_tensor *weight) {
  size_t n = strlen(weight->name), ending = strlen(".weight");
  if (n > ending && !strcmp(weight->name + n - ending, ".weight")) n -= ending;
  return sli_arena_format(&g->arena, "%.*s", (int)n, weight->name);
}

/* Returns a matrix of an adapter; a weight that is used twice has one adapter. */
static sl_tensor *matrix(sl_here at, sl_graph *g, const sl_adapter *adapter, char letter,
                         int64_t out, int64_t in, sl_init init) {
  const char *name = sli_arena_format(&g->arena, "%s.lora_%c.weight", adapter->module, letter);
  for (int i = 0; i < g->nparams; i++)
    if (g->params[i]->adapter && !strcmp(g->params[i]->name, name)) return g->params[i];
  sl_tensor *t = sl_param_at(at, g, SL_TYPE(SL_F32, out, in), init, "%s", name);
  if (t) t->adapter = adapter;
  return t;
}

/* Returns a tensor with one adapter matrix per place of a served graph. */
static sl_tensor *matrices(sl_here at, sl_graph *g, const sl_adapter *adapter, char letter,
                           int64_t out, int64_t in) {
  sl_type type = SL_TYPE(SL_F32, adapter->places, out, in);
  sl_tensor *t =
      sl_param_at(at, g, type, SL_CONSTANT(0), "%s.lora_%c.weight", adapter->module, letter);
  if (t) t->adapter = adapter;
  return t;
}

/* Adds to each row its adapter's output; rows are dispatched to adapters as to experts. */
static sl_tensor *add_places(sl_here at, sl_graph *g, sl_tensor *y, sl_tensor *x,
                             const sl_tensor *weight, bool transposed) {
  const sl_serving *s = g->options.serve;
  bool rows =
      g->served.adapters && !g->status && x->type.ndim == 3 && x->type.dim[0] == 1 && weight->param;
  if (!rows || x->type.dim[1] != s->rows || !s->adapts(s->ctx, weight->name)) return y;
  sl_adapter *adapter = sli_arena_alloc(&g->arena, sizeof *adapter);
  *adapter = (sl_adapter){module_of(g, weight), s->adapter_rank, (float)s->adapter_rank, transposed,
                          s->adapters};
  sl_tensor *a = matrices(at, g, adapter, 'A', s->adapter_rank, sl_type_last(&x->type)),
            *b = matrices(at, g, adapter, 'B', sl_type_last(&y->type), s->adapter_rank);
  sl_tensor *low = sl_grouped_linear_at(at, g, x, g->served.adapters, a),
            *high = sl_grouped_linear_at(at, g, low, g->served.adapters, b);
  return sl_op2_at(at, g, &sl_op_add, NULL, y, high);
}

static sl_tensor *add_adapter(sl_here at, sl_graph *g, sl_tensor *y, sl_tensor *x,
                              sl_tensor *weight, bool transposed) {
  bool may = y && weight->param && !weight->frozen;
  const sli_adapter_rule *rule = may ? rule_of(g, weight) : NULL;
  if (!rule || g->status) return y;
  int64_t in = weight->type.dim[transposed ? 0 : 1], out = weight->type.dim[transposed ? 1 : 0];
  sl_adapter *adapter = sli_arena_alloc(&g->arena, sizeof *adapter);
  *adapter = (sl_adapter){module_of(g, weight), rule->rank, rule->alpha, transposed, 0};
  sl_tensor *a = matrix(at, g, adapter, 'A', rule->rank, in, SL_UNIFORM(1 / sqrtf((float)in)));
  sl_tensor *b = matrix(at, g, adapter, 'B', out, rule->rank, SL_CONSTANT(0));
  weight->adapter = adapter;
  const sl_attrs scale = {.function.c = rule->alpha / (float)rule->rank};
  sl_tensor *low = sl_op2_at(at, g, &sl_op_linear, NULL, x, a);
  sl_tensor *high = sl_op2_at(at, g, &sl_op_linear, NULL, low, b);
  return sl_op2_at(at, g, &sl_op_add, NULL, y, sl_op1_at(at, g, &sl_op_scale, &scale, high));
}

sl_tensor *sl_linear_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *w, sl_tensor *b,
                        bool transposed) {
  const sl_attrs attrs = {.product.transposed = transposed};
  sl_tensor *y = b ? sl_op3_at(at, g, &sl_op_linear, &attrs, x, w, b)
                   : sl_op2_at(at, g, &sl_op_linear, &attrs, x, w);
  y = add_adapter(at, g, y, x, w, transposed);
  return y && g->options.serve ? add_places(at, g, y, x, w, transposed) : y;
}

/* ---- checks -------------------------------------------------------------------------------- */

static bool is_low(const sl_tensor *t) { return t->adapter && strstr(t->name, ".lora_"); }

/* Returns the number of readers; *other: a reader that is not a linear map of that direction. */
static int count_readers(const sl_graph *g, const sl_tensor *weight, bool transposed,
                         const sli_node **other) {
  int count = 0;
  for (int i = 0; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++) {
      const sli_node *n = g->nodes[i];
      if (n->in[a] != weight) continue;
      count++;
      if (sli_op_weight(n->op) != SL_WEIGHT_PRODUCT || a != 1 ||
          n->attrs.product.transposed != transposed)
        *other = n;
    }
  return count;
}

static const sl_tensor *find_low(const sl_graph *g, const sl_adapter *adapter) {
  int i = 0;
  while (!is_low(g->params[i]) || strcmp(g->params[i]->adapter->module, adapter->module)) i++;
  return g->params[i];
}

/* Checks that all readers of a weight have its adapter; otherwise merging it would change the
 * model. */
static void check_readers(sl_graph *g, const sl_tensor *weight) {
  const sli_node *other = NULL;
  int all = count_readers(g, weight, weight->adapter->transposed, &other);
  int beside = count_readers(g, find_low(g, weight->adapter), false, &(const sli_node *){NULL});
  if (!other && all == beside) return;
  const sli_adapter_rule *rule = rule_of(g, weight);
  sli_graph_fail_at(
      g, rule->at, SL_E_USAGE,
      "lora %s: %s is also read by %s, to which the adapter would not apply; name other weights",
      rule->pattern, weight->name, other ? other->name : "a linear map without an adapter");
}

/* Fails with the reason why a rule matches no linear map's weight: another op may read the
 * weight. */
static void refuse_unused(sl_graph *g, const sli_adapter_rule *rule) {
  for (int i = 0; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++) {
      const sl_tensor *t = g->nodes[i]->in[a];
      if (!t || !t->param || !sli_pattern_finds(rule->pattern, t->name)) continue;
      sli_graph_fail_at(g, rule->at, SL_E_USAGE,
                        "lora %s: %s is read by %s, which is not a linear map", rule->pattern,
                        t->name, g->nodes[i]->name);
      return;
    }
  sli_graph_fail_at(g, rule->at, SL_E_USAGE, "lora %s: matches no weight of a linear map",
                    rule->pattern);
}

sl_status sli_lora_settle(sl_graph *g) {
  add_texts(g);
  for (int i = 0; i < g->training.adapters.nrules && !g->status; i++)
    if (!g->training.adapters.rules[i].used) refuse_unused(g, &g->training.adapters.rules[i]);
  for (int i = 0; i < g->nparams && !g->status; i++)
    if (g->params[i]->adapter && !is_low(g->params[i])) check_readers(g, g->params[i]);
  for (int i = 0; i < g->nparams && g->training.adapters.nrules; i++)
    if (!is_low(g->params[i])) g->params[i]->needs_grad = false, g->params[i]->running = NULL;
  return g->status;
}
