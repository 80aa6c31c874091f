/* SPDX-License-Identifier: Apache-2.0 */
/* Table of cosines and sines for rotary positions, for the rules of ops/rotary.c and their
 * kernels. */
#ifndef SLUICE_OPS_ROTARY_H
#define SLUICE_OPS_ROTARY_H

#include "ops/layout.h"
#include "ops/ops.h"

/* State of rotary calls: cosine and sine for position t and pair j. */
typedef struct sli_rotary {
  int64_t positions, pairs;
  float *cos, *sin; /* [positions, pairs] */
} sli_rotary;

/* Size of the table. Calls with equal angles share it. */
typedef struct sli_rotary_shape {
  int64_t positions, pairs;
} sli_rotary_shape;

static inline sli_rotary_shape sli_rotary_shape_of(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  const sl_attrs *a = call->attrs;
  return (sli_rotary_shape){
      .positions = a->place.first + a->place.skip + (a->place.length ? a->place.length : x->dim[1]),
      .pairs = sli_rotary_turned(a, x->dim[2] / a->rotary.heads) / 2};
}

static inline size_t sli_rotary_table_bytes(const sli_rotary_shape *t) {
  return sizeof(sli_rotary) + 2 * (size_t)(t->positions * t->pairs) * sizeof(float);
}

#endif
