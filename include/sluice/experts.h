/* Rows of mixtures of experts, in the notation of ops.h; graph.h has the calls. Which experts a token
 * goes to, a softmax and its k largest (top_k) say, of equals the first.
 *
 * Tokens are T = ..., each has k ids of experts; an id of -1, or one outside attrs.first .. where
 * attrs.partial, is no expert's: its row is 0 and has no gradient. An expert without rows is ordinary. */
#ifndef SLUICE_EXPERTS_H
#define SLUICE_EXPERTS_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* grouped_linear(x [..., K] or [..., k, K], ids i32 [..., k], w [E, N, K]) -> y [..., k, N]: the row of
 * each id (or of its token, which is for all of them) times w[id]^T. Rows are multiplied in tiles of 64
 * of one expert's, in the order of tokens. attrs.count: experts, as a whole (0: E).
 * Of ids and rows not all need be valid (sl_op.looks).
 * grouped_linear_b(dy [..., k, N], ids, w, x) -> dx, a token's ids added in their order; x is read for
 * its type only. grouped_linear_w(x, ids, dy, w) -> dw (acc), added tile by tile; w likewise. */
extern const sl_op sl_op_grouped_linear, sl_op_grouped_linear_b, sl_op_grouped_linear_w;

/* combine(y [..., k, N], weights [..., k]) -> [..., N]: sum_j weights[j] y[j], in the order of j.
 * combine_b(y, weights, dout) -> dy, dweights. */
extern const sl_op sl_op_combine, sl_op_combine_b;

/* expert_limit(ids i32 [..., k], weights [..., k]) -> ids: no expert of attrs.count keeps more than
 * ceil(attrs.value T k / attrs.count) ids, those of the largest weights (of equals the first); the others
 * become -1. T counts the tokens that the call has: where rows are shared out or sequences cut, each
 * part has a limit of its own. */
extern const sl_op sl_op_expert_limit;

/* Rows that go where their experts are, and come back: what --expert-parallel puts around the rows above. ids
 * i32 [..., k] count place by place; attrs.user = sl_route. Of the rows of outputs so many are valid as
 * there are ids, see sl_op.fills.
 * dispatch(x [..., N] or [..., k, N], ids) -> the rows of ids that are for experts first .. first + count.
 * collect(p0, p1, ...) -> their rows, one behind the other.
 * own_ids(ids) -> those ids themselves. More than there is room for end the run.
 * give_back(y, ids) -> of y, a row for each of those ids, the rows of ids at places begin .. end.
 * restore(ids, p0, p1, ...) -> [..., k, N], for each id the next row of the part that has its expert, where
 * parts share out `count` experts; or [..., N], a token's rows added in the order of its ids. */
typedef struct sl_route {
  sl_type type;          /* of what comes of it, with room for so many rows */
  int64_t first, count;  /* experts */
  int64_t begin, end;    /* places of ids */
  int64_t expected;      /* rows, where all experts have equally many: on devices without values */
  int rank;              /* of the device that the rows are for: for people */
} sl_route;
extern const sl_op sl_op_dispatch, sl_op_collect, sl_op_own_ids, sl_op_give_back, sl_op_restore;

#ifdef __cplusplus
}
#endif
#endif
