/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/collective.h"

#include <string.h>

static sl_status want_members(const sl_attrs *attrs) {
  return attrs->members.count > 0
             ? SL_OK
             : sl_fail(SL_E_SHAPE, "attrs.members.count must be the number of members");
}

/* Returns the split dim, or fails. */
static sl_status find_split(const sl_attrs *attrs, const sl_type *in, int *dim) {
  SLI_TRY(want_members(attrs));
  *dim = attrs->members.axes ? __builtin_ctz(attrs->members.axes) : 0;
  return *dim < in->ndim ? SL_OK : sli_misfit(in, "an array must have dim %d", *dim);
}

static sl_status all_reduce_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_members(attrs));
  if (in[0].dtype == SL_I32) return sli_misfit(&in[0], "a summand must be f32, bf16 or f64");
  out[0] = in[0];
  return SL_OK;
}

/* Cuts a type to a member's part along a dim: an equal one, or that of attrs.user. */
static sl_status cut_part(const sl_attrs *attrs, int dim, int member, sl_type *type) {
  int64_t begin;
  if (!attrs->user && type->dim[dim] % attrs->members.count)
    return sli_misfit(type, "dim %d must have an equal part for each of %lld members", dim,
                      (long long)attrs->members.count);
  type->dim[dim] = sli_collective_part(attrs, type, member, &begin);
  return SL_OK;
}

static sl_status reduce_scatter_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                      sl_type *out) {
  int dim;
  SLI_TRY(all_reduce_infer(attrs, nin, in, out));
  SLI_TRY(find_split(attrs, &in[0], &dim));
  return cut_part(attrs, dim, (int)attrs->members.own, &out[0]);
}

static sl_status all_gather_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  const sl_joint *joint = attrs->user;
  int dim;
  (void)nin;
  SLI_TRY(find_split(attrs, &in[0], &dim));
  out[0] = in[0];
  out[0].dim[dim] = joint ? joint->type.dim[dim] : out[0].dim[dim] * attrs->members.count;
  sl_type part = out[0];
  SLI_TRY(cut_part(attrs, dim, (int)attrs->members.own, &part));
  return sli_want("a part", &in[0], &part);
}

static sl_status all_to_all_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(want_members(attrs));
  if (nin != attrs->members.count)
    return sl_fail(SL_E_SHAPE, "%lld members have a part each, got %d",
                   (long long)attrs->members.count, nin);
  memcpy(out, attrs->user, (size_t)nin * sizeof *out);
  return sli_want("the own part", &in[attrs->members.own], &out[attrs->members.own]);
}

static int all_to_all_outputs(const sl_attrs *attrs, int nin) {
  (void)attrs;
  return nin;
}

bool sli_is_collective(const sl_op *op) {
  return op == &sl_op_all_reduce || op == &sl_op_reduce_scatter || op == &sl_op_all_gather ||
         op == &sl_op_all_to_all;
}

int64_t sli_collective_rows(const sl_op *op, const sl_attrs *attrs, const sl_type *in) {
  int64_t rows = 1;
  if (op == &sl_op_all_reduce || op == &sl_op_all_to_all) return 1;
  for (int d = 0; d < __builtin_ctz(attrs->members.axes); d++) rows *= in->dim[d];
  return rows;
}

int64_t sli_collective_part(const sl_attrs *attrs, const sl_type *whole, int member,
                            int64_t *begin) {
  const sl_joint *joint = attrs->user;
  int64_t equal = whole->dim[__builtin_ctz(attrs->members.axes)] / attrs->members.count;
  *begin = joint ? joint->parts[member].begin[0] : member * equal;
  return joint ? joint->parts[member].count[0] : equal;
}

/* The device's own memory: every byte is read once and written once. */
static void collective_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                            double *flops, double *bytes) {
  (void)attrs;
  *flops = 0;
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

static void all_to_all_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                            double *flops, double *bytes) {
  (void)attrs;
  *flops = 0;
  *bytes = sli_argument_bytes(nin, in, nin, out);
}

double sli_collective_received(const sl_op *op, const sl_attrs *attrs, const sl_type *in,
                               const sl_type *out) {
  int64_t members = attrs->members.count;
  if (op == &sl_op_all_gather) return (double)(sl_type_bytes(out) - sl_type_bytes(in));
  if (op == &sl_op_reduce_scatter && attrs->user)
    return (double)(members - 1) * (double)sl_type_bytes(out);
  if (op != &sl_op_all_to_all)
    return (op == &sl_op_all_reduce ? 2 : 1) * (double)(members - 1) / (double)members *
           (double)sl_type_bytes(in);
  double bytes = 0;
  for (int64_t m = 0; m < members; m++)
    if (m != attrs->members.own) bytes += (double)sl_type_bytes(&out[m]);
  return bytes;
}

/* ---- ops ---------------------------------------------------------------------------- */

static uint64_t parts_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  (void)nin;
  return attrs->user ? sl_op_join.hash(hash, attrs, (int)attrs->members.count) : hash;
}

static uint64_t types_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  const sl_type *types = attrs->user;
  for (int m = 0; m < nin; m++) hash = sli_hash_type(hash, &types[m]);
  return hash;
}

#define COLLECTIVE(name_)                                 \
  const sl_op sl_op_##name_ = {                           \
      .name = #name_,                                     \
      .attrs = {&sl_attrs_members},                       \
      .min_in = 1,                                        \
      .max_in = 1,                                        \
      .nout = 1,                                          \
      .narrow = &(const sl_op_narrow){.in = 1, .out = 1}, \
      .cut = &sl_cut_rows,                                \
      .infer = name_##_infer,                             \
      .cost = collective_cost,                            \
      .hash = parts_hash,                                 \
  }

COLLECTIVE(all_reduce);
COLLECTIVE(reduce_scatter);
COLLECTIVE(all_gather);

const sl_op sl_op_all_to_all = {
    .name = "all_to_all",
    .min_in = 2,
    .max_in = -1,
    .nout = -1,
    .outputs = all_to_all_outputs,
    .narrow = &(const sl_op_narrow){.in = ~0u, .out = ~0u},
    .cut = &sl_cut_rows,
    .infer = all_to_all_infer,
    .cost = all_to_all_cost,
    .hash = types_hash,
};
