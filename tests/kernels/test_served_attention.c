/* SPDX-License-Identifier: Apache-2.0 */
/* Paged attention matches a plain sum over all visible keys, for a KV cache in f32, bf16, fp8 and
 * Q8_0, on every CPU level. One query at a time and chunks of a prompt give the same bits,
 * regardless of the contents of hidden positions.
 * labels: random */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/served.h"
#include "tests/support/rng.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 1 };
#else
enum { SEEDS = 6 };
#endif
enum { SEQUENCES = 2, LONGEST = 150, SEQUENCE_PAGES = 3, PAGES = 7, MOST_HEADS = 6, MOST_DIM = 72 };
enum { MOST_WIDTH = MOST_HEADS * MOST_DIM, MOST_ROWS = SEQUENCES * LONGEST };

typedef struct shape {
  int64_t heads, kv_heads, dim, behind, shown, length[SEQUENCES];
  sl_storage storage;
} shape;

static float q[SEQUENCES][LONGEST * MOST_WIDTH], k[SEQUENCES][LONGEST * MOST_WIDTH],
    v[SEQUENCES][LONGEST * MOST_WIDTH];
static float whole[SEQUENCES][LONGEST * MOST_WIDTH], parts[SEQUENCES][LONGEST * MOST_WIDTH];
static _Alignas(
    64) unsigned char pages[PAGES * MOST_HEADS * 2 * SL_PAGE * MOST_DIM * sizeof(float)];

/* Fills many values from one random draw. */
static void fill(float (*of)[LONGEST * MOST_WIDTH], rng *d) {
  uint64_t x = rng_below(d, UINT32_MAX) + UINT64_C(1);
  for (int i = 0; i < SEQUENCES; i++)
    for (int64_t j = 0; j < LONGEST * MOST_WIDTH; j++, x = x * UINT64_C(6364136223846793005) + 1)
      of[i][j] = (float)(x >> 40) * 0x1p-22f - 2;
}

/* Returns number i of a key or value as pages in Q8_0 have it: a multiple of the largest size of
 * its block / 127, which is rounded to a half. */
static double kept_q8_0(const shape *s, const float *x, int64_t i) {
  float most = 0;
  for (int64_t d = i / 32 * 32; d < s->dim && d < i / 32 * 32 + 32; d++)
    most = fmaxf(most, fabsf(x[d]));
  float scale = most / 127, by = 1 / scale;
  int power;
  double half = frexp((double)scale, &power);
  half = ldexp(nearbyint(ldexp(half, 11)), power - 11);
  return most > 0 ? half * (double)nearbyintf(x[i] * by) : 0;
}

/* Returns number i of a key or value as the pages have it, by plain arithmetic. */
static double kept(const shape *s, const float *from, int64_t i) {
  float x = from[i];
  if (s->storage == SL_STORAGE_Q8_0) return kept_q8_0(s, from, i);
  if (s->storage == SL_STORAGE_F32 || x == 0) return (double)x;
  int power, bits = s->storage == SL_STORAGE_FP8 ? 4 : 8;
  double part = frexp((double)x, &power);
  if (bits == 4 && power < -5) return nearbyint((double)x * 512) / 512;
  return ldexp(nearbyint(ldexp(part, bits)), power - bits);
}

static shape draw(rng *d) {
  shape s = {.kv_heads = 1 + rng_below(d, 3),
             .dim = 8 * (1 + rng_below(d, MOST_DIM / 8)),
             .storage = (const sl_storage[]){SL_STORAGE_F32, SL_STORAGE_BF16, SL_STORAGE_Q8_0,
                                             SL_STORAGE_FP8}[rng_below(d, 4)]};
  s.heads = s.kv_heads * (1 + rng_below(d, 2));
  s.behind = rng_below(d, 3) ? INT32_MAX : rng_below(d, 100);
  s.shown = rng_below(d, 2) ? rng_below(d, 150) : 0;
  for (int i = 0; i < SEQUENCES; i++) s.length[i] = 1 + rng_below(d, LONGEST);
  fill(q, d);
  fill(k, d);
  fill(v, d);
  return s;
}

/* ---- a tick: some rows of each sequence ------------------------------------------------------ */

static sl_batch *make_batch(const int64_t from[SEQUENCES], const int64_t rows[SEQUENCES]) {
  static const int32_t tables[SEQUENCES][SEQUENCE_PAGES] = {{4, 1, 6}, {2, 5, 0}};
  sl_batch *b = calloc(1, sl_batch_bytes(MOST_ROWS, SEQUENCES, SEQUENCES, SEQUENCE_PAGES));
  *b = (sl_batch){.most_rows = MOST_ROWS,
                  .most_sequences = SEQUENCES,
                  .most_picks = SEQUENCES,
                  .pages = SEQUENCE_PAGES,
                  .sequences = SEQUENCES};
  for (int32_t i = 0; i < SEQUENCES; i++) {
    memcpy((int32_t *)sl_batch_table(b, i), tables[i], sizeof tables[i]);
    for (int64_t r = 0; r < rows[i]; r++, b->rows++) {
      ((int32_t *)sl_batch_position(b))[b->rows] = (int32_t)(from[i] + r);
      ((int32_t *)sl_batch_sequence_of(b))[b->rows] = i;
    }
  }
  return b;
}

static int find_runs(const sl_batch *b, sli_run *runs) {
  int n = 0;
  for (int32_t r = 0; r < b->rows; r++) {
    bool more = r && sl_batch_sequence_of(b)[r] == sl_batch_sequence_of(b)[r - 1] &&
                runs[n - 1].rows < SLI_SERVED_RUN;
    if (more) runs[n - 1].rows++;
    else runs[n++] = (sli_run){r, 1};
  }
  return n;
}

/* Copies between the rows of the sequences and those of the tick, of `width` numbers each. */
static void copy_rows(float *tick, float (*of)[LONGEST * MOST_WIDTH], int64_t width,
                      const int64_t *from, const int64_t *rows, bool back) {
  for (int i = 0; i < SEQUENCES; i++) {
    size_t bytes = (size_t)(rows[i] * width) * sizeof(float);
    float *there = of[i] + from[i] * width;
    memcpy(back ? there : tick, back ? tick : there, bytes);
    tick += rows[i] * width;
  }
}

static void run_tick(const shape *s, const int64_t *from, const int64_t *rows, int parts_of_heads,
                     float (*out)[LONGEST * MOST_WIDTH]) {
  static float tick[4][MOST_ROWS * MOST_WIDTH];
  sli_run runs[MOST_ROWS];
  int64_t width = s->heads * s->dim, kv_width = s->kv_heads * s->dim;
  sl_batch *b = make_batch(from, rows);
  copy_rows(tick[0], q, width, from, rows, false);
  copy_rows(tick[1], k, kv_width, from, rows, false);
  copy_rows(tick[2], v, kv_width, from, rows, false);
  sli_served_attention a = {.batch = b,
                            .heads = s->heads,
                            .kv_heads = s->kv_heads,
                            .dim = s->dim,
                            .behind = s->behind,
                            .shown = s->shown,
                            .scale = 1 / sqrtf((float)s->dim),
                            .q = tick[0],
                            .k = tick[1],
                            .v = tick[2],
                            .q_row = width,
                            .kv_row = kv_width,
                            .o_row = width,
                            .out = tick[3],
                            .pages = pages,
                            .storage = s->storage,
                            .runs = runs,
                            .parts = parts_of_heads};
  int n = find_runs(b, runs);
  for (int i = 0; i < b->rows; i++) sli_cpu()->served_keys(&a, i);
  for (int i = 0; i < n * (int)s->kv_heads * parts_of_heads; i++)
    sli_cpu()->served_attention(&a, i);
  copy_rows(tick[3], out, width, from, rows, true);
  free(b);
}

/* ---- expected results ------------------------------------------------------------------------ */

static void check_row(const shape *s, int i, int64_t at, int64_t head) {
  double p[LONGEST], total = 0, want;
  int64_t kv_width = s->kv_heads * s->dim, kv = head / (s->heads / s->kv_heads) * s->dim;
  int64_t first = at > s->behind ? at - s->behind : 0, row = at * s->heads * s->dim + head * s->dim;
  for (int64_t j = 0; j <= at; j++) {
    p[j] = 0;
    if (j < first && j >= s->shown) continue;
    for (int64_t d = 0; d < s->dim; d++)
      p[j] += (double)q[i][row + d] * kept(s, k[i] + j * kv_width + kv, d);
    total += p[j] = exp(p[j] / sqrt((double)s->dim));
  }
  for (int64_t d = 0; d < s->dim; d++) {
    want = 0;
    for (int64_t j = 0; j <= at; j++) want += p[j] / total * kept(s, v[i] + j * kv_width + kv, d);
    CHECK(fabs(want - (double)whole[i][row + d]) < 1e-5,
          "sequence %d, position %lld, head %lld: %g, not %g", i, (long long)at, (long long)head,
          (double)whole[i][row + d], want);
  }
}

static void in_parts(const shape *s, rng *d) {
  int64_t from[SEQUENCES] = {0}, rows[SEQUENCES];
  memset(pages, 0xff, sizeof pages);
  while (from[0] < s->length[0] || from[1] < s->length[1]) {
    for (int i = 0; i < SEQUENCES; i++) {
      rows[i] = rng_below(d, 2) ? 1 : rng_below(d, 40);
      if (rows[i] > s->length[i] - from[i]) rows[i] = s->length[i] - from[i];
    }
    run_tick(s, from, rows, 1 + rng_below(d, (uint32_t)(s->heads / s->kv_heads)), parts);
    for (int i = 0; i < SEQUENCES; i++) from[i] += rows[i];
  }
}

static void check(uint64_t seed) {
  rng d = {.key = seed};
  shape s = draw(&d);
  const int64_t begin[SEQUENCES] = {0};
  memset(pages, 0xff, sizeof pages); /* NaN */
  run_tick(&s, begin, s.length, 1, whole);
  for (int i = 0; i < SEQUENCES; i++)
    for (int64_t at = 0; at < s.length[i]; at += 1 + rng_below(&d, 9))
      check_row(&s, i, at, rng_below(&d, (uint32_t)s.heads));
  in_parts(&s, &d);
  for (int i = 0; i < SEQUENCES; i++)
    CHECK(!memcmp(whole[i], parts[i], (size_t)(s.length[i] * s.heads * s.dim) * sizeof(float)),
          "seed %llu: sequence %d has other bits in parts", (unsigned long long)seed, i);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, SEEDS);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN_AS("check", on_every_level(check, seed));
  return 0;
}
