/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of constants, which are computed while a program is read: positions, masks, tables. Views
 * share their numbers. All belong to an arena. */
#ifndef SLUICE_PYTORCH_ARRAY_H
#define SLUICE_PYTORCH_ARRAY_H

#include "pytorch/program.h"

/* Numbers are kept as doubles, which hold every f32 and every whole number up to 2^53; those of
 * masks as bytes. */
typedef struct sli_pt_array {
  sli_pt_type type;
  int64_t stride[SLI_PT_DIMS]; /* in elements; 0 where a dim only repeats */
  int64_t offset;
  double *of;          /* or NULL: */
  unsigned char *mask; /* SLI_PT_BOOL */
} sli_pt_array;

enum { SLI_PT_MOST = 1 << 30 }; /* elements of an array that are looked at one by one */

/* Makes an array of zeros; NULL: too large to be computed ahead. */
sli_pt_array *sli_pt_array_make(sli_arena *arena, const sli_pt_type *type);
sli_pt_array *sli_pt_array_number(sli_arena *arena, sli_pt_dtype dtype, double value);
/* Makes an array of the numbers of an archive's entry; NULL: complex numbers. */
sli_pt_array *sli_pt_array_of(sli_arena *arena, const sli_pt_type *type, const void *data);
/* Copies an array so that it is dense, in another type where `dtype` differs. */
sli_pt_array *sli_pt_array_cast(sli_arena *arena, const sli_pt_array *a, sli_pt_dtype dtype);
/* Makes a view with other dims and strides. */
sli_pt_array *sli_pt_array_view(sli_arena *arena, const sli_pt_array *a);

static inline double sli_pt_at(const sli_pt_array *a, int64_t at) {
  return a->mask ? a->mask[at] : a->of[at];
}
/* Rounds to the type: floats to their precision, whole numbers towards zero. */
double sli_pt_round(sli_pt_dtype dtype, double value);
static inline void sli_pt_set(sli_pt_array *a, int64_t at, double value) {
  if (a->mask) a->mask[at] = value != 0;
  else a->of[at] = sli_pt_round(a->type.dtype, value);
}
/* Returns the place of element number `i`, counted row-major. */
int64_t sli_pt_place(const sli_pt_array *a, int64_t i);
static inline double sli_pt_get(const sli_pt_array *a, int64_t i) {
  return sli_pt_at(a, sli_pt_place(a, i));
}
/* Returns the place in `a` of the element of an array of `ndim` dims at `index`, to which `a` is
 * broadcast by NumPy's rules. */
int64_t sli_pt_broadcast(const sli_pt_array *a, int ndim, const int64_t *index);
/* True if `a` can be broadcast to a type. */
bool sli_pt_fits(const sli_pt_array *a, const sli_pt_type *to);
/* Makes a whole number of a number, the nearest that there is; 0 of NaN. */
int64_t sli_pt_integer(double v);
/* Steps an index of a shape to the next element, row-major. */
static inline void sli_pt_step(const sli_pt_type *type, int64_t *index) {
  for (int d = type->ndim - 1; d >= 0; d--) {
    if (++index[d] < type->dim[d]) return;
    index[d] = 0;
  }
}
/* True if all numbers are equal. */
bool sli_pt_uniform(const sli_pt_array *a);
/* True if the numbers do not change along a dim. */
bool sli_pt_repeats(const sli_pt_array *a, int dim);

#endif
