/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that share the rows of a served tick among devices (--sequence). A tick rarely has all the
 * rows that it has room for, so devices share those that it has: member m of Q takes rows
 * [n m / Q, n (m + 1) / Q) of n. */
#include "ops/ops.h"

static void move_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                      double *flops, double *bytes) {
  (void)attrs, (void)nin, (void)in;
  *flops = 0;
  *bytes = 2.0 * (double)sl_type_bytes(&out[0]);
}

static sl_status want_tick(const sl_type *in) {
  return in->ndim > 1 && in->dim[0] == 1
             ? SL_OK
             : sli_misfit(in, "the rows of a tick must be dim 1 of 1 row");
}

/* part_rows(x [1, R, ...]) -> [1, R / attrs.members.count, ...]: the rows of member
 * attrs.members.own. */
static sl_status part_rows_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_tick(&in[0]));
  if (attrs->members.count < 1 || attrs->members.own < 0 ||
      attrs->members.own >= attrs->members.count)
    return sl_fail(SL_E_SHAPE, "there is no member %lld of %lld", (long long)attrs->members.own,
                   (long long)attrs->members.count);
  if (in[0].dim[1] % attrs->members.count)
    return sli_misfit(&in[0], "its rows must be a multiple of %lld",
                      (long long)attrs->members.count);
  out[0] = in[0];
  out[0].dim[1] /= attrs->members.count;
  return SL_OK;
}

const sl_op sl_op_part_rows = {
    .name = "part_rows",
    .attrs = {&sl_attrs_members},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .infer = part_rows_infer,
    .cost = move_cost,
    .rows = &(const sl_op_rows){.fills = 1, .second = 1, .looks = 1},
};

/* join_rows(x [1, r, ...], ...) -> [1, sum of r, ...]: the valid rows of all inputs in order. */
static sl_status join_rows_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs;
  SLI_TRY(want_tick(&in[0]));
  out[0] = in[0];
  for (int i = 1; i < nin; i++) {
    sl_type like = in[0];
    like.dim[1] = in[i].ndim > 1 ? in[i].dim[1] : 0;
    SLI_TRY(sli_want("part", &in[i], &like));
    out[0].dim[1] += in[i].dim[1];
  }
  return SL_OK;
}

const sl_op sl_op_join_rows = {
    .name = "join_rows",
    .attrs = {&sl_attrs_members},
    .min_in = 1,
    .max_in = -1,
    .nout = 1,
    .infer = join_rows_infer,
    .cost = move_cost,
    .rows = &(const sl_op_rows){.fills = 1, .second = 1, .looks = ~0u},
};
