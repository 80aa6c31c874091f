/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values of a GGUF file. Every value is checked before it is used. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/gguf/gguf_inner.h"

/* Type numbers of the format. */
enum { U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64, KINDS };

enum { MOST_KEYS = 1 << 14 }; /* real files have a few hundred */

/* Bytes of a value; 0 if variable. */
static const size_t widths[KINDS] = {
    [U8] = 1,  [I8] = 1,   [U16] = 2, [I16] = 2, [U32] = 4, [I32] = 4,
    [F32] = 4, [BOOL] = 1, [U64] = 8, [I64] = 8, [F64] = 8};

bool sli_gguf_take(cursor *c, void *out, size_t bytes) {
  if (c->left < bytes) return false;
  memcpy(out, c->at, bytes);
  c->at += bytes;
  c->left -= bytes;
  return true;
}

static sl_status truncated(const char *path, const char *what) {
  return sl_fail(SL_E_INPUT, "%s is truncated: it ends within %s", path, what);
}

/* Skips a text and returns where its bytes are. */
static sl_status pass_text(cursor *c, const char *path, const char *what, const char **at,
                           size_t *bytes) {
  uint64_t length;
  if (!sli_gguf_take(c, &length, 8)) return truncated(path, what);
  if (length > c->left)
    return sl_fail(SL_E_INPUT, "%s is truncated: %s has a text of %llu bytes, and %zu are left",
                   path, what, (unsigned long long)length, c->left);
  *at = (const char *)c->at;
  *bytes = (size_t)length;
  c->at += length;
  c->left -= length;
  return memchr(*at, 0, *bytes)
             ? sl_fail(SL_E_INPUT, "%s: %s has a text with a zero in it", path, what)
             : SL_OK;
}

static char *copy_text(const char *at, size_t bytes) {
  char *text = sli_calloc(1, bytes + 1);
  memcpy(text, at, bytes);
  return text;
}

sl_status sli_gguf_take_text(cursor *c, const char *path, const char *what, char **text) {
  const char *at = NULL;
  size_t bytes = 0;
  sl_status status = pass_text(c, path, what, &at, &bytes);
  if (!status) *text = copy_text(at, bytes);
  return status;
}

/* ---- one value ---------------------------------------------------------------------------- */

/* Returns the shortest decimal number that rounds to this f32: 1e-5, not 9.999999747378752e-06. */
static double shortest(float value) {
  char text[32];
  for (int digits = 1; digits < 9; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, (double)value);
    if (strtof(text, NULL) == value) return strtod(text, NULL);
  }
  return (double)value;
}

static double number_of(uint32_t kind, const unsigned char *at) {
#define AS(type)                \
  ({                            \
    type v_;                    \
    memcpy(&v_, at, sizeof v_); \
    (double)v_;                 \
  })
  switch (kind) {
  case U8:
  case BOOL: return AS(uint8_t);
  case I8: return AS(int8_t);
  case U16: return AS(uint16_t);
  case I16: return AS(int16_t);
  case U32: return AS(uint32_t);
  case I32: return AS(int32_t);
  case U64: return AS(uint64_t);
  case I64: return AS(int64_t);
  case F32: return shortest((float)AS(float));
  default: return AS(double);
  }
#undef AS
}

static cJSON *scalar_json(uint32_t kind, const unsigned char *at) {
  double value = number_of(kind, at);
  return kind == BOOL ? cJSON_CreateBool(value != 0) : cJSON_CreateNumber(value);
}

/* ---- arrays ------------------------------------------------------------------------------- */

static sl_status pass_texts(const char *path, cursor *c, const gguf_array *array) {
  sl_status status = SL_OK;
  const char *at;
  size_t bytes;
  for (uint64_t i = 0; i < array->count && !status; i++)
    status = pass_text(c, path, array->key, &at, &bytes);
  return status;
}

static sl_status pass_numbers(const char *path, cursor *c, const gguf_array *array) {
  size_t bytes;
  if (__builtin_mul_overflow(array->count, widths[array->kind], &bytes) || bytes > c->left)
    return sl_fail(SL_E_INPUT, "%s is truncated: %s has %llu elements, and %zu bytes are left",
                   path, array->key, (unsigned long long)array->count, c->left);
  c->at += bytes;
  c->left -= bytes;
  return SL_OK;
}

static sl_status read_array(const char *path, cursor *c, const char *key, gguf_metadata *m) {
  gguf_array array = {.key = (char *)key};
  if (!sli_gguf_take(c, &array.kind, 4) || !sli_gguf_take(c, &array.count, 8))
    return truncated(path, key);
  if (array.kind >= KINDS || array.kind == ARRAY)
    return sl_fail(SL_E_INPUT, "%s: %s is an array of type %u, which is not known", path, key,
                   array.kind);
  array.from = *c;
  sl_status status =
      array.kind == TEXT ? pass_texts(path, c, &array) : pass_numbers(path, c, &array);
  if (status) return status;
  SLI_GROW(m->arrays, m->narrays, m->room);
  array.key = sli_strdup(key);
  m->arrays[m->narrays++] = array;
  return SL_OK;
}

/* Reads the next element. */
static cJSON *element_json(uint32_t kind, cursor *c) {
  if (kind == TEXT) {
    char *text = NULL;
    sl_status status = sli_gguf_take_text(c, "", "", &text);
    SLI_CHECK(!status, "a text was checked, and is none");
    cJSON *item = cJSON_CreateString(text);
    free(text);
    return item;
  }
  size_t bytes = widths[kind];
  cJSON *item = scalar_json(kind, c->at);
  c->at += bytes;
  c->left -= bytes;
  return item;
}

cJSON *sli_gguf_array_json(const gguf_array *array) {
  cJSON *out = cJSON_CreateArray();
  cursor c = array->from;
  for (uint64_t i = 0; i < array->count; i++)
    cJSON_AddItemToArray(out, element_json(array->kind, &c));
  return out;
}

/* ---- metadata ----------------------------------------------------------------------------- */

static bool is_known(const gguf_metadata *m, const char *key) {
  for (size_t i = 0; i < m->narrays; i++)
    if (!strcmp(m->arrays[i].key, key)) return true;
  return cJSON_GetObjectItemCaseSensitive(m->values, key);
}

static sl_status read_text(const char *path, cursor *c, const char *key, gguf_metadata *m) {
  char *text;
  sl_status status = sli_gguf_take_text(c, path, key, &text);
  if (status) return status;
  cJSON_AddStringToObject(m->values, key, text);
  free(text);
  return SL_OK;
}

static sl_status read_value(const char *path, cursor *c, const char *key, gguf_metadata *m) {
  uint32_t kind;
  unsigned char bytes[8];
  if (!sli_gguf_take(c, &kind, 4)) return truncated(path, key);
  if (kind == ARRAY) return read_array(path, c, key, m);
  if (kind == TEXT) return read_text(path, c, key, m);
  if (kind >= KINDS)
    return sl_fail(SL_E_INPUT, "%s: %s has type %u, which is not known", path, key, kind);
  if (!sli_gguf_take(c, bytes, widths[kind])) return truncated(path, key);
  if (!isfinite(number_of(kind, bytes)))
    return sl_fail(SL_E_INPUT, "%s: %s is not finite", path, key);
  cJSON_AddItemToObject(m->values, key, scalar_json(kind, bytes));
  return SL_OK;
}

static sl_status read_pair(const char *path, cursor *c, gguf_metadata *m) {
  char *key;
  sl_status status = sli_gguf_take_text(c, path, "a key", &key);
  if (status) return status;
  status = is_known(m, key) ? sl_fail(SL_E_INPUT, "%s: key %s appears twice", path, key)
                            : read_value(path, c, key, m);
  free(key);
  return status;
}

sl_status sli_gguf_metadata_read(const char *path, cursor *c, uint64_t count, gguf_metadata *out) {
  out->values = cJSON_CreateObject();
  if (count > MOST_KEYS)
    return sl_fail(SL_E_INPUT, "%s has %llu keys; up to %d can be read", path,
                   (unsigned long long)count, MOST_KEYS);
  sl_status status = SL_OK;
  for (uint64_t i = 0; i < count && !status; i++) status = read_pair(path, c, out);
  return status;
}

void sli_gguf_metadata_fini(gguf_metadata *m) {
  for (size_t i = 0; i < m->narrays; i++) free(m->arrays[i].key);
  free(m->arrays);
  cJSON_Delete(m->values);
}
