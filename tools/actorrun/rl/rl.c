/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "tools/actorrun/actorrun.h"
#include "tools/actorrun/objective.h"
#include "tools/actorrun/rl/answers.h"

/* Number of figures that a step can have. */
enum { FIGURES = 13 };

struct rl {
  rl_prompts prompts;
  rl_rewards *rewards; /* NULL: a teacher's probabilities are learned, without rewards */
  answers_file *answers;
  objective_teacher taught;
  sl_rollouts *rollouts;
  int nfigures;
  int at[FIGURES]; /* [nfigures] indices of the run's figures */
  const char *names[FIGURES];
};

bool rl_wanted(const settings *s) { return settings_text(s, "rl"); }

/* Methods: learning from rewards, or from a teacher. */
enum { GRPO = 1, DISTILL = 2 };
static const struct way {
  const char *name;
  int bit;
} ways[] = {{"grpo", GRPO}, {"distill", DISTILL}};

static int way_of(const char *text) {
  size_t n = strcspn(text, ":");
  for (size_t i = 0; i < SLI_COUNT(ways); i++)
    if (strlen(ways[i].name) == n && !strncmp(text, ways[i].name, n)) return ways[i].bit;
  return 0;
}

static int way(const settings *s) { return way_of(settings_text(s, "rl")); }

/* ---- options ------------------------------------------------------------------------------- */

/* Value of --rl. */
typedef struct method {
  sl_rollouts_options rollouts;
  int apart; /* see sl_rollouts_set_frames() */
} method;

typedef struct key {
  int ways;
  const char *name;
  double least, most;
  size_t at; /* offset in method */
  enum { WHOLE, REAL, SINGLE } kind;
} key;

#define AT(field) offsetof(method, rollouts.field)
static const key keys[] = {{GRPO, "group", 2, 1 << 16, AT(group), WHOLE},
                           {DISTILL, "group", 1, 1 << 16, AT(group), WHOLE},
                           {GRPO, "kl", 0, 1e9, AT(kl), REAL},
                           {GRPO, "clip", 1e-6, 1, AT(clip_low), REAL},
                           {GRPO, "clip-high", 1e-6, 1e9, AT(clip_high), REAL},
                           {GRPO, "dual-clip", 1, 1e9, AT(dual_clip), REAL},
                           {GRPO | DISTILL, "top-p", 0, 1, AT(top_p), SINGLE},
                           {GRPO | DISTILL, "ticks", 1, 1 << 20, AT(ticks), WHOLE},
                           {GRPO | DISTILL, "updates", 1, 1 << 10, AT(updates), WHOLE},
                           {GRPO | DISTILL, "apart", 0, 1, offsetof(method, apart), WHOLE}};

static sl_status unknown_key(int of, const char *name, size_t length) {
  char *all = sli_strdup("");
  for (size_t i = 0; i < SLI_COUNT(keys); i++) {
    if (!(keys[i].ways & of)) continue;
    char *more = sli_format("%s%s%s", all, *all ? ", " : "", keys[i].name);
    free(all);
    all = more;
  }
  sl_fail(SL_E_USAGE, "--rl: unknown key %.*s; the keys are %s", (int)length, name, all);
  free(all);
  return SL_E_USAGE;
}

static sl_status set_key(int of, const char *name, size_t length, const char *value, method *to) {
  for (size_t i = 0; i < SLI_COUNT(keys); i++) {
    const key *k = &keys[i];
    char *at = (char *)to + k->at, *end;
    if (!(k->ways & of) || strlen(k->name) != length || strncmp(k->name, name, length)) continue;
    double number = strtod(value, &end);
    bool good = end != value && (!*end || *end == ',') && number >= k->least && number <= k->most &&
                (k->kind != WHOLE || number == (double)(int)number);
    if (!good)
      return sl_fail(SL_E_USAGE, "--rl: %s=%.*s: must be a%s number from %g to %g", k->name,
                     (int)strcspn(value, ","), value, k->kind == WHOLE ? " whole" : "", k->least,
                     k->most);
    if (k->kind == WHOLE) *(int *)at = (int)number;
    else if (k->kind == REAL) *(double *)at = number;
    else *(float *)at = (float)number;
    return SL_OK;
  }
  return unknown_key(of, name, length);
}

/* Reads "grpo:KEY=N,...". */
static sl_status read_method(const char *text, method *to) {
  size_t n = strcspn(text, ":");
  sl_status status = SL_OK;
  for (const char *at = text[n] ? text + n + 1 : text + n; *at && !status;) {
    size_t length = strcspn(at, "=,");
    if (at[length] != '=') return sl_fail(SL_E_USAGE, "--rl: %.*s: must be KEY=N", (int)length, at);
    status = set_key(way_of(text), at, length, at + length + 1, to);
    at += strcspn(at, ",");
    at += *at == ',';
  }
  return status;
}

/* Checks that the method's source of feedback is given: rewards, or a teacher. */
static sl_status check_way(const settings *s) {
  bool teacher = settings_text(s, "teacher");
  if (!way(s))
    return sl_fail(SL_E_USAGE, "--rl %s: the method must be grpo or distill",
                   settings_text(s, "rl"));
  if (way(s) == GRPO && teacher)
    return sl_fail(SL_E_USAGE, "--rl grpo: cannot be combined with --teacher; use --rl distill");
  if (way(s) == GRPO && !settings_text(s, "reward"))
    return sl_fail(SL_E_USAGE, "--rl: needs --reward PROGRAM");
  if (way(s) == DISTILL && !teacher)
    return sl_fail(SL_E_USAGE, "--rl distill: needs --teacher DIR");
  return SL_OK;
}

sl_status rl_check(const settings *s) {
  static const char *const mine[] = {"rollout-ahead", "prompts",        "reward",       "answers",
                                     "max-tokens",    "reward-seconds", "reward-failed"};
  static const char *const others[] = {"eval", "epochs", "logprobs", "auto"};
  for (size_t i = 0; i < SLI_COUNT(mine) && !rl_wanted(s); i++)
    if (sl_arg_given(s->run, mine[i], 0))
      return sl_fail(SL_E_USAGE, "--%s: needs --rl METHOD", mine[i]);
  if (!rl_wanted(s)) return SL_OK;
  for (size_t i = 0; i < SLI_COUNT(others); i++)
    if (sl_arg_given(s->run, others[i], 0))
      return sl_fail(SL_E_USAGE, "--rl: cannot be combined with --%s", others[i]);
  if (!settings_text(s, "prompts")) return sl_fail(SL_E_USAGE, "--rl: needs --prompts FILE");
  SLI_TRY(check_way(s));
  if (s->pieces > 1) return sl_fail(SL_E_USAGE, "--rl: cannot be combined with --pieces");
  if (!sl_options_find(s->model->options, "batch"))
    return sl_fail(SL_E_USAGE, "--rl: model %s has no --batch, the number of answers per step",
                   s->model->name);
  return SL_OK;
}

/* ---- the run ------------------------------------------------------------------------------- */

static void take_step(void *ctx, const sl_rollouts_report *report, int n, const sl_answer *answers,
                      const double *rewards, const double *advantages) {
  rl *x = ctx;
  sl_rollouts_report told = *report;
  double *none = x->rewards ? NULL : sli_calloc((size_t)n, sizeof *none);
  for (int i = 0; i < n && none; i++) none[i] = NAN;
  if (none) told.reward = NAN;
  answers_step(x->answers, &x->prompts, &told, n, answers, none ? none : rewards,
               none ? none : advantages);
  free(none);
}

static void take_answer(void *ctx, const sl_answer *answer) {
  rl_rewards_take(((rl *)ctx)->rewards, answer);
}

/* Refuses checkpoints between the updates of one rollout, because they do not include its
 * answers. */
static sl_status check_every(const settings *s, int updates) {
  int64_t every = sl_arg_int(s->run, "every");
  if (!settings_text(s, "checkpoint") || updates < 2 || every % updates == 0) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "--every %lld: must be a multiple of the %d updates per rollout (updates)",
                 (long long)every, updates);
}

/* Returns the number of a stage's devices, at most one per answer. */
static int devices_of(const sl_parallel_options *o, int64_t batch) {
  int64_t devices = SLI_MAX(o->data, 1);
  devices *= (int64_t)SLI_MAX(o->sequence, 1) * SLI_MAX(o->tensor, 1);
  return (int)SLI_MIN(devices, SLI_MAX(batch, 1));
}

static sl_status make_rollouts(settings *s, rl *x) {
  int64_t batch = sl_arg_int(s->model_args, "batch");
  bool given = sl_arg_given(s->run, "temperature", 0);
  x->taught = objective_taught(s);
  const sl_rollouts_options o = {
      .model = s->model,
      .args = s->model_args,
      .training = &s->training,
      .batch = batch,
      .microbatches = s->microbatches,
      .stages = s->lower.parallel.stages,
      .devices = devices_of(&s->lower.parallel, batch),
      .sequence = s->lower.parallel.sequence,
      .all_positions = s->lower.numbers.leaf > 0,
      .exact = s->lower.numbers.exact,
      .prompts = x->prompts.tokens,
      .nprompts = x->prompts.count,
      .shuffle = s->data.shuffle,
      .max_tokens = sl_arg_int(s->run, "max-tokens"),
      .temperature = given ? (float)sl_arg_float(s->run, "temperature") : 1,
      .seed = (uint64_t)sl_arg_int(s->run, "seed"),
      .stop = x->prompts.stop,
      .nstop = x->prompts.nstop,
      .answered = x->rewards ? take_answer : NULL,
      .rewarded = take_step,
      .ahead = (int)sl_arg_int(s->run, "rollout-ahead"),
      .distill = x->taught.model ? &x->taught.settings : NULL,
      .teacher = x->taught.model,
      .teacher_args = x->taught.args,
      .ctx = x};
  method m = {.rollouts = o};
  sl_status status = read_method(settings_text(s, "rl"), &m);
  if (!status) status = check_every(s, m.rollouts.updates);
  if (!status) status = sl_rollouts_create(&m.rollouts, &x->rollouts);
  if (status) return status;
  sl_rollouts_set_frames(x->rollouts, x->prompts.frames, m.apart);
  s->objective = sl_rollouts_objective(x->rollouts);
  s->lower.rollouts = *sl_rollouts_lower(x->rollouts);
  return SL_OK;
}

sl_status rl_open(settings *s, rl **out) {
  *out = NULL;
  if (!rl_wanted(s)) return SL_OK;
  rl *x = *out = sli_calloc(1, sizeof *x);
  sl_status status = rl_prompts_read(s, &x->prompts);
  if (!status && settings_text(s, "reward")) status = rl_rewards_open(s, &x->prompts, &x->rewards);
  return status ? status : make_rollouts(s, x);
}

sl_status rl_attach(rl *x, const settings *s, int64_t first, sl_runtime *rt) {
  if (!x) return SL_OK;
  for (int64_t i = 0; i < x->prompts.count && !sl_rollouts_frames(x->rollouts); i++)
    if (x->prompts.frames[i].count)
      return sl_fail(SL_E_INPUT, "--prompts %s: prompt %lld has frames, but model %s takes none",
                     settings_text(s, "prompts"), (long long)i + 1, s->model->name);
  sl_rollouts_attach(x->rollouts, rt);
  if (s->process) return SL_OK;
  if (x->rewards) rl_rewards_attach(x->rewards, x->rollouts);
  return answers_open(s, first, &x->answers);
}

/* ---- figures ------------------------------------------------------------------------------- */

/* Requirement of a figure: rewards, or GRPO's loss. */
typedef enum need { ALWAYS, REWARDS, RATIOS } need;

static const struct {
  const char *name;
  need need;
} all_figures[FIGURES] = {{"reward", REWARDS},        {"reward_std", REWARDS},
                          {"answer_tokens", ALWAYS},  {"truncated", ALWAYS},
                          {"dropped", REWARDS},       {"flat_groups", REWARDS},
                          {"entropy", ALWAYS},        {"kl", ALWAYS},
                          {"clipped", RATIOS},        {"ratio_off", RATIOS},
                          {"answer_seconds", ALWAYS}, {"reward_seconds", REWARDS},
                          {"frames", ALWAYS}};

/* Returns a named value of the step's passes, or 0 if they do not have it. */
static double of_passes(const sl_step_report *report, const char *name) {
  for (int v = 0; v < report->nvalues; v++)
    if (!strcmp(report->values[v].name, name)) return report->values[v].value;
  return 0;
}

static void read_figures(void *ctx, const sl_step_report *report, double *out) {
  rl *x = ctx;
  sl_rollouts_report r = {0};
  bool known = sl_rollouts_about(x->rollouts, report->step, &r);
  double answers = known ? r.answers : 1;
  const double of[FIGURES] = {r.reward,
                              r.reward_std,
                              r.length,
                              r.truncated / answers,
                              r.dropped / answers,
                              r.flat,
                              r.entropy,
                              of_passes(report, "kl"),
                              of_passes(report, "clipped"),
                              of_passes(report, "ratio_off"),
                              r.answer_seconds,
                              r.reward_seconds,
                              (double)sl_rollouts_encoded(x->rollouts, report->step)};
  for (int i = 0; i < x->nfigures; i++) out[i] = known ? of[x->at[i]] : NAN;
}

step_figures rl_figures(rl *x) {
  const bool has[] = {[ALWAYS] = true, [REWARDS] = x->rewards, [RATIOS] = !x->taught.model};
  x->nfigures = 0;
  for (int i = 0; i < FIGURES; i++) {
    if (!has[all_figures[i].need]) continue;
    x->names[x->nfigures] = all_figures[i].name;
    x->at[x->nfigures++] = i;
  }
  return (step_figures){x->nfigures, x->names, read_figures, x};
}

sl_status rl_finish(rl *x) {
  if (!x) return SL_OK;
  answers_file *f = x->answers;
  x->answers = NULL;
  return answers_close(f);
}

void rl_close(rl *x) {
  if (!x) return;
  rl_rewards_close(x->rewards);
  rl_finish(x);
  sl_rollouts_destroy(x->rollouts);
  rl_prompts_free(&x->prompts);
  free(x);
}
