/* SPDX-License-Identifier: Apache-2.0 */
/* Joint iteration over several arrays. */
#include "ops/space.h"

#include "ops/ops.h"

/* Returns the length of a type's dim that aligns with dim d of `ndim`. */
static int64_t length_at(const sl_type *type, int ndim, int d) {
  int own = d - (ndim - type->ndim);
  return own < 0 ? 1 : type->dim[own];
}

sl_status sli_broadcast(int n, const sl_type *types, sl_type *out) {
  *out = types[0];
  for (int i = 0; i < n; i++) out->ndim = SLI_MAX(out->ndim, types[i].ndim);
  for (int d = 0; d < out->ndim; d++) {
    int64_t length = 1;
    for (int i = 0; i < n; i++) {
      int64_t own = length_at(&types[i], out->ndim, d);
      char a[SL_TYPE_TEXT];
      if (own != 1 && length != 1 && own != length)
        return sli_misfit(&types[i],
                          "a tensor broadcast with %s must have %lld or 1 at dim %d from the end",
                          sl_type_format(a, &types[0]), (long long)length, out->ndim - d);
      if (own != 1) length = own;
    }
    out->dim[d] = length;
  }
  return SL_OK;
}

static int64_t step_at(const sl_type *type, int ndim, int d) {
  int64_t step = 1;
  if (!type || length_at(type, ndim, d) == 1) return 0;
  for (int e = d - (ndim - type->ndim) + 1; e < type->ndim; e++) step *= type->dim[e];
  return step;
}

/* Returns true if in every array this dim is contiguous with the last dim of the space. */
static bool joins(const sli_space *s, int64_t length, const int64_t *step) {
  for (int a = 0; a < SLI_SPACE_ARRAYS; a++)
    if (s->step[a][s->ndim - 1] != step[a] * length) return false;
  return true;
}

static void add_dim(sli_space *s, bool fresh, int64_t length, const int64_t *step) {
  bool join = !fresh && s->ndim && joins(s, length, step);
  int at = join ? s->ndim - 1 : s->ndim++;
  s->dim[at] = join ? s->dim[at] * length : length;
  for (int a = 0; a < SLI_SPACE_ARRAYS; a++) s->step[a][at] = step[a];
}

/* Adds the dims that the output keeps, or those that it lacks. */
static void add_dims(sli_space *s, const sl_type *whole, const sl_type *const *types, bool kept) {
  bool fresh = true;
  for (int d = 0; d < whole->ndim; d++) {
    int64_t step[SLI_SPACE_ARRAYS];
    for (int a = 0; a < SLI_SPACE_ARRAYS; a++) step[a] = step_at(types[a], whole->ndim, d);
    if (whole->dim[d] == 1 || (step[SLI_SPACE_OUT] != 0) != kept) continue;
    add_dim(s, fresh, whole->dim[d], step);
    fresh = false;
  }
}

sli_space sli_space_make(const sl_type *whole, const sl_type *const *types) {
  sli_space s = {.total = 1, .summed = 1};
  add_dims(&s, whole, types, true);
  s.kept = s.ndim;
  add_dims(&s, whole, types, false);
  for (int d = 0; d < s.ndim; d++) *(d < s.kept ? &s.total : &s.summed) *= s.dim[d];
  return s;
}

sl_type sli_reduced(const sl_type *type, uint32_t axes, bool keep) {
  sl_type out = {.dtype = type->dtype};
  for (int d = 0; d < type->ndim; d++)
    if (!(axes >> d & 1)) out.dim[out.ndim++] = type->dim[d];
    else if (keep) out.dim[out.ndim++] = 1;
  return out;
}

int sli_one_axis(const sl_attrs *attrs, const sl_type *type) {
  return attrs->along.axes ? __builtin_ctz(attrs->along.axes) : type->ndim - 1;
}
