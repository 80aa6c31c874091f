/* Rows of the linear map and its gradients. */
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/product.h"
#include "kernels/kernels.h"

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

/* ---- y = x w^T + bias -------------------------------------------------------- */

static sl_status prepare(const sli_product_shape *shape, void **state) {
  sli_product *product = NULL;
  SLI_TRY(sli_product_create(shape, &product));
  *state = product;
  return SL_OK;
}

static void release(void *state) {
  sli_product_destroy(state);
}

static sl_status linear_prepare(const sl_call *call, void **state) {
  const sl_type *x = &call->in_type[0], *y = &call->out_type[0];
  sli_product_shape shape = {.m = sl_type_rows(x), .n = sl_type_last(y), .k = sl_type_last(x),
                             .b_transposed = !call->attrs->transposed,
                             .bias = call->nin > 2 && call->in_type[2].ndim >= 0};
  return prepare(&shape, state);
}

static void linear_cpu(const sl_call *call) {
  sli_product_run(call->state, call->team, false, call->in[0], call->in[1],
                  call->nin > 2 ? call->in[2] : NULL, call->out[0]);
}

/* ---- dx = dy w ----------------------------------------------------------------- */

static sl_status linear_b_prepare(const sl_call *call, void **state) {
  const sl_type *dy = &call->in_type[0], *dx = &call->out_type[0];
  sli_product_shape shape = {.m = sl_type_rows(dy), .n = sl_type_last(dx), .k = sl_type_last(dy),
                             .b_transposed = call->attrs->transposed};
  return prepare(&shape, state);
}

static void linear_b_cpu(const sl_call *call) {
  sli_product_run(call->state, call->team, false, call->in[0], call->in[1], NULL, call->out[0]);
}

/* ---- dw [N, K] = dy^T x, or dw [K, N] = x^T dy for a transposed weight ------------ */

static sl_status linear_w_prepare(const sl_call *call, void **state) {
  const sl_type *dw = &call->out_type[0];
  sli_product_shape shape = {.m = dw->dim[0], .n = dw->dim[1], .k = sl_type_rows(&call->in_type[0]),
                             .a_transposed = true, .add = true};
  return prepare(&shape, state);
}

static void linear_w_cpu(const sl_call *call) {
  int a = call->attrs->transposed ? 0 : 1, b = 1 - a;
  sli_product_run(call->state, call->team, sli_accumulates(call, 0), call->in[a], call->in[b],
                  NULL, call->out[0]);
}

/* ---- db = sum of dy's rows ----------------------------------------------------- */

static void bias_w_cpu(const sl_call *call) {
  sli_sum_rows(call, sli_cpu()->bias_w);
}

const sl_op sl_op_linear = {
    .name = "linear", .min_in = 2, .max_in = 3, .nout = 1,
    .pieces = SL_PIECES_ROWS, .whole = 6,
    .infer = linear_infer, .cost = linear_cost,
    .prepare = linear_prepare, .release = release, .cpu = linear_cpu,
    .grad = {{.op = &sl_op_linear_b, .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_IN(1)}, .nof = 1, .of = {0}},
             {.op = &sl_op_linear_w, .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_DOUT(0)}, .nof = 1, .of = {1}},
             {.op = &sl_op_bias_w, .cls = SL_CLASS_W,
              .in = {SL_DOUT(0)}, .nof = 1, .of = {2}}},
};

const sl_op sl_op_linear_b = {
    .name = "linear_b", .min_in = 2, .max_in = 2, .nout = 1,
    .pieces = SL_PIECES_ROWS,
    .infer = linear_b_infer, .cost = linear_cost,
    .prepare = linear_b_prepare, .release = release, .cpu = linear_b_cpu,
};

const sl_op sl_op_linear_w = {
    .name = "linear_w", .min_in = 2, .max_in = 2, .nout = 1,
    .pieces = SL_PIECES_ROWS,
    .infer = linear_w_infer, .cost = linear_w_cost,
    .prepare = linear_w_prepare, .release = release, .cpu = linear_w_cpu,
    .accumulates = 1,
};

const sl_op sl_op_bias_w = {
    .name = "bias_w", .min_in = 1, .max_in = 1, .nout = 1,
    .pieces = SL_PIECES_ROWS,
    .infer = bias_w_infer, .cost = bias_w_cost,
    .scratch = sli_partials_scratch, .cpu = bias_w_cpu, .accumulates = 1,
};
