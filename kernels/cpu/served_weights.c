/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of served graphs that read weights: products and tables. Each existing row is
 * computed as if it were alone. Weights may have any storage format; the results have the same bits
 * as with f32 weights of the same values. */
#include "base/base.h"
#include "kernels/cpu/joined.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/served.h"
#include "ops/storage.h"

/* Returns the number of pieces: the same for each thread, of equal size if possible. A piece takes
 * some microseconds; it is large enough that prefetched weights rarely belong to another thread. */
static int pieces_for(int64_t rows, int64_t k, int64_t n, int threads) {
  enum { PRODUCTS = 1 << 18, LEAST = 4 };
  int64_t all = sli_chunk_count(n, SLI_SERVED_COLUMNS), most = SLI_MAX(all / (LEAST * threads), 1);
  int64_t rounds = SLI_MAX(SLI_MIN(rows * n * k / PRODUCTS / threads, most), 1), even = rounds;
  while (even > rounds / 2 && all % (even * threads)) even--;
  return (int)SLI_MIN((even > rounds / 2 ? even : rounds) * threads, all);
}

static sl_storage rest_of(const sl_call *call) {
  return sli_storage_of(&call->in_type[1], sl_type_last(&call->in_type[0]));
}

static bool by_blocks(const sl_call *call) { return sli_storage_blocks(rest_of(call)); }

static size_t linear_served_scratch(const sl_call *call, int threads) {
  (void)threads;
  size_t blocks = (size_t)(sl_type_elements(&call->in_type[0]) / SLI_STORAGE_BLOCK);
  return by_blocks(call) ? blocks * sizeof(sli_digits) : 0;
}

typedef struct products {
  sli_served_product of[SLI_JOINED];
} products;

static void run_piece(void *arg, int i) {
  sli_served_product *p = ((products *)arg)->of;
  for (; i >= p->pieces; p++) i -= p->pieces;
  sli_cpu()->linear_served(p, i);
}

/* Returns true if all calls would read the same digits. */
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
    all.of[i] = (sli_served_product){&calls[i], own, shares ? calls->scratch : NULL};
    pieces += own;
  }
  if (shares) sl_team_for(calls->team, (int)rows, sli_cpu()->served_digits, all.of);
  sl_team_for(calls->team, pieces, run_piece, &all);
}

static void linear_served_cpu(const sl_call *call) { sli_linear_served_joined(call, 1); }

const sl_kernel sli_cpu_linear_served = {
    .backend = "cpu",
    .run = linear_served_cpu,
    .scratch = linear_served_scratch,
};

static void embedding_served_cpu(const sl_call *call) {
  int rows = (int)sl_call_rows(call, 0, sl_type_elements(&call->in_type[0]));
  sl_team_for(call->team, rows, sli_cpu()->embedding_served, (void *)call);
}

const sl_kernel sli_cpu_embedding_served = {.backend = "cpu", .run = embedding_served_cpu};
