/* JSON from outside: files, requests, other processes. It is read strictly, and asked by kind and range; what is
 * wrong is told with the name of its source and its path within, as in "box.json: links[0].to: wanted ...".
 *
 * Refused as a whole are: what the grammar of RFC 8259 has not, bytes that are no UTF-8, zeros in texts, numbers
 * beyond a double, keys that stand in one object twice, more than SLI_JSON_DEPTH levels. */
#ifndef SLUICE_BASE_JSON_H
#define SLUICE_BASE_JSON_H

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"

enum { SLI_JSON_DEPTH = 64 };

typedef struct sli_json {
  char *name; /* of the source, for messages */
  cJSON *root;
} sli_json;

/* What sli_json_read() does before and behind the parser: the text's grammar, with at most so many values (0: any
 * number); and its values, with keys that differ and numbers that are finite. */
sl_status sli_json_scan(const char *name, const char *text, size_t bytes, size_t most);
sl_status sli_json_check(const sli_json *doc);

static inline void sli_json_fini(sli_json *doc) {
  cJSON_Delete(doc->root);
  free(doc->name);
  *doc = (sli_json){0};
}

/* One value, and nothing behind it. SL_E_INPUT says what is wrong, and where. Inline, so that programs without
 * JSON need no parser. */
static inline sl_status sli_json_read(const char *name, const char *text, size_t bytes, size_t most, sli_json *out) {
  sl_status status = sli_json_scan(name, text, bytes, most);
  if (status) return status;
  sli_json doc = {sli_strdup(name), cJSON_ParseWithLength(text, bytes)};
  status = doc.root ? sli_json_check(&doc) : sl_fail(SL_E_INPUT, "%s: not JSON", name);
  if (status) sli_json_fini(&doc);
  else *out = doc;
  return status;
}

/* SL_E_INPUT: the source, the value's path, and the text. */
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

/* SL_E_INPUT unless it is of that kind. */
sl_status sli_json_is(const sli_json *doc, const cJSON *item, sli_json_kind kind);
/* Numbers from `least` to `most`. */
sl_status sli_json_number(const sli_json *doc, const cJSON *item, double least, double most, double *out);
sl_status sli_json_whole(const sli_json *doc, const cJSON *item, int64_t least, int64_t most, int64_t *out);

/* Of an array or an object. */
size_t sli_json_count(const cJSON *item);

/* ---- objects ------------------------------------------------------------------------------- */

/* A member of an object. `out` stays as it is where an optional member is not there; without it the member is known,
 * and not read. */
typedef struct sli_json_field {
  const char *key;
  sli_json_kind kind;
  void *out;
  double least, most; /* of numbers */
  bool needed;
} sli_json_field;

/* All that a table has. SL_E_INPUT names what `of` has beside that. */
sl_status sli_json_take(const sli_json *doc, const cJSON *of, const sli_json_field *fields, size_t count);
/* The same of an object that may have others too. */
sl_status sli_json_pick(const sli_json *doc, const cJSON *of, const sli_json_field *fields, size_t count);
/* One member; NULL where it is not there, or, if it is needed, SL_E_INPUT. */
sl_status sli_json_member(const sli_json *doc, const cJSON *of, const char *key, sli_json_kind kind, bool needed,
                          const cJSON **out);

#endif
