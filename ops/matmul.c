/* SPDX-License-Identifier: Apache-2.0 */
/* Batched matrix products. */
#include "ops/matmul.h"

#include "ops/ops.h"

/* ---- shapes ---------------------------------------------------------------------------- */

static sl_type stack_of(const sl_type *type) {
  sl_type t = *type;
  t.ndim -= 2;
  return t;
}

/* Returns the rows (0) or columns (1) of a matrix after its transposition. */
static int64_t side(const sl_type *type, bool transposed, int which) {
  return type->dim[type->ndim - 2 + (transposed ? 1 - which : which)];
}

static sl_status matmul_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  for (int i = 0; i < 2; i++) {
    SLI_TRY(sli_want_array(i ? "b" : "a", &in[i], SL_F32, -1));
    if (in[i].ndim < 2) return sli_misfit(&in[i], "%s must have at least two dims", i ? "b" : "a");
  }
  int64_t k = side(&in[0], attrs->product.left_transposed, 1);
  if (side(&in[1], attrs->product.transposed, 0) != k)
    return sli_misfit(
        &in[1],
        attrs->product.transposed ? "b must be f32[..., n, %lld]" : "b must be f32[..., %lld, n]",
        (long long)k);
  sl_type stacks[] = {stack_of(&in[0]), stack_of(&in[1])};
  SLI_TRY(sli_broadcast(2, stacks, &out[0]));
  out[0].dim[out[0].ndim++] = side(&in[0], attrs->product.left_transposed, 0);
  out[0].dim[out[0].ndim++] = side(&in[1], attrs->product.transposed, 1);
  return SL_OK;
}

static sl_status back_infer(const sl_attrs *attrs, const sl_type *in, int of, sl_type *out) {
  sl_type y;
  SLI_TRY(matmul_infer(attrs, 2, in, &y));
  SLI_TRY(sli_want("dy", &in[2], &y));
  out[0] = in[of];
  return SL_OK;
}

static sl_status matmul_left_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_type *out) {
  (void)nin;
  return back_infer(attrs, in, 0, out);
}

static sl_status matmul_right_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                      sl_type *out) {
  (void)nin;
  return back_infer(attrs, in, 1, out);
}

/* The backward products have the same number and size. */
static void matmul_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                        double *flops, double *bytes) {
  sl_type y;
  *bytes = sli_argument_bytes(nin, in, 1, out);
  if (matmul_infer(attrs, 2, in, &y)) y = out[0];
  *flops =
      2 * (double)sl_type_elements(&y) * (double)side(&in[0], attrs->product.left_transposed, 1);
}

/* ---- signatures --------------------------------------------------------------------------- */

/* Splits by the batch dims that have the output's length. */
static int stack_signatures(const sl_type *in, const sl_type *y, sl_signature *out) {
  for (int d = 0; d < y->ndim - 2; d++) {
    out[d] = (sl_signature){.out = {sli_split(d)}};
    for (int i = 0; i < 2; i++) {
      int own = d - (y->ndim - in[i].ndim);
      if (own >= 0 && in[i].dim[own] == y->dim[d]) out[d].in[i] = sli_split(own);
    }
  }
  return y->ndim - 2;
}

static int matmul_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  sl_type y;
  if (matmul_infer(attrs, nin, in, &y)) return 0;
  bool ta = attrs->product.left_transposed, tb = attrs->product.transposed;
  int n = stack_signatures(in, &y, out), a = in[0].ndim - 2, b = in[1].ndim - 2;
  out[n++] = (sl_signature){.in = {sli_split(a + ta)}, .out = {sli_split(y.ndim - 2)}};
  out[n++] = (sl_signature){.in = {[1] = sli_split(b + !tb)}, .out = {sli_split(y.ndim - 1)}};
  out[n++] = (sl_signature){.in = {sli_split(a + !ta), sli_split(b + tb)}, .out = {sli_partial()}};
  out[n++] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  out[n++] = (sl_signature){.in = {[1] = sli_partial()}, .out = {sli_partial()}};
  return n;
}

/* ---- operands ------------------------------------------------------------------------------- */

/* da = dy op(b)^T, or its transpose; db = op(a)^T dy, or its transpose. */
sli_matmul sli_matmul_of(const sl_call *call) {
  const sl_type *in = call->in_type, *out = &call->out_type[0];
  bool ta = call->attrs->product.left_transposed, tb = call->attrs->product.transposed;
  sli_matmul p = {.a = 0, .b = 1, .a_transposed = ta, .b_transposed = tb};
  if (call->op == &sl_op_matmul_left_b) {
    p = ta ? (sli_matmul){.a = 1, .b = 2, .a_transposed = tb, .b_transposed = true}
           : (sli_matmul){.a = 2, .b = 1, .b_transposed = !tb};
  } else if (call->op == &sl_op_matmul_right_b) {
    p = tb ? (sli_matmul){.a = 2, .b = 0, .a_transposed = true, .b_transposed = ta}
           : (sli_matmul){.a = 0, .b = 2, .a_transposed = !ta};
  }
  p.m = out->dim[out->ndim - 2];
  p.n = out->dim[out->ndim - 1];
  p.k = side(&in[p.a], p.a_transposed, 1);
  sl_type stacks[3] = {stack_of(&in[p.a]), stack_of(&in[p.b]), stack_of(out)}, whole;
  const sl_type *types[SLI_SPACE_ARRAYS] = {&stacks[0], &stacks[1], NULL, &stacks[2]};
  (void)sli_broadcast(3, stacks, &whole);
  p.batch = sli_space_make(&whole, types);
  return p;
}

const sl_op sl_op_matmul = {
    .name = "matmul",
    .attrs = {&sl_attrs_product},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3, .out = 1},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .infer = matmul_infer,
    .cost = matmul_cost,
    .rows = &(const sl_op_rows){.fixed = true},
    .shard = &(const sl_op_shard){.signatures = matmul_signatures},
    .grad = {{.op = &sl_op_matmul_left_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}},
             {.op = &sl_op_matmul_right_b,
              .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_IN(1), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {1}}},
};

#define BACK(name_, unread_)                              \
  const sl_op sl_op_##name_ = {                           \
      .name = #name_,                                     \
      .attrs = {&sl_attrs_product},                       \
      .min_in = 3,                                        \
      .max_in = 3,                                        \
      .nout = 1,                                          \
      .narrow = &(const sl_op_narrow){.in = 7, .out = 1}, \
      .memory = &(const sl_op_memory){.unread = unread_}, \
      .cut = &sl_cut_elements,                            \
      .infer = name_##_infer,                             \
      .cost = matmul_cost,                                \
      .rows = &(const sl_op_rows){.fixed = true},         \
      .accumulates = 1,                                   \
  };
BACK(matmul_left_b, 1)
BACK(matmul_right_b, 2)
