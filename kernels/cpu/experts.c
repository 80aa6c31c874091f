/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels around the experts' linear maps: combine merges the outputs of a token's experts; the
 * capacity limit drops the ids that exceed an expert's capacity. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/ops.h"

/* ---- the terms of a token, in their order --------------------------------------------------- */

static void combine_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *weights = call->in[1];
  int64_t width = sl_type_last(&call->in_type[0]), k = sl_type_last(&call->in_type[1]);
  sli_range rows = sli_rows(&call->out_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    float *out = (float *)call->out[0] + r * width;
    memset(out, 0, (size_t)width * sizeof *out);
    for (int64_t j = r * k; j < (r + 1) * k; j++) {
      const float *y = (const float *)call->in[0] + j * width;
      for (int64_t c = 0; c < width; c++) out[c] += weights[j] * y[c];
    }
  }
}

static void combine_cpu(const sl_call *call) {
  sli_for_rows(call, &call->out_type[0], combine_chunk);
}

static void combine_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *weights = call->in[1];
  float *dweights = call->out[1];
  int64_t width = sl_type_last(&call->in_type[0]), k = sl_type_last(&call->in_type[1]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t j = rows.begin; j < rows.end; j++) {
    const float *y = (const float *)call->in[0] + j * width;
    const float *dout = (const float *)call->in[2] + j / k * width;
    float *dy = call->out[0] ? (float *)call->out[0] + j * width : NULL;
    double sum = 0;
    for (int64_t c = 0; c < width && dweights; c++) sum += (double)y[c] * (double)dout[c];
    for (int64_t c = 0; c < width && dy; c++) dy[c] = weights[j] * dout[c];
    if (dweights) dweights[j] = (float)sum;
  }
}

static void combine_b_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], combine_b_chunk);
}

/* ---- capacity -------------------------------------------------------------------------------- */

typedef struct limits {
  const sl_call *call;
  int64_t rows, most; /* number of ids, and how many an expert keeps */
} limits;

static size_t limit_scratch(const sl_call *call, int threads) {
  (void)threads;
  return (size_t)(sl_type_elements(&call->in_type[0]) * call->attrs->experts.count) *
         sizeof(int32_t);
}

/* Returns true if the expert keeps place a rather than place b. */
static bool is_kept_before(const float *weights, int32_t a, int32_t b) {
  return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
}

static void sift(const float *weights, int32_t *heap, int64_t n, int64_t at) {
  for (int64_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && is_kept_before(weights, heap[child], heap[child + 1])) child++;
    if (!is_kept_before(weights, heap[at], heap[child])) return;
    int32_t place = heap[at];
    heap[at] = heap[child];
    heap[child] = place;
  }
}

/* Drops the least probable places of one expert until at most `most` are left. */
static void limit_expert(void *arg, int e) {
  const limits *l = arg;
  const int32_t *ids = l->call->in[0];
  const float *weights = l->call->in[1];
  int32_t *out = l->call->out[0], *heap = (int32_t *)l->call->scratch + e * l->rows;
  int64_t n = 0;
  for (int32_t r = 0; r < l->rows; r++)
    if (ids[r] == e) heap[n++] = r;
  if (n <= l->most) return;
  for (int64_t at = n / 2 - 1; at >= 0; at--) sift(weights, heap, n, at);
  for (; n > l->most; sift(weights, heap, n, 0)) {
    out[heap[0]] = -1;
    heap[0] = heap[--n];
  }
}

static void limit_cpu(const sl_call *call) {
  const sl_attrs *a = call->attrs;
  limits l = {call, sl_type_elements(&call->in_type[0]), 0};
  l.most = (int64_t)ceil((double)a->experts.factor * (double)l.rows / (double)a->experts.count);
  memcpy(call->out[0], call->in[0], (size_t)l.rows * sizeof(int32_t));
  sl_team_for(call->team, (int)a->experts.count, limit_expert, &l);
}

/* ---- tables ---------------------------------------------------------------------------------- */

const sl_kernel sli_cpu_combine = {.backend = "cpu", .run = combine_cpu};

const sl_kernel sli_cpu_combine_b = {.backend = "cpu", .run = combine_b_cpu};

const sl_kernel sli_cpu_expert_limit = {
    .backend = "cpu",
    .run = limit_cpu,
    .scratch = limit_scratch,
};
