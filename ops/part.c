/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that cut and join tensors: the boxing between devices that shard a tensor in different
 * ways. */
#include <stdio.h>

#include "base/base.h"
#include "ops/layout.h"
#include "ops/ops.h"
#include "ops/part.h"

/* Each byte is read once and written once. */
static void move_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                      double *flops, double *bytes) {
  (void)attrs, (void)nin, (void)in;
  *flops = 0;
  *bytes = 2.0 * (double)sl_type_bytes(&out[0]);
}

/* ---- slice ------------------------------------------------------------------------- */

static sl_status want_positions(const sl_type *part) {
  return sl_type_elements(part) ? SL_OK : sli_misfit(part, "a part must not be empty");
}

static sl_status slice_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  const sl_part *part = attrs->user;
  (void)nin;
  if (!part) return sl_fail(SL_E_SHAPE, "attrs.user must point to an sl_part");
  SLI_TRY(sli_part_check(&in[0], part));
  out[0] = sl_part_type(&in[0], part);
  return want_positions(&out[0]);
}

static sl_status slice_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type part;
  SLI_TRY(slice_infer(attrs, nin, &in[1], &part));
  part.dtype = in[0].dtype;
  out[0] = in[1];
  out[0].dtype = in[0].dtype;
  return sli_want("dy", &in[0], &part);
}

/* Splits also along the last dim, unless that is the sliced one. */
static int slice_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  int last = in[0].ndim - 1, axis = ((const sl_part *)attrs->user)->axis;
  (void)nin;
  if (axis == SL_PART_FLAT || last < 0 || axis == last) return 0;
  *out = (sl_signature){.in = {sli_split(last)}, .out = {sli_split(last)}};
  return 1;
}

/* ---- join -------------------------------------------------------------------------- */

/* Returns the joint's type, cut to the length of the inputs. */
static sl_type joint_type(const sl_joint *joint, const sl_type *in) {
  sl_type type = joint->type;
  for (int d = 0; d < type.ndim && joint->parts[0].axis >= 0 && in->ndim == type.ndim; d++)
    if (d != joint->parts[0].axis) type.dim[d] = SLI_MIN(type.dim[d], in->dim[d]);
  return type;
}

static bool overlap(const sli_cut *a, const sli_cut *b) {
  for (int r = 0; r < a->nranges; r++)
    for (int s = 0; s < b->nranges; s++) {
      int64_t begin = SLI_MAX(a->begin[r], b->begin[s]);
      int64_t end = SLI_MIN(a->begin[r] + a->count[r], b->begin[s] + b->count[s]);
      if (begin < end) return true;
    }
  return false;
}

/* Checks that each byte of the whole is in exactly one part. */
static sl_status want_tiling(const sl_type *whole, int nparts, const sl_part *parts) {
  int64_t bytes = 0, end = 0; /* end of all parts so far */
  sli_cut first = sli_part_cut(whole, &parts[0]);
  for (int p = 0; p < nparts; p++) {
    sli_cut cut = sli_part_cut(whole, &parts[p]);
    if (cut.rows != first.rows)
      return sli_misfit(whole, "parts 0 and %d must be along one dim to be joined", p);
    for (int q = 0; q < p && cut.begin[0] < end; q++) {
      sli_cut other = sli_part_cut(whole, &parts[q]);
      if (overlap(&cut, &other)) return sli_misfit(whole, "parts %d and %d must not overlap", q, p);
    }
    bytes += cut.part;
    for (int r = 0; r < cut.nranges; r++) end = SLI_MAX(end, cut.begin[r] + cut.count[r]);
  }
  return bytes == first.whole ? SL_OK : sli_misfit(whole, "parts must cover the whole");
}

static sl_status join_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  const sl_joint *joint = attrs->user;
  if (!joint) return sl_fail(SL_E_SHAPE, "attrs.user must point to an sl_joint");
  sl_type whole = joint_type(joint, &in[0]);
  for (int p = 0; p < nin; p++) {
    char name[32];
    snprintf(name, sizeof name, "part %d", p);
    SLI_TRY(sli_part_check(&whole, &joint->parts[p]));
    sl_type part = sl_part_type(&whole, &joint->parts[p]);
    SLI_TRY(sli_want(name, &in[p], &part));
    SLI_TRY(want_positions(&part));
  }
  out[0] = whole;
  return want_tiling(&whole, nin, joint->parts);
}

/* ---- sum --------------------------------------------------------------------------- */

static sl_status sum_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs;
  sl_dtype dtype = in[0].dtype == SL_F64 ? SL_F64 : SL_F32;
  SLI_TRY(sli_want_array("summand 0", &in[0], dtype, in[0].ndim ? -1 : 0));
  for (int i = 1; i < nin; i++) {
    char name[32];
    snprintf(name, sizeof name, "summand %d", i);
    SLI_TRY(sli_want(name, &in[i], &in[0]));
  }
  out[0] = in[0];
  return SL_OK;
}

static void sum_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                     double *flops, double *bytes) {
  (void)attrs;
  *flops = (double)nin * (double)sl_type_elements(&in[0]);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

/* A sum of partial sums on all inputs is partial. */
static int sum_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)in;
  *out = (sl_signature){.out = {sli_partial()}};
  for (int i = 0; i < SLI_MIN(nin, SL_SIGNATURE_ARGS); i++) out->in[i] = sli_partial();
  return 1;
}

/* ---- the sum of one part ------------------------------------------------------------- */

static sl_status sum_part_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type whole;
  SLI_TRY(sum_infer(attrs, nin, in, &whole));
  if (nin > SLI_SUM_MOST)
    return sl_fail(SL_E_SHAPE, "at most %d arrays can be summed, got %d", SLI_SUM_MOST, nin);
  return slice_infer(attrs, 1, &whole, out);
}

static void sum_part_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                          double *flops, double *bytes) {
  (void)attrs, (void)in;
  *flops = (double)nin * (double)sl_type_elements(out);
  *bytes = (double)(nin + 1) * (double)sl_type_bytes(out);
}

/* ---- ops ---------------------------------------------------------------------------- */

static uint64_t hash_part(uint64_t hash, const sl_part *part) {
  hash = sli_hash_word(hash, (uint64_t)part->axis);
  hash = sli_hash_word(hash, (uint64_t)part->nranges);
  for (int r = 0; r < part->nranges; r++) {
    hash = sli_hash_word(hash, (uint64_t)part->begin[r]);
    hash = sli_hash_word(hash, (uint64_t)part->count[r]);
  }
  return hash;
}

static uint64_t part_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  (void)nin;
  return hash_part(hash, attrs->user);
}

static uint64_t joint_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  const sl_joint *joint = attrs->user;
  hash = sli_hash_type(hash, &joint->type);
  for (int p = 0; p < nin; p++) hash = hash_part(hash, &joint->parts[p]);
  return hash;
}

const sl_op sl_op_slice = {
    .name = "slice",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = ~0u, .out = 1},
    .cut = &sl_cut_rows,
    .traits = SL_OP_PART,
    .infer = slice_infer,
    .cost = move_cost,
    .hash = part_hash,
    .shard = &(const sl_op_shard){.signatures = slice_signatures},
    .grad = {{.op = &sl_op_slice_b,
              .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_IN(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_slice_b = {
    .name = "slice_b",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .memory = &(const sl_op_memory){.unread = 2},
    .cut = &sl_cut_rows,
    .exact = &sli_exact_moves,
    .infer = slice_b_infer,
    .cost = move_cost,
    .hash = part_hash,
};

const sl_op sl_op_join = {
    .name = "join",
    .min_in = 1,
    .max_in = -1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = ~0u, .out = 1},
    .cut = &sl_cut_rows,
    .infer = join_infer,
    .cost = move_cost,
    .hash = joint_hash,
};

const sl_op sl_op_sum = {
    .name = "sum",
    .min_in = 1,
    .max_in = -1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = ~0u, .out = 1},
    .cut = &sl_cut_elements,
    .infer = sum_infer,
    .cost = sum_cost,
    .accumulates = 1,
    .shard = &(const sl_op_shard){.signatures = sum_signatures},
    .grad = {{.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}, .rest = true}},
};

const sl_op sl_op_sum_part = {
    .name = "sum_part",
    .min_in = 1,
    .max_in = -1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = ~0u, .out = 1},
    .cut = &sl_cut_rows,
    .traits = SL_OP_PART,
    .infer = sum_part_infer,
    .cost = sum_part_cost,
    .accumulates = 1,
    .hash = part_hash,
};
