/* What the rows of attention on whole sequences and on pieces share (attention_shape.c). */
#ifndef SLUICE_OPS_ATTENTION_SHAPE_H
#define SLUICE_OPS_ATTENTION_SHAPE_H

#include <sluice/op.h>

/* The widest head, and keys that attention looks at together, on CPUs. */
enum { SLI_MAX_HEAD_DIM = 256, SLI_KEY_TILE = 64 };

int sli_kv_heads(const sl_attrs *attrs);
float sli_attention_scale(const sl_attrs *attrs, int64_t dim); /* of scores, of heads so wide */

/* SL_OK if `ids` can tell the documents of x [B, T, ...]. */
sl_status sli_want_ids(const sl_type *ids, const sl_type *x);

/* SL_OK if kv [B, m, k then v] may have the keys and values for queries q [B, n], n of the m positions. */
sl_status sli_want_share(const sl_attrs *attrs, const sl_type *q, const sl_type *kv);

/* The shape rules of attention and attention_packed, and their signatures. */
sl_status sli_attention_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out);
sl_status sli_attention_packed_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_type *out);
int sli_attention_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out);
int sli_attention_packed_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_signature *out);

#endif
