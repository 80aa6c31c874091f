/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of integers, element by element and along dims, for checks and CPU kernels. */
#ifndef SLUICE_OPS_WHOLE_H
#define SLUICE_OPS_WHOLE_H

#include "ops/functions.h"
#include "ops/reduce.h"
#include "ops/space.h"

/* Returns the offset of an array at element `number` of dims [from, to). */
static inline int64_t sli_space_offset(const sli_space *s, int array, int from, int to,
                                       int64_t number) {
  int64_t at = 0;
  for (int d = to - 1; d >= from; number /= s->dim[d--])
    at += number % s->dim[d] * s->step[array][d];
  return at;
}

/* Two arrays that broadcast. */
typedef struct sli_whole_pairs {
  sli_space space;
  const int32_t *a, *b;
  int64_t function;
} sli_whole_pairs;

static inline sli_whole_pairs sli_whole_pairs_make(const sl_call *call) {
  const sl_type *types[SLI_SPACE_ARRAYS] = {&call->in_type[0], &call->in_type[1], NULL,
                                            &call->out_type[0]};
  sli_whole_pairs p = {sli_space_make(&call->out_type[0], types), (const int32_t *)call->in[0],
                       (const int32_t *)call->in[1], call->attrs->function.number};
  return p;
}

static inline int64_t sli_whole_pair(const sli_whole_pairs *p, int64_t e) {
  return sli_whole_apply(p->function, p->a[sli_space_offset(&p->space, 0, 0, p->space.ndim, e)],
                         p->b[sli_space_offset(&p->space, 1, 0, p->space.ndim, e)]);
}

/* An array that is combined along dims. */
typedef struct sli_whole_lines {
  sli_space space;
  const int32_t *x;
  int64_t function;
} sli_whole_lines;

static inline sli_whole_lines sli_whole_lines_make(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  sl_type out = sli_reduced(x, sli_reduce_axes(call->attrs, x), true);
  const sl_type *types[SLI_SPACE_ARRAYS] = {x, NULL, NULL, &out};
  sli_whole_lines l = {sli_space_make(x, types), (const int32_t *)call->in[0],
                       call->attrs->function.number};
  return l;
}

/* Combines the elements of one result; stops beyond 2^62. */
static inline int64_t sli_whole_line(const sli_whole_lines *l, int64_t e) {
  const sli_space *s = &l->space;
  const int32_t *from = l->x + sli_space_offset(s, 0, 0, s->kept, e);
  int64_t y = *from;
  for (int64_t k = 1; k < s->summed; k++) {
    if (y > INT64_C(1) << 31 || y < -(INT64_C(1) << 31)) {
      if (l->function == SLI_WHOLE_mul) return y;
    }
    y = sli_whole_apply(l->function, y, from[sli_space_offset(s, 0, s->kept, s->ndim, k)]);
  }
  return y;
}

#endif
