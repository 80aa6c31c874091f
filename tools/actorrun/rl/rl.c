/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "tools/actorrun/actorrun.h"
#include "tools/actorrun/rl/answers.h"

struct rl {
  rl_prompts prompts;
  rl_rewards *rewards;
  answers_file *answers;
  sl_rollouts *rollouts;
};

bool rl_wanted(const settings *s) { return settings_text(s, "rl"); }

/* ---- options ------------------------------------------------------------------------------- */

/* Value of --rl. */
typedef struct method {
  sl_rollouts_options rollouts;
  int apart; /* see sl_rollouts_set_frames() */
} method;

typedef struct key {
  const char *name;
  double least, most;
  size_t at; /* offset in method */
  enum { WHOLE, REAL, SINGLE } kind;
} key;

#define AT(field) offsetof(method, rollouts.field)
static const key keys[] = {
    {"group", 2, 1 << 16, AT(group), WHOLE},        {"kl", 0, 1e9, AT(kl), REAL},
    {"clip", 1e-6, 1, AT(clip_low), REAL},          {"clip-high", 1e-6, 1e9, AT(clip_high), REAL},
    {"dual-clip", 1, 1e9, AT(dual_clip), REAL},     {"top-p", 0, 1, AT(top_p), SINGLE},
    {"ticks", 1, 1 << 20, AT(ticks), WHOLE},        {"updates", 1, 1 << 10, AT(updates), WHOLE},
    {"apart", 0, 1, offsetof(method, apart), WHOLE}};

static sl_status set_key(const char *name, size_t length, const char *value, method *to) {
  for (size_t i = 0; i < SLI_COUNT(keys); i++) {
    const key *k = &keys[i];
    char *at = (char *)to + k->at, *end;
    if (strlen(k->name) != length || strncmp(k->name, name, length)) continue;
    double number = strtod(value, &end);
    bool good = end != value && (!*end || *end == ',') && number >= k->least && number <= k->most &&
                (k->kind != WHOLE || number == (double)(int)number);
    if (!good)
      return sl_fail(SL_E_USAGE, "--rl: %s=%.*s: it is a%s number from %g to %g", k->name,
                     (int)strcspn(value, ","), value, k->kind == WHOLE ? " whole" : "", k->least,
                     k->most);
    if (k->kind == WHOLE) *(int *)at = (int)number;
    else if (k->kind == REAL) *(double *)at = number;
    else *(float *)at = (float)number;
    return SL_OK;
  }
  return sl_fail(SL_E_USAGE,
                 "--rl: there is no %.*s; there are group, kl, clip, clip-high, dual-clip, top-p, "
                 "ticks, updates and apart",
                 (int)length, name);
}

/* Reads "grpo:KEY=N,...". */
static sl_status read_method(const char *text, method *to) {
  size_t n = strcspn(text, ":");
  sl_status status = SL_OK;
  if (n != 4 || strncmp(text, "grpo", 4))
    return sl_fail(SL_E_USAGE, "--rl %s: the method is grpo", text);
  for (const char *at = text[n] ? text + n + 1 : text + n; *at && !status;) {
    size_t length = strcspn(at, "=,");
    if (at[length] != '=') return sl_fail(SL_E_USAGE, "--rl: %.*s: it is KEY=N", (int)length, at);
    status = set_key(at, length, at + length + 1, to);
    at += strcspn(at, ",");
    at += *at == ',';
  }
  return status;
}

sl_status rl_check(const settings *s) {
  static const char *const mine[] = {"rollout-ahead", "prompts",        "reward",       "answers",
                                     "max-tokens",    "reward-seconds", "reward-failed"};
  static const char *const others[] = {"eval", "epochs", "logprobs", "auto"};
  for (size_t i = 0; i < SLI_COUNT(mine) && !rl_wanted(s); i++)
    if (sl_arg_given(s->run, mine[i], 0))
      return sl_fail(SL_E_USAGE, "--%s: of which rollouts? --rl METHOD says", mine[i]);
  if (!rl_wanted(s)) return SL_OK;
  for (size_t i = 0; i < SLI_COUNT(others); i++)
    if (sl_arg_given(s->run, others[i], 0))
      return sl_fail(SL_E_USAGE, "--rl: not with --%s", others[i]);
  if (!settings_text(s, "prompts"))
    return sl_fail(SL_E_USAGE, "--rl: answers to what? --prompts FILE says");
  if (!settings_text(s, "reward"))
    return sl_fail(SL_E_USAGE, "--rl: which answers are good? --reward PROGRAM says");
  if (s->pieces > 1) return sl_fail(SL_E_USAGE, "--rl: not with --pieces");
  if (!sl_options_find(s->model->options, "batch"))
    return sl_fail(SL_E_USAGE,
                   "--rl: model %s has no --batch that says how many answers a step has",
                   s->model->name);
  return SL_OK;
}

/* ---- the run ------------------------------------------------------------------------------- */

static void take_step(void *ctx, const sl_rollouts_report *report, int n, const sl_answer *answers,
                      const double *rewards, const double *advantages) {
  rl *x = ctx;
  answers_step(x->answers, &x->prompts, report, n, answers, rewards, advantages);
}

static void take_answer(void *ctx, const sl_answer *answer) {
  rl_rewards_take(((rl *)ctx)->rewards, answer);
}

/* Refuses checkpoints between the updates of one rollout, whose answers they do not hold. */
static sl_status check_every(const settings *s, int updates) {
  int64_t every = sl_arg_int(s->run, "every");
  if (!settings_text(s, "checkpoint") || updates < 2 || every % updates == 0) return SL_OK;
  return sl_fail(
      SL_E_USAGE,
      "--every %lld: a rollout has %d updates (updates), and a checkpoint comes after the last of them",
      (long long)every, updates);
}

/* Returns the devices of a stage, as many as have an answer to give. */
static int devices_of(const sl_parallel_options *o, int64_t batch) {
  int64_t devices = SLI_MAX(o->data, 1);
  devices *= (int64_t)SLI_MAX(o->sequence, 1) * SLI_MAX(o->tensor, 1);
  return (int)SLI_MIN(devices, SLI_MAX(batch, 1));
}

static sl_status make_rollouts(settings *s, rl *x) {
  int64_t batch = sl_arg_int(s->model_args, "batch");
  bool given = sl_arg_given(s->run, "temperature", 0);
  const sl_rollouts_options o = {
      .model = s->model,
      .args = s->model_args,
      .training = &s->training,
      .batch = batch,
      .microbatches = s->microbatches,
      .stages = s->lower.parallel.stages,
      .devices = devices_of(&s->lower.parallel, batch),
      .prompts = x->prompts.tokens,
      .nprompts = x->prompts.count,
      .shuffle = s->data.shuffle,
      .max_tokens = sl_arg_int(s->run, "max-tokens"),
      .temperature = given ? (float)sl_arg_float(s->run, "temperature") : 1,
      .seed = (uint64_t)sl_arg_int(s->run, "seed"),
      .stop = x->prompts.stop,
      .nstop = x->prompts.nstop,
      .answered = take_answer,
      .rewarded = take_step,
      .ahead = (int)sl_arg_int(s->run, "rollout-ahead"),
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
  if (!status) status = rl_rewards_open(s, &x->prompts, &x->rewards);
  return status ? status : make_rollouts(s, x);
}

sl_status rl_attach(rl *x, const settings *s, int64_t first, sl_runtime *rt) {
  if (!x) return SL_OK;
  for (int64_t i = 0; i < x->prompts.count && !sl_rollouts_frames(x->rollouts); i++)
    if (x->prompts.frames[i].count)
      return sl_fail(SL_E_INPUT, "--prompts %s: prompt %lld has frames, and model %s reads none",
                     settings_text(s, "prompts"), (long long)i + 1, s->model->name);
  sl_rollouts_attach(x->rollouts, rt);
  if (s->process) return SL_OK;
  rl_rewards_attach(x->rewards, x->rollouts);
  return answers_open(s, first, &x->answers);
}

/* ---- figures ------------------------------------------------------------------------------- */

static const char *const names[] = {"reward",  "reward_std",  "answer_tokens",  "truncated",
                                    "dropped", "flat_groups", "entropy",        "kl",
                                    "clipped", "ratio_off",   "answer_seconds", "reward_seconds",
                                    "frames"};
enum { FIGURES = SLI_COUNT(names), OF_GRAPH = 7 };

static void read_figures(void *ctx, const sl_step_report *report, double *out) {
  rl *x = ctx;
  sl_rollouts_report r;
  for (int i = 0; i < FIGURES; i++) out[i] = NAN;
  if (!sl_rollouts_about(x->rollouts, report->step, &r)) return;
  double answers = r.answers;
  const double own[] = {
      r.reward, r.reward_std, r.length, r.truncated / answers, r.dropped / answers,
      r.flat,   r.entropy};
  memcpy(out, own, sizeof own);
  out[OF_GRAPH] = 0; /* kl, where there is no reference */
  for (int v = 0; v < report->nvalues; v++)
    for (int i = OF_GRAPH; i < OF_GRAPH + 3; i++)
      if (!strcmp(report->values[v].name, names[i])) out[i] = report->values[v].value;
  out[OF_GRAPH + 3] = r.answer_seconds, out[OF_GRAPH + 4] = r.reward_seconds;
  out[OF_GRAPH + 5] = (double)sl_rollouts_encoded(x->rollouts, report->step);
}

step_figures rl_figures(rl *x) { return (step_figures){FIGURES, names, read_figures, x}; }

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
