/* Rows around the maps of experts: what several of them give a token is put together, and what is more
 * than an expert may take goes without it. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/kernels.h"

/* ---- shapes ------------------------------------------------------------------------------ */

static sl_status combine_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("y", &in[0], SL_F32, -1));
  if (in[0].ndim < 2) return sli_misfit(&in[0], "y must be f32[..., k, n]");
  sl_type weights = sli_type_without_last(&in[0], SL_F32);
  SLI_TRY(sli_want("weights", &in[1], &weights));
  out[0] = sli_type_with_last(&weights, sl_type_last(&in[0]));
  return SL_OK;
}

static sl_status combine_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type whole;
  SLI_TRY(combine_infer(attrs, nin, in, &whole));
  SLI_TRY(sli_want("dy", &in[2], &whole));
  out[0] = in[0];
  out[1] = in[1];
  return SL_OK;
}

/* Tokens are shared out, columns, a token's terms; what is a summand stays one. */
static int combine_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  int last = in[0].ndim - 1, n = 0;
  (void)attrs, (void)nin;
  for (int d = 0; d + 1 < last; d++)
    out[n++] = (sl_signature){.in = {sli_split(d), sli_split(d)}, .out = {sli_split(d)}};
  out[n++] = (sl_signature){.in = {sli_split(last)}, .out = {sli_split(last - 1)}};
  out[n++] = (sl_signature){.in = {sli_split(last - 1), sli_split(last - 1)}, .out = {sli_partial()}};
  out[n++] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  return n;
}

SLI_COST(combine_cost, 0, 1, 2)
SLI_COST(combine_b_cost, 0, 2, 3)

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

/* ---- capacity ------------------------------------------------------------------------------------ */

static sl_status limit_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("ids", &in[0], SL_I32, -1));
  sl_type weights = in[0];
  weights.dtype = SL_F32;
  SLI_TRY(sli_want("weights", &in[1], &weights));
  if (attrs->count < 1 || !(attrs->value > 0))
    return sl_fail(SL_E_SHAPE, "attrs.count and attrs.value must be given");
  out[0] = in[0];
  return SL_OK;
}

static int limit_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)nin;
  for (int d = 0; d + 1 < in[0].ndim; d++)
    out[d] = (sl_signature){.in = {sli_split(d), sli_split(d)}, .out = {sli_split(d)}};
  return in[0].ndim - 1;
}

typedef struct limits {
  const sl_call *call;
  int64_t rows, most; /* ids, and those that an expert keeps */
} limits;

static size_t limit_scratch(const sl_call *call, int threads) {
  (void)threads;
  return (size_t)(sl_type_elements(&call->in_type[0]) * call->attrs->count) * sizeof(int32_t);
}

/* Does place a go before place b? */
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

/* Of one expert's places the least probable go until no more than `most` are left. */
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
  l.most = (int64_t)ceil((double)a->value * (double)l.rows / (double)a->count);
  memcpy(call->out[0], call->in[0], (size_t)l.rows * sizeof(int32_t));
  sl_team_for(call->team, (int)a->count, limit_expert, &l);
}

/* ---- rows -------------------------------------------------------------------------------------------- */

const sl_op sl_op_combine = {
    .name = "combine", .min_in = 2, .max_in = 2, .nout = 1,
    .pieces = SL_PIECES_SIGNATURES, .signatures = combine_signatures, .narrow_in = 1, .narrow_out = 1,
    .infer = combine_infer, .cost = combine_cost, .cpu = combine_cpu,
    .grad = {{.op = &sl_op_combine_b, .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_DOUT(0)}, .nof = 2, .of = {0, 1}}},
};

const sl_op sl_op_combine_b = {
    .name = "combine_b", .min_in = 3, .max_in = 3, .nout = 2,
    .pieces = SL_PIECES_SIGNATURES, .narrow_in = 5, .narrow_out = 1,
    .infer = combine_b_infer, .cost = combine_b_cost, .cpu = combine_b_cpu,
};

const sl_op sl_op_expert_limit = {
    .name = "expert_limit", .min_in = 2, .max_in = 2, .nout = 1,
    .pieces = SL_PIECES_SIGNATURES, .signatures = limit_signatures,
    .infer = limit_infer, .scratch = limit_scratch, .cpu = limit_cpu,
};
