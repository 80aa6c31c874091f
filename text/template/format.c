/* SPDX-License-Identifier: Apache-2.0 */
/* String formatting: Python's "%s" % x and "{}".format(x). */
#include <stdio.h>
#include <string.h>

#include "text/template/template_inner.h"

/* ---- "%s" % x -------------------------------------------------------------------------------- */

typedef struct percent {
  sli_values *v;
  sli_value with;
  size_t used; /* arguments used so far */
  text_buffer out;
} percent;

static sli_value next_argument(percent *p) {
  bool one = p->with.kind != SLI_TUPLE;
  size_t count = one ? 1 : p->with.list->count;
  if (p->used == count)
    return sli_values_fail(p->v, "a format has more fields than its %zu arguments", count), p->with;
  return one ? (p->used++, p->with) : p->with.list->items[p->used++];
}

static void put_whole(percent *p, sli_value number) {
  if (!sli_value_is_number(number))
    return sli_values_fail(p->v, "cannot format %s with %%d", sli_value_kind(number));
  if (number.kind == SLI_REAL && (number.real < -9e18 || number.real > 9e18))
    return sli_values_fail(p->v, "a number is too large");
  if (number.kind == SLI_REAL) number = sli_value_int((int64_t)number.real);
  if (number.kind == SLI_BOOL) number = sli_value_int(number.truth);
  sli_value_print(p->v, number, &p->out);
}

static void put_fraction(percent *p, int digits, sli_value number) {
  enum { MOST = 400 }; /* the longest number has 309 digits before its point */
  char text[MOST];
  if (!sli_value_is_number(number))
    return sli_values_fail(p->v, "cannot format %s with %%f", sli_value_kind(number));
  int n = snprintf(text, sizeof text, "%.*f", digits, sli_value_as_real(number));
  sli_buffer_add(p->v, &p->out, text, (size_t)n);
}

/* Formats the conversion after a %. Returns the length of the conversion. */
static size_t put_place(percent *p, const char *at, size_t bytes) {
  bool dot = bytes > 2 && at[0] == '.' && at[1] >= '0' && at[1] <= '9' && at[2] == 'f';
  if (dot) return put_fraction(p, at[1] - '0', next_argument(p)), 3;
  char kind = bytes ? *at : 0;
  if (kind == '%') sli_buffer_add(p->v, &p->out, "%", 1);
  else if (kind == 's') sli_value_print(p->v, next_argument(p), &p->out);
  else if (kind == 'r') sli_value_print_inner(p->v, next_argument(p), &p->out);
  else if (kind == 'd' || kind == 'i') put_whole(p, next_argument(p));
  else if (kind == 'f') put_fraction(p, 6, next_argument(p));
  else sli_values_fail(p->v, "the format %%%c is not supported", kind ? kind : ' ');
  return 1;
}

sli_value sli_format_percent(sli_values *v, sli_value text, sli_value with) {
  percent p = {.v = v, .with = with};
  const char *from = text.text.at, *end = from + text.text.bytes;
  while (sli_values_step(v, 1)) {
    const char *sign = memchr(from, '%', (size_t)(end - from));
    sli_buffer_add(v, &p.out, from, (size_t)((sign ? sign : end) - from));
    if (!sign) break;
    from = sign + 1;
    size_t n = put_place(&p, from, (size_t)(end - from));
    from += SLI_MIN(n, (size_t)(end - from));
  }
  bool all = with.kind == SLI_TUPLE                           ? p.used == with.list->count
             : with.kind == SLI_DICT || with.kind == SLI_LIST ? true
                                                              : p.used == 1;
  if (!all) sli_values_fail(v, "a format has fewer fields than arguments");
  return sli_buffer_value(&p.out);
}

/* ---- "{}".format(x) -------------------------------------------------------------------------- */

/* Returns the argument of a field: the next one, or the one with the field's number or name. */
static sli_value field_of(sli_values *v, const arguments *a, sli_value field, size_t *place) {
  sli_value out = sli_value_undefined("a field of a format");
  const char *at = field.text.at;
  size_t bytes = field.text.bytes, number = 0;
  bool digits = bytes < 4;
  for (size_t i = 0; i < bytes; i++) {
    digits &= at[i] >= '0' && at[i] <= '9';
    if (digits) number = number * 10 + (size_t)(at[i] - '0');
    if (strchr(".[!:{", at[i])) {
      sli_values_fail(v, "the format field {%.*s} is not supported",
                      (int)SLI_MIN(bytes, (size_t)40), at);
      return out;
    }
  }
  if (digits && !bytes) number = (*place)++;
  bool there = digits ? number < a->count : a->named && sli_dict_get(v, a->named, field, &out);
  if (!there)
    sli_values_fail(v, "a format has no argument \"%.*s\"", (int)SLI_MIN(bytes, (size_t)40), at);
  else if (digits) out = a->items[number];
  return out;
}

sli_value sli_format_braces(sli_values *v, sli_value text, const arguments *a) {
  text_buffer out = {0};
  const char *at = text.text.at, *end = at + text.text.bytes;
  size_t place = 0;
  while (at < end && sli_values_step(v, 1)) {
    bool twice = at + 1 < end && at[1] == *at;
    if ((*at != '{' && *at != '}') || twice) {
      bool brace = *at == '{' || *at == '}';
      sli_buffer_add(v, &out, at, 1);
      at += brace ? 2 : 1;
      continue;
    }
    const char *close = *at == '{' ? memchr(at, '}', (size_t)(end - at)) : NULL;
    if (!close) {
      sli_values_fail(v, "a format has a single brace");
      break;
    }
    sli_value field = sli_value_span(at + 1, (size_t)(close - at - 1));
    sli_value_print(v, field_of(v, a, field, &place), &out);
    at = close + 1;
  }
  return sli_buffer_value(&out);
}
