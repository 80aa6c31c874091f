/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of the linear map, its gradients and the packing of its weight. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/product.h"
#include "ops/linear.h"
#include "ops/ops.h"

/* ---- products ------------------------------------------------------------------ */

static void release(void *state) { sli_product_destroy(state); }

/* Returns the shape of y = x w^T if `forward`, otherwise of dx = dy w. The weight is packed (input
 * `packed`), or it is input 1, which the product rounds (attrs.numbers.bf16) or leaves in f32. */
static sli_product_shape linear_shape(const sl_call *call, bool forward, int packed) {
  const sl_type *x = &call->in_type[0], *y = &call->out_type[0];
  bool is_packed = sli_linear_has(call->nin, call->in_type, packed);
  sli_product_shape shape = {.m = sl_type_rows(x),
                             .n = sl_type_last(y),
                             .k = sl_type_last(x),
                             .b_transposed = forward != call->attrs->product.transposed,
                             .bf16 = call->attrs->numbers.bf16 || is_packed,
                             .b_packed = is_packed};
  sli_product_order(&shape, call->attrs);
  return shape;
}

static const void *weight(const sl_call *call, int packed) {
  return call->in[sli_linear_has(call->nin, call->in_type, packed) ? packed : 1];
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
  shape.bias = sli_linear_has(call->nin, call->in_type, 2);
  shape.cold = true; /* kept for the backward pass; y was last read a step ago */
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

static void linear_cpu(const sl_call *call) {
  sli_product_run_rows(call->state, call->team, sli_valid_rows(call, 0), call->in[0],
                       weight(call, LINEAR_PACKED), call->nin > 2 ? call->in[2] : NULL,
                       call->out[0], call->scratch);
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
  sli_product_run_rows(call->state, call->team, sli_valid_rows(call, 0), call->in[0],
                       weight(call, LINEAR_B_PACKED), NULL, call->out[0], call->scratch);
}

/* ---- packing for linear and linear_b ------------------------------------------- */

typedef struct packs {
  sli_pack *items[2]; /* for linear and for linear_b; NULL: unused */
} packs;

static void pack_release(void *state) {
  packs *p = state;
  if (!p) return;
  for (int o = 0; o < 2; o++) sli_pack_destroy(p->items[o]);
  free(p);
}

static sl_status pack_prepare(const sl_call *call, void **state) {
  const sl_attrs *a = call->attrs;
  int64_t k = sli_linear_features(a, &call->in_type[0], 0),
          n = sli_linear_features(a, &call->in_type[0], 1);
  sli_product_shape shapes[2] = {
      {.m = a->product.rows, .n = n, .k = k, .b_transposed = !a->product.transposed, .bf16 = true},
      {.m = a->product.rows, .n = k, .k = n, .b_transposed = a->product.transposed, .bf16 = true}};
  packs *p = sli_calloc(1, sizeof *p);
  sl_status status = SL_OK;
  for (int o = 0; o < 2 && !status; o++)
    status = sli_pack_create(&shapes[o], sl_type_bytes(&call->out_type[o]), &p->items[o]);
  if (status) pack_release(p);
  else *state = p;
  return status;
}

static void pack_cpu(const sl_call *call) {
  const packs *p = call->state;
  for (int o = 0; o < 2; o++)
    if (call->out[o]) sli_pack_run(p->items[o], call->team, call->in[0], call->out[o]);
}

/* ---- dw [N, K] = dy^T x, or dw [K, N] = x^T dy for a transposed weight ------------ */

/* Returns the rows per leaf of an exact sum. */
static int64_t rows_of_leaf(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  int64_t rows = sl_type_rows(x) / x->dim[0];
  return call->attrs->numbers.positions & 1 ? rows / x->dim[1] * call->attrs->numbers.leaf : rows;
}

static sli_product_shape weight_shape(const sl_call *call) {
  const sl_type *dw = &call->out_type[0];
  sli_product_shape shape = {.m = dw->dim[0],
                             .n = dw->dim[1],
                             .k = sl_type_rows(&call->in_type[0]),
                             .a_transposed = true,
                             .add = true,
                             .cold = true,
                             .bf16 = call->attrs->numbers.bf16};
  sli_product_order(&shape, call->attrs);
  if (call->attrs->numbers.leaves) shape.chunk = rows_of_leaf(call);
  return shape;
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

/* Computes one row of dw, adding the valid rows one after another. */
static void sum_valid_rows(void *arg, int m) {
  const sl_call *call = arg;
  const sl_type *dw = &call->out_type[0];
  int a = call->attrs->product.transposed ? 0 : 1;
  const float *left = call->in[a], *right = call->in[1 - a];
  float *to = (float *)call->out[0] + m * dw->dim[1];
  if (!sli_accumulates(call, 0)) memset(to, 0, (size_t)dw->dim[1] * sizeof *to);
  for (int64_t r = 0, rows = sli_valid_rows(call, 0); r < rows; r++) {
    float factor = left[r * dw->dim[0] + m];
    for (int64_t n = 0; n < dw->dim[1]; n++) to[n] += factor * right[r * dw->dim[1] + n];
  }
}

/* Computes dw without the library, in f32, if not all rows are valid. The library's products are
 * built for all rows, and the valid length varies from call to call. */
static bool sums_few(const sl_call *call) {
  int64_t rows = sli_valid_rows(call, 0);
  if (rows == sl_type_rows(&call->in_type[0])) return false;
  if (call->attrs->numbers.exact && rows) {
    int left = call->attrs->product.transposed ? 0 : 1;
    sli_product_run_steps(call->state, call->team, rows, sli_accumulates(call, 0), call->in[left],
                          call->in[1 - left], call->out[0]);
    return true;
  }
  sl_team_for(call->team, (int)call->out_type[0].dim[0], sum_valid_rows, (void *)call);
  return true;
}

/* Rounds the sum of each leaf, and adds them in f64. */
static void sum_leaves(const sl_call *call) {
  int left = call->attrs->product.transposed ? 0 : 1;
  int64_t rows = sli_valid_rows(call, 0);
  bool add = sli_accumulates(call, 0);
  if (!rows && !add) memset(call->out[0], 0, sl_type_bytes(&call->out_type[0]));
  if (rows)
    sli_product_run_leaves(call->state, call->team, rows, add, call->in[left], call->in[1 - left],
                           call->out[0]);
}

static void linear_w_cpu(const sl_call *call) {
  int left = call->attrs->product.transposed ? 0 : 1;
  if (call->attrs->numbers.leaves) {
    sum_leaves(call);
    return;
  }
  if (sums_few(call)) return;
  sli_product_run(call->state, call->team, sli_accumulates(call, 0), call->in[left],
                  call->in[1 - left], NULL, call->out[0], call->scratch);
}

/* ---- db = sum of dy's rows ----------------------------------------------------- */

static void bias_w_cpu(const sl_call *call) { sli_sum_rows(call, sli_cpu()->bias_w); }

const sl_kernel sli_cpu_linear = {
    .backend = "cpu",
    .run = linear_cpu,
    .scratch = linear_scratch,
    .prepare = linear_prepare,
    .release = release,
};

const sl_kernel sli_cpu_linear_b = {
    .backend = "cpu",
    .run = linear_b_cpu,
    .scratch = linear_b_scratch,
    .prepare = linear_b_prepare,
    .release = release,
};

const sl_kernel sli_cpu_linear_w = {
    .backend = "cpu",
    .run = linear_w_cpu,
    .scratch = linear_w_scratch,
    .prepare = linear_w_prepare,
    .release = release,
};

const sl_kernel sli_cpu_pack = {
    .backend = "cpu",
    .run = pack_cpu,
    .prepare = pack_prepare,
    .release = pack_release,
};

const sl_kernel sli_cpu_bias_w = {
    .backend = "cpu",
    .run = bias_w_cpu,
    .scratch = sli_partials_scratch,
};
