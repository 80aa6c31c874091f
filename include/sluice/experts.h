/* SPDX-License-Identifier: Apache-2.0 */
/* Ops for mixtures of experts, in the notation of ops.h; graph.h has the calls. Softmax and top_k
 * choose the experts of a token; among equal values top_k takes the first.
 *
 * There are T = ... tokens with k expert ids each. An id of -1, or one outside attrs.first .. with
 * attrs.partial, belongs to no expert: its row is 0 and has no gradient. An expert may have no
 * rows. */
#ifndef SLUICE_EXPERTS_H
#define SLUICE_EXPERTS_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* grouped_linear(x [..., K] or [..., k, K], ids i32 [..., k], w [E, N, K]) -> y [..., k, N]:
 * multiplies the row of each id (or of its token, shared by all its ids) by w[id]^T. Rows are
 * multiplied in tiles of 64 rows of one expert, in the order of tokens. attrs.count: experts in the
 * whole (0: E). Valid lengths of ids and rows are honoured (sl_op.looks).
 * grouped_linear_b(dy [..., k, N], ids, w, x) -> dx, summed over a token's ids in their order; only
 * the type of x is read.
 * grouped_linear_w(x, ids, dy, w, [leaves i32 as ids]) -> dw (acc), summed tile by tile; only the
 * type of w is read. Exact: leaf by leaf; `leaves` are those of rows at their experts. */
extern const sl_op sl_op_grouped_linear, sl_op_grouped_linear_b, sl_op_grouped_linear_w;

/* combine(y [..., k, N], weights [..., k]) -> [..., N]: sum_j weights[j] y[j], in the order of j.
 * combine_b(y, weights, dout) -> dy, dweights. */
extern const sl_op sl_op_combine, sl_op_combine_b;

/* expert_limit(ids i32 [..., k], weights [..., k]) -> ids: each expert of attrs.count keeps at most
 * ceil(attrs.value T k / attrs.count) ids, those with the largest weights (of equals the first);
 * the others become -1. T counts the tokens of the call: if rows are sharded or sequences cut, each
 * part has a limit of its own. */
extern const sl_op sl_op_expert_limit;

/* Dispatch of rows to the devices of their experts, and their return; --expert-parallel puts these
 * ops around those above. ids i32 [..., k] are counted place by place; attrs.user = sl_dispatch. An
 * output has one valid row for each id that it concerns (sl_op.fills).
 * dispatch(x [..., N] or [..., k, N], ids) -> rows of the ids for experts first .. first + count.
 * collect(p0, p1, ...) -> their rows, concatenated.
 * own_ids(ids) -> those ids. More ids than the output has room for end the run.
 * own_leaves(ids), attrs.user = sl_dispatch_leaves -> i32: for each of those ids the number of its
 * leaf, a run of places by which exact gradients are summed.
 * give_back(y, ids) -> the rows of y for the ids at places begin .. end.
 * restore(ids, p0, p1, ...) -> [..., k, N]: for each id the next row of the part that has its
 * expert; the parts divide `count` experts among them. Or [..., N]: a token's rows summed in the
 * order of its ids. */
typedef struct sl_dispatch {
  sl_type type;         /* type of the output; its dims are the room for rows */
  int64_t first, count; /* experts */
  int64_t begin, end;   /* places of ids, counted over all tokens */
  int64_t expected;     /* rows if all experts have equally many: for devices without values */
  int rank;             /* rank of the destination device, for messages */
} sl_dispatch;
#ifndef SLUICE_NO_OLD_NAMES
typedef sl_dispatch sl_route;
#endif
/* Where ids come from: parts of the whole [rows, positions, k], one behind the other. */
typedef struct sl_dispatch_leaves {
  sl_dispatch to;
  int sources;
  const sl_region *const *of; /* [sources] */
  int64_t leaf;               /* places of the whole in a leaf */
} sl_dispatch_leaves;
extern const sl_op sl_op_dispatch, sl_op_collect, sl_op_own_ids, sl_op_own_leaves, sl_op_give_back,
    sl_op_restore;

#ifdef __cplusplus
}
#endif
#endif
