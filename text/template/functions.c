/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that templates call. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/template/template_inner.h"

static sli_value raise_exception(sli_values *v, const arguments *a) {
  sli_value what = sli_value_as_text(v, sli_argument(v, a, 0, NULL));
  if (!v->status)
    v->status = sl_fail(SL_E_USAGE, "it says: %.*s", (int)SLI_MIN(what.text.bytes, (size_t)300),
                        what.text.at);
  return what;
}

static sli_value strftime_now(sli_values *v, const arguments *a) {
  enum { MOST = 256 };
  sli_value format = sli_argument_text(v, a, 0, "format");
  char text[MOST], copy[MOST];
  if (format.text.bytes >= MOST)
    return sli_values_fail(v, "the format of strftime_now is too long"), format;
  memcpy(copy, format.text.at, format.text.bytes);
  copy[format.text.bytes] = 0;
  time_t now = time(NULL);
  struct tm local;
  localtime_r(&now, &local);
  text[strftime(text, sizeof text, copy, &local)] = 0;
  return sli_value_text(v, text);
}

static sli_value range(sli_values *v, const arguments *a) {
  enum { MOST = 100000 }; /* limit of Jinja's sandbox */
  sli_value all = sli_value_list(v);
  int64_t one = sli_argument_int(v, a, 0, NULL, 0), step = sli_argument_int(v, a, 2, NULL, 1);
  int64_t from = a->count > 1 ? one : 0,
          end = a->count > 1 ? sli_argument_int(v, a, 1, NULL, 0) : one;
  bool few = llabs(from) < INT32_MAX && llabs(end) < INT32_MAX && llabs(step) < INT32_MAX && step &&
             (end - from) / step <= MOST;
  if (!few || !a->count || a->count > 3 || a->named)
    return sli_values_fail(v, "a range is too long or has step 0"), all;
  for (int64_t i = from; (step > 0 ? i < end : i > end) && !v->status; i += step)
    sli_value_add(v, all, sli_value_int(i));
  return all;
}

/* Adds the members of a dict, or a list of pairs, as Python's dict() does. */
static void add_members(sli_values *v, sli_value out, sli_value from) {
  if (from.kind == SLI_DICT) {
    for (size_t i = 0; i < from.dict->count; i++)
      sli_dict_set(v, out.dict, from.dict->items[i].key, from.dict->items[i].value);
    return;
  }
  const sli_list *pairs = sli_value_items(v, from);
  for (size_t i = 0; i < pairs->count && !v->status; i++) {
    const sli_list *pair = sli_value_items(v, pairs->items[i]);
    if (pair->count == 2) sli_dict_set(v, out.dict, pair->items[0], pair->items[1]);
    else sli_values_fail(v, "the items of a dict must be pairs");
  }
}

/* Makes a dict or a namespace from another one and from named arguments. */
static sli_value named(sli_values *v, const arguments *a) {
  sli_value out = sli_value_dict(v);
  if (a->count > 1) sli_values_fail(v, "dict takes at most one argument");
  if (a->count) add_members(v, out, a->items[0]);
  for (size_t i = 0; a->named && i < a->named->count; i++)
    sli_dict_set(v, out.dict, a->named->items[i].key, a->named->items[i].value);
  return out;
}

static sli_value namespace(sli_values *v, const arguments *a) {
  sli_value out = named(v, a);
  out.kind = SLI_NAMESPACE;
  return out;
}

static const struct {
  const char *name;
  sli_value (*call)(sli_values *v, const arguments *a);
} functions[] = {{"raise_exception", raise_exception},
                 {"strftime_now", strftime_now},
                 {"range", range},
                 {"dict", named},
                 {"namespace", namespace}};

bool sli_is_function(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(functions); i++)
    if (!strcmp(functions[i].name, name)) return true;
  return false;
}

sli_value sli_call_function(sli_values *v, const char *name, const arguments *a) {
  for (size_t i = 0; i < SLI_COUNT(functions); i++)
    if (!strcmp(functions[i].name, name)) return functions[i].call(v, a);
  sli_values_fail(v, "function \"%.40s\" is not known", name);
  return sli_value_none();
}
