/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts attend to chosen pages as reference/prompt_blocks.txt says, score by score. A chunk has
 * the same bits alone and beside other sequences, in other pages; rows of an incomplete chunk, and
 * all rows if all pages are chosen, have those of attention to all pages.
 * labels: unthreaded */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/attention.h>
#include <sluice/batch.h>

#include "base/base.h"
#include "ops/ops.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/reference_file.h"

enum { PAGES = 40, SEQUENCES = 2, TABLE = 18 };

/* A sequence's queries, keys and values. */
typedef struct sequence {
  int64_t length, width, kv_width;
  float *q, *k, *v;
} sequence;

static sequence sequence_create(int64_t length, int64_t width, int64_t kv_width, int64_t seed) {
  sequence s = {length, width, kv_width, NULL, NULL, NULL};
  float **of[] = {&s.q, &s.k, &s.v};
  uint64_t n = (uint64_t)seed;
  for (int i = 0; i < 3; i++) {
    int64_t count = length * (i ? kv_width : width);
    *of[i] = sli_calloc((size_t)count, sizeof(float));
    for (int64_t e = 0; e < count; e++, n++)
      (*of[i])[e] = (float)((double)(uint32_t)(n * UINT64_C(2654435761)) * 0x1p-31 - 1);
  }
  for (int64_t e = 0; e < length * width; e++) s.q[e] *= 4;
  return s;
}

static void sequence_destroy(sequence *s) {
  free(s->q);
  free(s->k);
  free(s->v);
}

static kernel call_create(const sequence *s, sl_attrs attrs, int64_t rows) {
  int64_t words = (int64_t)(sl_batch_bytes(rows, SEQUENCES, 1, TABLE) / sizeof(int32_t));
  sl_type q = SL_TYPE(SL_F32, 1, rows, s->width), kv = SL_TYPE(SL_F32, 1, rows, s->kv_width);
  const sl_type in[] = {q, kv, kv, {.ndim = -1}, SL_TYPE(SL_I32, words)};
  attrs.pages.count = PAGES;
  attrs.place.length = TABLE * SL_PAGE;
  kernel k = kernel_create(&sl_op_attention_served, attrs, 5, in, 3);
  sl_batch *b = k.in[4];
  memset(b, 0, (size_t)words * sizeof(int32_t));
  *b = (sl_batch){
      .most_rows = (int32_t)rows, .most_sequences = SEQUENCES, .most_picks = 1, .pages = TABLE};
  return k;
}

/* Appends rows of a sequence to the tick. Its pages are `step` apart. */
static void add_rows(kernel *k, const sequence *s, int64_t from, int64_t rows, int step) {
  sl_batch *b = k->in[4];
  const float *of[] = {s->q, s->k, s->v};
  for (int64_t r = 0; r < rows; r++, b->rows++) {
    ((int32_t *)sl_batch_position(b))[b->rows] = (int32_t)(from + r);
    ((int32_t *)sl_batch_sequence_of(b))[b->rows] = b->sequences;
    for (int i = 0; i < 3; i++) {
      int64_t width = i ? s->kv_width : s->width;
      memcpy((float *)k->in[i] + b->rows * width, of[i] + (from + r) * width,
             (size_t)width * sizeof(float));
    }
  }
  int32_t *table = (int32_t *)sl_batch_table(b, b->sequences++);
  for (int p = 0; p < TABLE; p++) table[p] = (step > 1 ? 1 + p * step : p * 2) % PAGES;
}

static void run_tick(kernel *k, float *to, int64_t row, int64_t rows, int64_t width) {
  kernel_run(k, NULL);
  memcpy(to, (float *)k->out[0] + row * width, (size_t)(rows * width) * sizeof(float));
  sl_batch *b = k->in[4];
  b->rows = b->sequences = 0;
}

/* Computes a prompt whose positions from `end` on are in no chunk, in ticks of `chunk` rows, beside
 * `other` unless it is NULL. */
static float *prompt(const sequence *s, const sl_attrs *attrs, int64_t chunk, int64_t end,
                     const sequence *other) {
  int64_t ahead = other ? 5 : 0;
  kernel k = call_create(s, *attrs, chunk + ahead);
  float *out = sli_calloc((size_t)(s->length * s->width), sizeof *out);
  for (int64_t at = 0, rows; at < s->length; at += rows) {
    int64_t least = other ? 1 + at % 3 : chunk - 1;
    rows = at < end ? chunk : SLI_MIN(least, s->length - at);
    if (other) add_rows(&k, other, at % (other->length - ahead), ahead, 1);
    add_rows(&k, s, at, rows, 2);
    run_tick(&k, out + at * s->width, ahead, rows, s->width);
  }
  kernel_destroy(&k);
  return out;
}

static int64_t end_of(const sequence *s, int64_t chunk) { return (s->length - 1) / chunk * chunk; }

/* ---- the reference --------------------------------------------------------------------------- */

static double next_number(char **at) {
  char *end;
  double value = strtod(*at, &end);
  CHECK(end > *at, "a number is missing before \"%.20s\"", *at);
  *at = end;
  return value;
}

static struct setting { double chunk, share, length, heads, kv_heads, dim; } now;
static float *computed;

static void compute(void) {
  int64_t width = (int64_t)(now.heads * now.dim), kv = (int64_t)(now.kv_heads * now.dim);
  sequence s = sequence_create((int64_t)now.length, width, kv, 0);
  const sl_attrs attrs = {.attention.heads = (int)now.heads,
                          .attention.kv_heads = (int)now.kv_heads,
                          .pages.prompt_chunk = (int64_t)now.chunk,
                          .pages.prompt_share = (float)now.share};
  free(computed);
  computed =
      prompt(&s, &attrs, attrs.pages.prompt_chunk, end_of(&s, attrs.pages.prompt_chunk), NULL);
  sequence_destroy(&s);
}

static void check_line(char *line) {
  struct setting s;
  double *const of[] = {&s.chunk, &s.share, &s.length, &s.heads, &s.kv_heads, &s.dim};
  for (size_t i = 0; i < SLI_COUNT(of); i++) *of[i] = next_number(&line);
  if (!computed || memcmp(&s, &now, sizeof s)) {
    now = s;
    compute();
  }
  int64_t at = (int64_t)next_number(&line), width = (int64_t)(s.heads * s.dim);
  for (int64_t i = 0; i < width; i++) {
    double want = next_number(&line), got = (double)computed[at * width + i];
    CHECK(fabs(got - want) < 4e-6, "chunks of %g: number %lld of position %lld is %.9g, not %.9g",
          s.chunk, (long long)i, (long long)at, got, want);
  }
}

static void check_figures(uint64_t seed) {
  (void)seed;
  const char *source = getenv("SLUICE_SOURCE");
  char *path = sli_format("%s/tests/reference/prompt_blocks.txt", source ? source : ".");
  CHECK(reference_lines(path, check_line) == 21, "all lines are there");
  free(path);
  free(computed);
  computed = NULL;
}

/* ---- bits ------------------------------------------------------------------------------------ */

static void same(const float *a, const float *b, int64_t from, int64_t end, int64_t width,
                 const char *what) {
  for (int64_t i = from * width; i < end * width; i++)
    CHECK(!memcmp(&a[i], &b[i], sizeof *a), "%s: number %lld of position %lld is %.9g, not %.9g",
          what, (long long)(i % width), (long long)(i / width), (double)a[i], (double)b[i]);
}

/* Storage formats of pages: f32, bf16, Q8_0. */
static void check_bits(uint64_t seed) {
  enum { CHUNK = 128, LENGTH = 3 * CHUNK + 77, HEADS = 4, DIM = 32 };
  sl_attrs attrs = {.attention.heads = HEADS,
                    .attention.kv_heads = 2,
                    .pages.prompt_chunk = CHUNK,
                    .pages.prompt_share = 0.4f};
  const sl_storage formats[] = {SL_STORAGE_F32, SL_STORAGE_BF16, SL_STORAGE_Q8_0};
  attrs.pages.storage = formats[seed % 3];
  sequence s = sequence_create(LENGTH, HEADS * DIM, 2 * DIM, 12345 * (int64_t)seed);
  sequence other = sequence_create(200, HEADS * DIM, 2 * DIM, 777);
  int64_t end = end_of(&s, CHUNK), width = s.width;
  float *alone = prompt(&s, &attrs, CHUNK, end, NULL);
  float *beside = prompt(&s, &attrs, CHUNK, end, &other);
  same(alone, beside, 0, LENGTH, width, "beside another sequence");
  attrs.pages.prompt_share = 0.9999f;
  float *all = prompt(&s, &attrs, CHUNK, end, NULL);
  attrs.pages.prompt_chunk = 0, attrs.pages.prompt_share = 0;
  float *plain = prompt(&s, &attrs, CHUNK, end, NULL);
  same(plain, all, 0, LENGTH, width, "all pages");
  same(plain, alone, end, LENGTH, width, "an incomplete chunk");
  CHECK(memcmp(plain, alone, (size_t)(end * width) * sizeof *plain) != 0, "pages are left out");
  attrs.pages.prompt_chunk = CHUNK, attrs.pages.prompt_share = 0.4f;
  float *never = prompt(&s, &attrs, CHUNK, 0, NULL);
  same(plain, never, 0, LENGTH, width, "rows that never fill a chunk");
  float *const of[] = {alone, beside, all, plain, never};
  for (size_t i = 0; i < SLI_COUNT(of); i++) free(of[i]);
  sequence_destroy(&s);
  sequence_destroy(&other);
}

int main(void) {
  RUN_AS("check_figures", on_every_level(check_figures, 1));
  RUN_AS("check_bits", on_every_level(check_bits, 3));
  return 0;
}
