/* SPDX-License-Identifier: Apache-2.0 */
#include "io/rows.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* ---- rows ------------------------------------------------------------------------------------ */

/* Adds the members of a base row that a row lacks. Objects are merged member by member. */
static cJSON *merge(const cJSON *base, const cJSON *row) {
  cJSON *out = cJSON_Duplicate(base, true);
  const cJSON *item;
  cJSON_ArrayForEach(item, row) {
    const cJSON *old = cJSON_GetObjectItemCaseSensitive(out, item->string);
    bool inner = cJSON_IsObject(old) && cJSON_IsObject(item);
    cJSON *value = inner ? merge(old, item) : cJSON_Duplicate(item, true);
    if (old) cJSON_ReplaceItemInObjectCaseSensitive(out, item->string, value);
    else cJSON_AddItemToObject(out, item->string, value);
  }
  return out;
}

static const cJSON *row_named(const cJSON *rows, const char *key, const char *name) {
  const cJSON *row;
  cJSON_ArrayForEach(row, rows) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, key);
    if (cJSON_IsString(item) && !strcmp(item->valuestring, name)) return row;
  }
  SLI_CHECK(0, "no row %s", name);
  return NULL;
}

/* Completes a row by those that it is like. */
static cJSON *complete(const cJSON *rows, const cJSON *row, const char *name,
                       const char *const *own) {
  const cJSON *like = cJSON_GetObjectItemCaseSensitive(row, "like");
  if (!like) return cJSON_Duplicate(row, true);
  cJSON *base = complete(rows, row_named(rows, name, like->valuestring), name, own);
  cJSON_DeleteItemFromObjectCaseSensitive(base, "base");
  for (; *own; own++) cJSON_DeleteItemFromObjectCaseSensitive(base, *own);
  cJSON *out = merge(base, row);
  cJSON_Delete(base);
  return out;
}

cJSON *sli_rows_parse(const char *text, const char *name, const char *const *own) {
  cJSON *rows = cJSON_Parse(text), *out = cJSON_CreateArray();
  SLI_CHECK(rows, "a table is not JSON near: %.60s", cJSON_GetErrorPtr());
  const cJSON *row;
  cJSON_ArrayForEach(row, rows) if (!cJSON_GetObjectItemCaseSensitive(row, "base"))
      cJSON_AddItemToArray(out, complete(rows, row, name, own));
  cJSON_Delete(rows);
  return out;
}

/* ---- formulas -------------------------------------------------------------------------------- */

/* Returns the value of the key at `at`, `bytes` long, or NULL if it is absent or null. */
static const cJSON *value_at(const sli_formula_keys *keys, const char *at, size_t bytes) {
  char *name = sli_format("%s%.*s", keys->prefix, (int)bytes, at);
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(keys->root, name);
  free(name);
  return item && !cJSON_IsNull(item) ? item : NULL;
}

static sl_status absent(const sli_formula_keys *keys, const char *at, size_t bytes) {
  return sl_fail(SL_E_INPUT, "%s has no %s%.*s", keys->path, keys->prefix, (int)bytes, at);
}

/* Reads "#KEY|KEY", the number of items or letters of the first key that the file has. */
static sl_status read_count(const sli_formula_keys *keys, const char **at, double *out) {
  const char *next = *at;
  size_t n = 0;
  *at += strcspn(*at, " ");
  while (next < *at) {
    n = strcspn(++next, " |");
    const cJSON *item = value_at(keys, next, n);
    *out = cJSON_IsString(item) ? (double)strlen(item->valuestring) : cJSON_GetArraySize(item);
    if (item && *out > 0) return SL_OK;
    if ((next += n) == *at) break;
  }
  return absent(keys, next - n, n);
}

/* Returns the value of the first of the keys "KEY|KEY" that the file has, or NULL. */
static const cJSON *first_of(const sli_formula_keys *keys, const char *at, size_t bytes) {
  const cJSON *item = NULL;
  for (const char *end = at + bytes; at < end && !item;) {
    size_t n = SLI_MIN(strcspn(at, "|"), (size_t)(end - at));
    item = value_at(keys, at, n);
    at += n + (at[n] == '|');
  }
  return item;
}

/* Reads a factor's key at *at, and moves on to what follows. */
static sl_status read_key(const sli_formula_keys *keys, const char **at, double *out) {
  if (**at == '#') return read_count(keys, at, out);
  const char *begin = *at;
  size_t n = strcspn(begin, " :");
  const cJSON *item = first_of(keys, begin, n);
  bool missing = begin[n] == ':';
  *at += n;
  if (missing) *out = strtod(*at + 1, (char **)at);
  if (item) *out = item->valuedouble;
  if (!item && !missing) return absent(keys, begin, n);
  return !item || cJSON_IsNumber(item) ? SL_OK
                                       : sl_fail(SL_E_INPUT, "%s: %s%.*s is not a number",
                                                 keys->path, keys->prefix, (int)n, begin);
}

static double apply(char sign, double x, double y) {
  switch (sign) {
  case '+': return x + y;
  case '-': return x - y;
  case '/': return x / y;
  default: return x * y;
  }
}

sl_status sli_formula(const sli_formula_keys *keys, const char *formula, double *out) {
  char sign = '*';
  *out = 1;
  for (const char *at = formula; *at && sign != '=';) {
    double value = 0;
    at += strspn(at, " ");
    if (isdigit(*at)) value = strtod(at, (char **)&at);
    else SLI_TRY(read_key(keys, &at, &value));
    *out = apply(sign, *out, value);
    at += strspn(at, " ");
    sign = *at ? *at++ : '=';
  }
  return SL_OK;
}
