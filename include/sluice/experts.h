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

#ifdef __cplusplus
}
#endif
#endif
