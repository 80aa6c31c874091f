/* SPDX-License-Identifier: Apache-2.0 */
/* The linear map, its gradients, and the packing of its weight. */
#include "base/base.h"
#include "ops/linear.h"
#include "ops/ops.h"

static sl_type weight_type(const sl_attrs *attrs, int64_t in, int64_t out) {
  return attrs->product.transposed ? SL_TYPE(SL_F32, in, out) : SL_TYPE(SL_F32, out, in);
}

/* ---- packed weights ---------------------------------------------------------- */

static sl_status want_packed(int nin, const sl_type *in, int i, int64_t k, int64_t n) {
  if (!sli_linear_has(nin, in, i)) return SL_OK;
  sl_type packed = sli_packed_type(k, n);
  return sli_want("packed weight", &in[i], &packed);
}

/* ---- shapes and costs ---------------------------------------------------------- */

static sl_status linear_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  int64_t k = sl_type_last(&in[0]);
  if (in[1].dtype != SL_F32 || in[1].ndim != 2 || sli_linear_features(attrs, &in[1], 0) != k ||
      sli_linear_features(attrs, &in[1], 1) < 1)
    return sli_misfit(
        &in[1],
        attrs->product.transposed ? "weight must be f32[%lld, n]" : "weight must be f32[n, %lld]",
        (long long)k);
  int64_t n = sli_linear_features(attrs, &in[1], 1);
  sl_type bias = SL_TYPE(SL_F32, n);
  if (sli_linear_has(nin, in, 2)) SLI_TRY(sli_want("bias", &in[2], &bias));
  SLI_TRY(want_packed(nin, in, 3, k, n));
  out[0] = sli_type_with_last(&in[0], n);
  return SL_OK;
}

/* Splits by output features or by input features. */
static int linear_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  int to = attrs->product.transposed ? 1 : 0;
  sl_sbp last = sli_split_last(&in[0]);
  out[0] = (sl_signature){.in = {[1] = sli_split(to)}, .out = {last}};
  out[1] = (sl_signature){.in = {last, sli_split(1 - to)}, .out = {sli_partial()}};
  if (sli_linear_has(nin, in, 2)) {
    out[0].in[2] = sli_split(0);
    out[1].in[2] = sli_partial();
  }
  return 2;
}

static sl_status linear_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_want_array("dy", &in[0], SL_F32, -1));
  int64_t n = sl_type_last(&in[0]);
  if (in[1].dtype != SL_F32 || in[1].ndim != 2 || sli_linear_features(attrs, &in[1], 1) != n)
    return sli_misfit(
        &in[1],
        attrs->product.transposed ? "weight must be f32[k, %lld]" : "weight must be f32[%lld, k]",
        (long long)n);
  int64_t k = sli_linear_features(attrs, &in[1], 0);
  SLI_TRY(want_packed(nin, in, 2, n, k));
  out[0] = sli_type_with_last(&in[0], k);
  return SL_OK;
}

/* linear_b may also run in the forward pass (graph/passes/ahead.c). */
static int linear_b_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                               sl_signature *out) {
  (void)nin;
  int from = attrs->product.transposed ? 1 : 0;
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
  if (attrs->product.rows < 1) return sl_fail(SL_E_SHAPE, "attrs.product.rows must be given");
  int64_t k = sli_linear_features(attrs, &in[0], 0), n = sli_linear_features(attrs, &in[0], 1);
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

size_t sli_keeps_product(const sl_call *call, uint64_t *which) {
  uint64_t hash = sli_hash_attrs(SLI_HASH_SEED, call->op, call->attrs, call->nin);
  for (int i = 0; i < call->nin; i++) hash = sli_hash_type(hash, &call->in_type[i]);
  for (int o = 0; o < call->nout; o++) hash = sli_hash_type(hash, &call->out_type[o]);
  *which = hash;
  return 0;
}

/* ---- db = sum of dy's rows ----------------------------------------------------- */

const sl_op sl_op_linear = {
    .name = "linear",
    .attrs = {&sl_attrs_product},
    .serve = &(const sl_op_serve){.op = &sl_op_linear_served, .stored = 2},
    .min_in = 2,
    .max_in = 4,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1, .mixed = true},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = 14},
    .infer = linear_infer,
    .cost = linear_cost,
    .memory = &(const sl_op_memory){.keeps = sli_keeps_product},
    .rows = &(const sl_op_rows){.looks = 1, .follows = 1, .fixed = true},
    .shard = &(const sl_op_shard){.signatures = linear_signatures, .weight = SL_WEIGHT_PRODUCT},
    .grad = {{.op = &sl_op_linear_b,
              .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_IN(1)},
              .nwrt = 1,
              .wrt = {0}},
             {.op = &sl_op_linear_w,
              .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {1}},
             {.op = &sl_op_bias_w, .cls = SL_CLASS_W, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {2}}},
    .exact = &sli_exact_groups,
};

const sl_op sl_op_linear_b = {
    .name = "linear_b",
    .attrs = {&sl_attrs_product},
    .min_in = 2,
    .max_in = 3,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1, .mixed = true},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = 6},
    .infer = linear_b_infer,
    .cost = linear_cost,
    .shard = &(const sl_op_shard){.signatures = linear_b_signatures},
    .memory = &(const sl_op_memory){.keeps = sli_keeps_product},
    .rows = &(const sl_op_rows){.looks = 1, .follows = 1, .fixed = true},
    .exact = &sli_exact_groups,
};

const sl_op sl_op_linear_w = {
    .name = "linear_w",
    .attrs = {&sl_attrs_product},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3, .mixed = true, .rounds = true},
    .cut = &sl_cut_rows,
    .infer = linear_w_infer,
    .cost = linear_w_cost,
    .memory = &(const sl_op_memory){.keeps = sli_keeps_product},
    .rows = &(const sl_op_rows){.looks = 3, .fixed = true},
    .accumulates = 1,
    .exact = &sli_exact_by_leaf,
};

const sl_op sl_op_pack = {
    .name = "pack",
    .attrs = {&sl_attrs_product},
    .min_in = 1,
    .max_in = 1,
    .nout = 2,
    .infer = pack_infer,
    .cost = pack_cost,
    .memory = &(const sl_op_memory){.keeps = sli_keeps_product},
    .rows = &(const sl_op_rows){.fixed = true},
};

const sl_op sl_op_bias_w = {
    .name = "bias_w",
    .attrs = {&sl_attrs_product},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1},
    .cut = &sl_cut_rows,
    .infer = bias_w_infer,
    .cost = bias_w_cost,
    .accumulates = 1,
};
