/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that gather elements by index along a dim, and that scatter-add to indexed positions. One
 * thread adds all values of a position, in the order of the index. */
#include "ops/indexing.h"
#include "ops/ops.h"
#include "ops/space.h"

/* ---- shapes ---------------------------------------------------------------------------- */

static sl_status want_numbers(const char *name, const sl_type *x) {
  if (x->dtype == SL_I32) return sli_want_array(name, x, SL_I32, -1);
  return sli_want_array(name, x, SL_F32, -1);
}

static sl_status gather_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_numbers("x", &in[0]));
  return sli_indexing_check(attrs, &in[0], &in[1], &out[0]);
}

static sl_status gather_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  sl_type y;
  SLI_TRY(sli_indexing_check(attrs, &in[2], &in[0], &y));
  y.dtype = sli_sum_dtype(&in[1]);
  SLI_TRY(sli_want("dy", &in[1], &y));
  out[0] = in[2];
  out[0].dtype = y.dtype;
  return SL_OK;
}

/* Without x, attrs.place.whole gives the output's length. */
static sl_status scatter_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  bool onto = nin > 2 && in[2].ndim >= 0;
  SLI_TRY(sli_want_array("src", &in[0], SL_F32, -1));
  int axis = sli_one_axis(attrs, &in[0]);
  sl_type src, y = onto ? in[2] : in[0];
  if (onto) SLI_TRY(sli_want_array("x", &in[2], SL_F32, -1));
  else if (attrs->place.whole < 1)
    return sl_fail(
        SL_E_SHAPE,
        "attrs.place.whole must give the number of positions of the sums if there is no x");
  else if (axis < y.ndim) y.dim[axis] = attrs->place.whole;
  SLI_TRY(sli_indexing_check(attrs, &y, &in[1], &src));
  SLI_TRY(sli_want("src", &in[0], &src));
  out[0] = y;
  return SL_OK;
}

SLI_COST(gather_cost, 1, 1, 1)

/* Counts only the indexed elements, which are read and written. */
static void scatter_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                         double *flops, double *bytes) {
  (void)attrs;
  *flops = (double)sl_type_elements(&in[0]);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

/* ---- signatures ------------------------------------------------------------------------ */

/* Entry of the index for a split of `whole` along a dim other than the indexed one. An index of one
 * entry there serves all of `whole`, unless that has one position too. */
static sl_sbp index_along(const sl_type *index, const sl_type *whole, int dim) {
  return index->dim[dim] == whole->dim[dim] ? sli_split(dim) : (sl_sbp){0};
}

/* Splits by the dims that are not indexed, by entries of the index, and by positions of the indexed
 * dim. */
static int gather_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  int axis = sli_one_axis(attrs, &in[0]), n = 0;
  (void)nin;
  for (int d = 0; d < in[0].ndim; d++)
    if (d != axis)
      out[n++] = (sl_signature){.in = {sli_split(d), index_along(&in[1], &in[0], d)},
                                .out = {sli_split(d)}};
  out[n++] = (sl_signature){.in = {[1] = sli_split(axis)}, .out = {sli_split(axis)}};
  if (in[0].dtype == SL_I32) return n;
  out[n++] = (sl_signature){.in = {sli_split(axis)}, .out = {sli_partial()}, .first = 1};
  out[n++] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  return n;
}

static int scatter_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                              sl_signature *out) {
  int axis = sli_one_axis(attrs, &in[0]), n = 0;
  bool onto = nin > 2 && in[2].ndim >= 0;
  for (int d = 0; d < in[0].ndim; d++)
    if (d != axis)
      out[n++] = (sl_signature){.in = {sli_split(d), index_along(&in[1], &in[0], d)},
                                .out = {sli_split(d)}};
  for (int s = 0; s < n && onto; s++) out[s].in[2] = out[s].in[0];
  out[n++] = (sl_signature){.in = {sli_split(axis), sli_split(axis)}, .out = {sli_partial()}};
  out[n++] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  if (!onto) return n;
  out[n - 1].in[2] = out[n - 2].in[2] = sli_partial();
  out[n++] = (sl_signature){.in = {[2] = sli_split(axis)}, .out = {sli_split(axis)}, .first = 3};
  return n;
}

/* ---- checks of data -------------------------------------------------------------------- */

/* Checks the values of an index. `there` is the number of positions of this array, which may be a
 * part of the whole. */
static sl_status check_index(const sl_call *call, int64_t there) {
  int64_t count = call->attrs->place.whole ? call->attrs->place.whole : there;
  if (call->attrs->place.partial && !call->attrs->place.whole) return SL_OK;
  const sl_type *type = &call->in_type[1];
  const int32_t *index = call->in[1];
  char text[SL_TYPE_TEXT];
  for (int64_t i = 0; i < sl_type_elements(type); i++)
    if (index[i] < 0 || index[i] >= count)
      return sl_fail(SL_E_INPUT,
                     "element %lld of its index, %s, is %d, but there are positions 0 to %lld",
                     (long long)i, sl_type_format(text, type), (int)index[i], (long long)count - 1);
  return SL_OK;
}

static sl_status gather_check(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  return check_index(call, x->dim[sli_one_axis(call->attrs, x)]);
}

static sl_status scatter_check(const sl_call *call) {
  const sl_type *y = &call->out_type[0];
  return check_index(call, y->dim[sli_one_axis(call->attrs, y)]);
}

/* ---- ops ------------------------------------------------------------------------------- */

const sl_op sl_op_gather = {
    .name = "gather",
    .attrs = {&sl_attrs_along},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1, .mixed = true},
    .traits = SL_OP_CHEAP,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_AXIS},
    .shard = &(const sl_op_shard){.signatures = gather_signatures},
    .infer = gather_infer,
    .cost = gather_cost,
    .check = gather_check,
    .grad = {{.op = &sl_op_gather_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(1), SL_DOUT(0), SL_IN(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_gather_b = {
    .name = "gather_b",
    .attrs = {&sl_attrs_along},
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 6, .out = 1, .mixed = true},
    .memory = &(const sl_op_memory){.unread = 4},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .exact = &sli_exact_moves,
    .infer = gather_b_infer,
    .cost = gather_cost,
    .accumulates = 1,
};

const sl_op sl_op_scatter_add = {
    .name = "scatter_add",
    .attrs = {&sl_attrs_along},
    .min_in = 2,
    .max_in = 3,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 5, .out = 1, .mixed = true},
    .memory = &(const sl_op_memory){.in_place = {4}},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .shard = &(const sl_op_shard){.signatures = scatter_signatures},
    .infer = scatter_infer,
    .cost = scatter_cost,
    .check = scatter_check,
    .grad = {{.op = &sl_op_gather,
              .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_IN(1)},
              .nwrt = 1,
              .wrt = {0}},
             {.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {2}}},
};
