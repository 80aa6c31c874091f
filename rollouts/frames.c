/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts with frames.
 *
 * An encoder computes the rows of each prompt of a step once, and all batch rows of that prompt
 * read them. With `apart`, each batch row has its own encoder rows. */
#include "rollouts/rollouts.h"

/* Returns the encoder's index of a batch row's prompt within the step. */
static int64_t encoded_prompt(const sl_rollouts *r, int64_t row) {
  return r->frames.apart ? row : row / r->options.group;
}

/* ---- checks --------------------------------------------------------------------------------- */

static sl_status check_frames(const sl_framed *p, int64_t i, int64_t frames, int64_t total) {
  if (p->count != frames)
    return sl_fail(SL_E_INPUT, "prompt %lld has %lld frames, but the model reads %lld per prompt",
                   (long long)i + 1, (long long)p->count, (long long)frames);
  for (int64_t k = 0; k < frames; k++)
    if (p->frames[k] < 0 || p->frames[k] >= total)
      return sl_fail(SL_E_INPUT, "prompt %lld has frame %lld, but the file has only %lld",
                     (long long)i + 1, (long long)p->frames[k], (long long)total);
  return SL_OK;
}

static sl_status declare(void *ctx, int64_t frames, int64_t total) {
  sl_rollouts *r = ctx;
  const sl_rollouts_options *o = &r->options;
  r->nframes = frames;
  if (o->updates > 1 || o->ahead)
    return sl_fail(SL_E_UNSUPPORTED,
                   "%s: not supported for prompts with frames, which are encoded for one step only",
                   o->ahead ? "rollouts: ahead" : "rollouts: updates");
  for (int64_t i = 0; i < r->options.nprompts; i++)
    SLI_TRY(check_frames(r->framed ? &r->framed[i] : &(sl_framed){0}, i, frames, total));
  return SL_OK;
}

static sl_status check_marks(const sl_prompt *p, int64_t i, int32_t marker, int64_t count) {
  int64_t found = 0;
  for (int64_t t = 0; t < p->count; t++) found += p->tokens[t] == marker;
  if (found == count) return SL_OK;
  return sl_fail(
      SL_E_INPUT,
      "prompt %lld has %lld placeholders for encoder rows (token %d), but the encoder makes %lld",
      (long long)i + 1, (long long)found, marker, (long long)count);
}

/* ---- callbacks ------------------------------------------------------------------------------ */

static void count_frame(sl_rollouts *r, int64_t step) {
  struct sli_rollouts_encoded *e = &r->encoded[step % r->kept];
  pthread_mutex_lock(&r->lock);
  if (e->step != step) *e = (struct sli_rollouts_encoded){.step = step};
  e->frames++;
  pthread_mutex_unlock(&r->lock);
}

static int64_t frame(void *ctx, int64_t step, int64_t prompt, int64_t i) {
  sl_rollouts *r = ctx;
  int64_t row = r->frames.apart ? prompt : prompt * r->options.group;
  count_frame(r, step);
  return r->framed[sli_rollouts_prompt(r, step, row)].frames[i];
}

static sl_tensor *places(void *ctx, int32_t marker, int64_t count) {
  sl_rollouts *r = ctx;
  for (int64_t i = 0; i < r->options.nprompts; i++)
    if (check_marks(&r->options.prompts[i], i, marker, count)) return NULL;
  r->marker = marker;
  r->rows_of_prompt = count;
  return r->data[SLI_ROLLOUTS_PLACES];
}

/* ---- interface ------------------------------------------------------------------------------ */

void sli_rollouts_places(const sl_rollouts *r, const sl_prompt *p, int64_t row, int64_t first,
                         int64_t end, int32_t *out) {
  int64_t next = encoded_prompt(r, row) * r->rows_of_prompt;
  for (int64_t t = 0; t < end; t++) {
    bool marked = t < p->count && r->rows_of_prompt && p->tokens[t] == r->marker;
    if (t >= first) out[t - first] = marked ? (int32_t)next : -1;
    next += marked;
  }
}

sl_status sli_rollouts_submit(const sli_rollout_device *d, const sl_prompt *p, int64_t row,
                              const sl_request *request, uint64_t *id) {
  const sl_rollouts *r = d->rollouts;
  int32_t at[p->count];
  const sl_spliced spliced = {.at = at, .count = r->frames.prompts * r->rows_of_prompt};
  sli_rollouts_places(r, p, row, 0, p->count, at);
  return sl_session_submit_spliced(d->session, request, &spliced, id);
}

int64_t sl_rollouts_frames(const sl_rollouts *r) { return r->nframes; }

int64_t sl_rollouts_encoded(sl_rollouts *r, int64_t step) {
  const struct sli_rollouts_encoded *e = &r->encoded[step % r->kept];
  pthread_mutex_lock(&r->lock);
  int64_t frames = e->step == step ? e->frames : 0;
  pthread_mutex_unlock(&r->lock);
  return frames;
}

void sl_rollouts_set_frames(sl_rollouts *r, const sl_framed *frames, bool apart) {
  const sl_rollouts_options *o = &r->options;
  r->framed = frames;
  r->frames = (sl_prompt_frames){.name = "rollouts",
                                 .prompts = apart ? o->batch : o->batch / o->group,
                                 .apart = apart,
                                 .declare = declare,
                                 .frame = frame,
                                 .places = places,
                                 .ctx = r};
}
