/* SPDX-License-Identifier: Apache-2.0 */
#include "pytorch/array.h"

#include <math.h>
#include <string.h>

static void dense_strides(sli_pt_array *a) {
  int64_t stride = 1;
  for (int d = a->type.ndim - 1; d >= 0; d--) {
    a->stride[d] = stride;
    stride *= a->type.dim[d];
  }
}

sli_pt_array *sli_pt_array_make(sli_arena *arena, const sli_pt_type *type) {
  int64_t n = sli_pt_elements(type);
  if (n > SLI_PT_MOST / (type->dtype == SLI_PT_BOOL ? 1 : 8)) return NULL;
  sli_pt_array *a = sli_arena_alloc(arena, sizeof *a);
  a->type = *type;
  dense_strides(a);
  if (type->dtype == SLI_PT_BOOL) a->mask = sli_arena_alloc(arena, (size_t)n + 1);
  else a->of = sli_arena_alloc(arena, ((size_t)n + 1) * sizeof *a->of);
  return a;
}

sli_pt_array *sli_pt_array_number(sli_arena *arena, sli_pt_dtype dtype, double value) {
  sli_pt_array *a = sli_pt_array_make(arena, &(sli_pt_type){.dtype = dtype});
  sli_pt_set(a, 0, value);
  return a;
}

sli_pt_array *sli_pt_array_view(sli_arena *arena, const sli_pt_array *a) {
  sli_pt_array *out = sli_arena_alloc(arena, sizeof *out);
  *out = *a;
  return out;
}

static float half_to_float(uint16_t h) {
  int e = h >> 10 & 31;
  double m = h & 1023, v = e == 31 ? (m != 0 ? NAN : INFINITY)
                           : e     ? ldexp(1024 + m, e - 25)
                                   : ldexp(m, -24);
  return (float)(h >> 15 ? -v : v);
}

static float bf16_to_float(uint16_t b) {
  uint32_t bits = (uint32_t)b << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static double number_at(sli_pt_dtype dtype, const void *data, int64_t i) {
  switch (dtype) {
  case SLI_PT_U8: return ((const uint8_t *)data)[i];
  case SLI_PT_BOOL: return ((const uint8_t *)data)[i] != 0;
  case SLI_PT_I8: return ((const int8_t *)data)[i];
  case SLI_PT_I16: return ((const int16_t *)data)[i];
  case SLI_PT_I32: return ((const int32_t *)data)[i];
  case SLI_PT_I64: return (double)((const int64_t *)data)[i];
  case SLI_PT_F16: return (double)half_to_float(((const uint16_t *)data)[i]);
  case SLI_PT_BF16: return (double)bf16_to_float(((const uint16_t *)data)[i]);
  case SLI_PT_F32: return (double)((const float *)data)[i];
  case SLI_PT_F64: return ((const double *)data)[i];
  case SLI_PT_C32:
  case SLI_PT_C64:
  case SLI_PT_C128:
  case SLI_PT_NONE: break;
  }
  return 0;
}

sli_pt_array *sli_pt_array_of(sli_arena *arena, const sli_pt_type *type, const void *data) {
  if (!sli_pt_floats(type->dtype) && type->dtype != SLI_PT_BOOL &&
      !(type->dtype >= SLI_PT_U8 && type->dtype <= SLI_PT_I64))
    return NULL;
  sli_pt_array *a = sli_pt_array_make(arena, type);
  int64_t n = a ? sli_pt_elements(type) : 0;
  for (int64_t i = 0; i < n; i++) sli_pt_set(a, i, number_at(type->dtype, data, i));
  return a;
}

sli_pt_array *sli_pt_array_cast(sli_arena *arena, const sli_pt_array *a, sli_pt_dtype dtype) {
  sli_pt_type type = a->type;
  type.dtype = dtype;
  sli_pt_array *out = sli_pt_array_make(arena, &type);
  int64_t n = out ? sli_pt_elements(&type) : 0, index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < n; i++, sli_pt_step(&type, index))
    sli_pt_set(out, i, sli_pt_at(a, sli_pt_broadcast(a, type.ndim, index)));
  return out;
}

double sli_pt_round(sli_pt_dtype dtype, double value) {
  switch (dtype) {
  case SLI_PT_F32:
  case SLI_PT_F16: /* computed as f32 */
  case SLI_PT_BF16: return (double)(float)value;
  case SLI_PT_BOOL: return value != 0;
  case SLI_PT_U8: return (double)(uint8_t)sli_pt_integer(value);
  case SLI_PT_I8: return (double)(int8_t)sli_pt_integer(value);
  case SLI_PT_I16: return (double)(int16_t)sli_pt_integer(value);
  case SLI_PT_I32: return (double)(int32_t)sli_pt_integer(value);
  case SLI_PT_I64: return trunc(value);
  case SLI_PT_F64:
  case SLI_PT_C32:
  case SLI_PT_C64:
  case SLI_PT_C128:
  case SLI_PT_NONE: break;
  }
  return value;
}

int64_t sli_pt_place(const sli_pt_array *a, int64_t i) {
  int64_t at = a->offset;
  for (int d = a->type.ndim - 1; d >= 0; d--) {
    at += i % a->type.dim[d] * a->stride[d];
    i /= a->type.dim[d];
  }
  return at;
}

bool sli_pt_fits(const sli_pt_array *a, const sli_pt_type *to) {
  int shift = to->ndim - a->type.ndim;
  bool fits = shift >= 0;
  for (int d = 0; fits && d < a->type.ndim; d++)
    fits = a->type.dim[d] == 1 || a->type.dim[d] == to->dim[d + shift];
  return fits;
}

int64_t sli_pt_integer(double v) {
  if (isnan(v)) return 0;
  return v >= 0x1p63 ? INT64_MAX : v <= -0x1p63 ? INT64_MIN : (int64_t)v;
}

int64_t sli_pt_broadcast(const sli_pt_array *a, int ndim, const int64_t *index) {
  int64_t at = a->offset;
  int shift = ndim - a->type.ndim;
  for (int d = 0; d < a->type.ndim; d++)
    if (a->type.dim[d] > 1) at += index[d + shift] * a->stride[d];
  return at;
}

bool sli_pt_uniform(const sli_pt_array *a) {
  for (int d = 0; d < a->type.ndim; d++)
    if (!sli_pt_repeats(a, d)) return false;
  return sli_pt_elements(&a->type) > 0;
}

bool sli_pt_repeats(const sli_pt_array *a, int dim) {
  if (!a->stride[dim] || a->type.dim[dim] < 2) return true;
  sli_pt_type once = a->type; /* repeated dims are examined once */
  for (int d = 0; d < once.ndim; d++)
    if (!a->stride[d]) once.dim[d] = SLI_MIN(once.dim[d], 1);
  int64_t n = sli_pt_elements(&once), index[SLI_PT_DIMS] = {0};
  for (int64_t i = 0; i < n; i++, sli_pt_step(&once, index)) {
    int64_t at = sli_pt_broadcast(a, a->type.ndim, index);
    if (sli_pt_at(a, at) != sli_pt_at(a, at - index[dim] * a->stride[dim])) return false;
  }
  return true;
}
