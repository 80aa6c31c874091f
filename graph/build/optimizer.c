/* SPDX-License-Identifier: Apache-2.0 */
/* sl_train: the loss of a model and the update of its parameters. Settings from the user who runs
 * it (sl_graph_options.training) override the model's; unset fields get defaults. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "graph/build/build.h"

/* ---- settings as text --------------------------------------------------------------- */

/* A setting, by its name in text. */
typedef struct setting {
  const char *name;
  enum { REAL, WHOLE, SWITCH, RULE } kind;
  size_t offset; /* offset in the record */
} setting;

static const setting of_optimizer[] = {{"lr", REAL, offsetof(sl_optimizer, lr)},
                                       {"min-lr", REAL, offsetof(sl_optimizer, min_lr)},
                                       {"beta1", REAL, offsetof(sl_optimizer, beta1)},
                                       {"beta2", REAL, offsetof(sl_optimizer, beta2)},
                                       {"eps", REAL, offsetof(sl_optimizer, eps)},
                                       {"decay", REAL, offsetof(sl_optimizer, weight_decay)},
                                       {"clip", REAL, offsetof(sl_optimizer, clip)},
                                       {"momentum", REAL, offsetof(sl_optimizer, momentum)},
                                       {"nesterov", SWITCH, offsetof(sl_optimizer, nesterov)},
                                       {"adamw-lr", REAL, offsetof(sl_optimizer, adamw_lr)},
                                       {0}};

static const setting of_schedule[] = {{"warmup", WHOLE, offsetof(sl_optimizer, warmup)},
                                      {"decay-begin", WHOLE, offsetof(sl_optimizer, decay_begin)},
                                      {"decay-steps", WHOLE, offsetof(sl_optimizer, decay_steps)},
                                      {"min-lr", REAL, offsetof(sl_optimizer, min_lr)},
                                      {0}};

static const setting of_group[] = {{"lr", REAL, offsetof(sl_group_settings, lr)},
                                   {"lr-scale", REAL, offsetof(sl_group_settings, lr_scale)},
                                   {"decay", REAL, offsetof(sl_group_settings, weight_decay)},
                                   {"optimizer", RULE, offsetof(sl_group_settings, rule)},
                                   {0}};

static sl_status optimizer_refuse(sl_graph *g, const char *what, const char *text, const char *word,
                                  size_t length, const setting *known) {
  const char *list = "";
  for (const setting *s = known; s->name; s++)
    list = sli_arena_format(&g->arena, "%s%s%s", list, *list ? ", " : "", s->name);
  return sl_graph_fail(g, SL_E_USAGE, "%s %s: '%.*s' must be NAME=NUMBER with one of %s", what,
                       text, (int)length, word, list);
}

/* Sets an optimizer's op by its name. */
static bool set_rule(const char *name, const char *end, const sl_op **rule) {
  for (int i = 0; sl_ops[i]; i++)
    if (sl_ops[i]->update && strlen(sl_ops[i]->name) == (size_t)(end - name) &&
        !memcmp(sl_ops[i]->name, name, (size_t)(end - name)))
      *rule = sl_ops[i];
  return *rule;
}

/* Sets a value; an explicit 0 is stored as SL_OFF. */
static bool set(const setting *s, const char *value, const char *end, char *record) {
  char *rest = NULL;
  if (s->kind == RULE) return set_rule(value, end, (const sl_op **)(record + s->offset));
  if (s->kind == SWITCH) {
    bool bare = value == end;
    *(bool *)(record + s->offset) = bare || *value == '1';
    return bare || ((*value == '0' || *value == '1') && value + 1 == end);
  }
  double number = strtod(value, &rest);
  if (rest == value || rest != end || !(number >= 0) || number >= 1e15) return false;
  if (s->kind == WHOLE) *(int64_t *)(record + s->offset) = (int64_t)number;
  else *(float *)(record + s->offset) = number == 0 ? SL_OFF : (float)number;
  return s->kind == REAL || number == floor(number);
}

/* Reads "lr=1e-4,nesterov" into the fields of a record. */
static sl_status read_settings(sl_graph *g, const char *what, const char *text, const char *list,
                               const setting *known, void *record) {
  for (size_t n; *list; list += n + (list[n] == ',')) {
    n = strcspn(list, ",");
    size_t name = strcspn(list, "=,");
    const setting *s = known;
    while (s->name && (strlen(s->name) != name || strncmp(s->name, list, name))) s++;
    const char *value = list + name + (list[name] == '=');
    bool bare = name == n && s->kind != SWITCH;
    if (!s->name || bare || !set(s, value, list + n, record))
      return optimizer_refuse(g, what, text, list, n, known);
  }
  return SL_OK;
}

/* Splits a text at the colon. */
static const char *split(sl_graph *g, const char *text, const char **rest) {
  size_t n = strcspn(text, ":");
  *rest = text[n] ? text + n + 1 : "";
  return sli_arena_format(&g->arena, "%.*s", (int)n, text);
}

sl_status sli_group_read(sl_graph *g, const char *text, const char **pattern,
                         sl_group_settings *out) {
  const char *list;
  *pattern = split(g, text, &list);
  if (!**pattern || !*list)
    return sl_graph_fail(g, SL_E_USAGE, "group %s: must be PATTERN:lr=NUMBER,decay=NUMBER", text);
  return read_settings(g, "group", text, list, of_group, out);
}

/* ---- settings of the user ---------------------------------------------------------------- */

static sl_status replace_rule(sl_graph *g, const char *text, sl_optimizer *o) {
  enum { MOST = 32 };
  const char *list, *name = split(g, text, &list), *known = "", *names[MOST + 1] = {0};
  int n = 0;
  const sl_op *row = o->rule && !strcmp(o->rule->name, name) ? o->rule : sl_op_find(name);
  for (int i = 0; sl_ops[i]; i++)
    if (sl_ops[i]->update && n < MOST) {
      names[n++] = sl_ops[i]->name;
      known = sli_arena_format(&g->arena, "%s%s%s", known, *known ? ", " : "", sl_ops[i]->name);
    }
  if (!row || !row->update)
    return sl_graph_fail(g, SL_E_USAGE,
                         "unknown optimizer %s: must be one of %s, or the model's own%s", name,
                         known, sli_meant((char[SLI_MEANT_TEXT]){0}, names, name));
  if (row->update->others && !o->adamw_lr) o->adamw_lr = o->lr; /* the model's rate */
  o->rule = row;
  o->nesterov |= row->update->defaults.nesterov;
  sl_status status = read_settings(g, "optimizer", text, list, of_optimizer, o);
  if (status || o->nesterov || !row->update->defaults.nesterov) return status;
  return sl_graph_fail(g, SL_E_USAGE, "optimizer %s: %s supports Nesterov momentum only", text,
                       name);
}

static sl_status replace_schedule(sl_graph *g, const char *text, sl_optimizer *o) {
  static const char *const names[] = {[SL_RATE_CONSTANT] = "constant",
                                      [SL_RATE_LINEAR] = "linear",
                                      [SL_RATE_COSINE] = "cosine",
                                      [SL_RATE_WSD] = "wsd",
                                      NULL};
  const char *list, *name = split(g, text, &list);
  o->rate = NULL;
  o->schedule = SL_RATE_DEFAULT;
  for (size_t i = SL_RATE_CONSTANT; names[i]; i++)
    if (!strcmp(names[i], name)) o->schedule = (sl_rate)i;
  if (o->schedule == SL_RATE_DEFAULT)
    return sl_graph_fail(
        g, SL_E_USAGE,
        "unknown learning-rate schedule %s: must be constant, linear, cosine or wsd%s", name,
        sli_meant((char[SLI_MEANT_TEXT]){0}, names + SL_RATE_CONSTANT, name));
  if (o->schedule == SL_RATE_CONSTANT) o->warmup = 0; /* not the model's default */
  return read_settings(g, "learning-rate schedule", text, list, of_schedule, o);
}

static sl_status replace(sl_graph *g, sl_optimizer *o) {
  const sl_training *by = g->options.training;
  sl_status status = SL_OK;
  if (by && by->optimizer) status = replace_rule(g, by->optimizer, o);
  if (!status && by && by->schedule) status = replace_schedule(g, by->schedule, o);
  bool decays = o->schedule != SL_RATE_DEFAULT && o->schedule != SL_RATE_CONSTANT;
  if (by && decays && !o->rate && !o->decay_steps) o->decay_steps = by->steps;
  return status;
}

/* ---- checks ------------------------------------------------------------------------------ */

/* Returns what is wrong with an optimizer's op, by the rules of sluice/optimizer.h, or NULL. */
static const char *row_fault(const sl_op *row) {
  const sl_update *u = row->update;
  if (!u) return "is not an optimizer: its row has no sl_op.update";
  if (u->nstates < 0 || u->nstates > SL_UPDATE_STATES || row->nout != 1 + u->nstates)
    return "must have one output for the parameter and one for each of its states";
  if ((sli_op_memory(row)->updates & ((2u << u->nstates) - 1)) != (2u << u->nstates) - 1)
    return "must update all of its outputs in place (sl_op_memory.updates)";
  for (int i = 0; i < u->nstates; i++)
    if (!u->states[i].name) return "has a state without name";
  return NULL;
}

static const char *schedule_fault(const sl_optimizer *o) {
  if (o->warmup < 0) return "warmup must not be negative";
  if (o->decay_steps < 0) return "decay_steps must not be negative";
  if (o->rate || o->schedule == SL_RATE_CONSTANT) return NULL;
  if (!o->decay_steps) return "this learning-rate schedule needs decay_steps";
  if (o->schedule == SL_RATE_WSD && (o->decay_begin < 0 || o->decay_begin > o->decay_steps))
    return "decay_begin must be from 0 to decay_steps";
  return NULL;
}

static const char *fault(const sl_optimizer *o) {
  if (!(o->lr >= 0) || !isfinite(o->lr)) return "lr must be finite and not negative";
  if (!(o->adamw_lr >= 0) || !isfinite(o->adamw_lr))
    return "adamw_lr must be finite and not negative";
  if (!(o->min_lr >= 0) || !isfinite(o->min_lr)) return "min_lr must be finite and not negative";
  if (!(o->beta1 >= 0 && o->beta1 < 1)) return "beta1 must be in [0, 1)";
  if (!(o->beta2 >= 0 && o->beta2 < 1)) return "beta2 must be in [0, 1)";
  if (!(o->momentum >= 0 && o->momentum < 1)) return "momentum must be in [0, 1)";
  if (o->nesterov && o->momentum == 0) return "nesterov needs momentum";
  if (!(o->eps > 0) || !isfinite(o->eps)) return "eps must be finite and positive";
  if (!(o->weight_decay >= 0) || !isfinite(o->weight_decay))
    return "weight_decay must be finite and not negative";
  if (!(o->clip >= 0)) return "clip must not be negative";
  if (!(o->lr_scale > 0) || !isfinite(o->lr_scale)) return "lr_scale must be finite and positive";
  return schedule_fault(o);
}

static sl_status set_optimizer(sl_graph *g, sl_here at, const sl_optimizer *given) {
  sl_optimizer o = given ? *given : (sl_optimizer){0};
  sl_status status = replace(g, &o);
  if (status) return status;
  const char *wrong = o.rule ? row_fault(o.rule) : NULL;
  if (wrong)
    return sli_graph_fail_at(g, at, SL_E_USAGE, "optimizer: op %s %s", o.rule->name, wrong);
  o = sl_optimizer_defaults(&o);
  wrong = fault(&o);
  if (wrong) return sli_graph_fail_at(g, at, SL_E_USAGE, "optimizer: %s", wrong);
  g->training.optimizer = o;
  return SL_OK;
}

/* ---- the loss -------------------------------------------------------------------------------- */

void sl_train_at(sl_here at, sl_graph *g, sl_tensor *loss, const sl_optimizer *optimizer) {
  if (g->status || g->options.infer || g->frozen.builds || sli_objective_check(g)) return;
  char text[SL_TYPE_TEXT];
  if (!loss) sli_graph_fail_at(g, at, SL_E_USAGE, "sl_train: the loss is NULL");
  else if (g->loss.tensor)
    sli_graph_fail_at(g, at, SL_E_USAGE, "sl_train is called twice: the loss is already %s",
                      g->loss.tensor->name);
  else if (!loss->producer)
    sli_graph_fail_at(g, at, SL_E_USAGE, "sl_train: %s is a parameter, not a loss", loss->name);
  else if (sl_type_elements(&loss->type) != 1 || loss->type.ndim != 0 ||
           (loss->type.dtype != SL_F64 && loss->type.dtype != SL_F32))
    sli_graph_fail_at(g, at, SL_E_SHAPE,
                      "sl_train: the loss %s must be an f32 or f64 scalar, got %s", loss->name,
                      sl_type_format(text, &loss->type));
  if (g->status) return;
  if (set_optimizer(g, at, optimizer)) return;
  g->loss = sli_mean_of(g, "loss", loss);
}
