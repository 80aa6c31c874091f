/* Rows that go along a dim in order: the largest of it, sums of what stands before. */
#include <math.h>

#include "kernels/cpu/chunk.h"
#include "kernels/indexing.h"
#include "kernels/kernels.h"
#include "kernels/space.h"

static sl_status want_axis(const sl_attrs *attrs, const sl_type *x) {
  int axis = sli_one_axis(attrs, x);
  if (!(attrs->axes & (attrs->axes - 1)) && axis < x->ndim) return SL_OK;
  return sli_misfit(x, "attrs.axes must have one bit, of a dim of x, not %#x", attrs->axes);
}

/* Along any dim but the one that is gone along. */
static int other_dims(const sl_attrs *attrs, const sl_type *x, int nout, sl_signature *out) {
  int n = 0;
  for (int d = 0; d < x->ndim; d++) {
    if (d == sli_one_axis(attrs, x)) continue;
    out[n] = (sl_signature){.in = {sli_split(d)}};
    for (int o = 0; o < nout; o++) out[n].out[o] = sli_split(d);
    n++;
  }
  return n;
}

SLI_COST(top_k_cost, 0, 2, 1)
SLI_COST(cumsum_cost, 0, 1, 1)

/* ---- the largest ------------------------------------------------------------------------ */

static sl_status top_k_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  SLI_TRY(want_axis(attrs, &in[0]));
  int axis = sli_one_axis(attrs, &in[0]);
  if (attrs->count < 1 || attrs->count > in[0].dim[axis])
    return sli_misfit(&in[0], "attrs.count, how many are wanted of the %lld along dim %d, must be 1 "
                      "to as many, not %lld", (long long)in[0].dim[axis], axis,
                      (long long)attrs->count);
  out[0] = in[0];
  out[0].dim[axis] = attrs->count;
  out[1] = out[0];
  out[1].dtype = SL_I32;
  return SL_OK;
}

static int top_k_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)nin;
  return other_dims(attrs, &in[0], 2, out);
}

typedef struct ranking {
  const sl_call *call;
  sli_lines lines;
  int64_t k, block;
} ranking;

/* What is no number is larger than all. */
static bool is_larger(float a, float b) { return isnan(a) ? !isnan(b) : a > b; }

/* The places of the k largest in their order, of equals the first: n elements of x, `stride`
 * apart, as places are. */
static void rank(const float *x, int64_t n, int64_t k, int64_t stride, int32_t *places) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) {
    float v = x[i * stride];
    if (count == k && !is_larger(v, x[places[(k - 1) * stride] * stride])) continue;
    int64_t at = count < k ? count++ : k - 1;
    for (; at && is_larger(v, x[places[(at - 1) * stride] * stride]); at--)
      places[at * stride] = places[(at - 1) * stride];
    places[at * stride] = (int32_t)i;
  }
}

static void top_k_chunk(void *arg, int i) {
  const ranking *r = arg;
  const sli_lines *l = &r->lines;
  float *values = r->call->out[0];
  int32_t *places = r->call->out[1] ? r->call->out[1] : r->call->scratch;
  sli_range lines = sli_chunk_range(l->outer * l->inner, r->block, i);
  for (int64_t line = lines.begin; line < lines.end; line++) {
    int64_t outer = line / l->inner, c = line % l->inner, to = outer * r->k * l->inner + c;
    const float *x = (const float *)r->call->in[0] + outer * l->n * l->inner + c;
    rank(x, l->n, r->k, l->inner, places + to);
    for (int64_t j = 0; values && j < r->k; j++)
      values[to + j * l->inner] = x[places[to + j * l->inner] * l->inner];
  }
}

static size_t top_k_scratch(const sl_call *call, int threads) {
  (void)threads;
  return sl_type_bytes(&call->out_type[1]);
}

static void top_k_cpu(const sl_call *call) {
  ranking r = {call, sli_lines_of(call->attrs, &call->in_type[0]), call->attrs->count, 0};
  r.block = SLI_MAX(SLI_CHUNK_ELEMENTS / r.lines.n, 1);
  sl_team_for(call->team, sli_chunk_count(r.lines.outer * r.lines.inner, r.block), top_k_chunk, &r);
}

/* ---- sums of what stands before ----------------------------------------------------------- */

static sl_status cumsum_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], in[0].dtype == SL_I32 ? SL_I32 : SL_F32, -1));
  SLI_TRY(want_axis(attrs, &in[0]));
  out[0] = in[0];
  return SL_OK;
}

static int cumsum_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)nin;
  int n = other_dims(attrs, &in[0], 1, out);
  if (in[0].dtype == SL_F32)
    out[n++] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  return n;
}

enum { LINES = 64 }; /* summed side by side */

typedef struct summing {
  const sl_call *call;
  sli_lines lines;
  bool reverse, exclusive;
  int64_t block;
} summing;

/* `count` lines from element `at` on, sums in `type`. */
#define SUM_LINES(name, type, sum_type)                                                     \
  static void name(const summing *s, int64_t at, int64_t count) {                           \
    const type *x = (const type *)s->call->in[0] + at;                                      \
    type *y = (type *)s->call->out[0] + at;                                                 \
    sum_type sum[LINES] = {0};                                                              \
    for (int64_t k = 0; k < s->lines.n; k++) {                                              \
      int64_t row = (s->reverse ? s->lines.n - 1 - k : k) * s->lines.inner;                 \
      for (int64_t c = 0; c < count; c++) {                                                 \
        sum_type before = sum[c];                                                           \
        sum[c] += (sum_type)x[row + c];                                                     \
        y[row + c] = (type)(s->exclusive ? before : sum[c]);                                \
      }                                                                                     \
    }                                                                                       \
  }
SUM_LINES(sum_floats, float, double)
SUM_LINES(sum_integers, int32_t, uint32_t)

static void cumsum_chunk(void *arg, int i) {
  const summing *s = arg;
  const sli_lines *l = &s->lines;
  sli_range r = sli_chunk_range(l->outer * l->inner, s->block, i);
  for (int64_t count, line = r.begin; line < r.end; line += count) {
    int64_t outer = line / l->inner, c = line % l->inner;
    count = SLI_MIN(SLI_MIN(l->inner - c, r.end - line), LINES);
    int64_t at = outer * l->n * l->inner + c;
    if (s->call->in_type[0].dtype == SL_I32) sum_integers(s, at, count);
    else sum_floats(s, at, count);
  }
}

static void sum_along(const sl_call *call, bool back) {
  summing s = {call, sli_lines_of(call->attrs, &call->in_type[0]), call->attrs->reverse != back,
               call->attrs->exclusive, 0};
  s.block = SLI_MAX(SLI_CHUNK_ELEMENTS / s.lines.n, SLI_MIN(s.lines.inner, LINES));
  sl_team_for(call->team, sli_chunk_count(s.lines.outer * s.lines.inner, s.block), cumsum_chunk,
              &s);
}

static void cumsum_cpu(const sl_call *call) { sum_along(call, false); }
static void cumsum_b_cpu(const sl_call *call) { sum_along(call, true); }

/* ---- rows ------------------------------------------------------------------------------- */

const sl_op sl_op_top_k = {
    .name = "top_k", .min_in = 1, .max_in = 1, .nout = 2,
    .narrow_in = 1, .narrow_out = 1,
    .pieces = SL_PIECES_SIGNATURES, .signatures = top_k_signatures,
    .infer = top_k_infer, .cost = top_k_cost, .scratch = top_k_scratch, .cpu = top_k_cpu,
    .grad = {{.op = &sl_op_gather_b, .cls = SL_CLASS_B, .in = {SL_OUT(1), SL_DOUT(0), SL_IN(0)},
              .nof = 1, .of = {0}}},
};

const sl_op sl_op_cumsum = {
    .name = "cumsum", .min_in = 1, .max_in = 1, .nout = 1,
    .narrow_in = 1, .narrow_out = 1, .over = {1},
    .pieces = SL_PIECES_SIGNATURES, .signatures = cumsum_signatures,
    .infer = cumsum_infer, .cost = cumsum_cost, .cpu = cumsum_cpu,
    .grad = {{.op = &sl_op_cumsum_b, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nof = 1, .of = {0}}},
};

const sl_op sl_op_cumsum_b = {
    .name = "cumsum_b", .min_in = 1, .max_in = 1, .nout = 1,
    .narrow_in = 1, .narrow_out = 1, .over = {1},
    .pieces = SL_PIECES_SIGNATURES,
    .infer = cumsum_infer, .cost = cumsum_cost, .cpu = cumsum_b_cpu,
};
