/* SPDX-License-Identifier: Apache-2.0 */
/* Ops for mixtures of experts, in the notation of ops.h; graph.h has the calls. Softmax and top_k
 * choose the experts of a token; top_k breaks ties in favour of the first.
 *
 * The leading dims `...` hold T tokens with k expert ids each. An id of -1, or with
 * attrs.place.partial an id outside the experts that start at attrs.place.first, belongs to no
 * expert: its row is 0 and has no gradient. An expert may have no rows. */
#ifndef SLUICE_EXPERTS_H
#define SLUICE_EXPERTS_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* grouped_linear(x [..., K] or [..., k, K], ids i32 [..., k], w [E, N, K]) -> y [..., k, N]:
 * multiplies the row of each id (or the token's row, shared by all its ids) by w[id]^T. Rows are
 * multiplied in tiles of 64 rows of one expert, in token order. attrs.place.whole: total number of
 * experts (0: E). The op honours valid lengths of ids and rows (sl_op_rows.looks).
 * grouped_linear_b(dy [..., k, N], ids, w, x) -> dx, summed over a token's ids in order; x: type
 * only.
 * grouped_linear_w(x, ids, dy, w, [leaves i32 as ids]) -> dw (acc), summed tile by tile; w: type
 * only. With exact sums, dw is summed leaf by leaf; `leaves` gives the leaf of each row after
 * dispatch. */
extern const sl_op sl_op_grouped_linear, sl_op_grouped_linear_b, sl_op_grouped_linear_w;

/* combine(y [..., k, N], weights [..., k]) -> [..., N]: sum_j weights[j] y[j], in order of j.
 * combine_b(y, weights, dout) -> dy, dweights. */
extern const sl_op sl_op_combine, sl_op_combine_b;

/* expert_limit(ids i32 [..., k], weights [..., k]) -> ids: each expert of attrs.experts.count keeps
 * at most ceil(attrs.experts.factor T k / attrs.experts.count) ids, the ones with the largest
 * weights (the first on ties); all other ids become -1. T counts the tokens of the call: if rows
 * are sharded or sequences are cut, the limit applies to each part separately. */
extern const sl_op sl_op_expert_limit;

/* plane_values(w f32 [..., K]) -> the numbers that the first attrs.planes.width bit planes of w
 * stand for, in groups of 128 along K, with a base of attrs.planes.base bits (D2MoE, arXiv
 * 2504.15299; see docs/serving.md). The gradient passes straight through.
 *
 * bit_choice(p f32 [..., k, V], ids i32 [..., k]) -> one-hot [..., k, V]: the largest p of each
 * row, the first on ties. With attrs.experts.ncapacities = V, at most
 * ceil(attrs.experts.capacity[v] n / 1e6) of the n rows of each of attrs.experts.count experts take
 * v; pairs of row and v are taken in falling order of p, so a row takes the likeliest v that has
 * room. The limit applies to each part of sharded rows separately. */
extern const sl_op sl_op_plane_values, sl_op_bit_choice;

/* Dispatch of rows to the devices of their experts, and their return; --expert-parallel inserts
 * these ops around the ops above. ids i32 [..., k] are numbered in row-major order (places);
 * attrs.user = sl_dispatch. An output has one valid row for each id that it handles
 * (sl_op_rows.fills). dispatch(x [..., N] or [..., k, N], ids) -> rows of the ids for experts first
 * .. first + count. collect(p0, p1, ...) -> their rows, concatenated. own_ids(ids) -> the ids for
 * these experts. If there are more ids than the output has room for, the run ends. own_leaves(ids),
 * attrs.user = sl_dispatch_leaves -> i32: for each of these ids the number of its leaf, a run of
 * places over which exact gradients are summed. give_back(y, ids) -> the rows of y for the ids at
 * places begin .. end. restore(ids, p0, p1, ...) -> [..., k, N]: for each id the next row of the
 * part that has its expert; the parts split `count` experts. Or [..., N]: a token's rows summed in
 * the order of its ids. */
typedef struct sl_dispatch {
  sl_type type;         /* type of the output; its dims give the room for rows */
  int64_t first, count; /* experts */
  int64_t begin, end;   /* range of places of ids, over all tokens */
  int64_t expected;     /* rows if experts are evenly loaded; for devices that hold no values */
  int rank;             /* rank of the destination device, for error messages */
} sl_dispatch;
/* Origin of ids: parts of the whole [rows, positions, k], concatenated. */
typedef struct sl_dispatch_leaves {
  sl_dispatch to;
  int sources;
  const sl_region *const *regions; /* [sources] */
  int64_t leaf;                    /* number of places in a leaf */
} sl_dispatch_leaves;
extern const sl_op sl_op_dispatch, sl_op_collect, sl_op_own_ids, sl_op_own_leaves, sl_op_give_back,
    sl_op_restore;

#ifdef __cplusplus
}
#endif
#endif
