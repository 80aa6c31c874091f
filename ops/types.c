/* SPDX-License-Identifier: Apache-2.0 */
/* Types, dtypes and classes: names and sizes. */
#include <stdio.h>
#include <string.h>

#include <sluice/op.h>

static const struct {
  const char *name;
  size_t bytes;
} dtypes[SL_DTYPE_COUNT] = {
#define X(name_, text, bytes_) [SL_##name_] = {text, bytes_},
    SL_DTYPE_TABLE(X)
#undef X
};

const char *sl_dtype_name(sl_dtype dtype) {
  return (unsigned)dtype < SL_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

size_t sl_dtype_bytes(sl_dtype dtype) {
  return (unsigned)dtype < SL_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

sl_type sl_type_make(sl_dtype dtype, int ndim, const int64_t *dims) {
  sl_type type = {.dtype = dtype, .ndim = ndim};
  for (int d = 0; d < ndim && d < SL_MAX_DIMS; d++) type.dim[d] = dims[d];
  return type;
}

int64_t sl_type_elements(const sl_type *type) {
  int64_t n = 1;
  for (int d = 0; d < type->ndim; d++) n *= type->dim[d];
  return n;
}

size_t sl_type_bytes(const sl_type *type) {
  return (size_t)sl_type_elements(type) * sl_dtype_bytes(type->dtype);
}

int64_t sl_type_last(const sl_type *type) { return type->ndim > 0 ? type->dim[type->ndim - 1] : 1; }

int64_t sl_type_rows(const sl_type *type) {
  int64_t n = 1;
  for (int d = 0; d + 1 < type->ndim; d++) n *= type->dim[d];
  return n;
}

bool sl_type_equal(const sl_type *a, const sl_type *b) {
  if (a->dtype != b->dtype || a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->dim[d] != b->dim[d]) return false;
  return true;
}

char *sl_type_format(char *out, const sl_type *type) {
  if (type->ndim < 0) return strcpy(out, "nothing");
  size_t at = (size_t)snprintf(out, SL_TYPE_TEXT, "%s[", sl_dtype_name(type->dtype));
  for (int d = 0; d < type->ndim; d++)
    at += (size_t)snprintf(out + at, SL_TYPE_TEXT - at, "%s%lld", d ? ", " : "",
                           (long long)type->dim[d]);
  snprintf(out + at, SL_TYPE_TEXT - at, "]");
  return out;
}

char sl_class_letter(sl_class cls) {
  static const char letters[SL_CLASS_COUNT] = {
#define X(letter, number, name) [number] = #letter[0],
      SL_CLASS_TABLE(X)
#undef X
  };
  return (unsigned)cls < SL_CLASS_COUNT && letters[cls] ? letters[cls] : '?';
}

const char *sl_class_name(sl_class cls) {
  static const char *const names[SL_CLASS_COUNT] = {
#define X(letter, number, name) [number] = name,
      SL_CLASS_TABLE(X)
#undef X
  };
  return (unsigned)cls < SL_CLASS_COUNT && names[cls] ? names[cls] : "?";
}
