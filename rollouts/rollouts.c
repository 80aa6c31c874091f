/* SPDX-License-Identifier: Apache-2.0 */
/* Rollouts: options, the session, and the objective. */
#include "rollouts/rollouts.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/monotonic.h"

/* ---- options ------------------------------------------------------------------------------- */

enum { MOST_AHEAD = 8 };

static void settle_options(sl_rollouts_options *o) {
  if (!o->group) o->group = o->distill ? 1 : 8;
  if (!o->microbatches) o->microbatches = 1;
  if (!o->devices) o->devices = 1;
  if (!o->sequence) o->sequence = 1;
  if (!o->updates) o->updates = 1;
  if (!o->max_tokens) o->max_tokens = 256;
  if (o->clip_low == 0) o->clip_low = 0.2;
  if (o->clip_high == 0) o->clip_high = o->clip_low;
  if (o->dual_clip == 0) o->dual_clip = 3;
}

static sl_status check_teacher(const sl_rollouts_options *o) {
  if (!o->distill) return SL_OK;
  if (!o->teacher || !o->teacher_args)
    return sl_fail(SL_E_USAGE, "rollouts: distillation needs a teacher");
  if (o->distill->data != 0)
    return sl_fail(
        SL_E_USAGE,
        "rollouts: distillation: data is %g, must be 0: there is no training data, only the "
        "model's own answers",
        (double)o->distill->data);
  if (o->kl > 0)
    return sl_fail(
        SL_E_USAGE,
        "rollouts: kl is %g, must be 0 with distillation: it has a teacher and no reference model",
        o->kl);
  return SL_OK;
}

static sl_status check_options(const sl_rollouts_options *o) {
  SLI_TRY(check_teacher(o));
  if (o->group < 2 && !o->distill)
    return sl_fail(SL_E_USAGE,
                   "rollouts: group is %d, must be at least 2: rewards are compared within a group",
                   o->group);
  if (o->batch < 1 || o->group < 1 || o->batch % o->group)
    return sl_fail(SL_E_USAGE, "rollouts: batch is %lld rows, must be a multiple of group, %d",
                   (long long)o->batch, o->group);
  if (o->devices < 1 || o->devices > o->batch)
    return sl_fail(SL_E_USAGE, "rollouts: devices is %d, must be 1 to the %lld prompts of a step",
                   o->devices, (long long)o->batch);
  if (o->nprompts < 1) return sl_fail(SL_E_USAGE, "rollouts: no prompts are given");
  if (o->max_tokens < 1)
    return sl_fail(SL_E_USAGE, "rollouts: max_tokens is %lld, must be at least 1",
                   (long long)o->max_tokens);
  if (!(o->clip_low > 0 && o->clip_low < 1 && o->clip_high > 0))
    return sl_fail(SL_E_USAGE, "rollouts: clip range %g .. %g: must lie above 0 and enclose 1",
                   1 - o->clip_low, 1 + o->clip_high);
  if (!(o->dual_clip > 1))
    return sl_fail(SL_E_USAGE, "rollouts: dual_clip is %g, must be more than 1", o->dual_clip);
  if (o->updates < 1 || o->ahead < 0 || o->ahead > MOST_AHEAD)
    return sl_fail(SL_E_USAGE,
                   "rollouts: updates is %d, must be at least 1; ahead is %d, must be 0 to 8",
                   o->updates, o->ahead);
  if (!(o->kl >= 0)) return sl_fail(SL_E_USAGE, "rollouts: kl is %g, must not be negative", o->kl);
  return SL_OK;
}

static sl_status check_prompt(const sl_rollouts *r, int64_t i) {
  const sl_prompt *p = &r->options.prompts[i];
  if (p->count < 1 || p->count >= r->context)
    return sl_fail(
        SL_E_USAGE,
        "prompt %lld has %lld tokens: must have at least 1, and fewer than the context of %lld",
        (long long)i + 1, (long long)p->count, (long long)r->context);
  for (int64_t t = 0; t < p->count; t++)
    if (p->tokens[t] < 0 || p->tokens[t] >= r->vocabulary)
      return sl_fail(SL_E_USAGE, "prompt %lld has token %d, but the vocabulary has %lld tokens",
                     (long long)i + 1, p->tokens[t], (long long)r->vocabulary);
  return SL_OK;
}

/* Checks the prompts against the model's context and vocabulary. */
static sl_status check_prompts(sl_rollouts *r) {
  sl_status status = SL_OK;
  r->shortest = r->context;
  for (int64_t i = 0; i < r->options.nprompts && !status; i++) {
    status = check_prompt(r, i);
    r->longest = SLI_MAX(r->longest, r->options.prompts[i].count);
    r->shortest = SLI_MIN(r->shortest, r->options.prompts[i].count);
  }
  return status;
}

/* ---- the session --------------------------------------------------------------------------- */

/* Returns the session's options, before or after its context is known. */
static sl_session_options session_options(const sl_rollouts *r, int64_t answers) {
  enum { MOST_ROWS = 256 };
  const sl_rollouts_options *o = &r->options;
  int64_t rows = SLI_MIN(2 * SLI_MAX(answers, 32), MOST_ROWS);
  if (r->context) rows = SLI_MIN(rows, r->context);
  int sequences = (int)SLI_MAX(SLI_MIN(answers, rows / 2), 1);
  int64_t most = SLI_MIN(r->longest + o->max_tokens, r->context);
  return (sl_session_options){
      .model = o->model,
      .args = o->args,
      .training = o->training,
      .rows = rows,
      .sequences = sequences,
      .pages = r->context ? SLI_MAX(sequences * ((most + SL_PAGE - 1) / SL_PAGE),
                                    (r->context + SL_PAGE - 1) / SL_PAGE)
                          : 0,
      .admit = SL_ADMIT_RESERVE,
      .queue = (int)answers,
      .groups =
          o->ticks ? 1 : 0, /* with more, timing would decide which answers a step truncates */
      .lower = {.parallel.stages = o->stages, .numbers.exact = o->exact}};
}

/* Returns the most ticks that a step's answers can take. Answers run in waves of as many sequences
 * as fit concurrently; prompt chunks take the rows of a tick that decoding leaves. Each token then
 * takes `groups` ticks, since it completes only after all ticks in flight. */
static int most_ticks(const sl_rollouts *r, int groups, int64_t answers) {
  const sl_session_options o = session_options(r, answers);
  int64_t rest = SLI_MAX(o.rows - o.sequences, 1);
  int64_t waves = (answers + o.sequences - 1) / o.sequences;
  int64_t prompts = (o.sequences * r->longest + rest - 1) / rest;
  int64_t tokens = SLI_MIN(r->options.max_tokens, r->context - 1);
  return (int)SLI_MIN(waves * (prompts + groups * (tokens + 1)), 1 << 20);
}

/* Returns the most answers that a device generates in a step. */
static int64_t answers_of(const sli_rollout_device *d) {
  return (int64_t)d->count * d->rollouts->options.updates;
}

static sl_status embed(sli_rollout_device *d, int ticks) {
  const sl_session_options o = session_options(d->rollouts, answers_of(d));
  const sl_session_steps steps = {.ticks = ticks,
                                  .temperature = sli_policy_temperature(&d->rollouts->options),
                                  .begin = sli_rollouts_begin,
                                  .note = sli_rollouts_note,
                                  .ctx = d};
  SLI_TRY(sl_session_embed(&o, &steps, &d->lower, &d->session));
  d->lower.ahead = d->rollouts->options.ahead;
  return SL_OK;
}

/* Creates the first session temporarily to learn the model's context and vocabulary. */
static sl_status find_sizes(sl_rollouts *r, int *groups) {
  sli_rollout_device *d = &r->devices[0];
  SLI_TRY(embed(d, 1));
  sl_session_info about = sl_session_about(d->session);
  r->context = about.context, r->vocabulary = about.vocabulary;
  *groups = about.groups;
  sl_session_destroy(d->session);
  d->session = NULL;
  return SL_OK;
}

/* Distributes the rows over devices, in whole groups if there are enough, so that the prompts of a
 * group share pages. */
static void deal_rows(sl_rollouts *r) {
  int64_t n = r->options.devices, unit = r->options.group, units = r->options.batch / unit;
  if (units < n) unit = 1, units = r->options.batch;
  for (int64_t i = 0; i < n; i++) {
    sli_rollout_device *d = &r->devices[i];
    int64_t begin = (n - i) * units / n, end = (n - i - 1) * units / n; /* the first has the most */
    d->rollouts = r;
    d->first = (int)((units - begin) * unit);
    d->count = (int)((begin - end) * unit);
    d->begun = sli_calloc((size_t)r->kept, sizeof *d->begun);
  }
}

static sl_status make_sessions(sl_rollouts *r) {
  int n = r->options.devices, groups;
  r->devices = sli_calloc((size_t)n, sizeof *r->devices);
  deal_rows(r);
  SLI_TRY(find_sizes(r, &groups));
  SLI_TRY(check_prompts(r));
  int usual = most_ticks(r, groups, answers_of(&r->devices[0])),
      ticks = r->options.ticks ? r->options.ticks : usual;
  for (int i = 0; i < n; i++) SLI_TRY(embed(&r->devices[i], ticks));
  for (int i = 0; i + 1 < n; i++) r->devices[i].lower.next = &r->devices[i + 1].lower;
  return SL_OK;
}

/* ---- interface ----------------------------------------------------------------------------- */

static sl_status create(sl_rollouts *r) {
  settle_options(&r->options);
  SLI_TRY(check_options(&r->options));
  r->kept = 2 * r->options.updates + r->options.ahead + 1;
  SLI_TRY(make_sessions(r));
  r->steps = sli_calloc((size_t)r->kept, sizeof *r->steps);
  r->encoded = sli_calloc((size_t)r->kept, sizeof *r->encoded);
  for (int i = 0; i < r->kept; i++) {
    r->steps[i].step = -1;
    r->steps[i].rows = sli_calloc((size_t)r->options.batch, sizeof(sli_rollout));
  }
  sl_rollouts_set_frames(r, NULL, false);
  sli_rollouts_learn(r);
  return SL_OK;
}

sl_status sl_rollouts_create(const sl_rollouts_options *options, sl_rollouts **out) {
  sl_rollouts *r = sli_calloc(1, sizeof *r);
  r->options = *options;
  pthread_mutex_init(&r->lock, NULL);
  sli_cond_init(&r->changed);
  sl_status status = create(r);
  if (!status) status = sli_memory_check();
  if (!status) {
    *out = r;
    return SL_OK;
  }
  char *detail = sli_strdup(sl_detail());
  sl_rollouts_destroy(r);
  sl_fail(status, "%s", detail);
  free(detail);
  return status;
}

static void free_step(sli_rollout_step *s, int64_t batch) {
  for (int64_t i = 0; s->rows && i < batch; i++) {
    free(s->rows[i].tokens);
    free(s->rows[i].logprobs);
  }
  free(s->rows);
}

void sl_rollouts_destroy(sl_rollouts *r) {
  if (!r) return;
  for (int i = 0; r->devices && i < r->options.devices; i++) {
    sl_session_destroy(r->devices[i].session);
    free(r->devices[i].begun);
  }
  free(r->devices);
  for (int i = 0; r->steps && i < r->kept; i++) free_step(&r->steps[i], r->options.batch);
  free(r->steps);
  free(r->encoded);
  pthread_mutex_destroy(&r->lock);
  pthread_cond_destroy(&r->changed);
  free(r);
}

const sl_objective *sl_rollouts_objective(const sl_rollouts *r) { return &r->objective; }

const sl_rollout_options *sl_rollouts_lower(const sl_rollouts *r) { return &r->devices[0].lower; }

void sl_rollouts_attach(sl_rollouts *r, sl_runtime *rt) {
  pthread_mutex_lock(&r->lock);
  r->rt = rt;
  pthread_mutex_unlock(&r->lock);
}
