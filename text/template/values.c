/* SPDX-License-Identifier: Apache-2.0 */
/* Values of templates: construction, comparison, and access. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/template/template_inner.h"

/* ---- memory ---------------------------------------------------------------------------------- */

sli_values *sli_values_create(size_t most_bytes, const sli_allowance *allowance) {
  sli_values *v = sli_calloc(1, sizeof *v);
  v->most = most_bytes;
  v->memory.allowance = allowance;
  v->steps = SLI_TEMPLATE_STEPS;
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
  v->status = v->line ? sl_fail(SL_E_INPUT, "line %d of the template: %s", v->line, what)
                      : sl_fail(SL_E_INPUT, "a value for the template: %s", what);
}

bool sli_values_step(sli_values *v, size_t steps) {
  if ((size_t)v->steps < steps) sli_values_fail(v, "it takes too many steps");
  else v->steps -= (int64_t)steps;
  return !v->status;
}

sl_status sli_values_status(const sli_values *v) { return v->status; }

/* Returns NULL once the memory is used up or after any failure. */
void *sli_values_room(sli_values *v, size_t bytes) {
  if (!v->status && (bytes > v->most || v->used > v->most - bytes))
    sli_values_fail(v, "it takes too much memory");
  if (v->status) return NULL;
  v->used += bytes + 16;
  void *out = sli_bounded_alloc(&v->memory, bytes);
  if (!out) v->status = sl_fail(SL_E_MEMORY, "out of memory for the values of a template");
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

bool sli_value_is_row(sli_value v) { return v.kind == SLI_LIST || v.kind == SLI_TUPLE; }

bool sli_value_is_number(sli_value v) {
  return v.kind == SLI_INT || v.kind == SLI_REAL || v.kind == SLI_BOOL;
}

double sli_value_as_real(sli_value v) {
  return v.kind == SLI_REAL ? v.real : v.kind == SLI_BOOL ? (double)v.truth : (double)v.number;
}

const char *sli_value_kind(sli_value v) {
  static const char *const names[] = {
      "undefined", "none",        "a boolean", "a number",    "a number", "a text",     "a list",
      "a tuple",   "an iterator", "a dict",    "a namespace", "a macro",  "a function", "a loop"};
  return names[v.kind];
}

/* Counts a level of a comparison, which uses stack. Returns false if there are too many. */
static bool compare_deeper(sli_values *v) {
  if (++v->depth > SLI_TEMPLATE_DEPTH)
    sli_values_fail(v, "compared values are nested deeper than %d", SLI_TEMPLATE_DEPTH);
  return !v->status;
}

static bool lists_equal(sli_values *v, const sli_list *a, const sli_list *b) {
  bool equal = a->count == b->count && compare_deeper(v);
  for (size_t i = 0; equal && i < a->count; i++)
    equal = sli_value_equal(v, a->items[i], b->items[i]);
  v->depth -= a->count == b->count;
  return equal;
}

static bool dicts_equal(sli_values *v, const sli_dict *a, const sli_dict *b) {
  bool equal = a->count == b->count && compare_deeper(v);
  sli_value other;
  for (size_t i = 0; equal && i < a->count; i++)
    equal =
        sli_dict_get(v, b, a->items[i].key, &other) && sli_value_equal(v, a->items[i].value, other);
  v->depth -= a->count == b->count;
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
  case SLI_TEXT:
    return a.text.bytes == b.text.bytes && sli_values_step(v, a.text.bytes / 64) &&
           !memcmp(a.text.at, b.text.at, a.text.bytes);
  case SLI_LIST:
  case SLI_TUPLE: return lists_equal(v, a.list, b.list);
  case SLI_DICT: return dicts_equal(v, a.dict, b.dict);
  case SLI_ITERATOR: return a.list == b.list;
  case SLI_FUNCTION: return !strcmp(a.other, b.other);
  default: return a.other == b.other;
  }
}

static int rows_compare(sli_values *v, const sli_list *a, const sli_list *b) {
  int way = 0;
  size_t i = 0;
  if (!compare_deeper(v)) return v->depth--, 0;
  for (; !way && i < a->count && i < b->count && sli_values_step(v, 1); i++)
    if (!sli_value_equal(v, a->items[i], b->items[i]))
      way = sli_value_compare(v, a->items[i], b->items[i]);
  v->depth--;
  return way ? way : (a->count > b->count) - (a->count < b->count);
}

/* Compares two values. Texts are ordered by code point, which is the order of their UTF-8 bytes. */
int sli_value_compare(sli_values *v, sli_value a, sli_value b) {
  if (a.kind == SLI_INT && b.kind == SLI_INT) return (a.number > b.number) - (a.number < b.number);
  if (sli_value_is_number(a) && sli_value_is_number(b)) {
    double x = sli_value_as_real(a), y = sli_value_as_real(b);
    return (x > y) - (x < y);
  }
  if (a.kind == b.kind && sli_value_is_row(a)) return rows_compare(v, a.list, b.list);
  if (a.kind != SLI_TEXT || b.kind != SLI_TEXT) {
    sli_values_fail(v, "%s and %s cannot be ordered", sli_value_kind(a), sli_value_kind(b));
    return 0;
  }
  size_t common = SLI_MIN(a.text.bytes, b.text.bytes);
  int way = sli_values_step(v, common / 64) ? memcmp(a.text.at, b.text.at, common) : 0;
  return way ? way : (a.text.bytes > b.text.bytes) - (a.text.bytes < b.text.bytes);
}

bool sli_value_in(sli_values *v, sli_value item, sli_value all) {
  sli_value other;
  if (all.kind == SLI_UNDEFINED) return false;
  if (all.kind == SLI_DICT) return sli_dict_get(v, all.dict, item, &other);
  if (all.kind == SLI_TEXT && item.kind == SLI_TEXT)
    return sli_values_step(v, all.text.bytes / 64) &&
           memmem(all.text.at, all.text.bytes, item.text.at, item.text.bytes);
  if (!sli_value_is_row(all) && all.kind != SLI_ITERATOR) {
    sli_values_fail(v, "%s cannot be searched for in %s", sli_value_kind(item),
                    sli_value_kind(all));
    return false;
  }
  const sli_list *items = sli_value_items(v, all);
  for (size_t i = 0; i < items->count && !v->status; i++)
    if (sli_value_equal(v, items->items[i], item)) return true;
  return false;
}

/* ---- items ----------------------------------------------------------------------------------- */

static sli_list *characters(sli_values *v, sli_value text) {
  sli_value all = sli_value_list(v);
  for (size_t at = 0, n; at < text.text.bytes && sli_values_step(v, 1); at += n) {
    n = sli_text_step(text, at);
    sli_value_add(v, all, sli_value_span(text.text.at + at, n));
  }
  return all.list;
}

static sli_list *taken_items(sli_values *v, sli_list *from) {
  sli_list *all = sli_value_list(v).list;
  if (!v->status) *all = *from;
  from->count = from->capacity = 0;
  return all;
}

sli_value sli_value_iterator(sli_value list) {
  list.kind = SLI_ITERATOR;
  return list;
}

sli_list *sli_value_items(sli_values *v, sli_value value) {
  static sli_list none;
  if (sli_value_is_row(value)) return value.list;
  if (value.kind == SLI_ITERATOR) return taken_items(v, value.list);
  if (value.kind == SLI_TEXT) return characters(v, value);
  if (value.kind == SLI_UNDEFINED) return &none;
  if (value.kind != SLI_DICT)
    return sli_values_fail(v, "%s has no items", sli_value_kind(value)), &none;
  sli_value keys = sli_value_list(v);
  for (size_t i = 0; i < value.dict->count; i++) sli_value_add(v, keys, value.dict->items[i].key);
  return keys.list;
}

sli_value sli_value_get(sli_values *v, sli_value dict, const char *key) {
  sli_value out = sli_value_undefined(key);
  if (dict.kind == SLI_DICT) sli_dict_get(v, dict.dict, sli_value_span(key, strlen(key)), &out);
  return out;
}

size_t sli_value_count(sli_value all) {
  return all.kind == SLI_DICT ? all.dict->count : sli_value_is_row(all) ? all.list->count : 0;
}

sli_value sli_value_item(sli_value all, size_t i) {
  return all.kind == SLI_DICT ? all.dict->items[i].value : all.list->items[i];
}

sli_value sli_value_key(sli_value dict, size_t i) { return dict.dict->items[i].key; }

static sli_value item_of_list(const sli_list *list, sli_value key) {
  int64_t count = (int64_t)list->count, at = key.number < 0 ? key.number + count : key.number;
  return at >= 0 && at < count ? list->items[at] : sli_value_undefined("an item");
}

static sli_value character_of(sli_values *v, sli_value text, sli_value key) {
  int64_t at = key.number < 0 ? key.number + (int64_t)sli_text_characters(text) : key.number;
  size_t from = 0;
  if (at < 0 || !sli_values_step(v, text.text.bytes / 64))
    return sli_value_undefined("a character");
  for (; at && from < text.text.bytes; at--) from += sli_text_step(text, from);
  if (from >= text.text.bytes) return sli_value_undefined("a character");
  return sli_value_span(text.text.at + from, sli_text_step(text, from));
}

sli_value sli_value_at(sli_values *v, sli_value of, sli_value key) {
  sli_value out = sli_value_undefined(key.kind == SLI_TEXT ? key.text.at : "an item");
  if (key.kind == SLI_BOOL) key = sli_value_int(key.truth);
  if (of.kind == SLI_DICT || of.kind == SLI_NAMESPACE)
    return sli_dict_get(v, of.dict, key, &out), out;
  if (sli_value_is_row(of) && key.kind == SLI_INT) return item_of_list(of.list, key);
  if (of.kind == SLI_TEXT && key.kind == SLI_INT) return character_of(v, of, key);
  if (of.kind == SLI_UNDEFINED)
    sli_values_fail(v, "\"%.*s\" is undefined", (int)SLI_MIN(of.text.bytes, (size_t)40),
                    of.text.at);
  return out;
}

/* Reads a part of a path, which is an index if it has only digits. */
static sli_value part_of_path(sli_values *v, const char *at, size_t bytes) {
  text_buffer b = {0};
  sli_buffer_add(v, &b, at, bytes);
  sli_value text = sli_buffer_value(&b);
  bool digits = bytes && bytes < 10;
  for (size_t i = 0; i < bytes; i++) digits &= at[i] >= '0' && at[i] <= '9';
  return digits && !v->status ? sli_value_int(strtoll(text.text.at, NULL, 10)) : text;
}

sli_value sli_value_follow(sli_values *v, sli_value of, sli_value path) {
  if (path.kind != SLI_TEXT) return sli_value_at(v, of, path);
  for (size_t at = 0; at <= path.text.bytes && !v->status;) {
    const char *dot = memchr(path.text.at + at, '.', path.text.bytes - at);
    size_t n = dot ? (size_t)(dot - path.text.at) - at : path.text.bytes - at;
    of = sli_value_at(v, of, part_of_path(v, path.text.at + at, n));
    at += n + 1;
  }
  return of;
}
