/* SPDX-License-Identifier: Apache-2.0 */
/* Shape checks and limits of attention, for whole sequences and for pieces. */
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

/* Returns SL_OK if x can be a piece of a sequence of attrs.place.length positions. */
sl_status sli_want_length(const sl_attrs *attrs, const sl_type *x);

/* Checks q [B, n] and kv [B, m, k then v], whose m positions include those of q, and sets the types
 * of o and lse. */
sl_status sli_attention_joined_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out);

#ifdef __cplusplus
}
#endif

#endif
