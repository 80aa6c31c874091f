/* SPDX-License-Identifier: Apache-2.0 */
/* Constant arrays, computed while a program is read: positions, masks, tables. Views share their
 * elements. All arrays belong to an arena. */
#ifndef SLUICE_PYTORCH_ARRAY_H
#define SLUICE_PYTORCH_ARRAY_H

#include "pytorch/program.h"

/* Elements are stored as doubles, which represent every f32 and every integer up to 2^53. Elements
 * of masks are bytes. */
typedef struct sli_pt_array {
  sli_pt_type type;
  int64_t stride[SLI_PT_DIMS]; /* in elements; 0 for a repeated dim */
  int64_t offset;
  double *of;          /* NULL for masks */
  unsigned char *mask; /* for SLI_PT_BOOL */
} sli_pt_array;

enum { SLI_PT_MOST = 1 << 30 }; /* limit on the elements of an array that are examined one by one */

/* Makes an array of zeros. Returns NULL if it is too large to be computed ahead. */
sli_pt_array *sli_pt_array_make(sli_arena *arena, const sli_pt_type *type);
sli_pt_array *sli_pt_array_number(sli_arena *arena, sli_pt_dtype dtype, double value);
/* Makes an array from an archive entry's data. Returns NULL for complex numbers. */
sli_pt_array *sli_pt_array_of(sli_arena *arena, const sli_pt_type *type, const void *data);
/* Makes a dense copy of an array, converted to another type if `dtype` differs. */
sli_pt_array *sli_pt_array_cast(sli_arena *arena, const sli_pt_array *a, sli_pt_dtype dtype);
/* Makes a view with other dims and strides. */
sli_pt_array *sli_pt_array_view(sli_arena *arena, const sli_pt_array *a);

static inline double sli_pt_at(const sli_pt_array *a, int64_t at) {
  return a->mask ? a->mask[at] : a->of[at];
}
/* Rounds to the type: floats to their precision, integers towards zero. */
double sli_pt_round(sli_pt_dtype dtype, double value);
static inline void sli_pt_set(sli_pt_array *a, int64_t at, double value) {
  if (a->mask) a->mask[at] = value != 0;
  else a->of[at] = sli_pt_round(a->type.dtype, value);
}
/* Returns the offset of element number `i`, counted row-major. */
int64_t sli_pt_place(const sli_pt_array *a, int64_t i);
static inline double sli_pt_get(const sli_pt_array *a, int64_t i) {
  return sli_pt_at(a, sli_pt_place(a, i));
}
/* Returns the offset in `a`, broadcast by NumPy's rules, of the element at `index` in an array of
 * `ndim` dims. */
int64_t sli_pt_broadcast(const sli_pt_array *a, int ndim, const int64_t *index);
/* Returns whether `a` can be broadcast to a type. */
bool sli_pt_fits(const sli_pt_array *a, const sli_pt_type *to);
/* Converts to the nearest representable integer; NaN becomes 0. */
int64_t sli_pt_integer(double v);
/* Advances an index to the next element of a shape, row-major. */
static inline void sli_pt_step(const sli_pt_type *type, int64_t *index) {
  for (int d = type->ndim - 1; d >= 0; d--) {
    if (++index[d] < type->dim[d]) return;
    index[d] = 0;
  }
}
/* Returns whether all numbers are equal. */
bool sli_pt_uniform(const sli_pt_array *a);
/* Returns whether the numbers are constant along a dim. */
bool sli_pt_repeats(const sli_pt_array *a, int dim);

#endif
