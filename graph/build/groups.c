/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters by patterns of their names: frozen ones, and learning rates and decays of their
 * own. */
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

/* Adds the rules given by the user who runs the model, behind the model's own. */
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

/* ---- settings -------------------------------------------------------------------------- */

/* Sets the settings of a parameter: the graph's own where no group sets another value. */
static sl_status groups_apply(sl_graph *g, const sli_param_rule *rule, sl_tensor *param) {
  const sl_optimizer *base = &g->training.optimizer;
  float scale = rule->group.lr_scale;
  if (rule->group.lr > 0 && base->lr == 0)
    return sli_graph_fail_at(g, rule->at, SL_E_USAGE,
                             "group %s has a learning rate, but the "
                             "optimizer's own, which the schedule is of, is 0",
                             rule->pattern);
  sl_optimizer *o = sli_arena_alloc(&g->arena, sizeof *o);
  *o = *param->update;
  if (rule->group.lr != 0) scale = rule->group.lr == SL_OFF ? SL_OFF : rule->group.lr / base->lr;
  if (scale == SL_OFF) o->lr = o->min_lr = 0, o->rate = NULL;
  else if (scale != 0) o->lr_scale = base->lr_scale * scale;
  if (rule->group.weight_decay != 0) {
    o->weight_decay = rule->group.weight_decay == SL_OFF ? 0 : rule->group.weight_decay;
    o->decay_all = true;
  }
  param->update = o;
  return SL_OK;
}

static sl_status apply_rule(sl_graph *g, const sli_param_rule *rule) {
  bool any = false;
  for (int i = 0; i < g->nparams; i++) {
    sl_tensor *param = g->params[i];
    if (param->frozen || !sli_pattern_finds(rule->pattern, param->name)) continue;
    any = true;
    if (rule->frozen) param->needs_grad = false, param->running = NULL;
    else if (groups_apply(g, rule, param)) return g->status;
  }
  if (any) return SL_OK;
  return sli_graph_fail_at(g, rule->at, SL_E_USAGE,
                           "%s %s: no parameter has such a name; the "
                           "first is %s",
                           rule->frozen ? "freeze" : "group", rule->pattern,
                           g->nparams ? g->params[0]->name : "none");
}

/* Clears needs_grad of tensors computed from frozen parameters alone. */
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
  for (int i = 0; i < g->nparams; i++) g->params[i]->update = &g->training.optimizer;
  for (int r = 0; r < g->training.nrules && !status; r++)
    status = apply_rule(g, &g->training.rules[r]);
  for (int i = 0; i < g->nparams; i++)
    if (!g->params[i]->needs_grad && !g->params[i]->running) g->params[i]->update = NULL;
  if (!status) sli_objective_share(g);
  if (!status) mark_nodes(g);
  return status;
}
