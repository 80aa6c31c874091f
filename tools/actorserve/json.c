/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/json.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/utf8.h"

enum { MOST_VALUES = 1 << 18 };

/* Checks what cJSON does not: zeros in strings, and the number of values. */
static sl_status look_over(const char *text, size_t bytes) {
  size_t values = 1;
  bool quoted = false;
  for (size_t i = 0; i < bytes; i++) {
    char c = text[i];
    if (quoted && c == '\\' && !strncmp(text + i, "\\u0000", 6))
      return sl_fail(SL_E_INPUT, "the body has a text with a zero in it, at byte %zu", i);
    if (!quoted) values += c == ',' || c == '[' || c == '{';
    quoted ^= c == '"';
    i += quoted && c == '\\';
  }
  return values <= MOST_VALUES
             ? SL_OK
             : sl_fail(SL_E_INPUT, "the body has more than %d values", MOST_VALUES);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Memory of the thread's parse; `refused` is set if it did not suffice. */
static _Thread_local struct {
  sli_bounded *memory;
  bool refused;
} parse;

static void *allocate(size_t bytes) {
  sli_bounded *memory = parse.memory;
  if (!memory) return malloc(bytes);
  parse.memory = NULL; /* making room may drop answers, which are JSON too */
  void *out = sli_bounded_alloc(memory, bytes);
  parse.memory = memory;
  parse.refused |= !out;
  return out;
}

static void release(void *at) {
  if (!parse.memory) free(at);
}

static void set_hooks(void) { cJSON_InitHooks(&(cJSON_Hooks){allocate, release}); }

static cJSON *parse_in(sli_bounded *memory, const char *text, size_t bytes, const char **end) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, set_hooks);
  parse.memory = memory;
  parse.refused = false;
  cJSON *out = cJSON_ParseWithLengthOpts(text, bytes, end, 1);
  parse.memory = NULL;
  return out;
}

/* ---- parsing --------------------------------------------------------------------------------- */

sl_status json_read(const char *text, size_t bytes, sli_bounded *memory, cJSON **out) {
  size_t good = sli_utf8_good(text, bytes);
  if (good < bytes) return sl_fail(SL_E_INPUT, "the body is not UTF-8 at byte %zu", good);
  if (strlen(text) < bytes)
    return sl_fail(SL_E_INPUT, "the body has a zero at byte %zu", strlen(text));
  sl_status status = look_over(text, bytes);
  if (status) return status;
  const char *end = text;
  *out = parse_in(memory, text, bytes + 1, &end);
  if (*out) return SL_OK;
  if (parse.refused) return sl_fail(SL_E_MEMORY, "there is no memory to read the body");
  size_t at = SLI_MIN((size_t)(end - text), bytes);
  if (at == bytes) return sl_fail(SL_E_INPUT, "the body is not JSON at its end");
  size_t shown = SLI_MIN(bytes - at, 20);
  while (shown && sli_utf8_good(text + at, shown) < shown) shown--;
  return sl_fail(SL_E_INPUT, "the body is not JSON near byte %zu: %.*s", at, (int)shown, text + at);
}

/* ---- texts of members ------------------------------------------------------------------------ */

/* Returns the end of the string that begins at `at`. */
static const char *string_end(const char *at) {
  for (at++; *at != '"'; at++) at += *at == '\\';
  return at + 1;
}

/* Returns the end of the value at `at`: the next delimiter of the enclosing object. */
static const char *value_end(const char *at) {
  for (int depth = 0; depth || !strchr(",}:", *at);) {
    depth += (*at == '[' || *at == '{') - (*at == ']' || *at == '}');
    at = *at == '"' ? string_end(at) : at + 1;
  }
  return at;
}

const char *json_member(const char *object, int i, size_t *bytes) {
  const char *at = strchr(object, '{'), *end;
  do {
    at = value_end(at + 1) + 1; /* after the colon */
    end = value_end(at);
    *bytes = (size_t)(end - at);
  } while (i-- && (at = end));
  return at;
}
