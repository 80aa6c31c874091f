/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a generator's ticks.
 *
 * QUEUE: the ticks of an iteration are the T places of a queue, the newest block first. A block
 * moves on by one place in each iteration and makes one step there, so its next tick is T + 1 ticks
 * later; the block before it was at its place one iteration, T ticks, ago. A place may be empty.
 *
 *     iteration      0        1        2          T = 3
 *     tick          0 1 2    3 4 5    6 7 8
 *     block         0 . .    1 0 .    2 1 0       block 0: ticks 0, 4, 8
 *
 * STREAM: a block makes all its steps in consecutive ticks. */
#include "serve/line.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"

/* ---- clips --------------------------------------------------------------------------------- */

int64_t sli_clip_blocks(const sl_clip *clip, int64_t frames) {
  int64_t first = clip->first ? clip->first : frames;
  return clip->frames <= first ? 1 : 1 + (clip->frames - first + frames - 1) / frames;
}

int64_t sli_block_frames(const sl_clip *clip, int64_t frames, int64_t number, int64_t *first) {
  int64_t begin = clip->first ? clip->first : frames;
  *first = number ? begin + (number - 1) * frames : 0;
  return SLI_MIN(number ? frames : begin, clip->frames - *first);
}

sli_clip *sli_clip_create(const sl_clip *clip, const sl_generation *shape) {
  sli_clip *c = sli_calloc(1, sizeof *c);
  *c = (sli_clip){
      .clip = *clip, .uses = 1, .blocks = sli_clip_blocks(clip, shape->frames), .shape = shape};
  return c;
}

void sli_clip_drop(sli_clip *clip) {
  if (--clip->uses) return;
  free(clip->pool);
  free(clip);
}

/* ---- noise --------------------------------------------------------------------------------- */

static void fill_normal(float *out, size_t count, uint64_t seed) {
  for (size_t i = 0; i < count; i++) {
    uint32_t words[4] = {(uint32_t)i, (uint32_t)(i >> 32), 0x6e6f6973, 0};
    sli_philox(words, seed);
    double u = ((double)words[0] + 1) * 0x1p-32, angle = 6.283185307179586 * words[1] * 0x1p-32;
    out[i] = (float)(sqrt(-2 * log(u)) * cos(angle));
  }
}

/* Shuffles all frames but the last `context`, which come first from then on. */
static void renew(sli_clip *c) {
  const sl_generation *s = c->shape;
  size_t frame = (size_t)(s->patches * s->channels), bytes = frame * sizeof(float);
  int64_t all = s->frames + s->context;
  float *next = sli_calloc((size_t)all * frame, sizeof *next);
  int64_t order[s->frames];
  for (int64_t i = 0; i < s->frames; i++) order[i] = i;
  for (int64_t i = s->frames - 1; i > 0; i--) {
    uint32_t words[4] = {(uint32_t)i, (uint32_t)c->noised, 0x73687566, 0};
    sli_philox(words, c->clip.seed);
    int64_t other = (int64_t)(words[0] % (uint32_t)(i + 1)), kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
  memcpy(next, c->pool + (size_t)s->frames * frame, (size_t)s->context * bytes);
  for (int64_t i = 0; i < s->frames; i++)
    memcpy(next + (size_t)(s->context + i) * frame, c->pool + (size_t)order[i] * frame, bytes);
  free(c->pool);
  c->pool = next;
}

void sli_clip_noise(sli_clip *c, int64_t number, float *out) {
  const sl_generation *s = c->shape;
  size_t frame = (size_t)(s->patches * s->channels);
  int64_t first, own = sli_block_frames(&c->clip, s->frames, number, &first);
  if (!c->pool) {
    size_t count = (size_t)(s->frames + s->context) * frame;
    c->pool = sli_calloc(count, sizeof *c->pool);
    fill_normal(c->pool, count, c->clip.seed);
  }
  for (; c->noised < number; c->noised++) renew(c);
  memcpy(out, c->pool + (size_t)(s->frames + s->context - own) * frame,
         (size_t)own * frame * sizeof *out);
}

/* ---- the line ------------------------------------------------------------------------------ */

void sli_block_line_settle(sl_clip_order order, int steps, sl_generation *shape) {
  shape->steps = steps;
  shape->lag = order == SL_CLIPS_QUEUE ? steps + 1 : 1;
  shape->near = order == SL_CLIPS_QUEUE ? steps : 1;
}

void sli_block_line_init(sli_block_line *l, sl_clip_order order, int steps, float guidance,
                         const sl_generation *shape) {
  *l = (sli_block_line){.order = order, .steps = steps, .guidance = guidance, .shape = shape};
  l->ring = sli_calloc((size_t)shape->lag, sizeof *l->ring);
}

void sli_block_line_fini(sli_block_line *l) {
  for (int i = 0; l->ring && i < l->shape->lag; i++)
    if (l->ring[i].clip) sli_clip_drop(l->ring[i].clip);
  for (sli_clip *c = l->first, *next; c; c = next) {
    next = c->next;
    sli_clip_drop(c);
  }
  free(l->ring);
}

static bool is_wanted(const sli_block_line *l, const sli_block_at *b) {
  return b->clip && !b->clip->cancelled && b->step + 1 < l->steps;
}

bool sli_block_line_busy(const sli_block_line *l) {
  bool busy = l->first;
  for (int i = 0; i < l->shape->lag && !busy; i++) busy = is_wanted(l, &l->ring[i]);
  return busy;
}

/* Returns the block that enters, if a clip has one. */
static sli_block_at enter(sli_block_line *l) {
  sli_block_at b = {0};
  while (l->first && (l->first->cancelled || l->first->entered == l->first->blocks)) {
    sli_clip *c = l->first;
    l->first = c->next;
    sli_clip_drop(c);
  }
  if (!l->first) return b;
  b = (sli_block_at){l->first, l->first->entered++, 0};
  b.clip->uses++;
  return b;
}

static const sli_block_at *block_before(const sli_block_line *l, int64_t ticks) {
  return l->tick < ticks ? NULL : &l->ring[(l->tick - ticks) % l->shape->lag];
}

/* Returns the block of a tick: the one of `lag` ticks ago, a step further, or one that enters. */
static sli_block_at choose(sli_block_line *l) {
  sli_block_at before = l->ring[l->tick % l->shape->lag], none = {0};
  bool enters = l->order == SL_CLIPS_QUEUE ? l->tick % l->steps == 0 : !is_wanted(l, &before);
  if (before.clip && (enters || !is_wanted(l, &before))) {
    sli_clip_drop(before.clip);
    before = none;
  }
  if (enters) return enter(l);
  before.step++;
  return before.clip ? before : none;
}

static int32_t frames_of(const sli_block_line *l, const sli_block_at *b) {
  int64_t first;
  return (int32_t)sli_block_frames(&b->clip->clip, l->shape->frames, b->number, &first);
}

/* Returns the context of a block: the last frames of the one before. */
static int32_t context_of(const sli_block_line *l, const sli_block_at *b) {
  if (!b->number) return 0;
  const sli_block_at before = {b->clip, b->number - 1, 0};
  return SLI_MIN((int32_t)l->shape->context, frames_of(l, &before));
}

static bool is_next_block(const sli_block_at *b, const sli_block_at *other) {
  return other && other->clip == b->clip && other->number == b->number + 1;
}

static void describe(const sli_block_line *l, const sli_block_at *b,
                     const sli_block_at *tick_before, sl_generation_tick *t) {
  bool queue = l->order == SL_CLIPS_QUEUE;
  const sli_block_at before = {b->clip, b->number - 1, 0};
  *t = (sl_generation_tick){
      .own = frames_of(l, b),
      .context = context_of(l, b),
      .fresh = !b->step,
      .from_near = queue || !b->step,
      .done = b->step + 1 == l->steps,
      .label = b->clip->clip.label < 0 ? l->shape->classes : b->clip->clip.label,
      .none = l->shape->classes,
      .level = 1 - (float)b->step / (float)l->steps,
      .next = 1 - (float)(b->step + 1) / (float)l->steps,
      .guidance = l->guidance};
  t->was_context = t->context;
  if (b->number) t->near_frames = frames_of(l, &before) + context_of(l, &before);
  if (queue && is_next_block(b, tick_before))
    t->ahead = SLI_MIN((int32_t)l->shape->context, frames_of(l, tick_before));
  sl_generation_features(t->level, t->features);
}

sli_block_at sli_block_line_next(sli_block_line *l, sl_generation_tick *out) {
  const sli_block_at none = {0}, *before = block_before(l, 1);
  sli_block_at last = before && l->shape->lag > 1 ? *before : none;
  sli_block_at b = choose(l);
  *out = (sl_generation_tick){0};
  if (b.clip) describe(l, &b, last.clip ? &last : NULL, out);
  l->ring[l->tick++ % l->shape->lag] = b;
  return b;
}
