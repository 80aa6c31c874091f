/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of attention over pages of latents, and of the choice of tokens (ops/
 * attention_latent.c). A query is mapped into the latent space, q W, so no key or value is ever
 * computed. A row's sums depend only on its own position. */
#include <math.h>
#include <string.h>

#include "io/half.h"
#include "io/small.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/dot.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/served_attention.h"
#include "ops/attention_latent.h"
#include "ops/attention_shape.h"

/* Pages are [pages][SL_PAGE][rank + rope], latents and rotated keys, in f32, bf16, fp8 or Q8_0. A
 * head has nope + values rows of w [heads (nope + values), rank]. The choice of tokens has keys of
 * `rank` numbers, c, and weights of heads, w [rows, heads]. */
typedef struct latents {
  const sl_batch *batch;
  int64_t heads, nope, rope, rank, values;
  float scale;
  const float *q, *c, *k, *w;
  float *out;
  void *pages;
  sl_storage storage;
  const sli_run *runs;
  const int32_t *chosen; /* [rows, count] positions, ascending, then -1; NULL: all earlier ones */
  int32_t *made;         /* the choice, alike */
  int64_t count;
  float *scores; /* scratch of the choice: [CHOOSERS][2][context] */
  int64_t rows, context;
} latents;

/* State of a query, in the latent space, as it proceeds through the pages. */
typedef struct query {
  float q[SLI_MAX_LATENT], acc[SLI_MAX_LATENT], p[SL_PAGE], top, total;
} query;

/* Returns the offset of a position's page, in numbers, or in bytes of Q8_0. */
static int64_t page_of(const latents *a, const int32_t *table, int64_t position) {
  int64_t width = a->rank + a->rope, page = table[position / SL_PAGE];
  return page * (a->storage == SL_STORAGE_Q8_0 ? sli_page_bytes(SL_PAGE, width) : SL_PAGE * width);
}

/* Returns the halves of latent `at` of a page in Q8_0. */
static uint16_t *scales_of(const latents *a, int64_t page, int64_t at) {
  int64_t width = a->rank + a->rope;
  return (uint16_t *)((uint8_t *)a->pages + page + SL_PAGE * width) + at * sli_page_blocks(width);
}

static void keep_q8_0(const latents *a, int64_t page, int64_t at, const float *x) {
  int64_t width = a->rank + a->rope;
  for (int64_t d = 0; d < width; d += SLI_PAGE_BLOCK)
    scales_of(a, page, at)[d / SLI_PAGE_BLOCK] = sli_float_to_half(sli_page_round(
        x + d, SLI_MIN(width - d, SLI_PAGE_BLOCK), (uint8_t *)a->pages + page + at * width + d, 1));
}

/* Writes row i's latent and rotated key to their page. */
static void keep_chunk(void *arg, int i) {
  const latents *a = arg;
  int64_t position = sl_batch_position(a->batch)[i], width = a->rank + a->rope;
  const int32_t *table = sl_batch_table(a->batch, sl_batch_sequence_of(a->batch)[i]);
  int64_t page = page_of(a, table, position), at = page + position % SL_PAGE * width;
  float x[SLI_MAX_LATENT];
  memcpy(x, a->c + i * a->rank, (size_t)a->rank * sizeof *x);
  if (a->rope) memcpy(x + a->rank, a->k + i * a->rope, (size_t)a->rope * sizeof *x);
  if (a->storage == SL_STORAGE_F32) memcpy((float *)a->pages + at, x, (size_t)width * sizeof *x);
  else if (a->storage == SL_STORAGE_Q8_0) keep_q8_0(a, page, position % SL_PAGE, x);
  else if (a->storage == SL_STORAGE_FP8)
    for (int64_t d = 0; d < width; d++) ((uint8_t *)a->pages)[at + d] = sli_float_to_e4m3(x[d]);
  else
    for (int64_t d = 0; d < width; d++) ((uint16_t *)a->pages)[at + d] = sli_bf16_from(x[d]);
}

/* Returns the first n numbers of latent j of a page, widened into `room` if they are not f32. */
static const float *latent_at(const latents *a, int64_t page, int64_t j, int64_t n, float *room) {
  int64_t at = page + j * (a->rank + a->rope);
  if (a->storage == SL_STORAGE_F32) return (const float *)a->pages + at;
  for (int64_t d = 0; a->storage == SL_STORAGE_BF16 && d < n; d++)
    room[d] = sli_bf16_value(((const uint16_t *)a->pages)[at + d]);
  for (int64_t d = 0; a->storage == SL_STORAGE_FP8 && d < n; d++)
    room[d] = sli_e4m3_to_float(((const uint8_t *)a->pages)[at + d]);
  if (a->storage != SL_STORAGE_Q8_0) return room;
  const uint16_t *scales = scales_of(a, page, j);
  for (int64_t d = 0; d < n; d++)
    room[d] = (float)(((const uint8_t *)a->pages)[at + d] - SLI_PAGE_CENTRE) *
              sli_half_to_float(scales[d / SLI_PAGE_BLOCK]);
  return room;
}

/* Maps a head's query into the latent space. */
static void begin_query(query *x, const latents *a, const float *q, const float *w) {
  memset(x->q, 0, sizeof x->q);
  memset(x->acc, 0, sizeof x->acc);
  for (int64_t d = 0; d < a->nope; d++)
    sli_add_row(x->q, q[d] * a->scale, w + d * a->rank, a->rank);
  for (int64_t d = 0; d < a->rope; d++) x->q[a->rank + d] = q[a->nope + d] * a->scale;
  x->top = -INFINITY;
  x->total = 0;
}

/* Turns the scores of a page's keys into weights, and rescales the earlier sums. */
static void soften(query *x, int64_t keys, int64_t rank) {
  float top = x->top;
  for (int64_t j = 0; j < keys; j++) top = x->p[j] > top ? x->p[j] : top;
  float fade = expf(x->top - top);
  x->top = top;
  x->total *= fade;
  for (int64_t d = 0; d < rank; d++) x->acc[d] *= fade;
  for (int64_t j = 0; j < keys; j++) x->total += x->p[j] = expf(x->p[j] - top);
}

/* Sees some positions: those of a list, or `keys` from `first` on. */
static void see_keys(const latents *a, query *x, const int32_t *table, const int32_t *list,
                     int64_t first, int64_t keys) {
  int64_t width = a->rank + a->rope;
  float room[SLI_MAX_LATENT];
  for (int64_t j = 0; j < keys; j++) {
    int64_t at = list ? list[j] : first + j;
    x->p[j] = sli_dot(x->q, latent_at(a, page_of(a, table, at), at % SL_PAGE, width, room), width);
  }
  soften(x, keys, a->rank);
  for (int64_t j = 0; j < keys; j++) {
    int64_t at = list ? list[j] : first + j;
    sli_add_row(x->acc, x->p[j], latent_at(a, page_of(a, table, at), at % SL_PAGE, a->rank, room),
                a->rank);
  }
}

/* Maps a head's sums from the latent space to its values. */
static void end_query(const query *x, const latents *a, const float *w, float *out) {
  for (int64_t d = 0; d < a->values; d++)
    out[d] = sli_dot(x->acc, w + d * a->rank, a->rank) / x->total;
}

/* Runs chunk i: a run of rows, and a head. */
static void attend_chunk(void *arg, int i) {
  const latents *a = arg;
  int64_t h = i % a->heads, each = a->nope + a->values;
  sli_run run = a->runs[i / a->heads];
  const int32_t *table = sl_batch_table(a->batch, sl_batch_sequence_of(a->batch)[run.row]);
  const float *w = a->w + h * each * a->rank;
  query x;
  for (int64_t row = run.row; row < run.row + run.rows; row++) {
    const int32_t *list = a->chosen ? a->chosen + row * a->count : NULL;
    int64_t seen = sl_batch_position(a->batch)[row] + 1;
    if (list)
      for (seen = 0; seen < a->count && list[seen] >= 0;) seen++;
    begin_query(&x, a, a->q + (row * a->heads + h) * (a->nope + a->rope), w);
    for (int64_t k0 = 0; k0 < seen; k0 += SL_PAGE)
      see_keys(a, &x, table, list ? list + k0 : NULL, k0, SLI_MIN(seen - k0, SL_PAGE));
    end_query(&x, a, w + a->nope * a->rank, a->out + (row * a->heads + h) * a->values);
  }
}

static void latent_cpu(const sl_call *call) {
  const sl_attrs *attrs = call->attrs;
  int64_t rope = call->in_type[2].dim[2], each = call->in_type[3].dim[0] / attrs->attention.heads;
  int64_t query = call->in_type[0].dim[2] / attrs->attention.heads;
  latents a = {.batch = sli_batch_of(call),
               .heads = attrs->attention.heads,
               .nope = query - rope,
               .rope = rope,
               .rank = call->in_type[1].dim[2],
               .values = each - (query - rope),
               .scale = sli_attention_scale(attrs, query),
               .q = call->in[0],
               .c = call->in[1],
               .k = call->in[2],
               .w = call->in[3],
               .out = call->out[0],
               .pages = call->out[1],
               .storage = sli_pages_storage(attrs),
               .runs = call->scratch,
               .chosen = call->in[4],
               .count = call->in[4] ? call->in_type[4].dim[2] : 0};
  int runs = sli_served_runs(a.batch, false, call->scratch);
  sl_team_for(call->team, a.batch->rows, keep_chunk, &a);
  sl_team_for(call->team, runs * (int)a.heads, attend_chunk, &a);
}

const sl_kernel sli_cpu_attention_latent_served = {
    .backend = "cpu", .run = latent_cpu, .scratch = sli_served_scratch};

/* ---- choice of tokens ------------------------------------------------------------------------ */

enum { CHOOSERS = 16 }; /* rows whose scores are in the scratch at the same time */

/* Returns the k-th largest of n numbers, k from 1 to n; reorders them. */
static float largest(float *x, int64_t n, int64_t k) {
  int64_t low = 0, high = n - 1;
  while (low < high) {
    float pivot = x[low + (high - low) / 2];
    int64_t i = low, j = high;
    while (i <= j) {
      while (x[i] > pivot) i++;
      while (x[j] < pivot) j--;
      if (i > j) break;
      float held = x[i];
      x[i++] = x[j];
      x[j--] = held;
    }
    if (k - 1 <= j) high = j;
    else if (k - 1 >= i) low = i;
    else break;
  }
  return x[k - 1];
}

/* Lists the positions with the largest of n scores, those equal to the least of them by position.
 */
static void list_largest(const latents *a, float *scores, int64_t n, int32_t *list) {
  float *copy = scores + a->context, least = -INFINITY;
  int64_t count = SLI_MIN(a->count, n), same = count, made = 0;
  memcpy(copy, scores, (size_t)n * sizeof *copy);
  if (count < n) least = largest(copy, n, count);
  for (int64_t i = 0; i < n; i++) same -= scores[i] > least;
  for (int64_t i = 0; i < n; i++)
    if (scores[i] > least || (scores[i] == least && same-- > 0)) list[made++] = (int32_t)i;
  while (made < a->count) list[made++] = -1;
}

/* Returns the key of position `at` of a row's sequence: of a page, or of a whole sequence. */
static const float *choice_key(const latents *a, int64_t row, int64_t at, float *room) {
  if (!a->batch) return a->c + (row / a->context * a->context + at) * a->rank;
  const int32_t *table = sl_batch_table(a->batch, sl_batch_sequence_of(a->batch)[row]);
  return latent_at(a, page_of(a, table, at), at % SL_PAGE, a->rank, room);
}

/* Runs chunk i: every CHOOSERS-th row. */
static void choose_chunk(void *arg, int i) {
  const latents *a = arg;
  float *scores = a->scores + (int64_t)i * 2 * a->context, room[SLI_MAX_LATENT];
  for (int64_t row = i; row < a->rows; row += CHOOSERS) {
    const float *q = a->q + row * a->heads * a->rank, *w = a->w + row * a->heads;
    int64_t n = (a->batch ? sl_batch_position(a->batch)[row] : row % a->context) + 1;
    for (int64_t at = 0; at < n; at++) {
      const float *key = choice_key(a, row, at, room);
      scores[at] = 0;
      for (int64_t h = 0; h < a->heads; h++)
        scores[at] += w[h] * fmaxf(sli_dot(q + h * a->rank, key, a->rank), 0);
    }
    list_largest(a, scores, n, a->made + row * a->count);
  }
}

/* Fills what the choice reads; `context` is the length of a row of scores. */
static latents choice_of(const sl_call *call, int64_t rows, int64_t context) {
  return (latents){.heads = call->attrs->attention.heads,
                   .rank = call->in_type[1].dim[2],
                   .q = call->in[0],
                   .c = call->in[1],
                   .w = call->in[2],
                   .made = call->out[0],
                   .count = call->attrs->attention.tokens,
                   .scores = call->scratch,
                   .rows = rows,
                   .context = context};
}

static void choose_served_cpu(const sl_call *call) {
  const sl_batch *batch = sli_batch_of(call);
  latents a = choice_of(call, batch->rows, call->attrs->place.length + SL_PAGE);
  a.batch = batch;
  a.pages = call->out[1];
  a.storage = sli_pages_storage(call->attrs);
  sl_team_for(call->team, a.rows, keep_chunk, &a);
  sl_team_for(call->team, CHOOSERS, choose_chunk, &a);
}

static void choose_cpu(const sl_call *call) {
  const sl_type *q = &call->in_type[0];
  latents a = choice_of(call, q->dim[0] * q->dim[1], q->dim[1]);
  sl_team_for(call->team, CHOOSERS, choose_chunk, &a);
}

static size_t scores_of(int64_t context) {
  return (size_t)(CHOOSERS * 2 * context) * sizeof(float);
}

static size_t choose_served_scratch(const sl_call *call, int threads) {
  (void)threads;
  return scores_of(call->attrs->place.length + SL_PAGE);
}

static size_t choose_scratch(const sl_call *call, int threads) {
  (void)threads;
  return scores_of(call->in_type[0].dim[1]);
}

const sl_kernel sli_cpu_choose_tokens_served = {
    .backend = "cpu", .run = choose_served_cpu, .scratch = choose_served_scratch};
const sl_kernel sli_cpu_choose_tokens = {
    .backend = "cpu", .run = choose_cpu, .scratch = choose_scratch};
