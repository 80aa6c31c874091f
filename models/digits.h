/* SPDX-License-Identifier: Apache-2.0 */
/* Clips of digits that stand or move, as data of models of frames. */
#ifndef SLUICE_MODELS_DIGITS_H
#define SLUICE_MODELS_DIGITS_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <sluice/sluice.h>

enum { DIGIT = 8, PIXELS = DIGIT * DIGIT, RECORD = PIXELS + 1, CLASSES = 10 };
enum { HELD_OUT = 6 /* every sixth digit is held out */ };
enum { NEIGHBOURS = 8 /* steps between the noise of a block and of its neighbours in training */ };

/* Options of models of clips. */
/* clang-format off */
#define CLIP_OPTIONS \
    {"data", SL_OPTION_TEXT, "", "`FILE` of digits: records of 64 pixels, 0 to 16, and a class " \
     "(examples/digits.u8)", 0, 0}, \
    {"side", SL_OPTION_INT, "8", "pixels along a frame; 8: still digits, more: digits move", 8, 64}, \
    {"frames", SL_OPTION_INT, "1", "frames of a block", 1, 256}, \
    {"context-frames", SL_OPTION_INT, "0", "frames of the blocks before and after that a block " \
     "sees", 0, 256}, \
    {"context", SL_OPTION_TEXT, "queue", "`KIND` of context: queue (the block before has a little " \
     "less noise, the one after a little more), or clean (the block before is done)", 0, 0}, \
    {"batch", SL_OPTION_INT, "64", "clips per step", 1, 1 << 20}, \
    {"no-class", SL_OPTION_FLOAT, "0.1", "fraction of clips without their class, for guidance", 0, 1}
/* clang-format on */

/* Sizes of clips. A clip has `frames` of its own, after `context` frames of the block before and
 * before `after` frames of the block after. */
typedef struct clip_shape {
  int64_t rows, side, patch, frames, context, after;
  int64_t seen, patches; /* frames in all; patches of a frame */
  bool clean;            /* the context is clean; else it has a little less noise than the frames */
  bool blank;            /* a context that says nothing is 0; else noise */
  bool sharp;            /* frames come at twice the resolution too */
  float no_class;        /* fraction without a class */
} clip_shape;

/* Reads the sizes, without `after` and the patches. */
static clip_shape read_clip_shape(sl_graph *g, const sl_args *args, const char *model) {
  const char *context = sl_arg_text(args, "context");
  clip_shape s = {.rows = sl_microbatch_rows(g, sl_arg_int(args, "batch")),
                  .side = sl_arg_int(args, "side"),
                  .frames = sl_arg_int(args, "frames"),
                  .context = sl_arg_int(args, "context-frames"),
                  .clean = !strcmp(context, "clean"),
                  .no_class = (float)sl_arg_float(args, "no-class")};
  s.seen = s.context + s.frames;
  if (!s.clean && strcmp(context, "queue"))
    sl_graph_fail(g, SL_E_USAGE, "%s: --context %s: must be queue or clean", model, context);
  if (s.context > s.frames)
    sl_graph_fail(g, SL_E_USAGE, "%s: --context-frames %lld: a block has only --frames %lld", model,
                  (long long)s.context, (long long)s.frames);
  return s;
}

enum { NOISED, VELOCITY, FEATURES, LABELS, CLEAN, SHARP, OUTPUTS };

typedef struct clips {
  sl_source source;
  sl_type types[OUTPUTS];
  clip_shape shape;
  int64_t count; /* digits in the file */
  unsigned char *records;
} clips;

/* Random numbers of one clip (SplitMix64: Steele et al., OOPSLA 2014). */
typedef struct randoms {
  uint64_t state;
} randoms;

static uint64_t draw(randoms *r) {
  uint64_t z = r->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static float uniform(randoms *r) { return (float)(draw(r) >> 40) * 0x1p-24f; }
static float normal(randoms *r) {
  float u = 1 - uniform(r), angle = 6.2831853f * uniform(r);
  return sqrtf(-2 * logf(u)) * cosf(angle);
}

/* A digit on its way: place and speed along both axes. */
typedef struct flight {
  const unsigned char *record;
  int64_t place[2], speed[2], room;
} flight;

static flight take_off(const clips *c, randoms *r, bool held_out) {
  int64_t n = c->count / HELD_OUT,
          pick = (int64_t)(draw(r) % (uint64_t)(held_out ? n : c->count - n));
  int64_t at = held_out ? pick * HELD_OUT + HELD_OUT - 1
                        : pick / (HELD_OUT - 1) * HELD_OUT + pick % (HELD_OUT - 1);
  flight f = {.record = c->records + at * RECORD, .room = c->shape.side - DIGIT};
  do
    for (int d = 0; d < 2; d++) {
      f.place[d] = f.room ? (int64_t)(draw(r) % (uint64_t)(f.room + 1)) : 0;
      f.speed[d] = f.room ? (int64_t)(draw(r) % 3) - 1 : 0;
    }
  while (f.room && !f.speed[0] && !f.speed[1]);
  return f;
}

static void fly(flight *f) {
  for (int d = 0; d < 2; d++) {
    int64_t next = f->place[d] + f->speed[d];
    if (next < 0 || next > f->room) f->speed[d] = -f->speed[d];
    f->place[d] += f->speed[d];
  }
}

/* Returns a pixel of the frame, -1 to 1; -1 beside the digit. */
static float pixel(const flight *f, int64_t row, int64_t column) {
  row -= f->place[0], column -= f->place[1];
  bool in = row >= 0 && row < DIGIT && column >= 0 && column < DIGIT;
  return in ? (float)f->record[row * DIGIT + column] / 8 - 1 : -1;
}

/* Fills a frame patch by patch, and at twice the resolution row by row: means of the nearest
 * pixels. */
static void fill_frame(const clip_shape *s, const flight *f, float *tokens, float *sharp) {
  int64_t across = s->side / s->patch;
  for (int64_t i = 0; i < s->side * s->side; i++) {
    int64_t row = i / s->side, column = i % s->side;
    tokens[((row / s->patch * across + column / s->patch) * s->patch + row % s->patch) * s->patch +
           column % s->patch] = pixel(f, row, column);
  }
  for (int64_t i = 0; sharp && i < 4 * s->side * s->side; i++) {
    int64_t row = i / (2 * s->side), column = i % (2 * s->side);
    int64_t below = row / 2 + (row % 2 ? 1 : -1), beside = column / 2 + (column % 2 ? 1 : -1);
    sharp[i] = 0.5625f * pixel(f, row / 2, column / 2) + 0.1875f * pixel(f, below, column / 2) +
               0.1875f * pixel(f, row / 2, beside) + 0.0625f * pixel(f, below, beside);
  }
}

/* Returns the noise level of a frame, `own` that of the block's own frames. In training half of the
 * contexts say nothing or are like the own frames, as where a video begins. */
static float level_of(const clip_shape *s, int64_t frame, float own, int kind) {
  const float apart = 1.0f / NEIGHBOURS;
  if (frame >= s->context + s->frames) return kind ? fminf(own + apart, 1) : 1;
  if (frame >= s->context) return own;
  if (!kind) return 1;
  if (kind == 1) return own;
  return s->clean ? 0 : fmaxf(own - apart, 0);
}

static void fill_clip(const clips *c, int64_t number, bool held_out, int64_t row,
                      void *const *out) {
  const clip_shape *s = &c->shape;
  int64_t frame = s->patches * s->patch * s->patch, own = s->frames * frame;
  randoms r = {(uint64_t)number * 0x2545f4914f6cdd1du + held_out};
  flight f = take_off(c, &r, held_out);
  float level = 1 / (1 + expf(-normal(&r))), clean[frame];
  int kind = (int)(draw(&r) % 4);
  float *x = (float *)out[NOISED] + row * s->seen * frame, *v = (float *)out[VELOCITY] + row * own;
  float *z = s->sharp ? out[CLEAN] : NULL, *sharp = s->sharp ? out[SHARP] : NULL;
  if (z) z += row * own;
  if (sharp) sharp += row * s->frames * 4 * s->side * s->side;
  for (int64_t i = 0; i < s->seen; i++, fly(&f)) {
    int64_t nth = i - s->context;
    bool mine = nth >= 0 && nth < s->frames;
    float noisy = level_of(s, i, level, kind);
    fill_frame(s, &f, clean, mine && sharp ? sharp + nth * 4 * s->side * s->side : NULL);
    for (int64_t p = 0; p < frame; p++) {
      float noise = normal(&r);
      x[i * frame + p] = s->blank && !kind && !mine ? 0 : (1 - noisy) * clean[p] + noisy * noise;
      if (mine) v[nth * frame + p] = noise - clean[p];
      if (mine && z) z[nth * frame + p] = clean[p];
    }
  }
  sl_generation_features(level, (float *)out[FEATURES] + row * SL_GENERATION_FEATURES);
  bool known = uniform(&r) >= s->no_class;
  ((int32_t *)out[LABELS])[row] = known ? f.record[PIXELS] : CLASSES;
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  const clips *c = ctx;
  for (int64_t i = 0; i < c->shape.rows; i++)
    fill_clip(c, tick->number * c->shape.rows + i, false, i, out);
}

static void fill_held_out(void *ctx, const sl_tick *tick, void *const *out) {
  const clips *c = ctx;
  for (int64_t i = 0; i < c->shape.rows; i++)
    fill_clip(c, tick->microbatch * c->shape.rows + i, true, i, out);
}

static void read_file(sl_graph *g, clips *c, const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) {
    sl_graph_fail(g, SL_E_INPUT, "digits: no file %s (--data)", path);
    return;
  }
  fseek(file, 0, SEEK_END);
  long bytes = ftell(file);
  c->count = bytes > 0 ? bytes / RECORD : 0;
  c->records = sl_graph_alloc(g, (size_t)c->count * RECORD + 1);
  rewind(file);
  bool fine = fread(c->records, RECORD, (size_t)c->count, file) == (size_t)c->count;
  for (int64_t i = 0; i < c->count; i++) fine &= c->records[i * RECORD + PIXELS] < CLASSES;
  if (!fine || c->count < 2 * HELD_OUT || bytes % RECORD)
    sl_graph_fail(g, SL_E_INPUT, "digits: %s has no records of 64 pixels and a class", path);
  fclose(file);
}

static clips *make_clips(sl_graph *g, const sl_args *args, const clip_shape *s) {
  clips *c = sl_graph_alloc(g, sizeof *c);
  int outputs = s->sharp ? OUTPUTS : CLEAN;
  c->shape = *s;
  c->types[NOISED] = SL_TYPE(SL_F32, s->rows, s->seen * s->patches, s->patch * s->patch);
  c->types[VELOCITY] = SL_TYPE(SL_F32, s->rows, s->frames * s->patches, s->patch * s->patch);
  c->types[FEATURES] = SL_TYPE(SL_F32, s->rows, SL_GENERATION_FEATURES);
  c->types[LABELS] = SL_TYPE(SL_I32, s->rows);
  c->types[CLEAN] = SL_TYPE(SL_F32, s->rows, s->frames, s->patches * s->patch * s->patch);
  c->types[SHARP] = SL_TYPE(SL_F32, s->rows, s->frames, 4 * s->side * s->side);
  c->source = (sl_source){.nout = outputs,
                          .types = c->types,
                          .fill = fill,
                          .ctx = c,
                          .fill_held_out = fill_held_out,
                          .held_out = s->rows ? (int)(1024 / s->rows) + 1 : 0};
  read_file(g, c, sl_arg_text(args, "data"));
  return c;
}

#endif
