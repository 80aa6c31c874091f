/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: ops whose calls the devices of a group make together, each with its own summand or
 * part. Lowering inserts them, and only queues of groups run them (sl_queue.group).
 *
 *   all_reduce(x) -> the sum of all members' x; f32, bf16 or f64
 *   reduce_scatter(x) -> the member's part of that sum
 *   all_gather(x) -> the members' x, one after another; any dtype
 *
 * attrs.count: members; attrs.axes: the split dim's bit. Parts are equal ranges of that dim, in the
 * order of ranks. */
#ifndef SLUICE_OPS_COLLECTIVE_H
#define SLUICE_OPS_COLLECTIVE_H

#include "ops/ops.h"

extern const sl_op sl_op_all_reduce, sl_op_reduce_scatter, sl_op_all_gather;

static inline bool sli_is_collective(const sl_op *op) {
  return op == &sl_op_all_reduce || op == &sl_op_reduce_scatter || op == &sl_op_all_gather;
}

/* Returns the rows of a call's arrays: a part is a contiguous range of each. */
int64_t sli_collective_rows(const sl_op *op, const sl_attrs *attrs, const sl_type *in);

/* Returns the bytes that a member receives from others in a ring: (R-1)/R of the whole, once for
 * its reduce-scatter and once for its all-gather (R. Rabenseifner, "Optimization of Collective
 * Reduction Operations", ICCS 2004). */
double sli_collective_received(const sl_op *op, int64_t members, const sl_type *in);

#endif
