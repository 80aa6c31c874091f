/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter groups by name patterns: frozen parameters, and separate learning rates and decays. */
#include <stdarg.h>
#include <stdio.h>

#include "graph/build/build.h"

/* ---- rules ---------------------------------------------------------------------------- */

static void add_rule(sl_graph *g, sli_param_rule rule) {
  struct sli_training *t = &g->training;
  SLI_GROW(t->rules, (size_t)t->nrules, t->capacity);
  rule.pattern = sli_arena_strdup(&g->arena, rule.pattern ? rule.pattern : "");
  t->rules[t->nrules++] = rule;
}

void sl_freeze_at(sl_here at, sl_graph *g, const char *pattern) {
  if (g->status || g->frozen.builds) return;
  add_rule(g, (sli_param_rule){.pattern = pattern, .at = at, .frozen = true});
}

void sl_group_at(sl_here at, sl_graph *g, const char *pattern, const sl_group_settings *settings) {
  if (g->status || g->frozen.builds) return;
  add_rule(g, (sli_param_rule){.pattern = pattern, .at = at, .group = *settings});
}

/* Adds the rules given by the user who runs the model, after the model's rules. */
static sl_status add_texts(sl_graph *g) {
  const sl_training *by = g->options.training;
  for (int i = 0; by && i < by->nfrozen; i++)
    add_rule(g, (sli_param_rule){.pattern = by->frozen[i], .frozen = true});
  for (int i = 0; by && i < by->ngroups; i++) {
    sli_param_rule rule = {0};
    sl_status status = sli_group_read(g, by->groups[i], &rule.pattern, &rule.group);
    if (status) return status;
    add_rule(g, rule);
  }
  return SL_OK;
}

/* ---- optimizers of matrices ------------------------------------------------------------- */

static bool is_product(const sli_node *n) {
  return sli_op_weight(n->op) == SL_WEIGHT_PRODUCT || n->op == &sl_op_matmul;
}

/* How a parameter is read: by products, by other ops, as one of the last matrices. */
enum { MULTIPLIED = 1, OTHERWISE = 2, LAST = 4 };

static bool reads_matrix(const sli_node *n) {
  bool any = false;
  for (int a = 0; a < n->nin; a++) any |= n->in[a] && n->in[a]->param && n->in[a]->type.ndim == 2;
  return any && is_product(n);
}

/* Marks the output projection: the last matrices on the way to the loss. */
static void mark_last(const sl_graph *g, const sli_node *n, uint8_t *read, bool *seen) {
  if (!n || seen[n->id]) return;
  seen[n->id] = true;
  bool last = reads_matrix(n);
  for (int a = 0; a < n->nin; a++) {
    const sl_tensor *t = n->in[a];
    if (!t) continue;
    if (t->param) read[t->param_index] |= last ? LAST : 0;
    else if (!last) mark_last(g, t->producer, read, seen);
  }
}

static uint8_t *find_reads(sl_graph *g) {
  uint8_t *read = sli_arena_alloc(&g->arena, (size_t)g->nparams + 1);
  bool *seen = sli_arena_alloc(&g->arena, (size_t)g->nnodes + 1);
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    for (int a = 0; a < n->nin; a++)
      if (n->in[a] && n->in[a]->param)
        read[n->in[a]->param_index] |= is_product(n) ? MULTIPLIED : OTHERWISE;
  }
  if (g->loss.tensor) mark_last(g, g->loss.tensor->producer, read, seen);
  return read;
}

/* Returns the settings of parameters that the optimizer does not update itself; their rates follow
 * its schedule. */
static const sl_optimizer *make_others(sl_graph *g) {
  const sl_optimizer *base = &g->training.optimizer;
  if (!base->rule->update->others) return base;
  sl_optimizer *o = sli_arena_alloc(&g->arena, sizeof *o);
  *o = *base;
  o->rule = base->rule->update->others;
  o->momentum = 0;
  o->nesterov = false;
  if (base->lr > 0 && base->adamw_lr > 0) o->lr_scale *= base->adamw_lr / base->lr;
  else o->lr = base->adamw_lr, o->min_lr = o->lr / 10, o->rate = NULL;
  return o;
}

/* Chooses, for each parameter, between the optimizer and its op for other parameters. */
static void choose_rules(sl_graph *g, const sl_optimizer *others) {
  const sl_optimizer *base = &g->training.optimizer;
  uint8_t *read = others == base ? NULL : find_reads(g);
  for (int i = 0; i < g->nparams; i++) {
    sl_tensor *param = g->params[i];
    bool fits = !read || (param->type.ndim == 2 && read[i] == MULTIPLIED);
    param->update = fits ? base : others;
  }
}

/* ---- settings -------------------------------------------------------------------------- */

/* Sets the optimizer of a parameter; returns false if the parameter is not a matrix. */
static bool set_rule(sl_graph *g, const sli_param_rule *rule, sl_tensor *param,
                     const sl_optimizer *others) {
  const sl_optimizer *base = &g->training.optimizer;
  if (rule->group.rule->update->whole && param->type.ndim != 2) return false;
  param->update = rule->group.rule == base->rule ? base : others;
  return true;
}

/* Applies the optimizers that groups name, before the groups' other settings. */
static sl_status apply_named(sl_graph *g, const sli_param_rule *rule, const sl_optimizer *others) {
  const sl_op *base = g->training.optimizer.rule, *op = rule->group.rule;
  if (!op) return SL_OK;
  if (op != base && op != others->rule)
    return sli_graph_fail_at(g, rule->at, SL_E_USAGE,
                             "group %s: optimizer %s: this run can use %s%s%s", rule->pattern,
                             op->name, base->name, others->rule == base ? "" : " or ",
                             others->rule == base ? "" : others->rule->name);
  const sl_tensor *found = NULL;
  bool any = false;
  for (int i = 0; i < g->nparams; i++) {
    sl_tensor *param = g->params[i];
    if (param->frozen || !sli_pattern_finds(rule->pattern, param->name)) continue;
    found = param;
    any |= set_rule(g, rule, param, others);
  }
  if (any || !found) return SL_OK;
  return sli_graph_fail_at(g, rule->at, SL_E_USAGE,
                           "group %s: %s updates matrices only, but %s has %d dims", rule->pattern,
                           op->name, found->name, found->type.ndim);
}

/* Applies a group's settings to a parameter; unset values come from the graph's optimizer. */
static sl_status groups_apply(sl_graph *g, const sli_param_rule *rule, sl_tensor *param,
                              const sl_optimizer *others) {
  const sl_optimizer *base = &g->training.optimizer;
  const sl_optimizer *own = param->update->rule == base->rule ? base : others;
  float scale = rule->group.lr_scale;
  if (rule->group.lr > 0 && base->lr == 0)
    return sli_graph_fail_at(
        g, rule->at, SL_E_USAGE,
        "group %s has a learning rate, but the schedule scales the optimizer's own, which is 0",
        rule->pattern);
  sl_optimizer *o = sli_arena_alloc(&g->arena, sizeof *o);
  *o = *param->update;
  if (rule->group.lr != 0) scale = rule->group.lr == SL_OFF ? SL_OFF : rule->group.lr / base->lr;
  if (scale == SL_OFF) o->lr = o->min_lr = 0, o->rate = NULL;
  else if (rule->group.lr != 0) o->lr_scale = base->lr_scale * scale;
  else if (scale != 0) o->lr_scale = own->lr_scale * scale;
  if (rule->group.weight_decay != 0) {
    o->weight_decay = rule->group.weight_decay == SL_OFF ? 0 : rule->group.weight_decay;
    o->decay_all = true;
  }
  param->update = o;
  return SL_OK;
}

static sl_status apply_rule(sl_graph *g, const sli_param_rule *rule, const sl_optimizer *others) {
  bool any = false;
  for (int i = 0; i < g->nparams; i++) {
    sl_tensor *param = g->params[i];
    if (param->frozen || !sli_pattern_finds(rule->pattern, param->name)) continue;
    any = true;
    if (rule->frozen) param->needs_grad = false, param->running = NULL;
    else if (groups_apply(g, rule, param, others)) return g->status;
  }
  if (any) return SL_OK;
  return sli_graph_fail_at(g, rule->at, SL_E_USAGE, "%s %s: matches no parameter; the first is %s",
                           rule->frozen ? "freeze" : "group", rule->pattern,
                           g->nparams ? g->params[0]->name : "none");
}

/* Clears needs_grad of tensors computed only from frozen parameters. */
static void mark_nodes(sl_graph *g) {
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    bool any = false;
    for (int a = 0; a < n->nin; a++) any |= n->in[a] && n->in[a]->needs_grad;
    for (int o = 0; o < n->nout; o++)
      if (n->out[o]) n->out[o]->needs_grad &= any;
  }
}

sl_status sli_training_settle(sl_graph *g) {
  sl_status status = add_texts(g);
  if (!status) status = sli_lora_settle(g);
  if (!status) status = sli_bits_settle(g);
  const sl_optimizer *others = g->training.optimizer.rule ? make_others(g) : &g->training.optimizer;
  choose_rules(g, others);
  for (int r = 0; r < g->training.nrules && !status; r++)
    status = apply_named(g, &g->training.rules[r], others);
  for (int r = 0; r < g->training.nrules && !status; r++)
    status = apply_rule(g, &g->training.rules[r], others);
  for (int i = 0; i < g->nparams; i++)
    if (!g->params[i]->needs_grad && !g->params[i]->running) g->params[i]->update = NULL;
  if (!status) sli_objective_share(g);
  if (!status) mark_nodes(g);
  return status;
}
