/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of filters, tests, methods and functions. */
#include <string.h>

#include "text/template/template_inner.h"

/* Returns a positional or named argument, or `otherwise` if it is absent. */
sli_value sli_argument_or(sli_values *v, const arguments *a, size_t place, const char *name,
                          sli_value otherwise) {
  sli_value out = otherwise;
  if (place < a->count) return a->items[place];
  if (name && a->named) sli_dict_get(v, a->named, sli_value_span(name, strlen(name)), &out);
  return out;
}

/* Fails if there are more than `most` positional arguments, or named ones that are not in
 * `names` (NULL-terminated). */
bool sli_arguments_check(sli_values *v, const char *what, const arguments *a, size_t most,
                         const char *const *names) {
  if (a->count > most) sli_values_fail(v, "%s takes at most %zu arguments", what, most);
  for (size_t i = 0; a->named && i < a->named->count; i++) {
    bool known = false;
    for (const char *const *name = names; *name; name++)
      known |= sli_text_is(a->named->items[i].key, *name);
    sli_value key = a->named->items[i].key;
    if (!known)
      sli_values_fail(v, "%s has no argument %.*s", what, (int)SLI_MIN(key.text.bytes, (size_t)40),
                      key.text.at);
  }
  return !v->status;
}

static size_t steps_of(sli_value value) {
  if (value.kind == SLI_TEXT) return value.text.bytes / 16;
  return sli_value_is_row(value) || value.kind == SLI_DICT ? sli_value_count(value) : 0;
}

bool sli_arguments_step(sli_values *v, sli_value subject, const arguments *a) {
  size_t steps = 1 + steps_of(subject);
  for (size_t i = 0; i < a->count; i++) steps += steps_of(a->items[i]);
  return sli_values_step(v, steps);
}

sli_value sli_argument(sli_values *v, const arguments *a, size_t place, const char *name) {
  return sli_argument_or(v, a, place, name, sli_value_undefined(name ? name : "an argument"));
}

sli_value sli_argument_text(sli_values *v, const arguments *a, size_t place, const char *name) {
  sli_value text = sli_argument(v, a, place, name);
  if (text.kind != SLI_TEXT)
    sli_values_fail(v, "%s must be a text, not %s", name ? name : "an argument",
                    sli_value_kind(text));
  return text.kind == SLI_TEXT ? text : sli_value_span("", 0);
}

int64_t sli_argument_int(sli_values *v, const arguments *a, size_t place, const char *name,
                         int64_t otherwise) {
  sli_value number = sli_argument_or(v, a, place, name, sli_value_int(otherwise));
  if (number.kind == SLI_NONE) return otherwise;
  if (number.kind != SLI_INT)
    sli_values_fail(v, "%s must be a whole number, not %s", name ? name : "an argument",
                    sli_value_kind(number));
  return number.kind == SLI_INT ? number.number : otherwise;
}

bool sli_argument_flag(sli_values *v, const arguments *a, size_t place, const char *name) {
  return sli_value_is_true(sli_argument_or(v, a, place, name, sli_value_bool(false)));
}

arguments sli_arguments_behind(const arguments *a, size_t from) {
  from = SLI_MIN(from, a->count);
  return (arguments){.items = a->items + from, .count = a->count - from, .named = a->named};
}
