/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of a call of linear attention, for the rules of ops/linear_attention.c and their kernels.
 */
#ifndef SLUICE_OPS_LINEAR_ATTENTION_H
#define SLUICE_OPS_LINEAR_ATTENTION_H

#include <math.h>

#include "ops/ops.h"

typedef struct sli_linear_shape {
  int64_t batch, positions, heads, kv_heads;
  int64_t dk, dv; /* a head's keys and values */
  bool per_head;  /* one gate for all channels of a head */
} sli_linear_shape;

/* q, k, v and gates are the first inputs of all these ops. */
static inline sli_linear_shape sli_linear_shape_of(const sl_attrs *attrs, const sl_type *in) {
  int64_t heads = attrs->heads, kv_heads = attrs->kv_heads ? attrs->kv_heads : heads;
  return (sli_linear_shape){.batch = in[0].dim[0],
                            .positions = in[0].dim[1],
                            .heads = heads,
                            .kv_heads = kv_heads,
                            .dk = in[0].dim[2] / heads,
                            .dv = in[2].dim[2] / kv_heads,
                            .per_head = in[3].dim[2] != in[1].dim[2]};
}

/* Numbers of a sequence's record of gradients: the states' of the query heads; then the gates',
 * sums in f64, in the room of two numbers each. */
static inline int64_t sli_linear_carry(const sli_linear_shape *s) {
  return s->heads * s->dk * s->dv + 2 * s->kv_heads * s->dk;
}

static inline float sli_linear_scale(const sl_attrs *attrs, int64_t dk) {
  return attrs->scale != 0 ? attrs->scale : 1.0f / sqrtf((float)dk);
}

#endif
