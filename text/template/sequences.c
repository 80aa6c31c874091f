/* SPDX-License-Identifier: Apache-2.0 */
/* Filters on sequences. Filters that Jinja computes lazily return iterators. */
#include <stdlib.h>
#include <string.h>

#include "text/template/template_inner.h"

/* ---- items ----------------------------------------------------------------------------------- */

static sli_value list(sli_values *v, sli_value text, const arguments *a) {
  (void)a;
  sli_value all = sli_value_list(v);
  const sli_list *of = sli_value_items(v, text);
  for (size_t i = 0; i < of->count; i++) sli_value_add(v, all, of->items[i]);
  return all;
}

static sli_value first(sli_values *v, sli_value text, const arguments *a) {
  (void)a;
  const sli_list *all = sli_value_items(v, text);
  return all->count ? all->items[0] : sli_value_undefined("the first item");
}

static sli_value last(sli_values *v, sli_value text, const arguments *a) {
  (void)a;
  if (text.kind == SLI_ITERATOR) sli_values_fail(v, "an iterator has no last item");
  const sli_list *all = sli_value_items(v, text);
  return all->count ? all->items[all->count - 1] : sli_value_undefined("the last item");
}

static sli_value join(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"d", "attribute", NULL};
  if (!sli_arguments_check(v, "join", a, 2, names)) return text;
  sli_value attribute = sli_argument_or(v, a, 1, "attribute", sli_value_none()),
            by = sli_argument_or(v, a, 0, "d", sli_value_span("", 0));
  return sli_text_join(v, text, by, attribute.kind == SLI_NONE ? NULL : &attribute);
}

static sli_value reverse(sli_values *v, sli_value text, const arguments *a) {
  (void)a;
  sli_value all = sli_value_list(v);
  const sli_list *of = sli_value_items(v, text);
  for (size_t i = of->count; i--;) sli_value_add(v, all, of->items[i]);
  return text.kind == SLI_TEXT ? sli_text_join(v, all, sli_value_span("", 0), NULL)
                               : sli_value_iterator(all);
}

static sli_value pair(sli_values *v, sli_value a, sli_value b) {
  sli_value out = sli_value_list(v);
  sli_value_add(v, out, a);
  sli_value_add(v, out, b);
  out.kind = SLI_TUPLE;
  return out;
}

static sli_value pairs(sli_values *v, sli_value d) {
  sli_value all = sli_value_list(v);
  if (d.kind == SLI_UNDEFINED) return all;
  if (d.kind != SLI_DICT) return sli_values_fail(v, "%s has no items", sli_value_kind(d)), all;
  for (size_t i = 0; i < d.dict->count && !v->status; i++)
    sli_value_add(v, all, pair(v, d.dict->items[i].key, d.dict->items[i].value));
  return all;
}

static sli_value items(sli_values *v, sli_value d, const arguments *a) {
  (void)a;
  return sli_value_iterator(pairs(v, d));
}

/* Groups items into lists of a given size; the last list may be filled up. */
static sli_value batch(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"linecount", "fill_with", NULL};
  if (!sli_arguments_check(v, "batch", a, 2, names)) return text;
  int64_t count = sli_argument_int(v, a, 0, "linecount", 0);
  sli_value fill = sli_argument_or(v, a, 1, "fill_with", sli_value_none()), all = sli_value_list(v),
            group = sli_value_list(v);
  const sli_list *of = sli_value_items(v, text);
  if (count < 1) sli_values_fail(v, "batch needs at least one item per group");
  for (size_t i = 0; i < of->count && !v->status; i++) {
    if (!group.list->count) sli_value_add(v, all, group);
    sli_value_add(v, group, of->items[i]);
    if ((int64_t)group.list->count == count) group = sli_value_list(v);
  }
  while (fill.kind != SLI_NONE && group.list->count && (int64_t)group.list->count < count &&
         sli_values_step(v, 1))
    sli_value_add(v, group, fill);
  return sli_value_iterator(all);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Keys by which items are compared. */
typedef struct keying {
  const sli_value *attribute;
  bool exact; /* case-sensitive */
} keying;

static keying keying_of(sli_values *v, const arguments *a, size_t exact, sli_value *attribute) {
  *attribute = sli_argument_or(v, a, exact + 1, "attribute", sli_value_none());
  return (keying){attribute->kind == SLI_NONE ? NULL : attribute,
                  sli_argument_flag(v, a, exact, "case_sensitive")};
}

static sli_value key_of(sli_values *v, const keying *by, sli_value item) {
  if (by->attribute) item = sli_value_follow(v, item, *by->attribute);
  return by->exact || item.kind != SLI_TEXT ? item : sli_text_case(v, item, LOWER);
}

typedef struct sorted_item {
  sli_value key, item;
} sorted_item;

/* Merges two sorted halves. Of equal items, the left one comes first. */
static void merge(sli_values *v, sorted_item *all, size_t half, size_t count, sorted_item *room,
                  bool down) {
  size_t left = 0, right = half, to = 0;
  while (left < half && right < count && sli_values_step(v, 1)) {
    int way = sli_value_compare(v, all[right].key, all[left].key);
    room[to++] = (down ? way > 0 : way < 0) ? all[right++] : all[left++];
  }
  while (left < half) room[to++] = all[left++];
  memcpy(all, room, to * sizeof *all);
}

static void sort_items(sli_values *v, sorted_item *all, size_t count, sorted_item *room,
                       bool down) {
  size_t half = count / 2;
  if (count < 2 || v->status) return;
  sort_items(v, all, half, room, down);
  sort_items(v, all + half, count - half, room, down);
  merge(v, all, half, count, room, down);
}

static sli_value sorted(sli_values *v, const sli_list *of, const keying *by, bool down) {
  sli_value out = sli_value_list(v);
  sorted_item *all = sli_values_room(v, (of->count + 1) * sizeof *all),
              *room = sli_values_room(v, (of->count + 1) * sizeof *room);
  if (!all || !room) return out;
  for (size_t i = 0; i < of->count; i++)
    all[i] = (sorted_item){key_of(v, by, of->items[i]), of->items[i]};
  sort_items(v, all, of->count, room, down);
  for (size_t i = 0; i < of->count; i++) sli_value_add(v, out, all[i].item);
  return out;
}

static sli_value sort(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"reverse", "case_sensitive", "attribute", NULL};
  sli_value attribute;
  if (!sli_arguments_check(v, "sort", a, 3, names)) return text;
  keying by = keying_of(v, a, 1, &attribute);
  if (by.attribute && attribute.kind == SLI_TEXT &&
      memchr(attribute.text.at, ',', attribute.text.bytes))
    sli_values_fail(v, "sort by several attributes is not supported");
  return sorted(v, sli_value_items(v, text), &by, sli_argument_flag(v, a, 0, "reverse"));
}

static sli_value dictsort(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"case_sensitive", "by", "reverse", NULL};
  if (!sli_arguments_check(v, "dictsort", a, 3, names)) return text;
  sli_value by = sli_argument_or(v, a, 1, "by", sli_value_span("key", 3)),
            place = sli_value_int(sli_text_is(by, "value"));
  if (!place.number && !sli_text_is(by, "key"))
    sli_values_fail(v, "dictsort must be by key or value");
  keying keys = {&place, sli_argument_flag(v, a, 0, "case_sensitive")};
  return sorted(v, pairs(v, text).list, &keys, sli_argument_flag(v, a, 2, "reverse"));
}

static sli_value unique(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"case_sensitive", "attribute", NULL};
  sli_value attribute, all = sli_value_list(v), seen = sli_value_list(v);
  if (!sli_arguments_check(v, "unique", a, 2, names)) return text;
  keying by = keying_of(v, a, 0, &attribute);
  const sli_list *of = sli_value_items(v, text);
  for (size_t i = 0; i < of->count && !v->status; i++) {
    sli_value key = key_of(v, &by, of->items[i]);
    if (sli_value_in(v, key, seen)) continue;
    sli_value_add(v, seen, key);
    sli_value_add(v, all, of->items[i]);
  }
  return sli_value_iterator(all);
}

static sli_value extreme(sli_values *v, sli_value text, const arguments *a, int wanted) {
  static const char *const names[] = {"case_sensitive", "attribute", NULL};
  sli_value attribute;
  if (!sli_arguments_check(v, "min, max", a, 2, names)) return text;
  keying by = keying_of(v, a, 0, &attribute);
  const sli_list *of = sli_value_items(v, text);
  sli_value best = of->count ? of->items[0] : sli_value_undefined("an item of nothing");
  for (size_t i = 1; i < of->count && !v->status; i++)
    if (sli_value_compare(v, key_of(v, &by, of->items[i]), key_of(v, &by, best)) * wanted > 0)
      best = of->items[i];
  return best;
}
static sli_value least(sli_values *v, sli_value text, const arguments *a) {
  return extreme(v, text, a, -1);
}
static sli_value largest(sli_values *v, sli_value text, const arguments *a) {
  return extreme(v, text, a, 1);
}

static sli_value sum(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"attribute", "start", NULL};
  if (!sli_arguments_check(v, "sum", a, 2, names)) return text;
  sli_value attribute = sli_argument_or(v, a, 0, "attribute", sli_value_none()),
            out = sli_argument_or(v, a, 1, "start", sli_value_int(0));
  const sli_list *of = sli_value_items(v, text);
  for (size_t i = 0; i < of->count && !v->status; i++) {
    sli_value item = of->items[i];
    if (attribute.kind != SLI_NONE) item = sli_value_follow(v, item, attribute);
    out = sli_operate(v, ADD, out, item);
  }
  return out;
}

/* ---- other filters, and tests ---------------------------------------------------------------- */

/* Returns the filter or test named by an argument. Fails if it is unknown. */
static const char *name_at(sli_values *v, const arguments *a, size_t place,
                           bool (*known)(const char *)) {
  sli_value text = sli_argument_text(v, a, place, NULL);
  text_buffer b = {0};
  sli_value_print(v, text, &b);
  const char *name = sli_buffer_value(&b).text.at;
  if (!known(name)) sli_values_fail(v, "\"%.40s\" is not known", name);
  return name;
}

/* Returns the items of a value. As in Jinja, a false value has none. */
static const sli_list *items_if_true(sli_values *v, sli_value text) {
  return sli_value_is_true(text) ? sli_value_items(v, text) : sli_value_list(v).list;
}

static sli_value map_attribute(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"attribute", "default", NULL};
  sli_value attribute = sli_argument(v, a, SIZE_MAX, "attribute"), all = sli_value_list(v),
            fallback = sli_argument_or(v, a, SIZE_MAX, "default", sli_value_none());
  if (!sli_arguments_check(v, "map", a, 0, names)) return all;
  const sli_list *of = items_if_true(v, text);
  for (size_t i = 0; i < of->count && !v->status; i++) {
    sli_value item = sli_value_follow(v, of->items[i], attribute);
    bool none = item.kind == SLI_UNDEFINED && fallback.kind != SLI_NONE;
    sli_value_add(v, all, none ? fallback : item);
  }
  return sli_value_iterator(all);
}

static sli_value map(sli_values *v, sli_value text, const arguments *a) {
  sli_value all = sli_value_list(v);
  if (!a->count) return map_attribute(v, text, a);
  const char *name = name_at(v, a, 0, sli_is_filter);
  arguments rest = sli_arguments_behind(a, 1);
  const sli_list *of = items_if_true(v, text);
  for (size_t i = 0; i < of->count && sli_values_step(v, 1); i++)
    sli_value_add(v, all, sli_call_filter(v, name, of->items[i], &rest));
  return sli_value_iterator(all);
}

/* Selects the items for which a test of them, or of an attribute, holds (or fails). */
static sli_value chosen(sli_values *v, sli_value text, const arguments *a, bool attribute,
                        bool wanted) {
  size_t place = attribute;
  sli_value path = attribute ? sli_argument(v, a, 0, NULL) : sli_value_none(),
            all = sli_value_list(v);
  const char *name = a->count > place ? name_at(v, a, place, sli_is_test) : NULL;
  arguments rest = sli_arguments_behind(a, place + 1);
  const sli_list *of = items_if_true(v, text);
  if (a->named) sli_values_fail(v, "select with named arguments is not supported");
  for (size_t i = 0; i < of->count && sli_values_step(v, 1); i++) {
    sli_value item = attribute ? sli_value_follow(v, of->items[i], path) : of->items[i];
    bool holds = name ? sli_call_test(v, name, item, &rest) : sli_value_is_true(item);
    if (holds == wanted) sli_value_add(v, all, of->items[i]);
  }
  return sli_value_iterator(all);
}

static sli_value select_items(sli_values *v, sli_value text, const arguments *a) {
  return chosen(v, text, a, false, true);
}
static sli_value reject_items(sli_values *v, sli_value text, const arguments *a) {
  return chosen(v, text, a, false, false);
}
static sli_value selectattr(sli_values *v, sli_value text, const arguments *a) {
  return chosen(v, text, a, true, true);
}
static sli_value rejectattr(sli_values *v, sli_value text, const arguments *a) {
  return chosen(v, text, a, true, false);
}

/* ---- table ----------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  template_callable *call;
  size_t most; /* most arguments */
} filters[] = {{"list", list, 0},
               {"first", first, 0},
               {"last", last, 0},
               {"join", join, 2},
               {"reverse", reverse, 0},
               {"items", items, 0},
               {"batch", batch, 2},
               {"sort", sort, 3},
               {"dictsort", dictsort, 3},
               {"unique", unique, 2},
               {"min", least, 2},
               {"max", largest, 2},
               {"sum", sum, 2},
               {"map", map, SIZE_MAX},
               {"select", select_items, SIZE_MAX},
               {"reject", reject_items, SIZE_MAX},
               {"selectattr", selectattr, SIZE_MAX},
               {"rejectattr", rejectattr, SIZE_MAX}};

static template_callable *filter_of(const char *name, size_t *most) {
  for (size_t i = 0; i < SLI_COUNT(filters); i++)
    if (!strcmp(filters[i].name, name)) return *most = filters[i].most, filters[i].call;
  return sli_value_filter(name, most);
}

bool sli_is_filter(const char *name) {
  size_t most;
  return filter_of(name, &most);
}

sli_value sli_call_filter(sli_values *v, const char *name, sli_value subject, const arguments *a) {
  size_t most = 0;
  template_callable *call = filter_of(name, &most);
  if (!call) sli_values_fail(v, "filter \"%.40s\" is not known", name);
  else if (a->count > most || (a->named && !most))
    sli_values_fail(v, "%s has too many arguments", name);
  return v->status || !sli_arguments_step(v, subject, a) ? subject : call(v, subject, a);
}
