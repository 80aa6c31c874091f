/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of served graphs that read weights: products and tables. Each existing row is
 * computed as if it were alone. Weights may have any storage format; results have the same bits as
 * with f32 weights of the same values. */
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/grouped.h"
#include "kernels/cpu/joined.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/served.h"
#include "ops/grouped.h"
#include "ops/place.h"
#include "ops/storage.h"

/* ---- products -------------------------------------------------------------------------------- */

/* Returns the number of pieces: the same for each thread, of equal size if possible. A piece takes
 * a few microseconds; it is large enough that prefetched weights rarely belong to another
 * thread. */
static int pieces_for(int64_t rows, int64_t k, int64_t n, int threads) {
  enum { PRODUCTS = 1 << 18, LEAST = 4 };
  int64_t all = sli_chunk_count(n, SLI_SERVED_COLUMNS), most = SLI_MAX(all / (LEAST * threads), 1);
  int64_t rounds = SLI_MAX(SLI_MIN(rows * n * k / PRODUCTS / threads, most), 1), even = rounds;
  while (even > rounds / 2 && all % (even * threads)) even--;
  return (int)SLI_MIN((even > rounds / 2 ? even : rounds) * threads, all);
}

static sl_storage rest_of(const sl_call *call) {
  return sli_storage_of(call->attrs, &call->in_type[1]);
}

/* Returns true if products are sums of integers. */
static bool by_blocks(const sl_call *call) { return sli_storage_by_digits(rest_of(call)); }

static size_t linear_served_scratch(const sl_call *call, int threads) {
  (void)threads;
  return by_blocks(call) ? sli_served_digits_bytes(&call->in_type[0]) : 0;
}

typedef struct products {
  sli_served_product items[SLI_JOINED];
} products;

static void run_piece(void *arg, int i) {
  sli_served_product *p = ((products *)arg)->items;
  for (; i >= p->pieces; p++) i -= p->pieces;
  sli_cpu()->linear_served(p, i);
}

/* Returns true if all calls read the same digits. */
static bool read_alike(const sl_call *calls, int n) {
  int same = 1;
  while (same < n && calls[same].in[0] == calls->in[0] && rest_of(&calls[same]) == rest_of(calls))
    same++;
  return same == n;
}

static int64_t served_weights_rows_of(const sl_call *call) {
  return sl_call_rows(call, 0, sl_type_rows(&call->in_type[0]));
}

void sli_linear_served_joined(const sl_call *calls, int n) {
  products all;
  int64_t rows = served_weights_rows_of(calls), k = sl_type_last(&calls->in_type[0]);
  if (!read_alike(calls, n)) {
    for (int i = 0; i < n; i++) sli_linear_served_joined(&calls[i], 1);
    return;
  }
  bool shares = by_blocks(calls) && rows * k > SLI_OWN_DIGITS * SLI_STORAGE_BLOCK;
  int pieces = 0;
  for (int i = 0; i < n; i++) {
    int own = pieces_for(rows, k, sl_type_last(&calls[i].out_type[0]), sl_team_size(calls->team));
    all.items[i] = (sli_served_product){&calls[i], own, shares ? calls->scratch : NULL};
    pieces += own;
  }
  if (shares) sl_team_for(calls->team, (int)rows, sli_cpu()->served_digits, all.items);
  sl_team_for(calls->team, pieces, run_piece, &all);
}

static void linear_served_cpu(const sl_call *call) { sli_linear_served_joined(call, 1); }

const sl_kernel sli_cpu_linear_served = {
    .backend = "cpu",
    .run = linear_served_cpu,
    .scratch = linear_served_scratch,
};

/* ---- experts --------------------------------------------------------------------------------- */

/* A product of an expert as a call. */
typedef struct expert_call {
  sl_type in_type[2], out_type;
  const void *in[3];
  void *out;
  sl_attrs attrs;
  sl_call call;
} expert_call;

static bool shares_digits(const sli_expert_product *p) {
  return sli_storage_by_digits(p->storage) && p->rows * p->k > SLI_OWN_DIGITS * SLI_STORAGE_BLOCK;
}

static sli_served_product bind(const sli_expert_product *p, int pieces, expert_call *c) {
  *c = (expert_call){.in_type = {SL_TYPE(SL_F32, p->rows, p->k), *p->weight},
                     .out_type = SL_TYPE(SL_F32, p->rows, p->weight->dim[0]),
                     .in = {p->x, p->values},
                     .out = p->y,
                     .attrs = *p->attrs};
  c->attrs.weight.storage = p->storage;
  c->call = (sl_call){.attrs = &c->attrs,
                      .nin = 3,
                      .nout = 1,
                      .in_type = c->in_type,
                      .out_type = &c->out_type,
                      .in = c->in,
                      .out = &c->out};
  return (sli_served_product){&c->call, pieces, shares_digits(p) ? p->digits : NULL};
}

void sli_expert_product_piece(const sli_expert_product *p, int pieces, int piece) {
  expert_call c;
  sli_served_product product = bind(p, pieces, &c);
  sli_cpu()->linear_served(&product, piece);
}

void sli_expert_product_digits(const sli_expert_product *p, int64_t row) {
  expert_call c;
  sli_served_product product = bind(p, 1, &c);
  if (product.x) sli_cpu()->served_digits(&product, (int)row);
}

/* Rows of one expert in `order`, and the running number of pieces up to the end of its product. */
typedef struct expert_rows {
  int32_t expert, begin, count, pieces;
} expert_rows;

typedef struct experts {
  const sl_call *call;
  int64_t rows, each; /* ids, and how many of them share a row of x */
  int nparts, threads;
  int32_t *order, *ends;
  expert_rows *parts; /* experts that have rows */
  float *x, *y;       /* sorted rows */
  sli_digits *digits; /* of x, if weights are in blocks */
} experts;

static size_t lay_out(const sl_call *call, experts *x) {
  const sl_type *ids = &call->in_type[1], *w = &call->in_type[2];
  int64_t most = sl_type_elements(ids), all = w->dim[0], k = sl_type_last(&call->in_type[0]);
  bool blocks = sli_storage_by_digits(sli_storage_of(call->attrs, w));
  size_t at = 0;
  x->order = sli_place(call->scratch, &at, most, sizeof *x->order);
  x->ends = sli_place(call->scratch, &at, all + 1, sizeof *x->ends);
  x->parts = sli_place(call->scratch, &at, SLI_MIN(most, all), sizeof *x->parts);
  x->x = sli_place(call->scratch, &at, most * k, sizeof(float));
  x->y = sli_place(call->scratch, &at, most * w->dim[1], sizeof(float));
  x->digits =
      sli_place(call->scratch, &at, blocks * most * (k / SLI_STORAGE_BLOCK), sizeof *x->digits);
  return at;
}

static size_t grouped_linear_served_scratch(const sl_call *call, int threads) {
  sl_call bare = *call;
  (void)threads;
  bare.scratch = NULL;
  return lay_out(&bare, &(experts){0});
}

static experts experts_of(const sl_call *call) {
  const sl_type *ids = &call->in_type[1], *w = &call->in_type[2];
  experts x = {.call = call,
               .rows = sli_grouped_valid_ids(call),
               .each = sli_grouped_shared(&call->in_type[0], ids) ? sl_type_last(ids) : 1,
               .threads = sl_team_size(call->team)};
  lay_out(call, &x);
  sli_sort_by_expert(call, (int)w->dim[0], x.rows, x.order, x.ends);
  for (int32_t e = 0, at = 0, pieces = 0; e < w->dim[0]; at = x.ends[e++]) {
    int32_t count = x.ends[e] - at;
    if (!count) continue;
    pieces += pieces_for(count, sl_type_last(&call->in_type[0]), w->dim[1], x.threads);
    x.parts[x.nparts++] = (expert_rows){e, at, count, pieces};
  }
  return x;
}

static sli_expert_product product_of(const experts *x, const expert_rows *part,
                                     const sl_type *weight) {
  int64_t k = sl_type_last(&x->call->in_type[0]);
  return (sli_expert_product){
      .attrs = x->call->attrs,
      .weight = weight,
      .storage = sli_storage_of(x->call->attrs, weight),
      .values = (const char *)x->call->in[2] + (size_t)part->expert * sl_type_bytes(weight),
      .x = x->x + part->begin * k,
      .y = x->y + part->begin * weight->dim[0],
      .rows = part->count,
      .k = k,
      .digits = x->digits + part->begin * (k / SLI_STORAGE_BLOCK)};
}

/* Type of one expert's matrix. */
static sl_type matrix_of(const experts *x) {
  const sl_type *w = &x->call->in_type[2];
  return SL_TYPE(w->dtype, w->dim[1], w->dim[2]);
}

static void gather_row(void *arg, int i) {
  const experts *x = arg;
  int64_t k = sl_type_last(&x->call->in_type[0]), from = x->order[i] / x->each;
  memcpy(x->x + i * k, (const float *)x->call->in[0] + from * k, (size_t)k * sizeof(float));
  const expert_rows *part = x->parts;
  while (i >= part->begin + part->count) part++;
  sl_type weight = matrix_of(x);
  sli_expert_product product = product_of(x, part, &weight);
  sli_expert_product_digits(&product, i - part->begin);
}

static void scatter_row(void *arg, int i) {
  const experts *x = arg;
  int64_t n = x->call->in_type[2].dim[1];
  memcpy((float *)x->call->out[0] + x->order[i] * n, x->y + i * n, (size_t)n * sizeof(float));
}

static void expert_piece(void *arg, int i) {
  const experts *x = arg;
  const expert_rows *part = x->parts;
  while (i >= part->pieces) part++;
  int first = part == x->parts ? 0 : part[-1].pieces;
  sl_type weight = matrix_of(x);
  sli_expert_product product = product_of(x, part, &weight);
  sli_expert_product_piece(&product, part->pieces - first, i - first);
}

static void grouped_linear_served_cpu(const sl_call *call) {
  experts x = experts_of(call);
  const sl_type *w = &call->in_type[2];
  int sorted = x.nparts ? x.parts[x.nparts - 1].begin + x.parts[x.nparts - 1].count : 0;
  sli_clear_without_expert(call, (int)w->dim[0], x.rows, call->out[0], w->dim[1]);
  sl_team_for(call->team, sorted, gather_row, &x);
  sl_team_for(call->team, x.nparts ? x.parts[x.nparts - 1].pieces : 0, expert_piece, &x);
  sl_team_for(call->team, sorted, scatter_row, &x);
}

const sl_kernel sli_cpu_grouped_linear_served = {
    .backend = "cpu",
    .run = grouped_linear_served_cpu,
    .scratch = grouped_linear_served_scratch,
};

/* ---- tables ---------------------------------------------------------------------------------- */

static void embedding_served_cpu(const sl_call *call) {
  const sl_type *ids = &call->in_type[0];
  int64_t tokens = ids->dim[0] * ids->dim[1];
  int64_t rows = sl_call_rows(call, 0, tokens) * (sl_type_elements(ids) / tokens);
  sl_team_for(call->team, (int)rows, sli_cpu()->embedding_served, (void *)call);
}

const sl_kernel sli_cpu_embedding_served = {.backend = "cpu", .run = embedding_served_cpu};
