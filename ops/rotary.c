/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary position ops. The table of angles is a state shared by all calls of a device with the same
 * angles. */
#include "base/base.h"
#include "ops/layout.h"
#include "ops/batch.h"
#include "ops/ops.h"
#include "ops/rotary.h"

static sl_status rotary_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, 3));
  const sl_rope *rope = attrs->user;
  int64_t heads = attrs->rotary.heads;
  bool part = rope && rope->part > 0 && rope->part < 1;
  if (heads < 1 || in[0].dim[2] % (part ? heads : 2 * heads))
    return sli_misfit(&in[0], "x must be f32[b, t, n] with n a multiple of %s%d heads",
                      part ? "" : "2 * ", attrs->rotary.heads);
  int64_t width = in[0].dim[2] / heads, turned = sli_rotary_turned(attrs, width);
  if (turned < 2 || turned > width || turned % 2)
    return sli_misfit(&in[0], "%g of a head's %lld numbers must be an even number to rotate",
                      rope->part, (long long)width);
  if (rope && rope->pairs && rope->pairs != turned / 2)
    return sli_misfit(&in[0], "longrope has factors for %d pairs of a head, which has %lld",
                      rope->pairs, (long long)turned / 2);
  out[0] = in[0];
  return SL_OK;
}

/* Splits by sequences, positions or heads. */
static int rotary_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  int n = 0;
  out[n++] = (sl_signature){.in = {sli_split(0)}, .out = {sli_split(0)}};
  out[n++] = (sl_signature){.in = {sli_split(1)}, .out = {sli_split(1)}, .first = 1};
  out[n++] = (sl_signature){.in = {sli_split(2)}, .out = {sli_split(2)}, .heads = true};
  return n;
}

SLI_COST(rotary_cost, 0, 1, 3)

static size_t rotary_keeps(const sl_call *call, uint64_t *which) {
  sli_rotary_shape t = sli_rotary_shape_of(call);
  *which = sli_hash_word(SLI_HASH_SEED, (uint64_t)t.positions);
  double theta = call->attrs->rotary.theta > 0 ? (double)call->attrs->rotary.theta : 10000.0;
  *which = sli_hash_real(sli_hash_word(*which, (uint64_t)t.pairs), theta);
  *which = sli_rope_hash(*which, call->attrs, 1);
  return sli_rotary_table_bytes(&t);
}

const sl_op sl_op_rotary = {
    .name = "rotary",
    .attrs = {&sl_attrs_rotary},
    .serve = &(const sl_op_serve){.op = &sl_op_rotary_served},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .traits = SL_OP_CHEAP,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_POSITIONS},
    .memory = &(const sl_op_memory){.in_place = {1}, .keeps = rotary_keeps},
    .infer = rotary_infer,
    .cost = rotary_cost,
    .hash = sli_rope_hash,
    .shard = &(const sl_op_shard){.signatures = rotary_signatures},
    .grad = {{.op = &sl_op_rotary_b, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}},
    .rows = &(const sl_op_rows){.fixed = true},
};

const sl_op sl_op_rotary_b = {
    .name = "rotary_b",
    .attrs = {&sl_attrs_rotary},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .cut = &sl_cut_rows,
    .memory = &(const sl_op_memory){.in_place = {1}, .keeps = rotary_keeps},
    .infer = rotary_infer,
    .cost = rotary_cost,
    .hash = sli_rope_hash,
    .rows = &(const sl_op_rows){.fixed = true},
};

/* ---- serving: positions of any sequences ------------------------------------------------ */

static sl_status rotary_served_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_type *out) {
  SLI_TRY(sli_want_batch(nin, in, 1));
  return rotary_infer(attrs, 1, in, out);
}

const sl_op sl_op_rotary_served = {
    .name = "rotary_served",
    .attrs = {&sl_attrs_rotary},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .infer = rotary_served_infer,
    .cost = rotary_cost,
    .memory = &(const sl_op_memory){.keeps = rotary_keeps},
    .hash = sli_rope_hash,
    .rows = &(const sl_op_rows){.looks = 1, .follows = 1, .fixed = true},
};
