/* Rows that sum, average or look for the largest along dims: attrs.axes has a bit for each. */
#include <math.h>

#include "kernels/cpu/chunk.h"
#include "kernels/kernels.h"
#include "kernels/space.h"

static uint32_t all_axes(const sl_type *type) { return (1u << type->ndim) - 1; }

/* No bit means all dims. */
static uint32_t axes_of(const sl_attrs *attrs, const sl_type *type) {
  return attrs->axes ? attrs->axes : all_axes(type);
}

static float factor_of(const sl_attrs *attrs) { return attrs->value != 0 ? attrs->value : 1; }

static sl_status reduced_infer(const sl_attrs *attrs, const sl_type *x, sl_type *out) {
  SLI_TRY(sli_want_array("x", x, SL_F32, -1));
  if (attrs->axes & ~all_axes(x))
    return sli_misfit(x, "attrs.axes must be dims of x, and %#x has others", attrs->axes);
  *out = sli_reduced(x, axes_of(attrs, x), attrs->keep);
  return SL_OK;
}

/* What has no dim left is f64, as losses are. */
static sl_status reduce_sum_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                  sl_type *out) {
  (void)nin;
  SLI_TRY(reduced_infer(attrs, &in[0], &out[0]));
  if (!out[0].ndim) out[0].dtype = SL_F64;
  return SL_OK;
}

static sl_status reduce_sum_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  (void)nin;
  sl_type y;
  SLI_TRY(reduced_infer(attrs, &in[0], &y));
  SLI_TRY(sli_want("dy", &in[1], &y));
  out[0] = in[0];
  return SL_OK;
}

static sl_status reduce_max_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                  sl_type *out) {
  (void)nin;
  SLI_TRY(reduced_infer(attrs, &in[0], &out[0]));
  out[1] = out[0];
  out[1].dtype = SL_I32;
  return SL_OK;
}

static sl_status reduce_max_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  (void)nin;
  sl_type y, at;
  SLI_TRY(reduced_infer(attrs, &in[0], &y));
  at = y;
  at.dtype = SL_I32;
  SLI_TRY(sli_want("places", &in[1], &at));
  SLI_TRY(sli_want("dy", &in[2], &y));
  out[0] = in[0];
  return SL_OK;
}

static sl_status mean_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  out[0] = SL_SCALAR(SL_F64);
  return SL_OK;
}

static sl_status mean_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  SLI_TRY(sli_want_array("dloss", &in[1], SL_F32, 0));
  out[0] = in[0];
  return SL_OK;
}

SLI_COST(reduce_cost, 0, 1, 1)

/* Along a dim that stays the outputs are split alike; a part of what is summed gives a summand. */
static int signatures(const sl_attrs *attrs, const sl_type *in, bool sums, sl_signature *out) {
  uint32_t axes = axes_of(attrs, in);
  int n = 0, to = 0;
  for (int d = 0; d < in->ndim; d++) {
    bool reduced = axes >> d & 1;
    if (reduced && !sums) to += attrs->keep;
    if (reduced && !sums) continue;
    sl_sbp lies = reduced ? sli_partial() : sli_split(to);
    out[n] = (sl_signature){.in = {sli_split(d)}, .out = {lies}};
    if (!sums) out[n].out[1] = lies;
    n++;
    to += !reduced || attrs->keep;
  }
  return n;
}

static int reduce_sum_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                 sl_signature *out) {
  (void)nin;
  int n = signatures(attrs, &in[0], true, out);
  out[n] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  return n + 1;
}

static int reduce_max_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                 sl_signature *out) {
  (void)nin;
  return signatures(attrs, &in[0], false, out);
}

/* ---- sums ----------------------------------------------------------------------------- */

/* in[0] of one type onto an output of another that broadcasts with it. */
static void fold_first(const sl_call *call, const sl_type *whole, const sl_type *in,
                       const void *from, const sl_type *out, float factor) {
  const sl_type *types[SLI_SPACE_ARRAYS] = {in, NULL, NULL, out};
  sli_fold f = {.space = sli_space_make(whole, types), .in = {from}, .out = call->out[0],
                .add = sli_accumulates(call, 0), .factor = factor};
  f.block = sli_fold_block(&f.space);
  sl_team_for(call->team, sli_chunk_count(f.space.total, f.block), sli_cpu()->fold, &f);
}

static size_t total_scratch(const sl_call *call, int threads) {
  (void)threads;
  return (size_t)sli_element_chunks(&call->in_type[0]) * sizeof(double);
}

static double total(const sl_call *call) {
  const double *partial = call->scratch;
  double sum = 0;
  sli_for_elements(call, &call->in_type[0], sli_cpu()->total);
  int n = sli_element_chunks(&call->in_type[0]);
  for (int i = 0; i < n; i++) sum += partial[i];
  return sum;
}

static void reduce_sum_cpu(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  double factor = (double)factor_of(call->attrs);
  if (call->out_type[0].dtype == SL_F64) {
    *(double *)call->out[0] = total(call) * factor;
    return;
  }
  sl_type out = sli_reduced(x, axes_of(call->attrs, x), true);
  fold_first(call, x, x, call->in[0], &out, (float)factor);
}

static void reduce_sum_b_cpu(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  sl_type dy = sli_reduced(x, axes_of(call->attrs, x), true);
  fold_first(call, x, &dy, call->in[1], x, factor_of(call->attrs));
}

static void mean_cpu(const sl_call *call) {
  double sum = total(call);
  if (call->out[0]) *(double *)call->out[0] = sum / (double)sl_type_elements(&call->in_type[0]);
}

static void mean_b_cpu(const sl_call *call) {
  const sl_type *x = &call->in_type[0], scalar = SL_SCALAR(SL_F32);
  fold_first(call, x, &scalar, call->in[1], x, 1 / (float)sl_type_elements(x));
}

/* ---- of what has been repeated ---------------------------------------------------------- */

static sl_status expand_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  sl_type whole, both[] = {in[0], in[1]};
  SLI_TRY(sli_want_array("dy", &in[0], SL_F32, in[0].ndim ? -1 : 0));
  SLI_TRY(sli_broadcast(2, both, &whole));
  SLI_TRY(sli_want("dy", &in[0], &whole));
  out[0] = in[1];
  out[0].dtype = SL_F32;
  return SL_OK;
}

static void expand_b_cpu(const sl_call *call) {
  const sl_type *dy = &call->in_type[0];
  fold_first(call, dy, dy, call->in[0], &call->out_type[0], 1);
}

/* ---- the largest ------------------------------------------------------------------------ */

typedef struct search {
  const sl_call *call;
  sli_space space;
  int64_t block;
} search;

static search search_of(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  sl_type out = sli_reduced(x, axes_of(call->attrs, x), true);
  const sl_type *types[SLI_SPACE_ARRAYS] = {x, NULL, NULL, &out};
  search s = {call, sli_space_make(x, types), 0};
  s.block = sli_fold_block(&s.space);
  return s;
}

/* Where element `number` of dims [from, to) lies in x. */
static int64_t place(const sli_space *s, int from, int to, int64_t number) {
  int64_t at = 0;
  for (int d = to - 1; d >= from; number /= s->dim[d--]) at += number % s->dim[d] * s->step[0][d];
  return at;
}

/* The first of the largest; one that is no number is larger than all. */
static void reduce_max_chunk(void *arg, int i) {
  const search *w = arg;
  const sli_space *s = &w->space;
  const float *x = w->call->in[0];
  float *y = w->call->out[0];
  int32_t *at = w->call->out[1];
  sli_range r = sli_chunk_range(s->total, w->block, i);
  for (int64_t e = r.begin; e < r.end; e++) {
    const float *from = x + place(s, 0, s->kept, e);
    float top = *from;
    int64_t where = 0;
    for (int64_t k = 1; k < s->summed && !isnan(top); k++) {
      float v = from[place(s, s->kept, s->ndim, k)];
      if (v > top || isnan(v)) top = v, where = k;
    }
    if (y) y[e] = top;
    if (at) at[e] = (int32_t)where;
  }
}

static void reduce_max_cpu(const sl_call *call) {
  search s = search_of(call);
  sl_team_for(call->team, sli_chunk_count(s.space.total, s.block), reduce_max_chunk, &s);
}

static void reduce_max_b_chunk(void *arg, int i) {
  const search *w = arg;
  const sli_space *s = &w->space;
  const int32_t *at = w->call->in[1];
  const float *dy = w->call->in[2];
  float *dx = w->call->out[0];
  sli_range r = sli_chunk_range(s->total, w->block, i);
  for (int64_t e = r.begin; e < r.end; e++) {
    float *to = dx + place(s, 0, s->kept, e);
    for (int64_t k = 0; k < s->summed; k++)
      to[place(s, s->kept, s->ndim, k)] = k == at[e] ? dy[e] : 0;
  }
}

static void reduce_max_b_cpu(const sl_call *call) {
  search s = search_of(call);
  sl_team_for(call->team, sli_chunk_count(s.space.total, s.block), reduce_max_b_chunk, &s);
}

/* ---- rows ------------------------------------------------------------------------------- */

const sl_op sl_op_reduce_sum = {
    .name = "reduce_sum", .min_in = 1, .max_in = 1, .nout = 1,
    .narrow_in = 1, .narrow_out = 1, .mixed = true,
    .pieces = SL_PIECES_SIGNATURES,
    .infer = reduce_sum_infer, .cost = reduce_cost, .scratch = total_scratch,
    .cpu = reduce_sum_cpu, .signatures = reduce_sum_signatures,
    .grad = {{.op = &sl_op_reduce_sum_b, .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_DOUT(0)}, .nof = 1, .of = {0}}},
};

const sl_op sl_op_reduce_sum_b = {
    .name = "reduce_sum_b", .min_in = 2, .max_in = 2, .nout = 1,
    .narrow_in = 3, .narrow_out = 1, .mixed = true, .unread = 1,
    .pieces = SL_PIECES_ELEMENTS,
    .infer = reduce_sum_b_infer, .cost = reduce_cost, .cpu = reduce_sum_b_cpu,
};

const sl_op sl_op_reduce_max = {
    .name = "reduce_max", .min_in = 1, .max_in = 1, .nout = 2,
    .narrow_in = 1, .narrow_out = 1,
    .pieces = SL_PIECES_SIGNATURES,
    .infer = reduce_max_infer, .cost = reduce_cost, .cpu = reduce_max_cpu,
    .signatures = reduce_max_signatures,
    .grad = {{.op = &sl_op_reduce_max_b, .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_OUT(1), SL_DOUT(0)}, .nof = 1, .of = {0}}},
};

const sl_op sl_op_reduce_max_b = {
    .name = "reduce_max_b", .min_in = 3, .max_in = 3, .nout = 1,
    .narrow_in = 5, .narrow_out = 1, .unread = 1,
    .pieces = SL_PIECES_ELEMENTS,
    .infer = reduce_max_b_infer, .cost = reduce_cost, .cpu = reduce_max_b_cpu,
};

const sl_op sl_op_mean = {
    .name = "mean", .min_in = 1, .max_in = 1, .nout = 1,
    .narrow_in = 1,
    .pieces = SL_PIECES_MEAN,
    .infer = mean_infer, .cost = reduce_cost, .scratch = total_scratch, .cpu = mean_cpu,
    .signatures = sli_mean_signatures,
    .grad = {{.op = &sl_op_mean_b, .cls = SL_CLASS_F,
              .in = {SL_IN(0), SL_DOUT(0)}, .nof = 1, .of = {0}}},
};

const sl_op sl_op_mean_b = {
    .name = "mean_b", .min_in = 2, .max_in = 2, .nout = 1,
    .narrow_in = 1, .narrow_out = 1, .unread = 1,
    .pieces = SL_PIECES_ELEMENTS,
    .infer = mean_b_infer, .cost = reduce_cost, .cpu = mean_b_cpu,
};

const sl_op sl_op_expand_b = {
    .name = "expand_b", .min_in = 2, .max_in = 2, .nout = 1,
    .narrow_in = 3, .narrow_out = 1, .mixed = true, .unread = 2,
    .pieces = SL_PIECES_SIGNATURES,
    .infer = expand_b_infer, .cost = reduce_cost, .cpu = expand_b_cpu, .accumulates = 1,
};
