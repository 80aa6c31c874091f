/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products on tiles, in bf16 and in f32.
 *
 * C is cut into chunks by its shape alone. A chunk has up to HEIGHT rows, and as many columns as
 * keep their panels of B in the L2 cache, while a strip of A stays in L1. Chunks follow each other
 * down the columns, so that a thread finds the panels in its cache.
 *
 * Memory bounds these products, so each operand is read once. In bf16, a chunk that covers all rows
 * rounds its panels of B itself, so a weight moves only from memory to the processor. Otherwise all
 * of B is rounded beforehand, or by op pack. In the same way, a chunk that covers all columns
 * rounds A. In f32 each chunk splits both operands (vector/split.h).
 *
 * The sum of an element of C runs along k from one end to the other, whatever the chunks are. */
#include "kernels/cpu/tiles.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/room.h"
#include "ops/ops.h"

enum { HEIGHT = 256, WIDTH = 384, PANELS_NUMBERS = 640 << 10, FEWEST_CHUNKS = 8, LEAST = 64 };
enum { LARGE_NUMBERS = 256 << 10 }; /* numbers of C that exceed the private cache of a core */
enum { DEPTH = 4096 }; /* length along k of a bf16 stretch; longer products accumulate in C */

bool sli_has_tiles(void) { return sli_cpu()->bf16 || sli_cpu_is_set("SLUICE_CPU_BF16", "tiles"); }

static int64_t up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

static int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

typedef struct cut {
  int64_t height, width; /* size of a chunk; the width is in whole panels */
  int64_t down, across;  /* number of chunks */
} cut;

static cut cut_of(const sli_product_shape *s, int64_t rows) {
  int64_t depth = SLI_MIN(up(s->k, SLI_STRIP), s->bf16 ? DEPTH : SLI_DEPTH),
          panels = PANELS_NUMBERS / depth / SLI_STRIP;
  int64_t down = pieces(s->m, HEIGHT), across = pieces(s->n, SLI_MIN(WIDTH, panels * SLI_STRIP));
  if (down * across < FEWEST_CHUNKS)
    across = SLI_MAX(across, SLI_MIN(pieces(FEWEST_CHUNKS, down), s->n / LEAST));
  if (down * across < FEWEST_CHUNKS)
    down = SLI_MAX(down, SLI_MIN(pieces(FEWEST_CHUNKS, across), s->m / LEAST));
  cut c = {.height = up(pieces(s->m, down), SLI_STRIP),
           .width = up(pieces(s->n, across), SLI_STRIP)};
  c.down = pieces(rows, c.height);
  c.across = pieces(s->n, c.width);
  return c;
}

typedef struct run {
  const sli_product_shape *shape;
  cut cut;
  int64_t rows;
  bool add;
  const float *a, *b, *bias;
  const uint16_t *strips; /* all of A; NULL: each chunk makes the strips it needs */
  const uint16_t *panels; /* all of B; NULL: each chunk makes the panels it needs */
  float *c;
} run;

/* Return true if A's strips, or B's panels, are prepared before the chunks run. */
static bool strips_first(const sli_product_shape *s) {
  return s->bf16 && (s->a_transposed || cut_of(s, s->m).width < s->n);
}
static bool panels_first(const sli_product_shape *s) {
  return s->bf16 && !s->b_packed && cut_of(s, s->m).height < s->m;
}

static size_t ordered_bytes(int64_t rows, int64_t k) {
  return (size_t)(up(rows, SLI_STRIP) * sli_turned_row(k)) * sizeof(uint16_t);
}
static size_t strips_bytes(const sli_product_shape *s) {
  return strips_first(s) ? ordered_bytes(s->m, s->k) : 0;
}
static size_t panels_bytes(const sli_product_shape *s) {
  return panels_first(s) ? ordered_bytes(s->n, s->k) : 0;
}

size_t sli_tiles_scratch(const sli_product_shape *s) { return strips_bytes(s) + panels_bytes(s); }

/* Return the turning of some rows of A, or columns of B, from step k on. */
static sli_turning strips_of(const run *r, int64_t row, int64_t rows, int64_t k, int64_t steps,
                             void *to) {
  const sli_product_shape *s = r->shape;
  int64_t at = s->a_transposed ? k * s->m + row : row * s->k + k;
  return (sli_turning){.from = r->a + at,
                       .row = s->a_transposed ? s->m : s->k,
                       .k = steps,
                       .n = rows,
                       .block = SLI_STRIP,
                       .turned = !s->a_transposed,
                       .strips = true,
                       .to = to};
}
static sli_turning panels_of(const run *r, int64_t column, int64_t columns, int64_t k,
                             int64_t steps, void *to) {
  const sli_product_shape *s = r->shape;
  int64_t at = s->b_transposed ? column * s->k + k : k * s->n + column;
  return (sli_turning){.from = r->b + at,
                       .row = s->b_transposed ? s->k : s->n,
                       .k = steps,
                       .n = columns,
                       .block = SLI_STRIP,
                       .turned = s->b_transposed,
                       .to = to};
}

/* Reorders on this thread. */
static const uint16_t *order(sli_chunk_fn *into, sli_turning t) {
  for (int i = 0; i < sli_turn_chunks(&t); i++) into(&t, i);
  return t.to;
}

/* Rounds and multiplies strips one by one. */
static void round_and_multiply(const run *r, sli_tiles t, int64_t row, int64_t k, int64_t steps) {
  void *room = sli_room(SLI_ROOM_STRIP, ordered_bytes(SLI_STRIP, DEPTH));
  for (int64_t end = row + t.rows; row < end; row += SLI_STRIP, t.c += SLI_STRIP * t.c_row) {
    t.rows = SLI_MIN(end - row, SLI_STRIP);
    t.a = order(sli_cpu()->turn_bf16, strips_of(r, row, t.rows, k, steps, room));
    sli_cpu()->tile_product(&t, 0);
  }
}

static bool streams(const run *r) {
  return r->shape->cold && r->shape->m * r->shape->n >= LARGE_NUMBERS && !r->add;
}

static void multiply_chunk(void *arg, int i) {
  const run *r = arg;
  const sli_product_shape *s = r->shape;
  int64_t whole = sli_turned_row(s->k) * SLI_STRIP;
  int64_t row = i % r->cut.down * r->cut.height, column = i / r->cut.down * r->cut.width;
  sli_tiles t = {.rows = SLI_MIN(r->cut.height, r->rows - row),
                 .columns = SLI_MIN(r->cut.width, s->n - column),
                 .c = r->c + row * s->n + column,
                 .c_row = s->n,
                 .bias = r->bias ? r->bias + column : NULL,
                 .streams = streams(r) && s->k <= DEPTH};
  size_t bytes = ordered_bytes(t.columns, SLI_MIN(s->k, DEPTH));
  for (int64_t k = 0, steps; k < s->k; k += steps) {
    steps = SLI_MIN(s->k - k, DEPTH);
    t.k = sli_turned_row(steps);
    t.adds = r->add || k > 0;
    t.b_panel = r->panels ? whole : t.k * SLI_STRIP;
    t.b = r->panels ? r->panels + column / SLI_STRIP * whole + k * SLI_STRIP
                    : order(sli_cpu()->pack_bf16, panels_of(r, column, t.columns, k, steps,
                                                            sli_room(SLI_ROOM_PANELS, bytes)));
    if (!r->strips) {
      round_and_multiply(r, t, row, k, steps);
      continue;
    }
    t.a_strip = whole;
    t.a = r->strips + row / SLI_STRIP * whole + k * SLI_STRIP;
    sli_cpu()->tile_product(&t, 0);
  }
}

/* Multiplies a chunk in f32 and splits both operands on the way. The parts take more memory than
 * the operands, and splitting is faster than fetching them. */
static void split_and_multiply_chunk(void *arg, int i) {
  const run *r = arg;
  const sli_product_shape *s = r->shape;
  int64_t row = i % r->cut.down * r->cut.height, column = i / r->cut.down * r->cut.width;
  size_t strip = SLI_STRETCH_NUMBERS * sizeof(uint16_t),
         panels = (size_t)sli_strips(r->cut.width) * strip;
  size_t sums = (size_t)(r->cut.height * r->cut.width) * sizeof(float);
  sli_split_product p = {.a = {.from = r->a + (s->a_transposed ? row : row * s->k),
                               .row = s->a_transposed ? s->m : s->k,
                               .lines = SLI_MIN(r->cut.height, r->rows - row),
                               .along_k = !s->a_transposed,
                               .room = sli_room(SLI_ROOM_STRIP, 2 * strip)},
                         .b = {.from = r->b + (s->b_transposed ? column * s->k : column),
                               .row = s->b_transposed ? s->k : s->n,
                               .lines = SLI_MIN(r->cut.width, s->n - column),
                               .along_k = s->b_transposed,
                               .room = sli_room(SLI_ROOM_PANELS, 2 * panels)},
                         .k = s->k,
                         .c = r->c + row * s->n + column,
                         .c_row = s->n,
                         .adds = r->add,
                         .bias = r->bias ? r->bias + column : NULL,
                         .streams = streams(r),
                         .sums = s->k > SLI_DEPTH ? sli_room(SLI_ROOM_SUMS, sums) : NULL};
  sli_cpu()->split_product(&p, 0);
}

static const uint16_t *order_all(struct sl_team *team, sli_chunk_fn *into, sli_turning t) {
  sl_team_for(team, sli_turn_chunks(&t), into, &t);
  return t.to;
}

static run run_of(const sli_product_shape *s, int64_t rows, bool add, const float *a,
                  const float *b, const float *bias, float *c) {
  return (run){.shape = s,
               .cut = cut_of(s, rows),
               .rows = rows,
               .add = add,
               .a = a,
               .b = b,
               .bias = bias,
               .c = c};
}

void sli_tiles_multiply(const sli_product_shape *s, struct sl_team *team, int64_t rows, bool add,
                        const float *a, const void *b, const float *bias, float *c, void *scratch) {
  run r = run_of(s, rows, add, a, b, bias, c);
  if (strips_first(s))
    r.strips = order_all(team, sli_cpu()->turn_bf16, strips_of(&r, 0, rows, 0, s->k, scratch));
  if (s->b_packed) r.panels = b;
  else if (panels_first(s))
    r.panels = order_all(team, sli_cpu()->pack_bf16,
                         panels_of(&r, 0, s->n, 0, s->k, (char *)scratch + strips_bytes(s)));
  sl_team_for(team, (int)(r.cut.down * r.cut.across),
              s->bf16 ? multiply_chunk : split_and_multiply_chunk, &r);
}

int sli_tiles_chunks(const sli_product_shape *s) {
  cut c = cut_of(s, s->m);
  return (int)(c.down * c.across);
}

void sli_tiles_multiply_chunk(const sli_product_shape *s, bool add, const float *a, const float *b,
                              const float *bias, float *c, int chunk) {
  run r = run_of(s, s->m, add, a, b, bias, c);
  split_and_multiply_chunk(&r, chunk);
}
