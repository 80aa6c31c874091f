/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding bag ops: sums or means of table rows, and their gradients. One thread adds the
 * gradients of a table row, in the order of the bags. */
#include "ops/bag.h"
#include "ops/ops.h"

/* ---- shapes ------------------------------------------------------------------------------ */

static sl_status bag_infer(const sl_attrs *attrs, const sl_type *ids, const sl_type *table,
                           const sl_type *weights, sl_type *y) {
  const sl_bag *bag = attrs->user;
  SLI_TRY(sli_want_array("ids", ids, SL_I32, -1));
  SLI_TRY(sli_want_array("table", table, SL_F32, 2));
  *y = *ids;
  y->dtype = SL_F32;
  y->dim[y->ndim - 1] = table->dim[1];
  if (!weights || weights->ndim < 0) return SL_OK;
  if (bag && bag->mean) return sl_fail(SL_E_SHAPE, "weights need sums, but a mean is asked for");
  sl_type want = *ids;
  want.dtype = SL_F32;
  return sli_want("weights", weights, &want);
}

static sl_status embedding_bag_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_type *out) {
  return bag_infer(attrs, &in[0], &in[1], nin > 2 ? &in[2] : NULL, &out[0]);
}

static sl_status embedding_bag_w_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                       sl_type *out) {
  sl_type y;
  SLI_TRY(bag_infer(attrs, &in[0], &in[2], nin > 3 ? &in[3] : NULL, &y));
  SLI_TRY(sli_want("dy", &in[1], &y));
  out[0] = in[2];
  return SL_OK;
}

static sl_status embedding_bag_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                       sl_type *out) {
  (void)nin;
  sl_type y;
  SLI_TRY(bag_infer(attrs, &in[0], &in[2], NULL, &y));
  SLI_TRY(sli_want("dy", &in[1], &y));
  out[0] = in[0];
  out[0].dtype = SL_F32;
  return SL_OK;
}

/* Counts bytes: each id moves one row of the table. */
static void bag_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                     double *flops, double *bytes) {
  double width = (double)sl_type_last(&in[1]);
  (void)attrs, (void)nin, (void)out;
  *flops = 2 * (double)sl_type_elements(&in[0]) * width;
  *bytes = *flops * sizeof(float);
}

/* Splits by bags, table rows or columns; for sums also by the ids within a bag. */
static int bag_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  const sl_bag *bag = attrs->user;
  int last = in[0].ndim - 1, n = 0;
  bool weights = nin > 2 && in[2].ndim >= 0;
  for (int d = 0; d < last; d++) {
    out[n] = (sl_signature){.in = {sli_split(d)}, .out = {sli_split(d)}};
    if (weights) out[n].in[2] = sli_split(d);
    n++;
  }
  out[n++] = (sl_signature){.in = {[1] = sli_split(0)}, .out = {sli_partial()}, .first = 2};
  out[n++] = (sl_signature){.in = {[1] = sli_split(1)}, .out = {sli_split(last)}};
  if (bag && bag->mean) return n;
  out[n] = (sl_signature){.in = {sli_split(last)}, .out = {sli_partial()}};
  if (weights) out[n].in[2] = sli_split(last);
  return n + 1;
}

static uint64_t bag_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  const sl_bag *bag = attrs->user;
  (void)nin;
  hash = sli_hash_word(hash, (uint64_t)bag->mean + 2 * (uint64_t)bag->pads);
  return sli_hash_word(hash, (uint64_t)bag->padding);
}

static sl_status bag_check(const sl_call *call) {
  const int32_t *ids = call->in[0];
  const sl_bag *bag = call->attrs->user;
  int64_t count = call->attrs->place.whole;
  if (!count && call->attrs->place.partial) return SL_OK;
  if (!count) count = call->in_type[1].dim[0];
  for (int64_t i = 0; i < sl_type_elements(&call->in_type[0]); i++)
    if ((ids[i] < 0 || ids[i] >= count) && !sli_bag_pads(bag, ids[i]))
      return sl_fail(SL_E_INPUT, "element %lld of its ids is %d, but the table has rows 0 to %lld",
                     (long long)i, (int)ids[i], (long long)count - 1);
  return SL_OK;
}

/* ---- ops --------------------------------------------------------------------------------- */

const sl_op sl_op_embedding_bag = {
    .name = "embedding_bag",
    .min_in = 2,
    .max_in = 3,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.out = 1},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .shard = &(const sl_op_shard){.signatures = bag_signatures},
    .hash = bag_hash,
    .infer = embedding_bag_infer,
    .cost = bag_cost,
    .check = bag_check,
    .grad = {{.op = &sl_op_embedding_bag_w,
              .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_DOUT(0), SL_IN(1), SL_IN(2)},
              .nwrt = 1,
              .wrt = {1}},
             {.op = &sl_op_embedding_bag_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_DOUT(0), SL_IN(1)},
              .nwrt = 1,
              .wrt = {2}}},
};

const sl_op sl_op_embedding_bag_w = {
    .name = "embedding_bag_w",
    .min_in = 3,
    .max_in = 4,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 2},
    .memory = &(const sl_op_memory){.unread = 4},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .hash = bag_hash,
    .infer = embedding_bag_w_infer,
    .cost = bag_cost,
    .accumulates = 1,
};

const sl_op sl_op_embedding_bag_b = {
    .name = "embedding_bag_b",
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 2},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .hash = bag_hash,
    .infer = embedding_bag_b_infer,
    .cost = bag_cost,
};
