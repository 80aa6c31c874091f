/* SPDX-License-Identifier: Apache-2.0 */
/* A .npy file is a magic string, a version, the length of a header, and the header, a Python
 * dictionary as text:
 *
 *     {'descr': '<u2', 'fortran_order': False, 'shape': (1000, 64), }
 *
 * The elements follow. Only this form of header is parsed, with any whitespace and order of keys
 * that Python accepts. */
#include "io/npy.h"

#include <string.h>

#include "base/base.h"

static const char magic[6] = "\x93NUMPY";

/* The unread part of the header's text. */
typedef struct cursor {
  const char *at, *end;
} cursor;

typedef struct header {
  char descr[16];
  bool fortran, has_descr, has_order, has_shape;
  int ndim;
  int64_t dim[SLI_NPY_DIMS]; /* the first dimensions */
  int64_t count;             /* number of elements; -1 on overflow */
} header;

static void skip_space(cursor *c) {
  while (c->at < c->end && strchr(" \t\n\r", *c->at)) c->at++;
}

static bool npy_take(cursor *c, char wanted) {
  skip_space(c);
  if (c->at == c->end || *c->at != wanted) return false;
  c->at++;
  return true;
}

/* Reads a quoted string without escapes. */
static bool take_string(cursor *c, char *out, size_t bytes) {
  skip_space(c);
  if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
  const char *begin = c->at + 1;
  const char *end = memchr(begin, *c->at, (size_t)(c->end - begin));
  if (!end || (size_t)(end - begin) >= bytes) return false;
  memcpy(out, begin, (size_t)(end - begin));
  out[end - begin] = 0;
  c->at = end + 1;
  return true;
}

static bool take_word(cursor *c, const char *word) {
  size_t n = strlen(word);
  skip_space(c);
  if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n)) return false;
  c->at += n;
  return true;
}

static bool take_bool(cursor *c, bool *out) {
  *out = take_word(c, "True");
  return *out || take_word(c, "False");
}

static bool take_number(cursor *c, int64_t *out) {
  skip_space(c);
  const char *begin = c->at;
  bool fits = true;
  for (*out = 0; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
    int64_t digit = *c->at - '0';
    fits = fits && *out <= (INT64_MAX - digit) / 10;
    if (fits) *out = *out * 10 + digit;
  }
  if (!fits) *out = -1;
  return c->at > begin;
}

static void count_dim(header *h, int64_t dim) {
  int64_t product = 0;
  bool fits = dim >= 0 && h->count >= 0 && !__builtin_mul_overflow(h->count, dim, &product);
  h->count = fits ? product : -1;
  if (h->ndim < SLI_NPY_DIMS) h->dim[h->ndim] = dim;
  h->ndim++;
}

/* Reads (), (5,), (5, 6). */
static bool take_shape(cursor *c, header *h) {
  h->count = 1;
  h->ndim = 0;
  if (!npy_take(c, '(')) return false;
  while (!npy_take(c, ')')) {
    int64_t dim;
    if (!take_number(c, &dim)) return false;
    count_dim(h, dim);
    if (npy_take(c, ',')) continue;
    return npy_take(c, ')');
  }
  return true;
}

static bool take_entry(cursor *c, header *h) {
  char key[24];
  if (!take_string(c, key, sizeof key) || !npy_take(c, ':')) return false;
  if (!strcmp(key, "descr")) return h->has_descr = take_string(c, h->descr, sizeof h->descr);
  if (!strcmp(key, "fortran_order")) return h->has_order = take_bool(c, &h->fortran);
  return !strcmp(key, "shape") && (h->has_shape = take_shape(c, h));
}

static bool take_dictionary(cursor *c, header *h) {
  if (!npy_take(c, '{')) return false;
  while (!npy_take(c, '}')) {
    if (!take_entry(c, h)) return false;
    if (npy_take(c, ',')) continue;
    if (!npy_take(c, '}')) return false;
    break;
  }
  return h->has_descr && h->has_order && h->has_shape;
}

/* ---- file ------------------------------------------------------------------------------ */

/* Finds the header's text. Versions 2 and 3 have a longer length field. */
static bool find_text(const uint8_t *bytes, size_t size, cursor *out) {
  if (size < 12 || memcmp(bytes, magic, sizeof magic) || bytes[6] < 1 || bytes[6] > 3) return false;
  size_t at = bytes[6] == 1 ? 10 : 12, length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
  if (at == 12) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
  if (length > size - at) return false;
  *out = (cursor){(const char *)bytes + at, (const char *)bytes + at + length};
  return true;
}

/* Parses "<u2": byte order, kind, bytes. */
static bool read_type(const char *descr, sli_npy *out) {
  if (strlen(descr) != 3) return false;
  bool known = strchr("<|=", descr[0]) && strchr("uifb", descr[1]) && strchr("1248", descr[2]) &&
               (descr[0] != '|' || descr[2] == '1');
  out->width = descr[2] - '0';
  out->is_signed = descr[1] == 'i';
  out->is_float = descr[1] == 'f';
  return known && (!out->is_float || out->width > 2) && (descr[1] != 'b' || out->width == 1);
}

static sl_status check_size(const char *path, const header *h, size_t size, const sli_npy *array) {
  int64_t room = (int64_t)((size - array->offset) / (size_t)array->width);
  if (h->count < 0 || h->count > room)
    return sl_fail(SL_E_INPUT,
                   "%s: the header says more elements than the %lld in the file: truncated?", path,
                   (long long)room);
  if (h->fortran && h->ndim > 1)
    return sl_fail(SL_E_INPUT,
                   "%s: its columns come first (fortran_order); rows are needed: "
                   "numpy.ascontiguousarray()",
                   path);
  return SL_OK;
}

static sl_status read_header(const char *path, const void *bytes, size_t size, bool integers,
                             sli_npy *out) {
  cursor c;
  header h = {0};
  char shown[64];
  if (!find_text(bytes, size, &c) || !take_dictionary(&c, &h))
    return sl_fail(SL_E_INPUT, "%s: its header is not that of a NumPy array", path);
  sli_npy array = {.offset = (size_t)(c.end - (const char *)bytes), .count = h.count};
  bool known = read_type(h.descr, &array);
  if (integers && (!known || array.is_float || strchr(h.descr, 'b')))
    return sl_fail(SL_E_INPUT,
                   "%s: its elements are '%s'; tokens are integers of 1, 2, 4 or 8 bytes, "
                   "little-endian",
                   path, sli_escape(shown, sizeof shown, h.descr));
  if (!known)
    return sl_fail(SL_E_INPUT,
                   "%s: its elements are '%s'; wanted integers, flags, or floats of 4 or 8 bytes, "
                   "little-endian",
                   path, sli_escape(shown, sizeof shown, h.descr));
  if (!integers && h.ndim > SLI_NPY_DIMS)
    return sl_fail(SL_E_INPUT, "%s: %d dims; at most %d are read", path, h.ndim, SLI_NPY_DIMS);
  array.ndim = h.ndim;
  memcpy(array.dim, h.dim, sizeof array.dim);
  sl_status status = check_size(path, &h, size, &array);
  if (!status) *out = array;
  return status;
}

sl_status sli_npy_read(const char *path, const void *bytes, size_t size, sli_npy *out) {
  return read_header(path, bytes, size, false, out);
}

sl_status sli_npy_read_integers(const char *path, const void *bytes, size_t size, sli_npy *out) {
  return read_header(path, bytes, size, true, out);
}
