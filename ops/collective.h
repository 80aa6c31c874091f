/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: ops whose calls the devices of a group make together, each with its own summand or
 * part. Lowering inserts them, and only queues of groups run them (sl_queue.group).
 *
 *   all_reduce(x) -> the sum of all members' x; f32, bf16 or f64
 *   reduce_scatter(x) -> the member's part of that sum
 *   all_gather(x) -> the members' x, one after another; any dtype
 *   all_to_all(x0, x1, ...) -> what each member has for this one; x[m] is for member m; any dtype
 *
 * attrs.members.count: members; attrs.members.own: the member's rank; attrs.members.axes: the split
 * dim's bit. Parts are ranges of that dim, in the order of ranks: equal ones, or those of
 * attrs.user, an sl_joint. An all_to_all has the types of its outputs there, sl_type[members]. */
#ifndef SLUICE_OPS_COLLECTIVE_H
#define SLUICE_OPS_COLLECTIVE_H

#include "ops/ops.h"

extern const sl_op sl_op_all_reduce, sl_op_reduce_scatter, sl_op_all_gather, sl_op_all_to_all;

bool sli_is_collective(const sl_op *op);

/* Returns the rows of a call's arrays: a part is a contiguous range of each. */
int64_t sli_collective_rows(const sl_op *op, const sl_attrs *attrs, const sl_type *in);

/* Returns the positions of a member's part in each row of the whole, and sets where they begin.
 * `whole`: the type of the whole. */
int64_t sli_collective_part(const sl_attrs *attrs, const sl_type *whole, int member,
                            int64_t *begin);

/* Returns the bytes that a member receives from others in a ring: all but its own part of the
 * whole, once for its reduce-scatter and once for its all-gather (R. Rabenseifner, "Optimization of
 * Collective Reduction Operations", ICCS 2004). `out`: the types of the outputs. */
double sli_collective_received(const sl_op *op, const sl_attrs *attrs, const sl_type *in,
                               const sl_type *out);

#endif
