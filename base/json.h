/* SPDX-License-Identifier: Apache-2.0 */
/* JSON from outside: files, requests, other processes. It is parsed strictly, and values are
 * checked for kind and range. Errors name the source and the path within it, as in "box.json:
 * links[0].to: wanted ...".
 *
 * A document is rejected as a whole for any of these: a violation of RFC 8259, bytes that are not
 * UTF-8, zeros in strings, numbers beyond a double, duplicate keys, more than SLI_JSON_DEPTH
 * levels. */
#ifndef SLUICE_BASE_JSON_H
#define SLUICE_BASE_JSON_H

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { SLI_JSON_DEPTH = 64 };

typedef struct sli_json {
  char *name; /* name of the source, for messages */
  cJSON *root;
} sli_json;

/* Checks that sli_json_read() makes around the parser. _scan checks the grammar of the text, with
 * at most `most` values (0: any number). _check checks for unique keys and finite numbers. */
sl_status sli_json_scan(const char *name, const char *text, size_t bytes, size_t most);
sl_status sli_json_check(const sli_json *doc);

static inline void sli_json_fini(sli_json *doc) {
  cJSON_Delete(doc->root);
  free(doc->name);
  *doc = (sli_json){0};
}

/* Reads one value, with nothing after it. The SL_E_INPUT error says what is wrong and where.
 * Inline, so that programs that read no JSON need not link the parser. */
static inline sl_status sli_json_read(const char *name, const char *text, size_t bytes, size_t most,
                                      sli_json *out) {
  sl_status status = sli_json_scan(name, text, bytes, most);
  if (status) return status;
  size_t mark = bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)
                    ? 3
                    : 0; /* cJSON does not recognize it before a single byte */
  sli_json doc = {sli_strdup(name), cJSON_ParseWithLength(text + mark, bytes - mark)};
  status = doc.root ? sli_json_check(&doc) : sl_fail(SL_E_INPUT, "%s: not JSON", name);
  if (status) sli_json_fini(&doc);
  else *out = doc;
  return status;
}

/* Fails with SL_E_INPUT; the message has the source, the value's path, and the text. */
sl_status sli_json_fail(const sli_json *doc, const cJSON *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- one value ---------------------------------------------------------------------------- */

typedef enum sli_json_kind {
  SLI_JSON_NUMBER, /* double */
  SLI_JSON_WHOLE,  /* int64_t: a number without a fraction */
  SLI_JSON_FLAG,   /* bool */
  SLI_JSON_TEXT,   /* const char *, of the document */
  SLI_JSON_OBJECT, /* const cJSON * */
  SLI_JSON_ARRAY,  /* const cJSON * */
  SLI_JSON_ANY     /* const cJSON * */
} sli_json_kind;

/* Checks that the value has this kind; otherwise fails with SL_E_INPUT. */
sl_status sli_json_is(const sli_json *doc, const cJSON *item, sli_json_kind kind);
/* Reads a number from `least` to `most`. */
sl_status sli_json_number(const sli_json *doc, const cJSON *item, double least, double most,
                          double *out);
sl_status sli_json_whole(const sli_json *doc, const cJSON *item, int64_t least, int64_t most,
                         int64_t *out);

/* Returns the number of members of an array or an object. */
size_t sli_json_count(const cJSON *item);

/* ---- objects ------------------------------------------------------------------------------- */

/* A member of an object. If an optional member is absent, `out` is left unchanged. With `out`
 * NULL the key is accepted and its value is not read. */
typedef struct sli_json_field {
  const char *key;
  sli_json_kind kind;
  void *out;
  double least, most; /* range of numbers */
  bool needed;
} sli_json_field;

/* Reads all fields of a table. Fails with SL_E_INPUT for a member that is not in the table, and
 * names it. */
sl_status sli_json_take(const sli_json *doc, const cJSON *of, const sli_json_field *fields,
                        size_t count);
/* Reads all fields of a table; other members are ignored. */
sl_status sli_json_pick(const sli_json *doc, const cJSON *of, const sli_json_field *fields,
                        size_t count);
/* Finds one member. If it is absent, *out is NULL, or the result SL_E_INPUT if it is needed. */
sl_status sli_json_member(const sli_json *doc, const cJSON *of, const char *key, sli_json_kind kind,
                          bool needed, const cJSON **out);

#endif
