/* SPDX-License-Identifier: Apache-2.0 */
/* Shape checks, limits and signatures of attention, for whole sequences and for pieces. */
#ifndef SLUICE_OPS_ATTENTION_SHAPE_H
#define SLUICE_OPS_ATTENTION_SHAPE_H

#include <sluice/op.h>

/* Maximum width of a head and of its states, and keys per tile, on CPUs. */
enum { SLI_MAX_HEAD_DIM = 512, SLI_MAX_STATE_DIM = 256, SLI_KEY_TILE = 64 };

#ifdef __cplusplus
extern "C" {
#endif

int sli_kv_heads(const sl_attrs *attrs);
/* Scale of the scores of heads of width `dim`. */
float sli_attention_scale(const sl_attrs *attrs, int64_t dim);

/* Returns SL_OK if `ids` can hold the document ids of x [B, T, ...]. */
sl_status sli_want_ids(const sl_type *ids, const sl_type *x);

/* Returns SL_OK if kv [B, m, k then v] can hold the keys and values for queries q [B, n], which are
 * n of the m positions. */
sl_status sli_want_share(const sl_attrs *attrs, const sl_type *q, const sl_type *kv);

/* Shape rules and signatures of attention and attention_packed. */
sl_status sli_attention_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out);
sl_status sli_attention_packed_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_type *out);
/* in: q, k, v, sinks, [ids] */
sl_status sli_attention_sinks_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out);
/* in: q, k, v, and the forms of q for the previous chunk and for all chunks before it */
sl_status sli_attention_dual_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out);
int sli_attention_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out);
int sli_attention_packed_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_signature *out);

#ifdef __cplusplus
}
#endif

#endif
