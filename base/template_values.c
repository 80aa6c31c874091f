/* SPDX-License-Identifier: Apache-2.0 */
/* Values of templates: construction, comparison, and printing in Python's format. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/template_inner.h"

enum { MOST_STEPS = 50000000, MOST_DEPTH = 100 };

/* ---- memory ---------------------------------------------------------------------------------- */

sli_values *sli_values_create(size_t most_bytes, const sli_allowance *allowance) {
  sli_values *v = sli_calloc(1, sizeof *v);
  v->most = most_bytes;
  v->memory.allowance = allowance;
  v->steps = MOST_STEPS;
  return v;
}

void sli_values_destroy(sli_values *v) {
  if (v) sli_bounded_fini(&v->memory);
  free(v);
}

void sli_values_fail(sli_values *v, const char *format, ...) {
  if (v->status) return;
  char what[200];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  v->status = sl_fail(SL_E_INPUT, "line %d of the template: %s", v->line, what);
}

bool sli_values_step(sli_values *v, size_t steps) {
  if ((size_t)v->steps < steps) sli_values_fail(v, "it takes more steps than it may");
  else v->steps -= (int64_t)steps;
  return !v->status;
}

/* Returns NULL once the memory is used up, or after any failure. */
void *sli_values_room(sli_values *v, size_t bytes) {
  if (!v->status && (bytes > v->most || v->used > v->most - bytes))
    sli_values_fail(v, "it takes more memory than it may");
  if (v->status) return NULL;
  v->used += bytes + 16;
  void *out = sli_bounded_alloc(&v->memory, bytes);
  if (!out)
    v->status = sl_fail(SL_E_MEMORY, "line %d of the template: there is no more memory", v->line);
  return out;
}

void sli_buffer_add(sli_values *v, text_buffer *b, const char *text, size_t bytes) {
  if (!sli_values_step(v, bytes / 64)) return;
  if (b->bytes + bytes >= b->capacity) {
    size_t capacity = SLI_MAX(2 * b->capacity, b->bytes + bytes + 32);
    char *more = sli_values_room(v, capacity);
    if (!more) return;
    if (b->bytes) memcpy(more, b->at, b->bytes);
    b->at = more;
    b->capacity = capacity;
  }
  if (bytes) memcpy(b->at + b->bytes, text, bytes);
  b->bytes += bytes;
  b->at[b->bytes] = 0;
}

sli_value sli_buffer_value(const text_buffer *b) {
  return sli_value_span(b->bytes ? b->at : "", b->bytes);
}

/* Makes room for one more item of `size` bytes. */
static bool grow(sli_values *v, void **items, size_t count, size_t *capacity, size_t size) {
  if (count < *capacity) return !v->status;
  size_t more = *capacity ? 2 * *capacity : 4;
  void *all = sli_values_room(v, more * size);
  if (!all) return false;
  if (count) memcpy(all, *items, count * size);
  *items = all;
  *capacity = more;
  return true;
}

/* ---- constructors ---------------------------------------------------------------------------- */

sli_value sli_value_span(const char *text, size_t bytes) {
  return (sli_value){.kind = SLI_TEXT, .text = {text, bytes}};
}
sli_value sli_value_bool(bool truth) { return (sli_value){.kind = SLI_BOOL, .truth = truth}; }
sli_value sli_value_int(int64_t number) { return (sli_value){.kind = SLI_INT, .number = number}; }
sli_value sli_value_real(double real) { return (sli_value){.kind = SLI_REAL, .real = real}; }
sli_value sli_value_none(void) { return (sli_value){.kind = SLI_NONE}; }

sli_value sli_value_undefined(const char *name) {
  return (sli_value){.kind = SLI_UNDEFINED, .text = {name, strlen(name)}};
}

sli_value sli_value_text(sli_values *v, const char *text) {
  text_buffer b = {0};
  sli_buffer_add(v, &b, text, strlen(text));
  return sli_buffer_value(&b);
}

sli_value sli_value_list(sli_values *v) {
  static sli_list none;
  sli_list *list = sli_values_room(v, sizeof *list);
  return (sli_value){.kind = SLI_LIST, .list = list ? list : &none};
}

void sli_value_add(sli_values *v, sli_value list, sli_value item) {
  sli_list *l = list.list;
  if (grow(v, (void **)&l->items, l->count, &l->capacity, sizeof *l->items))
    l->items[l->count++] = item;
}

sli_value sli_value_dict(sli_values *v) {
  static sli_dict none;
  sli_dict *dict = sli_values_room(v, sizeof *dict);
  return (sli_value){.kind = SLI_DICT, .dict = dict ? dict : &none};
}

static struct sli_entry *template_values_find(sli_values *v, const sli_dict *d, sli_value key) {
  for (size_t i = 0; i < d->count && sli_values_step(v, 1); i++)
    if (sli_value_equal(v, d->items[i].key, key)) return &d->items[i];
  return NULL;
}

void sli_dict_set(sli_values *v, sli_dict *d, sli_value key, sli_value value) {
  struct sli_entry *there = template_values_find(v, d, key);
  if (there) there->value = value;
  else if (grow(v, (void **)&d->items, d->count, &d->capacity, sizeof *d->items))
    d->items[d->count++] = (struct sli_entry){key, value};
}

bool sli_dict_get(sli_values *v, const sli_dict *d, sli_value key, sli_value *out) {
  struct sli_entry *there = template_values_find(v, d, key);
  if (there) *out = there->value;
  return there;
}

void sli_value_set(sli_values *v, sli_value dict, const char *key, sli_value item) {
  sli_dict_set(v, dict.dict, sli_value_text(v, key), item);
}

/* ---- predicates ------------------------------------------------------------------------------ */

bool sli_text_is(sli_value v, const char *text) {
  return v.kind == SLI_TEXT && v.text.bytes == strlen(text) &&
         !memcmp(v.text.at, text, v.text.bytes);
}

bool sli_value_is_true(sli_value v) {
  switch (v.kind) {
  case SLI_UNDEFINED:
  case SLI_NONE: return false;
  case SLI_BOOL: return v.truth;
  case SLI_INT: return v.number != 0;
  case SLI_REAL: return v.real != 0;
  case SLI_TEXT: return v.text.bytes;
  case SLI_LIST:
  case SLI_TUPLE: return v.list->count;
  case SLI_DICT: return v.dict->count;
  default: return true;
  }
}

bool sli_value_is_number(sli_value v) {
  return v.kind == SLI_INT || v.kind == SLI_REAL || v.kind == SLI_BOOL;
}

double sli_value_as_real(sli_value v) {
  return v.kind == SLI_REAL ? v.real : v.kind == SLI_BOOL ? (double)v.truth : (double)v.number;
}

const char *sli_value_kind(sli_value v) {
  static const char *const names[] = {
      "undefined", "none",   "a boolean",   "a number", "a number",   "a text", "a list",
      "a tuple",   "a dict", "a namespace", "a macro",  "a function", "a loop"};
  return names[v.kind];
}

static bool lists_equal(sli_values *v, const sli_list *a, const sli_list *b) {
  bool equal = a->count == b->count;
  for (size_t i = 0; equal && i < a->count; i++)
    equal = sli_value_equal(v, a->items[i], b->items[i]);
  return equal;
}

static bool dicts_equal(sli_values *v, const sli_dict *a, const sli_dict *b) {
  bool equal = a->count == b->count;
  sli_value other;
  for (size_t i = 0; equal && i < a->count; i++)
    equal =
        sli_dict_get(v, b, a->items[i].key, &other) && sli_value_equal(v, a->items[i].value, other);
  return equal;
}

bool sli_value_equal(sli_values *v, sli_value a, sli_value b) {
  if (!sli_values_step(v, 1)) return false;
  if (a.kind == SLI_INT && b.kind == SLI_INT) return a.number == b.number;
  if (sli_value_is_number(a) && sli_value_is_number(b))
    return sli_value_as_real(a) == sli_value_as_real(b);
  if (a.kind != b.kind) return false;
  switch (a.kind) {
  case SLI_UNDEFINED:
  case SLI_NONE: return true;
  case SLI_TEXT: return a.text.bytes == b.text.bytes && !memcmp(a.text.at, b.text.at, a.text.bytes);
  case SLI_LIST:
  case SLI_TUPLE: return lists_equal(v, a.list, b.list);
  case SLI_DICT: return dicts_equal(v, a.dict, b.dict);
  default: return a.other == b.other;
  }
}

/* Compares; texts are ordered by code points, which is the order of their UTF-8 bytes. */
int sli_value_compare(sli_values *v, sli_value a, sli_value b) {
  if (sli_value_is_number(a) && sli_value_is_number(b)) {
    double x = sli_value_as_real(a), y = sli_value_as_real(b);
    return (x > y) - (x < y);
  }
  if (a.kind != SLI_TEXT || b.kind != SLI_TEXT) {
    sli_values_fail(v, "%s and %s have no order", sli_value_kind(a), sli_value_kind(b));
    return 0;
  }
  int way = memcmp(a.text.at, b.text.at, SLI_MIN(a.text.bytes, b.text.bytes));
  return way ? way : (a.text.bytes > b.text.bytes) - (a.text.bytes < b.text.bytes);
}

bool sli_value_in(sli_values *v, sli_value item, sli_value all) {
  sli_value other;
  if (all.kind == SLI_UNDEFINED) return false;
  if (all.kind == SLI_DICT) return sli_dict_get(v, all.dict, item, &other);
  if (all.kind == SLI_TEXT && item.kind == SLI_TEXT)
    return sli_values_step(v, all.text.bytes / 64) &&
           memmem(all.text.at, all.text.bytes, item.text.at, item.text.bytes);
  if (all.kind != SLI_LIST && all.kind != SLI_TUPLE) {
    sli_values_fail(v, "%s cannot be looked for in %s", sli_value_kind(item), sli_value_kind(all));
    return false;
  }
  for (size_t i = 0; i < all.list->count; i++)
    if (sli_value_equal(v, all.list->items[i], item)) return true;
  return false;
}

/* ---- texts ----------------------------------------------------------------------------------- */

size_t sli_text_step(sli_value text, size_t at) {
  size_t n = 1;
  while (at + n < text.text.bytes && ((unsigned char)text.text.at[at + n] & 0xc0) == 0x80) n++;
  return n;
}

size_t sli_text_characters(sli_value text) {
  size_t n = 0;
  for (size_t i = 0; i < text.text.bytes; i++) n += ((unsigned char)text.text.at[i] & 0xc0) != 0x80;
  return n;
}

/* Tests for white space as Python's str.strip() defines it; `bytes` is the character's length. */
static bool is_space(const char *at, size_t bytes) {
  static const char *const wide[] = {"\xc2\x85", "\u00a0", "\u1680", "\u2000", "\u2001",
                                     "\u2002",   "\u2003", "\u2004", "\u2005", "\u2006",
                                     "\u2007",   "\u2008", "\u2009", "\u200a", "\u2028",
                                     "\u2029",   "\u202f", "\u205f", "\u3000"};
  unsigned char c = (unsigned char)*at;
  if (bytes == 1) return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
  for (size_t i = 0; i < SLI_COUNT(wide); i++)
    if (strlen(wide[i]) == bytes && !memcmp(wide[i], at, bytes)) return true;
  return false;
}

static bool is_stripped(const char *at, size_t bytes, const sli_value *set) {
  return set ? memmem(set->text.at, set->text.bytes, at, bytes) != NULL : is_space(at, bytes);
}

sli_value sli_text_strip(sli_value text, const sli_value *set, bool left, bool right) {
  size_t from = 0, end = text.text.bytes;
  for (size_t n; left && from < end; from += n) {
    n = sli_text_step(text, from);
    if (!is_stripped(text.text.at + from, n, set)) break;
  }
  for (size_t n; right && end > from; end -= n) {
    n = 1;
    while (end - n > from && ((unsigned char)text.text.at[end - n] & 0xc0) == 0x80) n++;
    if (!is_stripped(text.text.at + end - n, n, set)) break;
  }
  return sli_value_span(text.text.at + from, end - from);
}

static sli_list *characters(sli_values *v, sli_value text) {
  sli_value all = sli_value_list(v);
  for (size_t at = 0, n; at < text.text.bytes && !v->status; at += n) {
    n = sli_text_step(text, at);
    sli_value_add(v, all, sli_value_span(text.text.at + at, n));
  }
  return all.list;
}

sli_list *sli_value_items(sli_values *v, sli_value value) {
  static sli_list none;
  if (value.kind == SLI_LIST || value.kind == SLI_TUPLE) return value.list;
  if (value.kind == SLI_TEXT) return characters(v, value);
  if (value.kind == SLI_UNDEFINED) return &none;
  if (value.kind != SLI_DICT)
    return sli_values_fail(v, "%s has no items", sli_value_kind(value)), &none;
  sli_value keys = sli_value_list(v);
  for (size_t i = 0; i < value.dict->count; i++) sli_value_add(v, keys, value.dict->items[i].key);
  return keys.list;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void template_values_put(sli_values *v, text_buffer *out, const char *text) {
  sli_buffer_add(v, out, text, strlen(text));
}

/* Prints the shortest digits that read back as this number, in Python's format. */
static void put_real(sli_values *v, double real, text_buffer *out) {
  char text[40];
  int digits = 1;
  if (!isfinite(real))
    return template_values_put(v, out, isnan(real) ? "nan" : real > 0 ? "inf" : "-inf");
  do snprintf(text, sizeof text, "%.*e", digits - 1, real);
  while (strtod(text, NULL) != real && digits++ < 17);
  int power = atoi(strchr(text, 'e') + 1);
  if (power >= 16 || power < -4) snprintf(text, sizeof text, "%.*g", digits, real);
  else snprintf(text, sizeof text, "%.*f", SLI_MAX(digits - 1 - power, 1), real);
  template_values_put(v, out, text);
}

static void put_number(sli_values *v, sli_value number, text_buffer *out) {
  char text[24];
  if (number.kind == SLI_REAL) return put_real(v, number.real, out);
  snprintf(text, sizeof text, "%" PRId64, number.number);
  template_values_put(v, out, text);
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
    template_values_put(v, out, room);
  }
  sli_buffer_add(v, out, &quote, 1);
}

static void put_inner(sli_values *v, sli_value value, int depth, text_buffer *out);

static void put_items(sli_values *v, const sli_list *list, int depth, text_buffer *out) {
  for (size_t i = 0; i < list->count && !v->status; i++) {
    if (i) template_values_put(v, out, ", ");
    put_inner(v, list->items[i], depth, out);
  }
}

static void put_dict(sli_values *v, const sli_dict *dict, int depth, text_buffer *out) {
  template_values_put(v, out, "{");
  for (size_t i = 0; i < dict->count && !v->status; i++) {
    if (i) template_values_put(v, out, ", ");
    put_inner(v, dict->items[i].key, depth, out);
    template_values_put(v, out, ": ");
    put_inner(v, dict->items[i].value, depth, out);
  }
  template_values_put(v, out, "}");
}

/* Prints a value as an element of a list. */
static void put_inner(sli_values *v, sli_value value, int depth, text_buffer *out) {
  if (depth > MOST_DEPTH) return sli_values_fail(v, "a value is deeper than %d", MOST_DEPTH);
  switch (value.kind) {
  case SLI_NONE: return template_values_put(v, out, "None");
  case SLI_UNDEFINED: return template_values_put(v, out, "Undefined");
  case SLI_BOOL: return template_values_put(v, out, value.truth ? "True" : "False");
  case SLI_INT:
  case SLI_REAL: return put_number(v, value, out);
  case SLI_TEXT: return put_quoted(v, value, out);
  case SLI_DICT: return put_dict(v, value.dict, depth + 1, out);
  case SLI_LIST:
  case SLI_TUPLE:
    template_values_put(v, out, value.kind == SLI_LIST ? "[" : "(");
    put_items(v, value.list, depth + 1, out);
    template_values_put(v, out, value.kind == SLI_LIST ? "]" : value.list->count == 1 ? ",)" : ")");
    return;
  default: sli_values_fail(v, "%s has no text", sli_value_kind(value));
  }
}

void sli_value_print(sli_values *v, sli_value value, text_buffer *out) {
  if (value.kind == SLI_TEXT) sli_buffer_add(v, out, value.text.at, value.text.bytes);
  else if (value.kind != SLI_UNDEFINED) put_inner(v, value, 0, out);
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
  if (style->indent < 0) return;
  template_values_put(v, out, "\n");
  for (int64_t i = 0; i < style->indent * depth && !v->status; i++)
    template_values_put(v, out, " ");
}

static void json_list(sli_values *v, const sli_list *list, const json_style *style, int depth,
                      text_buffer *out) {
  template_values_put(v, out, "[");
  for (size_t i = 0; i < list->count && !v->status; i++) {
    if (i) sli_value_print(v, style->between, out);
    json_line(v, style, depth + 1, out);
    sli_value_json(v, list->items[i], style, depth + 1, out);
  }
  if (list->count) json_line(v, style, depth, out);
  template_values_put(v, out, "]");
}

/* Returns the entry with the smallest key greater than `last`; NULL: none. */
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

static void json_dict(sli_values *v, const sli_dict *d, const json_style *style, int depth,
                      text_buffer *out) {
  const struct sli_entry *entry = NULL;
  template_values_put(v, out, "{");
  for (size_t i = 0; i < d->count && !v->status; i++) {
    entry = style->sorted ? next_sorted(v, d, entry) : &d->items[i];
    if (!entry) break;
    if (entry->key.kind != SLI_TEXT)
      sli_values_fail(v, "tojson of a dict with a key that is no text");
    if (i) sli_value_print(v, style->between, out);
    json_line(v, style, depth + 1, out);
    json_text(v, entry->key, style->ascii, out);
    sli_value_print(v, style->behind_key, out);
    sli_value_json(v, entry->value, style, depth + 1, out);
  }
  if (d->count) json_line(v, style, depth, out);
  template_values_put(v, out, "}");
}

void sli_value_json(sli_values *v, sli_value value, const json_style *style, int depth,
                    text_buffer *out) {
  if (depth > MOST_DEPTH) return sli_values_fail(v, "a value is deeper than %d", MOST_DEPTH);
  switch (value.kind) {
  case SLI_NONE: return template_values_put(v, out, "null");
  case SLI_BOOL: return template_values_put(v, out, value.truth ? "true" : "false");
  case SLI_INT: return put_number(v, value, out);
  case SLI_REAL:
    if (isfinite(value.real)) return put_real(v, value.real, out);
    return template_values_put(v, out,
                               isnan(value.real) ? "NaN"
                               : value.real > 0  ? "Infinity"
                                                 : "-Infinity");
  case SLI_TEXT: return json_text(v, value, style->ascii, out);
  case SLI_LIST:
  case SLI_TUPLE: return json_list(v, value.list, style, depth, out);
  case SLI_DICT: return json_dict(v, value.dict, style, depth, out);
  default: sli_values_fail(v, "tojson of %s", sli_value_kind(value));
  }
}
