/* Rows of the linear map and its gradients.
 *
 * Every product is cut into chunks along the rows of its result, by shape
 * alone; each chunk is one library call on one thread. */
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/product.h"
#include "kernels/kernels.h"

enum { CHUNK_ROWS = 256 };

static sl_type weight_type(const sl_attrs *attrs, int64_t in, int64_t out) {
  return attrs->transposed ? SL_TYPE(SL_F32, in, out) : SL_TYPE(SL_F32, out, in);
}

/* Number of input features (which = 0) or output features (1) of a weight. */
static int64_t features(const sl_attrs *attrs, const sl_type *w, int which) {
  return w->dim[attrs->transposed ? which : 1 - which];
}

static sl_status linear_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  int64_t k = sl_type_last(&in[0]);
  if (in[1].dtype != SL_F32 || in[1].ndim != 2 || features(attrs, &in[1], 0) != k ||
      features(attrs, &in[1], 1) < 1)
    return sli_misfit(&in[1], attrs->transposed ? "weight must be f32[%lld, n]"
                                                : "weight must be f32[n, %lld]", (long long)k);
  int64_t n = features(attrs, &in[1], 1);
  sl_type bias = SL_TYPE(SL_F32, n);
  if (nin > 2 && in[2].ndim >= 0) SLI_TRY(sli_want("bias", &in[2], &bias));
  out[0] = sli_type_with_last(&in[0], n);
  return SL_OK;
}

static sl_status linear_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("dy", &in[0], SL_F32, -1));
  int64_t n = sl_type_last(&in[0]);
  if (in[1].dtype != SL_F32 || in[1].ndim != 2 || features(attrs, &in[1], 1) != n)
    return sli_misfit(&in[1], attrs->transposed ? "weight must be f32[k, %lld]"
                                                : "weight must be f32[%lld, k]", (long long)n);
  out[0] = sli_type_with_last(&in[0], features(attrs, &in[1], 0));
  return SL_OK;
}

static sl_status linear_w_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  SLI_TRY(sli_want_array("dy", &in[1], SL_F32, -1));
  sl_type dy = sli_type_with_last(&in[0], sl_type_last(&in[1]));
  SLI_TRY(sli_want("dy", &in[1], &dy));
  out[0] = weight_type(attrs, sl_type_last(&in[0]), sl_type_last(&in[1]));
  return SL_OK;
}

static sl_status bias_w_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("dy", &in[0], SL_F32, -1));
  out[0] = SL_TYPE(SL_F32, sl_type_last(&in[0]));
  return SL_OK;
}

/* 2 R K N, from the types of x (or dx) and y (or dy). */
static void linear_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                        double *flops, double *bytes) {
  (void)attrs;
  *flops = 2.0 * (double)sl_type_elements(&in[0]) * (double)sl_type_last(&out[0]);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

static void linear_w_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                          double *flops, double *bytes) {
  (void)attrs;
  *flops = 2.0 * (double)sl_type_elements(&in[0]) * (double)sl_type_last(&in[1]);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

SLI_COST(bias_w_cost, 0, 1, 1)

/* A product whose A is cut along m. */
struct cut {
  sli_product product;
  const float *a, *b;
  float *c;
};

static void run_chunk(void *arg, int i) {
  const struct cut *cut = arg;
  sli_product p = cut->product;
  sli_range rows = sli_chunk_range(p.m, CHUNK_ROWS, i);
  p.m = rows.end - rows.begin;
  sli_product_run(&p, cut->a + rows.begin * (p.a_transposed ? 1 : p.a_row), cut->b,
                  cut->c + rows.begin * p.c_row);
}

static void run(const sl_call *call, struct cut cut) {
  sl_team_for(call->team, sli_chunk_count(cut.product.m, CHUNK_ROWS), run_chunk, &cut);
}

static void linear_cpu(const sl_call *call) {
  const float *bias = call->nin > 2 ? call->in[2] : NULL;
  int64_t rows = sl_type_rows(&call->in_type[0]), k = sl_type_last(&call->in_type[0]);
  int64_t n = sl_type_last(&call->out_type[0]);
  bool transposed = call->attrs->transposed;
  if (bias) sli_for_rows(call, &call->out_type[0], sli_cpu()->bias);
  run(call, (struct cut){.product = {.m = rows, .n = n, .k = k,
                                     .b_transposed = !transposed, .add = bias != NULL,
                                     .a_row = k, .b_row = transposed ? n : k, .c_row = n},
                         .a = call->in[0], .b = call->in[1], .c = call->out[0]});
}

static void linear_b_cpu(const sl_call *call) {
  int64_t rows = sl_type_rows(&call->in_type[0]), n = sl_type_last(&call->in_type[0]);
  int64_t k = sl_type_last(&call->out_type[0]);
  bool transposed = call->attrs->transposed;
  run(call, (struct cut){.product = {.m = rows, .n = k, .k = n, .b_transposed = transposed,
                                     .a_row = n, .b_row = transposed ? n : k, .c_row = k},
                         .a = call->in[0], .b = call->in[1], .c = call->out[0]});
}

/* dw [N, K] = dy^T x, or dw [K, N] = x^T dy when the weight is transposed. */
static void linear_w_cpu(const sl_call *call) {
  int a = call->attrs->transposed ? 0 : 1, b = 1 - a;
  int64_t m = sl_type_last(&call->in_type[a]), n = sl_type_last(&call->in_type[b]);
  run(call, (struct cut){.product = {.m = m, .n = n, .k = sl_type_rows(&call->in_type[0]),
                                     .a_transposed = true, .add = sli_accumulates(call, 0),
                                     .a_row = m, .b_row = n, .c_row = n},
                         .a = call->in[a], .b = call->in[b], .c = call->out[0]});
}

static void bias_w_cpu(const sl_call *call) {
  sli_for_columns(call, &call->in_type[0], sli_cpu()->bias_w);
}

const sl_op sl_op_linear = {
    .name = "linear", .min_in = 2, .max_in = 3, .nout = 1,
    .infer = linear_infer, .cost = linear_cost, .cpu = linear_cpu,
    .grad = {{.op = &sl_op_linear_b, .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_IN(1)}, .nof = 1, .of = {0}},
             {.op = &sl_op_linear_w, .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_DOUT(0)}, .nof = 1, .of = {1}},
             {.op = &sl_op_bias_w, .cls = SL_CLASS_W,
              .in = {SL_DOUT(0)}, .nof = 1, .of = {2}}},
};

const sl_op sl_op_linear_b = {
    .name = "linear_b", .min_in = 2, .max_in = 2, .nout = 1,
    .infer = linear_b_infer, .cost = linear_cost, .cpu = linear_b_cpu,
};

const sl_op sl_op_linear_w = {
    .name = "linear_w", .min_in = 2, .max_in = 2, .nout = 1,
    .infer = linear_w_infer, .cost = linear_w_cost, .cpu = linear_w_cpu,
    .accumulates = 1,
};

const sl_op sl_op_bias_w = {
    .name = "bias_w", .min_in = 1, .max_in = 1, .nout = 1,
    .infer = bias_w_infer, .cost = bias_w_cost, .cpu = bias_w_cpu,
    .accumulates = 1,
};
