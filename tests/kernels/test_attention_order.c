/* SPDX-License-Identifier: Apache-2.0 */
/* Attention sums in one fixed order (vector/attention.h). A whole sequence, its pieces and the
 * pages of the KV cache have the same bits for any cut and ticks, on every CPU level. Key gradients
 * match the whole ones bit for bit where pieces begin at query tiles. The same holds for chunked
 * attention, which within one chunk is plain attention.
 * labels: random unthreaded smoke */
#include <sluice/attention.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "ops/attention_shape.h"
#include "ops/batch.h"
#include "tests/support/attention_calls.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)

enum { CASES = 12, MOST_LENGTH = 300, MOST_PAGES = 5, MOST_ROWS = 70 };

/* ---- the whole sequence ---------------------------------------------------------------------- */

typedef struct whole {
  kernel there, back;
} whole;

static whole run_whole(const attention_shape *s) {
  whole w = {.there = attention_there(s, 1)};
  for (int i = 0; i < w.there.nin; i++) attention_fill(&w.there, i);
  kernel_run(&w.there, NULL);
  w.back = attention_back(s, 1, &w.there);
  attention_fill_back(s, &w.back, &w.there);
  kernel_run(&w.back, NULL);
  return w;
}

static void same(const attention_shape *s, const char *what, const float *got, const float *want,
                 int64_t count, int64_t at) {
  CHECK(
      !memcmp(got, want, (size_t)count * sizeof *got),
      "%s of row %lld has other bits than in the whole (%lld rows of %lld, %lld of keys, heads %d, "
      "window %lld, shown %lld, chunk %lld, ids %d)",
      what, (long long)at, (long long)s->length, (long long)s->width, (long long)s->kv_width,
      (int)s->attrs.attention.heads, (long long)s->attrs.attention.window,
      (long long)s->attrs.attention.shown, (long long)s->attrs.attention.chunk, s->ids);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

enum { MOST_PIECES = MOST_LENGTH };

static const char *row(const kernel *k, int input, int64_t at) {
  const sl_type *type = &k->in_type[input];
  return (const char *)k->in[input] + at * (int64_t)sl_type_bytes(type) / type->dim[1];
}

static kernel piece(const attention_shape *s, const whole *w, int64_t at, int64_t rows, void *kv,
                    void *ids) {
  sl_type q = F32(1, rows, s->width), own = F32(1, rows, s->kv_width);
  const sl_type in[] = {q, own, own, SL_TYPE(SL_I32, 1, rows)};
  kernel k = kernel_create(&sl_op_attention_piece, s->attrs, w->there.nin, in, w->there.nin);
  for (int i = 0; i < k.nin; i++) attention_take(&k, i, row(&w->there, i, at));
  for (int o = 2; o < k.nout; o++) free(k.out[o]);
  k.out[2] = kv;
  if (s->ids) k.out[3] = ids;
  k.tick = (sl_tick){.row = at, .rows = rows};
  kernel_run(&k, NULL);
  same(s, "o", k.out[0], (const float *)w->there.out[0] + at * s->width, rows * s->width, at);
  for (int64_t h = 0; h < s->attrs.attention.heads; h++)
    same(s, "lse", (const float *)k.out[1] + h * rows,
         (const float *)w->there.out[1] + h * s->length + at, rows, at);
  return k;
}

/* Checks the gradients of a piece; gradients of keys only if `aligned`. */
static void piece_back(const attention_shape *s, const whole *w, const kernel *there, void *kv,
                       void *ids, void *dkv, bool aligned) {
  int64_t at = there->tick.row, rows = there->tick.rows;
  const sl_type in[] = {there->in_type[0],  there->out_type[2], there->out_type[0],
                        there->out_type[1], there->out_type[0], SL_TYPE(SL_I32, 1, s->length)};
  kernel k = kernel_create(&sl_op_attention_piece_b, s->attrs, s->ids ? 6 : 5, in, 4);
  const void *data[] = {there->in[0], kv, there->out[0], there->out[1], row(&w->back, 5, at), ids};
  for (int i = 0; i < k.nin; i++) attention_take(&k, i, data[i]);
  free(k.out[3]);
  k.out[3] = dkv;
  k.tick = there->tick;
  kernel_run(&k, NULL);
  for (int o = 0; o < (aligned ? 3 : 1); o++) {
    int64_t width = o ? s->kv_width : s->width;
    same(s, o ? "gradient of a key" : "gradient of a query", k.out[o],
         (const float *)w->back.out[o] + at * width, rows * width, at);
  }
  k.out[3] = NULL;
  kernel_destroy(&k);
}

static void check_pieces(const attention_shape *s, const whole *w, bool aligned) {
  kernel pieces[MOST_PIECES];
  int n = 0;
  sl_type record = F32(1, s->length, 2 * s->kv_width), all = SL_TYPE(SL_I32, 1, s->length);
  void *kv = array_create(&record), *dkv = array_create(&record), *ids = array_create(&all);
  for (int64_t at = 0, rows; at < s->length; at += rows, n++) {
    rows = aligned ? (1 + random_below(3)) * SLI_QUERY_TILE : 1 + random_below(100);
    rows = SLI_MIN(rows, s->length - at);
    pieces[n] = piece(s, w, at, rows, kv, ids);
  }
  for (int i = n; i--;) piece_back(s, w, &pieces[i], kv, ids, dkv, aligned);
  for (int i = 0; i < n; i++) {
    for (int o = 2; o < pieces[i].nout; o++) pieces[i].out[o] = NULL;
    kernel_destroy(&pieces[i]);
  }
  free(kv);
  free(dkv);
  free(ids);
}

/* ---- pages ----------------------------------------------------------------------------------- */

static void tell_rows(sl_batch *b, int64_t at, int64_t rows) {
  static const int32_t table[MOST_PAGES] = {3, 0, 4, 2, 1};
  memset(b, 0, sl_batch_bytes(MOST_ROWS, 1, 1, MOST_PAGES));
  *b = (sl_batch){.rows = (int32_t)rows,
                  .sequences = 1,
                  .most_rows = MOST_ROWS,
                  .most_sequences = 1,
                  .most_picks = 1,
                  .pages = MOST_PAGES};
  for (int64_t r = 0; r < rows; r++) ((int32_t *)sl_batch_position(b))[r] = (int32_t)(at + r);
  memcpy((int32_t *)sl_batch_table(b, 0), table, sizeof table);
}

static void check_pages(const attention_shape *s, const whole *w) {
  sl_type q = F32(1, MOST_ROWS, s->width), own = F32(1, MOST_ROWS, s->kv_width);
  int64_t words = (int64_t)(sl_batch_bytes(MOST_ROWS, 1, 1, MOST_PAGES) / sizeof(int32_t));
  const sl_type in[] = {q, own, own, {.ndim = -1}, SL_TYPE(SL_I32, words)};
  sl_attrs attrs = s->attrs;
  attrs.pages.count = MOST_PAGES;
  kernel k = kernel_create(&sl_op_attention_served, attrs, 5, in, 3);
  for (int64_t at = 0, rows; at < s->length; at += rows) {
    rows = random_below(2) ? 1 : 1 + random_below(MOST_ROWS);
    rows = SLI_MIN(rows, s->length - at);
    tell_rows(k.in[4], at, rows);
    for (int i = 0; i < 3; i++)
      memcpy(k.in[i], row(&w->there, i, at), (size_t)(rows * k.in_type[i].dim[2]) * sizeof(float));
    kernel_run(&k, NULL);
    same(s, "served o", k.out[0], (const float *)w->there.out[0] + at * s->width, rows * s->width,
         at);
  }
  kernel_destroy(&k);
}

static void check_case(void) {
  attention_shape s = attention_shape_random(MOST_LENGTH, 3);
  s.attrs.place.length = s.length;
  whole w = run_whole(&s);
  check_pieces(&s, &w, true);
  check_pieces(&s, &w, false);
  if (!s.ids) check_pages(&s, &w);
  kernel_destroy(&w.there);
  kernel_destroy(&w.back);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static kernel dual_call(const attention_shape *s) {
  sl_type q = F32(1, s->length, s->width), kv = F32(1, s->length, s->kv_width);
  const sl_type in[] = {q, kv, kv, q, q};
  kernel k = kernel_create(&sl_op_attention_dual, s->attrs, 5, in, 2);
  for (int i = 0; i < k.nin; i++) attention_fill(&k, i);
  return k;
}

/* Pages give the bits of the whole sequence, in ticks of any number of rows. */
static void check_dual_pages(const attention_shape *s, const kernel *whole) {
  sl_type q = F32(1, MOST_ROWS, s->width), own = F32(1, MOST_ROWS, s->kv_width);
  int64_t words = (int64_t)(sl_batch_bytes(MOST_ROWS, 1, 1, MOST_PAGES) / sizeof(int32_t));
  const sl_type in[] = {q, own, own, q, q, SL_TYPE(SL_I32, words)};
  sl_attrs attrs = s->attrs;
  attrs.pages.count = MOST_PAGES;
  kernel k = kernel_create(&sl_op_attention_dual_served, attrs, 6, in, 3);
  for (int64_t at = 0, rows; at < s->length; at += rows) {
    rows = random_below(2) ? 1 : 1 + random_below(MOST_ROWS);
    rows = SLI_MIN(rows, s->length - at);
    tell_rows(k.in[5], at, rows);
    for (int i = 0; i < 5; i++)
      memcpy(k.in[i], row(whole, i, at), (size_t)(rows * k.in_type[i].dim[2]) * sizeof(float));
    kernel_run(&k, NULL);
    same(s, "served o", k.out[0], (const float *)whole->out[0] + at * s->width, rows * s->width,
         at);
  }
  kernel_destroy(&k);
}

static bool is_zero(const void *x, const sl_type *type) {
  const float *of = x;
  for (int64_t i = 0; i < sl_type_elements(type); i++)
    if (of[i] != 0) return false;
  return true;
}

/* Gradients of a sequence in one chunk are those of plain attention; other query forms get none. */
static void check_dual_back(const attention_shape *s, const kernel *dual, const kernel *plain) {
  static const int inputs[] = {0, 1, 2, 5, 6, 7}; /* inputs of attention_b */
  kernel b = attention_back(s, 1, plain);
  attention_fill_back(s, &b, plain);
  kernel_run(&b, NULL);
  sl_type q = dual->in_type[0], kv = dual->in_type[1];
  const sl_type in[] = {q, kv, kv, q, q, q, dual->out_type[1], q};
  kernel k = kernel_create(&sl_op_attention_dual_b, s->attrs, 8, in, 5);
  for (int i = 0; i < 6; i++) attention_take(&k, inputs[i], b.in[i]);
  for (int i = 3; i < 5; i++) attention_take(&k, i, dual->in[i]);
  kernel_run(&k, NULL);
  for (int o = 0; o < 3; o++)
    same(s, "gradient in one chunk", k.out[o], b.out[o], sl_type_elements(&k.out_type[o]), 0);
  for (int o = 3; o < 5; o++) CHECK(is_zero(k.out[o], &q), "form %d has a gradient", o);
  kernel_destroy(&k);
  kernel_destroy(&b);
}

/* Plain attention with one form of the queries has the bits of the rows that use only that form. */
static void check_one_form(const attention_shape *s, const kernel *dual) {
  attention_shape plain = *s;
  plain.attrs.attention.chunk = 0;
  kernel k = attention_there(&plain, 1);
  for (int i = 0; i < 3; i++) attention_take(&k, i, dual->in[i]);
  kernel_run(&k, NULL);
  same(s, "o of one chunk", dual->out[0], k.out[0],
       SLI_MIN(s->attrs.attention.chunk, s->length) * s->width, 0);
  if (s->length <= s->attrs.attention.chunk) check_dual_back(s, dual, &k);
  kernel_destroy(&k);
}

static void check_dual(void) {
  attention_shape s = attention_shape_random(MOST_LENGTH, 3);
  s.ids = false;
  s.attrs.attention.shown = 0;
  s.attrs.attention.chunk = SLI_KEY_TILE * (1 + random_below(3));
  s.attrs.numbers.bf16 = !random_below(4);
  kernel k = dual_call(&s);
  kernel_run(&k, NULL);
  check_one_form(&s, &k);
  if (!s.attrs.numbers.bf16) check_dual_pages(&s, &k);
  kernel_destroy(&k);
}

static void check(uint64_t seed) {
  seed_random(seed);
  for (int c = 0; c < CASES; c++) check_case();
  for (int c = 0; c < CASES; c++) check_dual();
}

int main(int argc, char **argv) {
  uint64_t seed = seed_of(argc, argv, 1);
  RUN_AS("check", on_every_level(check, seed));
  return 0;
}
