/* SPDX-License-Identifier: Apache-2.0 */
/* Printing of values, in Python's format and as JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "text/template/template_inner.h"

/* ---- Python ---------------------------------------------------------------------------------- */

static void print_put(sli_values *v, text_buffer *out, const char *text) {
  sli_buffer_add(v, out, text, strlen(text));
}

/* Prints the shortest digits that read back as this number, in Python's format. */
static void put_real(sli_values *v, double real, text_buffer *out) {
  char text[40];
  int digits = 1;
  if (!isfinite(real)) return print_put(v, out, isnan(real) ? "nan" : real > 0 ? "inf" : "-inf");
  do snprintf(text, sizeof text, "%.*e", digits - 1, real);
  while (strtod(text, NULL) != real && digits++ < 17);
  int power = atoi(strchr(text, 'e') + 1);
  if (power >= 16 || power < -4) snprintf(text, sizeof text, "%.*g", digits, real);
  else snprintf(text, sizeof text, "%.*f", SLI_MAX(digits - 1 - power, 1), real);
  print_put(v, out, text);
}

static void put_number(sli_values *v, sli_value number, text_buffer *out) {
  char text[24];
  if (number.kind == SLI_REAL && number.digits) return print_put(v, out, number.digits);
  if (number.kind == SLI_REAL) return put_real(v, number.real, out);
  snprintf(text, sizeof text, "%" PRId64, number.number);
  print_put(v, out, text);
}

/* Prints a quoted text as Python's repr() does, except for characters that Python considers
 * unprintable. */
static void put_quoted(sli_values *v, sli_value text, text_buffer *out) {
  bool single = memchr(text.text.at, '\'', text.text.bytes),
       twice = memchr(text.text.at, '"', text.text.bytes);
  char quote = single && !twice ? '"' : '\'', room[8];
  sli_buffer_add(v, out, &quote, 1);
  for (size_t i = 0; i < text.text.bytes && !v->status; i++) {
    unsigned char c = (unsigned char)text.text.at[i];
    const char *name = c ? strchr("\nn\tt\rr", c) : NULL;
    if (c == quote || c == '\\') snprintf(room, sizeof room, "\\%c", c);
    else if (name && c < ' ') snprintf(room, sizeof room, "\\%c", name[1]);
    else if (c < ' ' || c == 0x7f) snprintf(room, sizeof room, "\\x%02x", c);
    else snprintf(room, sizeof room, "%c", c);
    print_put(v, out, room);
  }
  sli_buffer_add(v, out, &quote, 1);
}

static void put_inner(sli_values *v, sli_value value, int depth, text_buffer *out);

static void put_items(sli_values *v, const sli_list *list, int depth, text_buffer *out) {
  for (size_t i = 0; i < list->count && !v->status; i++) {
    if (i) print_put(v, out, ", ");
    put_inner(v, list->items[i], depth, out);
  }
}

static void put_dict(sli_values *v, const sli_dict *dict, int depth, text_buffer *out) {
  print_put(v, out, "{");
  for (size_t i = 0; i < dict->count && !v->status; i++) {
    if (i) print_put(v, out, ", ");
    put_inner(v, dict->items[i].key, depth, out);
    print_put(v, out, ": ");
    put_inner(v, dict->items[i].value, depth, out);
  }
  print_put(v, out, "}");
}

/* Prints a value as an element of a list. */
static void put_inner(sli_values *v, sli_value value, int depth, text_buffer *out) {
  if (depth > SLI_TEMPLATE_DEPTH)
    return sli_values_fail(v, "a value is nested deeper than %d", SLI_TEMPLATE_DEPTH);
  switch (value.kind) {
  case SLI_NONE: return print_put(v, out, "None");
  case SLI_UNDEFINED: return print_put(v, out, "Undefined");
  case SLI_BOOL: return print_put(v, out, value.truth ? "True" : "False");
  case SLI_INT:
  case SLI_REAL: return put_number(v, value, out);
  case SLI_TEXT: return put_quoted(v, value, out);
  case SLI_DICT: return put_dict(v, value.dict, depth + 1, out);
  case SLI_LIST:
  case SLI_TUPLE:
    print_put(v, out, value.kind == SLI_LIST ? "[" : "(");
    put_items(v, value.list, depth + 1, out);
    print_put(v, out, value.kind == SLI_LIST ? "]" : value.list->count == 1 ? ",)" : ")");
    return;
  default: sli_values_fail(v, "%s has no text", sli_value_kind(value));
  }
}

void sli_value_print(sli_values *v, sli_value value, text_buffer *out) {
  if (value.kind == SLI_TEXT) sli_buffer_add(v, out, value.text.at, value.text.bytes);
  else if (value.kind != SLI_UNDEFINED) put_inner(v, value, 0, out);
}

void sli_value_print_inner(sli_values *v, sli_value value, text_buffer *out) {
  put_inner(v, value, 0, out);
}

sli_value sli_value_as_text(sli_values *v, sli_value value) {
  text_buffer b = {0};
  if (value.kind == SLI_TEXT) return value;
  sli_value_print(v, value, &b);
  return sli_buffer_value(&b);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

typedef struct json_target {
  sli_values *v;
  text_buffer *out;
} json_target;

static void put_json(void *to, const char *text, size_t bytes) {
  const json_target *t = to;
  sli_buffer_add(t->v, t->out, text, bytes);
}

static void json_text(sli_values *v, sli_value text, bool ascii, text_buffer *out) {
  sli_json_string(text.text.at, text.text.bytes, ascii, put_json, &(json_target){v, out});
}

static void json_line(sli_values *v, const json_style *style, int depth, text_buffer *out) {
  if (style->indent.kind != SLI_TEXT) return;
  print_put(v, out, "\n");
  for (int i = 0; i < depth && !v->status; i++) sli_value_print(v, style->indent, out);
}

static void json_list(sli_values *v, const sli_list *list, const json_style *style, int depth,
                      text_buffer *out) {
  print_put(v, out, "[");
  for (size_t i = 0; i < list->count && !v->status; i++) {
    if (i) sli_value_print(v, style->between, out);
    json_line(v, style, depth + 1, out);
    sli_value_json(v, list->items[i], style, depth + 1, out);
  }
  if (list->count) json_line(v, style, depth, out);
  print_put(v, out, "]");
}

/* Returns the entry with the smallest key greater than that of `last`, or NULL if there is none. */
static const struct sli_entry *next_sorted(sli_values *v, const sli_dict *d,
                                           const struct sli_entry *last) {
  const struct sli_entry *best = NULL;
  for (size_t i = 0; i < d->count && sli_values_step(v, 1); i++) {
    bool behind = !last || sli_value_compare(v, d->items[i].key, last->key) > 0;
    if (behind && (!best || sli_value_compare(v, d->items[i].key, best->key) < 0))
      best = &d->items[i];
  }
  return best;
}

/* Writes a key. As in Python, numbers, booleans and none become texts. */
static void json_key(sli_values *v, sli_value key, const json_style *style, text_buffer *out) {
  if (key.kind == SLI_TEXT) return json_text(v, key, style->ascii, out);
  print_put(v, out, "\"");
  sli_value_json(v, key, style, 0, out);
  print_put(v, out, "\"");
}

static void json_dict(sli_values *v, const sli_dict *d, const json_style *style, int depth,
                      text_buffer *out) {
  const struct sli_entry *entry = NULL;
  print_put(v, out, "{");
  for (size_t i = 0; i < d->count && !v->status; i++) {
    entry = style->sorted ? next_sorted(v, d, entry) : &d->items[i];
    if (!entry) break;
    if (i) sli_value_print(v, style->between, out);
    json_line(v, style, depth + 1, out);
    json_key(v, entry->key, style, out);
    sli_value_print(v, style->behind_key, out);
    sli_value_json(v, entry->value, style, depth + 1, out);
  }
  if (d->count) json_line(v, style, depth, out);
  print_put(v, out, "}");
}

void sli_value_json(sli_values *v, sli_value value, const json_style *style, int depth,
                    text_buffer *out) {
  if (depth > SLI_TEMPLATE_DEPTH)
    return sli_values_fail(v, "a value is nested deeper than %d", SLI_TEMPLATE_DEPTH);
  switch (value.kind) {
  case SLI_NONE: return print_put(v, out, "null");
  case SLI_BOOL: return print_put(v, out, value.truth ? "true" : "false");
  case SLI_INT: return put_number(v, value, out);
  case SLI_REAL:
    if (isfinite(value.real)) return put_number(v, value, out);
    return print_put(v, out, isnan(value.real) ? "NaN" : value.real > 0 ? "Infinity" : "-Infinity");
  case SLI_TEXT: return json_text(v, value, style->ascii, out);
  case SLI_LIST:
  case SLI_TUPLE: return json_list(v, value.list, style, depth, out);
  case SLI_DICT: return json_dict(v, value.dict, style, depth, out);
  default: sli_values_fail(v, "tojson is not possible for %s", sli_value_kind(value));
  }
}
