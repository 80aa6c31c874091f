/* SPDX-License-Identifier: Apache-2.0 */
/* Attention variants (sinks, dual chunks, latents), in the notation of ops.h. */
#ifndef SLUICE_ATTENTION_H
#define SLUICE_ATTENTION_H

#include <sluice/graph.h>
#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* attention_sinks(q, k, v, [sinks f32 [B, T, Hq]], [ids]) -> o, lse. A sink is a logit per query
 * and head that enters the softmax's denominator but has no value (gpt-oss; Xiao et al., arXiv
 * 2309.17453). With attrs.attention.cap = c > 0 scores s are capped to c tanh(s / c) before masking
 * (Gemma 2, arXiv 2408.00118). lse includes the sink. A query that sees no key gets zeros.
 * Everything else is as in attention. attention_sinks_b(q, k, v, [sinks], o, lse, do, [ids]) -> dq,
 * dk, dv, dsinks. attention_sinks_served(q, k, v, sinks, -, batch) -> o, -, pages. As
 * attention_piece and its gradient: attention_sinks_piece(q, k, v, sinks, [ids]) -> o, lse, kv, and
 * with ids `all`; attention_sinks_piece_b(q, kv, o, lse, do, sinks, [all]) -> dq, dk, dv, dsinks,
 * dkv. */
extern const sl_op sl_op_attention_sinks, sl_op_attention_sinks_b, sl_op_attention_sinks_served,
    sl_op_attention_sinks_piece, sl_op_attention_sinks_piece_b, sl_op_attention_sinks_piece_again;

/* attention_latent_served(q [B, T, H (n + R)], c [B, T, L], k [B, T, R], w [H (n + v), L], [chosen
 * i32 [B, T, K]], batch) -> o [B, T, H v], pages of latents [attrs.pages.count, 64, L + R];
 * attrs.attention.heads = H, attrs.attention.scale (0: 1/sqrt(n + R)). A row with `chosen` sees
 * these positions only, up to the first -1. See sl_attend_latent. */
extern const sl_op sl_op_attention_latent_served;

/* choose_tokens(q [B, T, H D], k [B, T, D], w [B, T, H]) -> chosen i32 [B, T, K];
 * attrs.attention.heads = H, attrs.attention.tokens = K. The chosen positions of a row, those with
 * the largest scores, are ascending, and end with -1 if there are fewer than K. Of equal scores the
 * first counts more. choose_tokens_served(q, k, w, batch) -> chosen, pages of keys
 * [attrs.pages.count, 64, D]. See sl_choose_tokens. */
extern const sl_op sl_op_choose_tokens, sl_op_choose_tokens_served;

/* attention_chosen(q [B, T, H E], k [B, T, H E], v [B, T, H V], chosen i32 [B, T, K]) -> o [B, T, H
 * V], lse [B, T, H]: a row sees the positions that its list of `chosen` has before the first -1, in
 * [0, T); o and lse are 0 if there are none. attrs.attention.heads = H, attrs.attention.scale (0:
 * 1/sqrt(E)). attention_chosen_b(q, k, v, chosen, o, lse, do) -> dq, dk, dv. */
extern const sl_op sl_op_attention_chosen, sl_op_attention_chosen_b;

/* index_loss(q [B, T, I D], k [B, T, D], w [B, T, I], queries [B, T, H E], keys [B, T, H E],
 * [chosen i32 [B, T, K]]) -> loss [B, T], the divergence KL(p || softmax(s)) of each row over the
 * positions that it sees: those chosen, or all up to its own. s_j = sum over I of w relu(q k_j),
 * and p is the mean over heads of softmax(queries keys_j scale). attrs.attention.heads = H,
 * attrs.attention.scale (0: 1/sqrt(E)). DeepSeek-AI, arXiv 2512.02556. index_loss_b(q, k, w,
 * queries, keys, dloss, [chosen])
 * -> dq, dk, dw. */
extern const sl_op sl_op_index_loss, sl_op_index_loss_b;

/* attention_dual(q, k, v, next, far) -> o, lse: attention in chunks of attrs.attention.chunk
 * positions, a multiple of 64. `next` is q rotated for keys of the previous chunk, `far` is q
 * rotated for keys of all earlier chunks. Everything else is as in attention, without ids.
 * attention_dual_b(q, k, v, next, far, o, lse, do) -> dq, dk, dv, dnext, dfar.
 * attention_dual_served(q, k, v, next, far, batch) -> o, -, pages. */
extern const sl_op sl_op_attention_dual, sl_op_attention_dual_b, sl_op_attention_dual_served;

/* Attention with sinks ([heads] or NULL), whose logits enter the softmax's denominator, and with
 * scores soft-capped at attrs.attention.cap (0: no cap). ids as in sl_attend_within. */
#define sl_attend_sinks(g, q, k, v, sinks, ids, ...) \
  sl_attend_sinks_at(SL_HERE, g, q, k, v, sinks, ids, __VA_ARGS__)
sl_tensor *sl_attend_sinks_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                              sl_tensor *sinks, sl_tensor *ids, const sl_attention_attrs *attrs);

/* Dual-chunk attention (An et al., arXiv 2402.17463). Pass q and k without rotary embedding; the
 * call applies it, with a rope of kind dual-chunk. */
#define sl_attend_dual(g, q, k, v, theta, rope, ...) \
  sl_attend_dual_at(SL_HERE, g, q, k, v, theta, rope, __VA_ARGS__)
sl_tensor *sl_attend_dual_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                             float theta, const struct sl_rope *rope,
                             const sl_attention_attrs *attrs);

/* Multi-head latent attention (DeepSeek-AI, arXiv 2405.04434). q [B, T, H (n + R)], the latent c
 * [B, T, L], k [B, T, R], shared by all heads, and w [H (n + v), L] -> [B, T, H v]. For each head,
 * w c gives n + v numbers: the first n, followed by k, are its key, and the other v are its value;
 * v is at most n + R. The last R numbers of each query, and k, must already be rotated. attrs:
 * heads = H, window, scale (0: 1/sqrt(n + R)). A served graph caches L + R numbers per position.
 * ids as in sl_attend_within. */
#define sl_attend_latent(g, q, c, k, w, ids, ...) \
  sl_attend_latent_at(SL_HERE, g, q, c, k, w, ids, __VA_ARGS__)
sl_tensor *sl_attend_latent_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *c, sl_tensor *k,
                               sl_tensor *w, sl_tensor *ids, const sl_attention_attrs *attrs);

/* Chooses the `count` tokens that each token sees (DeepSeek-V3.2, arXiv 2512.02556), at most the
 * context: those with the largest scores among it and earlier ones, sum over heads of w relu(q k).
 * q [B, T, H D], k [B, T, D] and w [B, T, H] -> i32 [B, T, K]. There is no gradient. A served graph
 * caches D numbers per position. */
#define sl_choose_tokens(g, q, k, w, heads, count) \
  sl_choose_tokens_at(SL_HERE, g, q, k, w, heads, count)
sl_tensor *sl_choose_tokens_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *w,
                               int heads, int64_t count);

/* Latent attention to chosen tokens (sl_choose_tokens). */
#define sl_attend_chosen(g, q, c, k, w, chosen, ...) \
  sl_attend_chosen_at(SL_HERE, g, q, c, k, w, chosen, __VA_ARGS__)
sl_tensor *sl_attend_chosen_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *c, sl_tensor *k,
                               sl_tensor *w, sl_tensor *chosen, const sl_attention_attrs *attrs);

/* The loss that trains an indexer, [B, T]: the divergence of the softmax of its scores from the
 * attention of sl_attend_chosen with the same arguments, over the chosen tokens, or over all that a
 * token may see if `chosen` is NULL. `index` has the indexer's q [B, T, I D], k [B, T, D] and w [B,
 * T, I], which alone get gradients. */
#define sl_index_loss(g, index, q, c, k, w, chosen, ...) \
  sl_index_loss_at(SL_HERE, g, index, q, c, k, w, chosen, __VA_ARGS__)
sl_tensor *sl_index_loss_at(sl_here at, sl_graph *g, sl_tensor *const index[3], sl_tensor *q,
                            sl_tensor *c, sl_tensor *k, sl_tensor *w, sl_tensor *chosen,
                            const sl_attention_attrs *attrs);

#ifdef __cplusplus
}
#endif

#endif
