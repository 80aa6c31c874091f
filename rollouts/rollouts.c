/* SPDX-License-Identifier: Apache-2.0 */
/* Rollouts: options, the session, and the objective. */
#include "rollouts/rollouts.h"

#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"

/* ---- options ------------------------------------------------------------------------------- */

static void settle_options(sl_rollouts_options *o) {
  if (!o->group) o->group = 8;
  if (!o->microbatches) o->microbatches = 1;
  if (!o->max_tokens) o->max_tokens = 256;
  if (o->clip_low == 0) o->clip_low = 0.2;
  if (o->clip_high == 0) o->clip_high = o->clip_low;
  if (o->dual_clip == 0) o->dual_clip = 3;
}

static sl_status check_options(const sl_rollouts_options *o) {
  if (o->group < 2)
    return sl_fail(SL_E_USAGE,
                   "rollouts: a group of %d answers: rewards are compared within a "
                   "group, of at least 2",
                   o->group);
  if (o->batch < 1 || o->batch % o->group)
    return sl_fail(SL_E_USAGE, "rollouts: a step of %lld rows is not a multiple of a group of %d",
                   (long long)o->batch, o->group);
  if (o->nprompts < 1) return sl_fail(SL_E_USAGE, "rollouts: there are no prompts");
  if (o->max_tokens < 1)
    return sl_fail(SL_E_USAGE, "rollouts: answers of %lld tokens", (long long)o->max_tokens);
  if (!(o->clip_low > 0 && o->clip_low < 1 && o->clip_high > 0))
    return sl_fail(SL_E_USAGE, "rollouts: ratios cannot be clipped to %g .. %g", 1 - o->clip_low,
                   1 + o->clip_high);
  if (!(o->dual_clip > 1))
    return sl_fail(SL_E_USAGE, "rollouts: a dual clip of %g: it must be more than 1", o->dual_clip);
  if (!(o->kl >= 0)) return sl_fail(SL_E_USAGE, "rollouts: a kl of %g", o->kl);
  return SL_OK;
}

static sl_status check_prompt(const sl_rollouts *r, int64_t i) {
  const sl_prompt *p = &r->options.prompts[i];
  int64_t vocabulary = sl_session_about(r->session).vocabulary;
  if (p->count < 1 || p->count >= r->context)
    return sl_fail(SL_E_USAGE, "prompt %lld has %lld tokens, in a context of %lld",
                   (long long)i + 1, (long long)p->count, (long long)r->context);
  for (int64_t t = 0; t < p->count; t++)
    if (p->tokens[t] < 0 || p->tokens[t] >= vocabulary)
      return sl_fail(SL_E_USAGE, "prompt %lld has token %d: the vocabulary has %lld",
                     (long long)i + 1, p->tokens[t], (long long)vocabulary);
  return SL_OK;
}

/* Checks the prompts against the model, which the session knows. */
static sl_status check_prompts(sl_rollouts *r) {
  sl_status status = SL_OK;
  for (int64_t i = 0; i < r->options.nprompts && !status; i++) {
    status = check_prompt(r, i);
    r->longest = SLI_MAX(r->longest, r->options.prompts[i].count);
  }
  return status;
}

/* ---- the session --------------------------------------------------------------------------- */

/* Most ticks that a step's answers can take: waves of as many answers as go on at once, each with
 * its prompts in chunks of half a tick. A token then takes as many ticks as there are under way,
 * for it comes back when they do. */
static int most_ticks(const sl_rollouts *r, const sl_session_info *session) {
  const sl_rollouts_options *o = &r->options;
  int64_t sequences = session->sequences, half = SLI_MAX(session->rows - sequences, 1);
  int64_t waves = (o->batch + sequences - 1) / sequences;
  int64_t prompts = (sequences * r->longest + half - 1) / half;
  int64_t tokens = SLI_MIN(o->max_tokens, r->context - 1);
  return (int)SLI_MIN(waves * (prompts + session->groups * (tokens + 1)), 1 << 20);
}

/* Options of the session, before and after its context is known. */
static sl_session_options session_options(const sl_rollouts *r) {
  enum { MOST_ROWS = 256 };
  const sl_rollouts_options *o = &r->options;
  int64_t rows = SLI_MIN(2 * SLI_MAX(o->batch, 32), MOST_ROWS);
  if (r->context) rows = SLI_MIN(rows, r->context);
  int sequences = (int)SLI_MAX(SLI_MIN(o->batch, rows / 2), 1);
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
      .queue = (int)o->batch,
      .groups =
          o->ticks ? 1 : 0, /* else timing would decide which answers a step is too short for */
      .lower = {.parallel.stages = o->stages}};
}

/* Makes the session twice: the first one knows the model's context. */
static sl_status make_session(sl_rollouts *r) {
  sl_session_options o = session_options(r);
  sl_session_steps steps = {
      .ticks = 1, .begin = sli_rollouts_begin, .note = sli_rollouts_note, .ctx = r};
  sl_status status = sl_session_embed(&o, &steps, &r->lower, &r->session);
  if (status) return status;
  r->context = sl_session_about(r->session).context;
  status = check_prompts(r);
  if (status) return status;
  sl_session_info about = sl_session_about(r->session);
  sl_session_destroy(r->session);
  r->session = NULL;
  o = session_options(r);
  steps.ticks = r->options.ticks ? r->options.ticks : most_ticks(r, &about);
  return sl_session_embed(&o, &steps, &r->lower, &r->session);
}

/* ---- interface ----------------------------------------------------------------------------- */

static sl_status create(sl_rollouts *r) {
  settle_options(&r->options);
  sl_status status = check_options(&r->options);
  if (!status) status = make_session(r);
  if (status) return status;
  for (int i = 0; i < SLI_ROLLOUT_STEPS; i++) {
    r->steps[i].step = -1;
    r->steps[i].rows = sli_calloc((size_t)r->options.batch, sizeof(sli_rollout));
  }
  sli_rollouts_learn(r);
  return SL_OK;
}

sl_status sl_rollouts_create(const sl_rollouts_options *options, sl_rollouts **out) {
  sl_rollouts *r = sli_calloc(1, sizeof *r);
  r->options = *options;
  pthread_mutex_init(&r->lock, NULL);
  sli_cond_init(&r->changed);
  sl_status status = create(r);
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
  sl_session_destroy(r->session);
  for (int i = 0; i < SLI_ROLLOUT_STEPS; i++) free_step(&r->steps[i], r->options.batch);
  pthread_mutex_destroy(&r->lock);
  pthread_cond_destroy(&r->changed);
  free(r);
}

const sl_objective *sl_rollouts_objective(const sl_rollouts *r) { return &r->objective; }

const sl_rollout_options *sl_rollouts_lower(const sl_rollouts *r) { return &r->lower; }

void sl_rollouts_attach(sl_rollouts *r, sl_runtime *rt) {
  pthread_mutex_lock(&r->lock);
  r->rt = rt;
  pthread_mutex_unlock(&r->lock);
}
