/* SPDX-License-Identifier: Apache-2.0 */
/* Dimensions of a choice: their names, their fixed values, and how a choice is expressed. */
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "graph/devices/devices.h"
#include "tools/planner/search_inner.h"

const plan_dim_info plan_dims[PLAN_DIMS] = {
    [PLAN_STAGES] = {"stages", "stages", 0, 0, 0, {0}},
    [PLAN_TENSOR] = {"tensor", "tensor", 0, 0, 0, {0}},
    [PLAN_DATA] = {"data", "data-parallel", 0, 0, 0, {0}},
    [PLAN_SEQUENCE] = {"sequence", "sequence", 0, 0, 0, {0}},
    [PLAN_EXPERTS] = {"experts", "expert-parallel", 0, 0, 0, {0}},
    [PLAN_EXPERT_TENSOR] = {"expert-tensor", "expert-tensor", 0, 0, 0, {0}},
    [PLAN_MICROBATCHES] = {"microbatches", "microbatches", 0, 0, 0, {0}},
    [PLAN_PIECES] = {"pieces", "pieces", 0, 0, 0, {0}},
    [PLAN_CHUNKS] = {"chunks", "chunks", 0, 0, 0, {0}},
    [PLAN_SCHEDULE] = {"schedule", "schedule", 3, 4, 4, {"1f1b", "interleaved", "zb-h1", "zb-v"}},
    [PLAN_RECOMPUTE] =
        {"recompute", "recompute", 4, 4, 5, {"none", "full", "whole", "selective", "some"}},
    [PLAN_QUOTAS] = {"quotas", "quota", 1, 1, 2, {"own", "fewer"}},
    [PLAN_HOME] = {"home", "home", 1, 4, 4, {"device", "state", "act", "both"}},
    [PLAN_SHARD] = {
        "shard", "shard", 4, 4, 4, {"nothing", "optimizer", "gradients", "parameters"}}};

const char *planner_word(plan_dim dim, int value) {
  return plan_dims[dim].count ? plan_dims[dim].words[value] : NULL;
}

int planner_value_of(plan_dim dim, const char *word) {
  int w = 0;
  while (strcmp(plan_dims[dim].words[w], word)) w++;
  return w;
}

/* ---- fixed dimensions ------------------------------------------------------------------------ */

static int read_value(plan_dim dim, const char *text) {
  int value = -1;
  for (int w = 0; w < plan_dims[dim].full; w++)
    if (!strcmp(plan_dims[dim].words[w], text)) value = w;
  if (!plan_dims[dim].count && (!sli_number_read(&text, 1, 1 << 20, &value) || *text)) value = -1;
  return value;
}

static sl_status unknown_name(const char *text, const char *word) {
  char list[256] = "";
  for (int d = 0; d < PLAN_DIMS; d++) {
    size_t at = strlen(list);
    snprintf(list + at, sizeof list - at, "%s%s=%s", d ? ", " : "", plan_dims[d].name,
             plan_dims[d].count ? "WORD" : "N");
  }
  return sl_fail(SL_E_USAGE, "--fix %s: %s is not one of %s", text, word, list);
}

static sl_status fix_one(planner *p, const char *text, const char *word) {
  size_t chars = strcspn(word, "=");
  for (int d = 0; d < PLAN_DIMS && word[chars]; d++) {
    const char *name = plan_dims[d].name;
    if (strlen(name) != chars || strncmp(word, name, chars)) continue;
    int value = read_value((plan_dim)d, word + chars + 1);
    if (value < 0)
      return sl_fail(SL_E_USAGE, "--fix %s: %s is not a valid value of %s", text, word, name);
    if (p->fixed[d] >= 0 && p->fixed[d] != value)
      return sl_fail(SL_E_USAGE, "--fix %s: %s is given twice, with different values", text, name);
    p->fixed[d] = value;
    return SL_OK;
  }
  return unknown_name(text, word);
}

static sl_status check_fixed(const planner *p, const char *text) {
  int64_t product = 1;
  bool all = true;
  for (int d = PLAN_STAGES; d <= PLAN_SEQUENCE; d++) {
    product *= p->fixed[d] > 0 ? p->fixed[d] : 1;
    all &= p->fixed[d] > 0 || d == PLAN_SEQUENCE;
  }
  if (p->devices % product)
    return sl_fail(SL_E_USAGE, "--fix %s: takes %lld devices, which must divide %d", text,
                   (long long)product, p->devices);
  if (all && product != p->devices)
    return sl_fail(SL_E_USAGE, "--fix %s: needs %lld devices, not %d", text, (long long)product,
                   p->devices);
  return SL_OK;
}

sl_status planner_fix(planner *p, const char *text) {
  char *copy = sli_strdup(text), *state = NULL;
  sl_status status = SL_OK;
  for (char *word = strtok_r(copy, ",", &state); word && !status;
       word = strtok_r(NULL, ",", &state))
    status = fix_one(p, text, word);
  free(copy);
  return status ? status : check_fixed(p, text);
}

/* ---- how a choice is expressed --------------------------------------------------------------- */

/* Returns whether the experts' grid is printed. If the number of experts does not divide that of
 * the data-parallel devices, the experts have a separate grid anyway. */
static bool are_experts_said(const planner *p, const plan_choice *choice) {
  return p->experts && choice->at[PLAN_EXPERT_TENSOR] == 1 && choice->at[PLAN_TENSOR] > 1 &&
         choice->at[PLAN_DATA] % choice->at[PLAN_EXPERTS] == 0;
}

/* Returns whether a dimension's value is implied and not printed. */
static bool goes_without_saying(const planner *p, const plan_choice *choice, plan_dim dim) {
  if (dim == PLAN_CHUNKS)
    return choice->at[dim] ==
           sl_schedule_chunks(planner_word(PLAN_SCHEDULE, choice->at[PLAN_SCHEDULE]));
  if (dim == PLAN_EXPERT_TENSOR) return !are_experts_said(p, choice);
  if (dim == PLAN_QUOTAS) return true; /* the plan's relaxations express it */
  return (dim == PLAN_SEQUENCE || dim == PLAN_PIECES || dim == PLAN_EXPERTS) &&
         choice->at[dim] == 1;
}

static bool is_among(const char *name, const char *const *list) {
  while (*list && strcmp(*list, name)) list++;
  return *list;
}

sl_space planner_away(const planner *p) {
  const sli_kind *kind = sli_kind_find(p->settings->lower.devices.kind);
  return kind->move[SL_SPACE_HOST]   ? SL_SPACE_HOST
         : kind->move[SL_SPACE_DISK] ? SL_SPACE_DISK
                                     : SL_SPACE_DEVICE;
}

/* Translates a word of the home dimension into --home options. */
static void home_words(const planner *p, const char *word, words *to) {
  static const char *const names[] = {"state", "act"};
  for (size_t i = 0; i < SLI_COUNT(names); i++)
    if (!strcmp(word, names[i]) || !strcmp(word, "both"))
      words_add(to, "--home"), words_add(to, "%s=%s", names[i], sl_space_name(planner_away(p)));
}

static void dim_words(const planner *p, const plan_choice *choice, plan_dim dim, words *to) {
  const char *word = planner_word(dim, choice->at[dim]);
  if (goes_without_saying(p, choice, dim)) return;
  if (dim == PLAN_HOME) {
    home_words(p, word, to);
    return;
  }
  words_add(to, "--%s", plan_dims[dim].option);
  if (!word) words_add(to, "%d", choice->at[dim]);
  else words_add(to, "%s", strcmp(word, "some") ? word : "none");
}

/* Returns whether the user gave the option, which then stays as given. */
static bool is_given(const planner *p, const char *option) {
  return (!strcmp(option, "quota") || !strcmp(option, "home")) &&
         sl_arg_given(p->settings->run, option, 0);
}

static void own_words(const planner *p, const plan_choice *choice, words *to) {
  for (int d = 0; d < PLAN_DIMS; d++) dim_words(p, choice, (plan_dim)d, to);
  if (choice->relaxation) planner_relaxation_words(choice->relaxation, to);
  if (choice->assign) words_add(to, "--assign"), words_add(to, "%s", choice->assign);
}

char *planner_said(const planner *p, const plan_choice *choice) {
  words w = {0};
  own_words(p, choice, &w);
  char *line = words_line(&w), *said = sli_strdup(line + strlen("actorrun "));
  free(line);
  words_fini(&w);
  return said;
}

void planner_words(const planner *p, const plan_choice *choice, const char *const *apart,
                   words *to) {
  const settings *s = p->settings;
  for (const sl_option *o = s->options; o->name; o++) {
    bool other = is_among(o->name, apart);
    for (int d = 0; d < PLAN_DIMS; d++)
      other |= !strcmp(plan_dims[d].option, o->name) && !is_given(p, o->name);
    if (!other) words_run(s, o, to);
  }
  own_words(p, choice, to);
  words_model(s, to);
}
