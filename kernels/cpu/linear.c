/* Rows of the linear map and its gradients, and of packing its weight. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
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

/* ---- packed weights ---------------------------------------------------------- */

static bool has(int nin, const sl_type *in, int i) {
  return i < nin && in[i].ndim >= 0;
}

static sl_status want_packed(int nin, const sl_type *in, int i, int64_t k, int64_t n) {
  if (!has(nin, in, i)) return SL_OK;
  sl_type packed = sli_packed_type(k, n);
  return sli_want("packed weight", &in[i], &packed);
}

/* ---- shapes and costs ---------------------------------------------------------- */

static sl_status linear_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  int64_t k = sl_type_last(&in[0]);
  if (in[1].dtype != SL_F32 || in[1].ndim != 2 || features(attrs, &in[1], 0) != k ||
      features(attrs, &in[1], 1) < 1)
    return sli_misfit(&in[1], attrs->transposed ? "weight must be f32[%lld, n]"
                                                : "weight must be f32[n, %lld]", (long long)k);
  int64_t n = features(attrs, &in[1], 1);
  sl_type bias = SL_TYPE(SL_F32, n);
  if (has(nin, in, 2)) SLI_TRY(sli_want("bias", &in[2], &bias));
  SLI_TRY(want_packed(nin, in, 3, k, n));
  out[0] = sli_type_with_last(&in[0], n);
  return SL_OK;
}

/* The output features are shared out, or the input features. */
static int linear_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                             sl_signature *out) {
  int to = attrs->transposed ? 1 : 0;
  sl_sbp last = sli_split_last(&in[0]);
  out[0] = (sl_signature){.in = {[1] = sli_split(to)}, .out = {last}};
  out[1] = (sl_signature){.in = {last, sli_split(1 - to)}, .out = {sli_partial()}};
  if (has(nin, in, 2)) {
    out[0].in[2] = sli_split(0);
    out[1].in[2] = sli_partial();
  }
  return 2;
}

static sl_status linear_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_want_array("dy", &in[0], SL_F32, -1));
  int64_t n = sl_type_last(&in[0]);
  if (in[1].dtype != SL_F32 || in[1].ndim != 2 || features(attrs, &in[1], 1) != n)
    return sli_misfit(&in[1], attrs->transposed ? "weight must be f32[k, %lld]"
                                                : "weight must be f32[%lld, k]", (long long)n);
  int64_t k = features(attrs, &in[1], 0);
  SLI_TRY(want_packed(nin, in, 2, n, k));
  out[0] = sli_type_with_last(&in[0], k);
  return SL_OK;
}

/* Made on the way there, too (graph/passes/ahead.c). */
static int linear_b_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                               sl_signature *out) {
  (void)nin;
  int from = attrs->transposed ? 1 : 0;
  sl_sbp last = sli_split_last(&in[0]);
  out[0] = (sl_signature){.in = {last, sli_split(from)}, .out = {sli_partial()}};
  out[1] = (sl_signature){.in = {[1] = sli_split(1 - from)}, .out = {last}};
  return 2;
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

static sl_status pack_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("weight", &in[0], SL_F32, 2));
  if (attrs->rows < 1) return sl_fail(SL_E_SHAPE, "attrs.rows must be given");
  int64_t k = features(attrs, &in[0], 0), n = features(attrs, &in[0], 1);
  out[0] = sli_packed_type(k, n);
  out[1] = sli_packed_type(n, k);
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
SLI_COST(pack_cost, 0, 2, 1)

/* ---- products ------------------------------------------------------------------ */

/* Layers are alike, and so are their products: calls of a device on the same types share what
 * the library makes for them, which is the same few kilobytes however long the sequences. */
static size_t keeps_product(const sl_call *call, uint64_t *which) {
  const sl_attrs *a = call->attrs;
  uint64_t hash = sli_hash_word(SLI_HASH_SEED, (uint64_t)a->transposed << 1 | a->bf16);
  hash = sli_hash_word(hash, (uint64_t)a->rows);
  for (int i = 0; i < call->nin; i++) hash = sli_hash_type(hash, &call->in_type[i]);
  for (int o = 0; o < call->nout; o++) hash = sli_hash_type(hash, &call->out_type[o]);
  *which = hash;
  return 0;
}

static void release(void *state) { sli_product_destroy(state); }

/* y = x w^T if `forward`, else dx = dy w. The weight comes packed as input `packed`, or it is input 1 and rounded on the
 * way (attrs.bf16), or not at all. */
static sli_product_shape linear_shape(const sl_call *call, bool forward, int packed) {
  const sl_type *x = &call->in_type[0], *y = &call->out_type[0];
  bool is_packed = has(call->nin, call->in_type, packed);
  return (sli_product_shape){.m = sl_type_rows(x), .n = sl_type_last(y), .k = sl_type_last(x),
                             .b_transposed = forward != call->attrs->transposed,
                             .bf16 = call->attrs->bf16 || is_packed, .b_packed = is_packed};
}

static const void *weight(const sl_call *call, int packed) {
  return call->in[has(call->nin, call->in_type, packed) ? packed : 1];
}

static sl_status prepare(const sli_product_shape *shape, void **state) {
  sli_product *product = NULL;
  SLI_TRY(sli_product_create(shape, &product));
  *state = product;
  return SL_OK;
}

enum { LINEAR_PACKED = 3, LINEAR_B_PACKED = 2 };

/* ---- y = x w^T + bias -------------------------------------------------------- */

static sli_product_shape forward_shape(const sl_call *call) {
  sli_product_shape shape = linear_shape(call, true, LINEAR_PACKED);
  shape.bias = has(call->nin, call->in_type, 2);
  shape.cold = true; /* kept for the way back, it was last read a step ago */
  return shape;
}

static sl_status linear_prepare(const sl_call *call, void **state) {
  sli_product_shape shape = forward_shape(call);
  return prepare(&shape, state);
}

static size_t linear_scratch(const sl_call *call, int threads) {
  (void)threads;
  sli_product_shape shape = forward_shape(call);
  return sli_product_scratch(&shape);
}

/* Rows of features that are valid of input i: its first dim that is not 1 counts them. */
static int64_t valid_rows(const sl_call *call, int i) {
  const sl_type *type = &call->in_type[i];
  int64_t all = type->ndim > 2 && type->dim[0] == 1 ? type->dim[1] : type->dim[0];
  return sl_call_rows(call, i, all) * (sl_type_rows(type) / all);
}

static void linear_cpu(const sl_call *call) {
  sli_product_run_rows(call->state, call->team, valid_rows(call, 0), call->in[0], weight(call, LINEAR_PACKED),
                       call->nin > 2 ? call->in[2] : NULL, call->out[0], call->scratch);
}

/* ---- dx = dy w ----------------------------------------------------------------- */

static sl_status linear_b_prepare(const sl_call *call, void **state) {
  sli_product_shape shape = linear_shape(call, false, LINEAR_B_PACKED);
  return prepare(&shape, state);
}

static size_t linear_b_scratch(const sl_call *call, int threads) {
  (void)threads;
  sli_product_shape shape = linear_shape(call, false, LINEAR_B_PACKED);
  return sli_product_scratch(&shape);
}

static void linear_b_cpu(const sl_call *call) {
  sli_product_run_rows(call->state, call->team, valid_rows(call, 0), call->in[0], weight(call, LINEAR_B_PACKED), NULL,
                       call->out[0], call->scratch);
}

/* ---- packed for either --------------------------------------------------------- */

typedef struct packs {
  sli_pack *of[2]; /* for linear, for linear_b; NULL: nobody reads it */
} packs;

static void pack_release(void *state) {
  packs *p = state;
  if (!p) return;
  for (int o = 0; o < 2; o++) sli_pack_destroy(p->of[o]);
  free(p);
}

static sl_status pack_prepare(const sl_call *call, void **state) {
  const sl_attrs *a = call->attrs;
  int64_t k = features(a, &call->in_type[0], 0), n = features(a, &call->in_type[0], 1);
  sli_product_shape shapes[2] = {{.m = a->rows, .n = n, .k = k, .b_transposed = !a->transposed, .bf16 = true},
                                 {.m = a->rows, .n = k, .k = n, .b_transposed = a->transposed, .bf16 = true}};
  packs *p = sli_calloc(1, sizeof *p);
  sl_status status = SL_OK;
  for (int o = 0; o < 2 && !status; o++)
    status = sli_pack_create(&shapes[o], sl_type_bytes(&call->out_type[o]), &p->of[o]);
  if (status) pack_release(p);
  else *state = p;
  return status;
}

static void pack_cpu(const sl_call *call) {
  const packs *p = call->state;
  for (int o = 0; o < 2; o++)
    if (call->out[o]) sli_pack_run(p->of[o], call->team, call->in[0], call->out[o]);
}

/* ---- dw [N, K] = dy^T x, or dw [K, N] = x^T dy for a transposed weight ------------ */

static sli_product_shape weight_shape(const sl_call *call) {
  const sl_type *dw = &call->out_type[0];
  return (sli_product_shape){.m = dw->dim[0], .n = dw->dim[1], .k = sl_type_rows(&call->in_type[0]),
                             .a_transposed = true, .add = true, .cold = true, .bf16 = call->attrs->bf16};
}

static sl_status linear_w_prepare(const sl_call *call, void **state) {
  sli_product_shape shape = weight_shape(call);
  return prepare(&shape, state);
}

static size_t linear_w_scratch(const sl_call *call, int threads) {
  (void)threads;
  sli_product_shape shape = weight_shape(call);
  return sli_product_scratch(&shape);
}

/* One row of dw, over the rows that are valid, one after another. */
static void sum_valid_rows(void *arg, int m) {
  const sl_call *call = arg;
  const sl_type *dw = &call->out_type[0];
  int a = call->attrs->transposed ? 0 : 1;
  const float *left = call->in[a], *right = call->in[1 - a];
  float *to = (float *)call->out[0] + m * dw->dim[1];
  if (!sli_accumulates(call, 0)) memset(to, 0, (size_t)dw->dim[1] * sizeof *to);
  for (int64_t r = 0, rows = valid_rows(call, 0); r < rows; r++) {
    float factor = left[r * dw->dim[0] + m];
    for (int64_t n = 0; n < dw->dim[1]; n++) to[n] += factor * right[r * dw->dim[1] + n];
  }
}

/* The library's products are made for all rows: of fewer, which differ from call to call, it is done
 * by hand, in f32. */
static bool sums_few(const sl_call *call) {
  if (valid_rows(call, 0) == sl_type_rows(&call->in_type[0])) return false;
  sl_team_for(call->team, (int)call->out_type[0].dim[0], sum_valid_rows, (void *)call);
  return true;
}

static void linear_w_cpu(const sl_call *call) {
  int left = call->attrs->transposed ? 0 : 1;
  if (sums_few(call)) return;
  sli_product_run(call->state, call->team, sli_accumulates(call, 0), call->in[left], call->in[1 - left], NULL,
                  call->out[0], call->scratch);
}

/* ---- db = sum of dy's rows ----------------------------------------------------- */

static void bias_w_cpu(const sl_call *call) {
  sli_sum_rows(call, sli_cpu()->bias_w);
}

const sl_op sl_op_linear = {
    .name = "linear", .served = &sl_op_linear_served, .min_in = 2, .max_in = 4, .nout = 1,
    .narrow_in = 1, .narrow_out = 1, .mixed = true,
    .pieces = SL_PIECES_ROWS, .whole = 14,
    .infer = linear_infer, .cost = linear_cost,
    .scratch = linear_scratch,
    .prepare = linear_prepare, .release = release, .keeps = keeps_product,
    .cpu = linear_cpu, .looks = 1, .follows = 1,
    .signatures = linear_signatures,
    .grad = {{.op = &sl_op_linear_b, .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_IN(1)}, .nof = 1, .of = {0}},
             {.op = &sl_op_linear_w, .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_DOUT(0)}, .nof = 1, .of = {1}},
             {.op = &sl_op_bias_w, .cls = SL_CLASS_W,
              .in = {SL_DOUT(0)}, .nof = 1, .of = {2}}},
};

const sl_op sl_op_linear_b = {
    .name = "linear_b", .min_in = 2, .max_in = 3, .nout = 1,
    .narrow_in = 1, .narrow_out = 1, .mixed = true,
    .pieces = SL_PIECES_ROWS, .whole = 6,
    .infer = linear_b_infer, .cost = linear_cost, .signatures = linear_b_signatures,
    .scratch = linear_b_scratch,
    .prepare = linear_b_prepare, .release = release, .keeps = keeps_product,
    .cpu = linear_b_cpu, .looks = 1, .follows = 1,
};

const sl_op sl_op_linear_w = {
    .name = "linear_w", .min_in = 2, .max_in = 2, .nout = 1,
    .narrow_in = 3, .mixed = true,
    .pieces = SL_PIECES_ROWS,
    .rounds = true, .infer = linear_w_infer, .cost = linear_w_cost,
    .scratch = linear_w_scratch,
    .prepare = linear_w_prepare, .release = release, .keeps = keeps_product,
    .cpu = linear_w_cpu, .looks = 3,
    .accumulates = 1,
};

const sl_op sl_op_pack = {
    .name = "pack", .min_in = 1, .max_in = 1, .nout = 2,
    .infer = pack_infer, .cost = pack_cost,
    .prepare = pack_prepare, .release = pack_release, .keeps = keeps_product,
    .cpu = pack_cpu,
};

const sl_op sl_op_bias_w = {
    .name = "bias_w", .min_in = 1, .max_in = 1, .nout = 1,
    .narrow_in = 1,
    .pieces = SL_PIECES_ROWS,
    .infer = bias_w_infer, .cost = bias_w_cost,
    .scratch = sli_partials_scratch, .cpu = bias_w_cpu, .accumulates = 1,
};
