/* SPDX-License-Identifier: Apache-2.0 */
/* Filters, tests, methods and functions of templates, by name. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/template_inner.h"

/* ---- arguments ------------------------------------------------------------------------------- */

/* Returns a positional or named argument; `otherwise` if it is absent. */
static sli_value given(sli_values *v, const arguments *a, size_t place, const char *name,
                       sli_value otherwise) {
  sli_value out = otherwise;
  if (place < a->count) return a->items[place];
  if (name && a->named) sli_dict_get(v, a->named, sli_value_span(name, strlen(name)), &out);
  return out;
}

/* Fails if there are more than `most` positional arguments, or named ones that are not in
 * `names` (NULL-terminated). */
static bool are_known(sli_values *v, const char *what, const arguments *a, size_t most,
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

static sli_value argument(sli_values *v, const arguments *a, size_t place, const char *name) {
  return given(v, a, place, name, sli_value_undefined(name ? name : "an argument"));
}

static sli_value text_argument(sli_values *v, const arguments *a, size_t place, const char *name) {
  sli_value text = argument(v, a, place, name);
  if (text.kind != SLI_TEXT)
    sli_values_fail(v, "%s should be a text, and is %s", name ? name : "an argument",
                    sli_value_kind(text));
  return text.kind == SLI_TEXT ? text : sli_value_span("", 0);
}

static int64_t int_argument(sli_values *v, const arguments *a, size_t place, const char *name,
                            int64_t otherwise) {
  sli_value number = given(v, a, place, name, sli_value_int(otherwise));
  if (number.kind == SLI_NONE) return otherwise;
  if (number.kind != SLI_INT)
    sli_values_fail(v, "%s should be a whole number, and is %s", name ? name : "an argument",
                    sli_value_kind(number));
  return number.kind == SLI_INT ? number.number : otherwise;
}

/* ---- items ----------------------------------------------------------------------------------- */

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
  if (of.kind == SLI_DICT || of.kind == SLI_NAMESPACE)
    return sli_dict_get(v, of.dict, key, &out), out;
  if ((of.kind == SLI_LIST || of.kind == SLI_TUPLE) && key.kind == SLI_INT)
    return item_of_list(of.list, key);
  if (of.kind == SLI_TEXT && key.kind == SLI_INT) return character_of(v, of, key);
  if (of.kind == SLI_UNDEFINED)
    sli_values_fail(v, "\"%.*s\" is undefined", (int)SLI_MIN(of.text.bytes, (size_t)40),
                    of.text.at);
  return out;
}

/* Resolves an attribute path "a.b" of an item. */
static sli_value path_of(sli_values *v, sli_value of, sli_value path) {
  if (path.kind != SLI_TEXT) return sli_value_at(v, of, path);
  for (size_t at = 0; at <= path.text.bytes && !v->status;) {
    const char *dot = memchr(path.text.at + at, '.', path.text.bytes - at);
    size_t n = dot ? (size_t)(dot - path.text.at) - at : path.text.bytes - at;
    sli_value key = {.kind = SLI_TEXT};
    text_buffer b = {0};
    sli_buffer_add(v, &b, path.text.at + at, n);
    key = sli_buffer_value(&b);
    of = sli_value_at(v, of, key);
    at += n + 1;
  }
  return of;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static sli_value fail_text(sli_values *v, const char *what) {
  sli_values_fail(v, "%s of a text beyond ASCII is not supported", what);
  return sli_value_span("", 0);
}

typedef enum cases { UPPER, LOWER, CAPITALIZED, TITLE } cases;

static sli_value with_case(sli_values *v, sli_value value, cases how) {
  static const char *const names[] = {"upper", "lower", "capitalize", "title"};
  sli_value text = sli_value_as_text(v, value);
  text_buffer b = {0};
  sli_buffer_add(v, &b, text.text.at, text.text.bytes);
  bool inner = false;
  for (size_t i = 0; i < b.bytes; i++) {
    unsigned char c = (unsigned char)b.at[i];
    if (c >= 0x80) return fail_text(v, names[how]);
    bool up = how == UPPER || (how != LOWER && !inner);
    b.at[i] = (char)(up ? toupper(c) : tolower(c));
    inner = how == CAPITALIZED || isalpha(c);
  }
  return sli_buffer_value(&b);
}

static sli_value replaced(sli_values *v, sli_value text, sli_value from, sli_value to,
                          int64_t most) {
  text_buffer b = {0};
  const char *at = text.text.at, *end = at + text.text.bytes;
  if (!from.text.bytes)
    return sli_values_fail(v, "replace of an empty text is not supported"), text;
  while (most-- && !v->status) {
    const char *found = memmem(at, (size_t)(end - at), from.text.at, from.text.bytes);
    if (!found) break;
    sli_buffer_add(v, &b, at, (size_t)(found - at));
    sli_buffer_add(v, &b, to.text.at, to.text.bytes);
    at = found + from.text.bytes;
  }
  sli_buffer_add(v, &b, at, (size_t)(end - at));
  return sli_buffer_value(&b);
}

static sli_value replace(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"old", "new", "count", NULL};
  if (!are_known(v, "replace", a, 3, names)) return text;
  sli_value from = text_argument(v, a, 0, "old"), to = text_argument(v, a, 1, "new");
  return replaced(v, sli_value_as_text(v, text), from, to, int_argument(v, a, 2, "count", -1));
}

/* Splits a text at a separator; by NULL: at white space. */
static sli_value split(sli_values *v, sli_value text, const sli_value *by, int64_t most) {
  sli_value all = sli_value_list(v), rest = by ? text : sli_text_strip(text, NULL, true, false);
  while (most-- && !v->status && (by || rest.text.bytes)) {
    size_t at = 0, n = by ? by->text.bytes : 0;
    const char *found = by ? memmem(rest.text.at, rest.text.bytes, by->text.at, n) : NULL;
    if (by) at = found ? (size_t)(found - rest.text.at) : rest.text.bytes;
    for (size_t step; !by && at < rest.text.bytes; at += step) {
      step = sli_text_step(rest, at);
      if (!sli_text_strip(sli_value_span(rest.text.at + at, step), NULL, true, false).text.bytes)
        break;
    }
    if (by && !found) break;
    sli_value_add(v, all, sli_value_span(rest.text.at, at));
    rest = sli_value_span(rest.text.at + at + n, rest.text.bytes - at - n);
    if (!by) rest = sli_text_strip(rest, NULL, true, false);
  }
  if (by || rest.text.bytes)
    sli_value_add(v, all, by ? rest : sli_text_strip(rest, NULL, false, most < 0));
  return all;
}

static sli_value split_method(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"sep", "maxsplit", NULL};
  if (!are_known(v, "split", a, 2, names)) return text;
  sli_value by = given(v, a, 0, "sep", sli_value_none());
  int64_t most = int_argument(v, a, 1, "maxsplit", -1);
  if (by.kind == SLI_NONE && most >= 0)
    sli_values_fail(v, "split by white space with a number is not supported");
  if (by.kind != SLI_NONE && (by.kind != SLI_TEXT || !by.text.bytes))
    sli_values_fail(v, "split by %s", sli_value_kind(by));
  return v->status ? text : split(v, text, by.kind == SLI_NONE ? NULL : &by, most);
}

/* Splits a text at a separator, from the right. */
static sli_value rsplit_method(sli_values *v, sli_value text, const arguments *a) {
  int64_t most = int_argument(v, a, 1, "maxsplit", -1);
  sli_value all = split_method(
      v, text,
      &(arguments){.items = a->items, .count = SLI_MIN(a->count, (size_t)1), .named = NULL});
  if (v->status || most < 0 || (int64_t)all.list->count - 1 <= most) return all;
  size_t joined = all.list->count - (size_t)most;
  sli_value last = all.list->items[joined - 1], out = sli_value_list(v);
  sli_value_add(
      v, out,
      sli_value_span(text.text.at, (size_t)(last.text.at + last.text.bytes - text.text.at)));
  for (size_t i = joined; i < all.list->count; i++) sli_value_add(v, out, all.list->items[i]);
  return out;
}

static bool begins(sli_value text, sli_value with) {
  return with.text.bytes <= text.text.bytes && !memcmp(text.text.at, with.text.at, with.text.bytes);
}

static bool ends(sli_value text, sli_value with) {
  return with.text.bytes <= text.text.bytes &&
         !memcmp(text.text.at + text.text.bytes - with.text.bytes, with.text.at, with.text.bytes);
}

/* Tests for a prefix or suffix: a text, or any of a tuple. */
static sli_value stands_at(sli_values *v, sli_value text, const arguments *a,
                           bool (*at)(sli_value, sli_value)) {
  sli_value with = argument(v, a, 0, "prefix");
  bool found = false;
  if (with.kind == SLI_TEXT) return sli_value_bool(at(text, with));
  if (with.kind != SLI_TUPLE)
    return sli_values_fail(v, "a prefix should be a text, and is %s", sli_value_kind(with)), with;
  for (size_t i = 0; i < with.list->count; i++)
    found |= with.list->items[i].kind == SLI_TEXT && at(text, with.list->items[i]);
  return sli_value_bool(found);
}

static sli_value strip(sli_values *v, sli_value text, const arguments *a, bool left, bool right) {
  static const char *const names[] = {"chars", NULL};
  if (!are_known(v, "strip", a, 1, names)) return text;
  sli_value set = given(v, a, 0, "chars", sli_value_none());
  if (set.kind != SLI_NONE && set.kind != SLI_TEXT)
    sli_values_fail(v, "strip of %s", sli_value_kind(set));
  if (!sli_values_step(v, text.text.bytes / 64)) return text;
  return sli_text_strip(text, set.kind == SLI_TEXT ? &set : NULL, left, right);
}

static sli_value joined(sli_values *v, sli_value all, sli_value by, const sli_value *attribute) {
  sli_list *items = sli_value_items(v, all);
  text_buffer b = {0};
  for (size_t i = 0; i < items->count && !v->status; i++) {
    if (i) sli_value_print(v, by, &b);
    sli_value_print(v, attribute ? path_of(v, items->items[i], *attribute) : items->items[i], &b);
  }
  return sli_buffer_value(&b);
}

/* ---- methods --------------------------------------------------------------------------------- */

static sli_value strip_method(sli_values *v, sli_value s, const arguments *a) {
  return strip(v, s, a, true, true);
}
static sli_value lstrip_method(sli_values *v, sli_value s, const arguments *a) {
  return strip(v, s, a, true, false);
}
static sli_value rstrip_method(sli_values *v, sli_value s, const arguments *a) {
  return strip(v, s, a, false, true);
}
static sli_value startswith(sli_values *v, sli_value s, const arguments *a) {
  return stands_at(v, s, a, begins);
}
static sli_value endswith(sli_values *v, sli_value s, const arguments *a) {
  return stands_at(v, s, a, ends);
}

static sli_value cased(sli_values *v, sli_value s, const arguments *a, cases how) {
  static const char *const none[] = {NULL};
  return are_known(v, "a change of case", a, 0, none) ? with_case(v, s, how) : s;
}

static sli_value upper(sli_values *v, sli_value s, const arguments *a) {
  return cased(v, s, a, UPPER);
}
static sli_value lower(sli_values *v, sli_value s, const arguments *a) {
  return cased(v, s, a, LOWER);
}
static sli_value capitalize(sli_values *v, sli_value s, const arguments *a) {
  return cased(v, s, a, CAPITALIZED);
}
static sli_value title(sli_values *v, sli_value s, const arguments *a) {
  return cased(v, s, a, TITLE);
}
static sli_value join_method(sli_values *v, sli_value s, const arguments *a) {
  return joined(v, argument(v, a, 0, NULL), s, NULL);
}

static sli_value template_functions_find(sli_values *v, sli_value s, const arguments *a) {
  sli_value what = text_argument(v, a, 0, NULL);
  const char *found = memmem(s.text.at, s.text.bytes, what.text.at, what.text.bytes);
  if (a->count > 1) sli_values_fail(v, "find with a place is not supported");
  if (!found) return sli_value_int(-1);
  return sli_value_int(
      (int64_t)sli_text_characters(sli_value_span(s.text.at, (size_t)(found - s.text.at))));
}

static sli_value count_in_text(sli_values *v, sli_value s, const arguments *a) {
  sli_value what = text_argument(v, a, 0, NULL);
  int64_t n = 0;
  if (!what.text.bytes) return sli_values_fail(v, "count of an empty text is not supported"), s;
  const char *end = s.text.at + s.text.bytes;
  for (const char *at = s.text.at;
       (at = memmem(at, (size_t)(end - at), what.text.at, what.text.bytes)); n++)
    at += what.text.bytes;
  return sli_value_int(n);
}

static sli_value removeprefix(sli_values *v, sli_value s, const arguments *a) {
  sli_value with = text_argument(v, a, 0, NULL);
  return begins(s, with)
             ? sli_value_span(s.text.at + with.text.bytes, s.text.bytes - with.text.bytes)
             : s;
}

static sli_value removesuffix(sli_values *v, sli_value s, const arguments *a) {
  sli_value with = text_argument(v, a, 0, NULL);
  return ends(s, with) ? sli_value_span(s.text.at, s.text.bytes - with.text.bytes) : s;
}

static sli_value pair(sli_values *v, sli_value a, sli_value b) {
  sli_value out = sli_value_list(v);
  sli_value_add(v, out, a);
  sli_value_add(v, out, b);
  out.kind = SLI_TUPLE;
  return out;
}

static sli_value items(sli_values *v, sli_value d, const arguments *a) {
  (void)a;
  sli_value all = sli_value_list(v);
  if (d.kind == SLI_UNDEFINED) return all;
  if (d.kind != SLI_DICT) return sli_values_fail(v, "items of %s", sli_value_kind(d)), all;
  for (size_t i = 0; i < d.dict->count && !v->status; i++)
    sli_value_add(v, all, pair(v, d.dict->items[i].key, d.dict->items[i].value));
  return all;
}

static sli_value keys(sli_values *v, sli_value d, const arguments *a) {
  (void)a;
  return (sli_value){.kind = SLI_LIST, .list = sli_value_items(v, d)};
}

static sli_value values(sli_values *v, sli_value d, const arguments *a) {
  (void)a;
  sli_value all = sli_value_list(v);
  for (size_t i = 0; i < d.dict->count; i++) sli_value_add(v, all, d.dict->items[i].value);
  return all;
}

static sli_value get(sli_values *v, sli_value d, const arguments *a) {
  sli_value out = given(v, a, 1, NULL, sli_value_none());
  sli_dict_get(v, d.dict, argument(v, a, 0, NULL), &out);
  return out;
}

static sli_value index_of(sli_values *v, sli_value list, const arguments *a) {
  sli_value what = argument(v, a, 0, NULL);
  for (size_t i = 0; i < list.list->count; i++)
    if (sli_value_equal(v, list.list->items[i], what)) return sli_value_int((int64_t)i);
  sli_values_fail(v, "index of what is not there");
  return what;
}

static sli_value count_in_list(sli_values *v, sli_value list, const arguments *a) {
  sli_value what = argument(v, a, 0, NULL);
  int64_t n = 0;
  for (size_t i = 0; i < list.list->count; i++) n += sli_value_equal(v, list.list->items[i], what);
  return sli_value_int(n);
}

typedef sli_value callable(sli_values *v, sli_value subject, const arguments *a);

static const struct {
  const char *name;
  int kind;
  callable *call;
} methods[] = {{"strip", SLI_TEXT, strip_method},
               {"lstrip", SLI_TEXT, lstrip_method},
               {"rstrip", SLI_TEXT, rstrip_method},
               {"split", SLI_TEXT, split_method},
               {"rsplit", SLI_TEXT, rsplit_method},
               {"startswith", SLI_TEXT, startswith},
               {"endswith", SLI_TEXT, endswith},
               {"upper", SLI_TEXT, upper},
               {"lower", SLI_TEXT, lower},
               {"title", SLI_TEXT, title},
               {"capitalize", SLI_TEXT, capitalize},
               {"replace", SLI_TEXT, replace},
               {"join", SLI_TEXT, join_method},
               {"find", SLI_TEXT, template_functions_find},
               {"count", SLI_TEXT, count_in_text},
               {"removeprefix", SLI_TEXT, removeprefix},
               {"removesuffix", SLI_TEXT, removesuffix},
               {"items", SLI_DICT, items},
               {"keys", SLI_DICT, keys},
               {"values", SLI_DICT, values},
               {"get", SLI_DICT, get},
               {"index", SLI_LIST, index_of},
               {"count", SLI_LIST, count_in_list}};

bool sli_is_method(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(methods); i++)
    if (!strcmp(methods[i].name, name)) return true;
  return !strcmp(name, "cycle"); /* method of a loop */
}

sli_value sli_call_method(sli_values *v, const char *name, sli_value subject, const arguments *a) {
  int kind = subject.kind == SLI_TUPLE ? SLI_LIST : (int)subject.kind;
  for (size_t i = 0; i < SLI_COUNT(methods); i++)
    if (methods[i].kind == kind && !strcmp(methods[i].name, name)) {
      bool cases = methods[i].call == replace || methods[i].call == split_method ||
                   methods[i].call == rsplit_method;
      if (a->named && !cases) sli_values_fail(v, "%s takes no arguments by name", name);
      return v->status ? subject : methods[i].call(v, subject, a);
    }
  sli_values_fail(v, "%s has no method %s", sli_value_kind(subject), name);
  return subject;
}

/* ---- filters of one value -------------------------------------------------------------------- */

static sli_value trim(sli_values *v, sli_value s, const arguments *a) {
  return strip(v, sli_value_as_text(v, s), a, true, true);
}

static sli_value length(sli_values *v, sli_value s, const arguments *a) {
  (void)a;
  if (s.kind == SLI_TEXT)
    return sli_values_step(v, s.text.bytes / 64), sli_value_int((int64_t)sli_text_characters(s));
  return sli_value_int((int64_t)sli_value_items(v, s)->count);
}

static sli_value join(sli_values *v, sli_value s, const arguments *a) {
  static const char *const names[] = {"d", "attribute", NULL};
  if (!are_known(v, "join", a, 2, names)) return s;
  sli_value attribute = given(v, a, 1, "attribute", sli_value_none());
  return joined(v, s, given(v, a, 0, "d", sli_value_span("", 0)),
                attribute.kind == SLI_NONE ? NULL : &attribute);
}

static sli_value otherwise(sli_values *v, sli_value s, const arguments *a) {
  static const char *const names[] = {"default_value", "boolean", NULL};
  if (!are_known(v, "default", a, 2, names)) return s;
  bool empty =
      sli_value_is_true(given(v, a, 1, "boolean", sli_value_bool(false))) && !sli_value_is_true(s);
  return empty || s.kind == SLI_UNDEFINED ? given(v, a, 0, "default_value", sli_value_span("", 0))
                                          : s;
}

static sli_value first(sli_values *v, sli_value s, const arguments *a) {
  (void)a;
  sli_list *all = sli_value_items(v, s);
  return all->count ? all->items[0] : sli_value_undefined("the first item");
}

static sli_value last(sli_values *v, sli_value s, const arguments *a) {
  (void)a;
  sli_list *all = sli_value_items(v, s);
  return all->count ? all->items[all->count - 1] : sli_value_undefined("the last item");
}

static sli_value list(sli_values *v, sli_value s, const arguments *a) {
  (void)a;
  sli_value all = sli_value_list(v);
  sli_list *of = sli_value_items(v, s);
  for (size_t i = 0; i < of->count; i++) sli_value_add(v, all, of->items[i]);
  return all;
}

static sli_value reverse(sli_values *v, sli_value s, const arguments *a) {
  (void)a;
  sli_value all = sli_value_list(v);
  sli_list *of = sli_value_items(v, s);
  for (size_t i = of->count; i--;) sli_value_add(v, all, of->items[i]);
  return s.kind == SLI_TEXT ? joined(v, all, sli_value_span("", 0), NULL) : all;
}

static sli_value string(sli_values *v, sli_value s, const arguments *a) {
  (void)a;
  return sli_value_as_text(v, s);
}

static sli_value whole(sli_values *v, sli_value s, const arguments *a) {
  int64_t other = int_argument(v, a, 0, "default", 0);
  if (s.kind == SLI_INT) return s;
  if (s.kind == SLI_BOOL) return sli_value_int(s.truth);
  if (s.kind == SLI_REAL && s.real > -9e18 && s.real < 9e18) return sli_value_int((int64_t)s.real);
  sli_value text = s.kind == SLI_TEXT ? sli_text_strip(s, NULL, true, true) : sli_value_span("", 0);
  size_t sign = text.text.bytes && strchr("+-", *text.text.at);
  bool digits = text.text.bytes > sign && text.text.bytes < 19;
  for (size_t i = sign; i < text.text.bytes; i++)
    digits &= isdigit((unsigned char)text.text.at[i]) != 0;
  if (digits) return sli_value_int(strtoll(text.text.at, NULL, 10));
  return sli_value_int(other);
}

static sli_value absolute(sli_values *v, sli_value s, const arguments *a) {
  (void)a;
  if (s.kind == SLI_REAL) return sli_value_real(s.real < 0 ? -s.real : s.real);
  if (s.kind != SLI_INT) sli_values_fail(v, "abs of %s", sli_value_kind(s));
  return s.kind == SLI_INT && s.number < 0 && s.number > INT64_MIN ? sli_value_int(-s.number) : s;
}

static sli_value same(sli_values *v, sli_value s, const arguments *a) {
  (void)v, (void)a;
  return s;
}

static void separators(sli_values *v, const arguments *a, json_style *style) {
  sli_value both = given(v, a, 2, "separators", sli_value_none());
  if (both.kind == SLI_NONE) return;
  bool good = (both.kind == SLI_TUPLE || both.kind == SLI_LIST) && both.list->count == 2 &&
              both.list->items[0].kind == SLI_TEXT && both.list->items[1].kind == SLI_TEXT;
  if (!good) return sli_values_fail(v, "separators of tojson are two texts");
  style->between = both.list->items[0];
  style->behind_key = both.list->items[1];
}

/* Formats JSON as transformers does: Python's json.dumps() with ensure_ascii off. */
static sli_value tojson(sli_values *v, sli_value s, const arguments *a) {
  static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys", NULL};
  enum { MOST_INDENT = 32 };
  if (!are_known(v, "tojson", a, 4, names)) return s;
  json_style style = {
      .indent = int_argument(v, a, 1, "indent", -1),
      .ascii = sli_value_is_true(given(v, a, 0, "ensure_ascii", sli_value_bool(false))),
      .sorted = sli_value_is_true(given(v, a, 3, "sort_keys", sli_value_bool(false))),
      .behind_key = sli_value_span(": ", 2)};
  style.between = style.indent < 0 ? sli_value_span(", ", 2) : sli_value_span(",", 1);
  if (style.indent > MOST_INDENT)
    sli_values_fail(v, "tojson with an indent of more than %d", MOST_INDENT);
  separators(v, a, &style);
  text_buffer b = {0};
  sli_value_json(v, s, &style, 0, &b);
  return sli_buffer_value(&b);
}

/* Indents all lines but the first and empty ones. */
static sli_value indent(sli_values *v, sli_value s, const arguments *a) {
  static const char *const names[] = {"width", "first", "blank", NULL};
  if (!are_known(v, "indent", a, 3, names)) return s;
  sli_value width = given(v, a, 0, "width", sli_value_int(4)), text = sli_value_as_text(v, s);
  bool head = sli_value_is_true(given(v, a, 1, "first", sli_value_bool(false)));
  bool blank = sli_value_is_true(given(v, a, 2, "blank", sli_value_bool(false)));
  text_buffer b = {0};
  for (size_t at = 0, n; at < text.text.bytes && !v->status; at += n) {
    const char *end = memchr(text.text.at + at, '\n', text.text.bytes - at);
    n = end ? (size_t)(end - text.text.at) - at + 1 : text.text.bytes - at;
    bool deep = at ? blank || text.text.at[at] != '\n' : head;
    if (deep && width.kind == SLI_TEXT) sli_value_print(v, width, &b);
    for (int64_t i = 0; deep && width.kind == SLI_INT && i < width.number && !v->status; i++)
      sli_buffer_add(v, &b, " ", 1);
    sli_buffer_add(v, &b, text.text.at + at, n);
  }
  return sli_buffer_value(&b);
}

static sli_value unique(sli_values *v, sli_value s, const arguments *a) {
  sli_value all = sli_value_list(v);
  sli_list *of = sli_value_items(v, s);
  if (a->count || a->named) sli_values_fail(v, "unique with arguments is not supported");
  for (size_t i = 0; i < of->count && !v->status; i++) {
    if (of->items[i].kind == SLI_TEXT) sli_values_fail(v, "unique of texts is not supported");
    if (!sli_value_in(v, of->items[i], all)) sli_value_add(v, all, of->items[i]);
  }
  return all;
}

/* ---- filters of many values ------------------------------------------------------------------ */

/* Arguments after the first `from`. */
static arguments behind(const arguments *a, size_t from) {
  from = SLI_MIN(from, a->count);
  return (arguments){.items = a->items + from, .count = a->count - from};
}

/* Returns the name of a filter or test in an argument; the name must be known. */
static const char *name_at(sli_values *v, const arguments *a, size_t place,
                           bool (*known)(const char *)) {
  sli_value text = text_argument(v, a, place, NULL);
  text_buffer b = {0};
  sli_buffer_add(v, &b, text.text.at, text.text.bytes);
  const char *name = sli_buffer_value(&b).text.at;
  if (!known(name)) sli_values_fail(v, "\"%.40s\" is not known", name);
  return name;
}

static sli_value map(sli_values *v, sli_value s, const arguments *a) {
  sli_value attribute = given(v, a, SIZE_MAX, "attribute", sli_value_none());
  sli_value fallback = given(v, a, SIZE_MAX, "default", sli_value_none()), all = sli_value_list(v);
  static const char *const names[] = {"attribute", "default", NULL};
  bool by_attribute = attribute.kind != SLI_NONE;
  if (!are_known(v, "map", a, by_attribute ? 0 : SIZE_MAX, names)) return all;
  const char *name = by_attribute ? "" : name_at(v, a, 0, sli_is_filter);
  arguments rest = behind(a, 1);
  sli_list *of = sli_value_items(v, s);
  for (size_t i = 0; i < of->count && !v->status; i++) {
    sli_value item = by_attribute ? path_of(v, of->items[i], attribute)
                                  : sli_call_filter(v, name, of->items[i], &rest);
    sli_value_add(
        v, all,
        by_attribute && item.kind == SLI_UNDEFINED && fallback.kind != SLI_NONE ? fallback : item);
  }
  return all;
}

/* Selects the items, or an attribute of them, for which a test holds (or fails). */
static sli_value chosen(sli_values *v, sli_value s, const arguments *a, bool attribute,
                        bool wanted) {
  size_t place = attribute;
  sli_value path = attribute ? argument(v, a, 0, NULL) : sli_value_none(), all = sli_value_list(v);
  const char *name = a->count > place ? name_at(v, a, place, sli_is_test) : NULL;
  arguments rest = behind(a, place + 1);
  sli_list *of = sli_value_items(v, s);
  if (a->named) sli_values_fail(v, "arguments by name of a choice are not supported");
  for (size_t i = 0; i < of->count && !v->status; i++) {
    sli_value item = attribute ? path_of(v, of->items[i], path) : of->items[i];
    bool holds = name ? sli_call_test(v, name, item, &rest) : sli_value_is_true(item);
    if (holds == wanted) sli_value_add(v, all, of->items[i]);
  }
  return all;
}

static sli_value select_items(sli_values *v, sli_value s, const arguments *a) {
  return chosen(v, s, a, false, true);
}
static sli_value reject_items(sli_values *v, sli_value s, const arguments *a) {
  return chosen(v, s, a, false, false);
}
static sli_value selectattr(sli_values *v, sli_value s, const arguments *a) {
  return chosen(v, s, a, true, true);
}
static sli_value rejectattr(sli_values *v, sli_value s, const arguments *a) {
  return chosen(v, s, a, true, false);
}

static const struct {
  const char *name;
  callable *call;
  size_t most; /* most arguments */
} filters[] = {{"trim", trim, 1},
               {"length", length, 0},
               {"count", length, 0},
               {"upper", upper, 0},
               {"lower", lower, 0},
               {"capitalize", capitalize, 0},
               {"title", title, 0},
               {"tojson", tojson, 4},
               {"join", join, 2},
               {"replace", replace, 3},
               {"default", otherwise, 2},
               {"d", otherwise, 2},
               {"first", first, 0},
               {"last", last, 0},
               {"list", list, 0},
               {"reverse", reverse, 0},
               {"string", string, 0},
               {"safe", same, 0},
               {"int", whole, 1},
               {"abs", absolute, 0},
               {"items", items, 0},
               {"indent", indent, 3},
               {"unique", unique, 0},
               {"map", map, SIZE_MAX},
               {"select", select_items, SIZE_MAX},
               {"reject", reject_items, SIZE_MAX},
               {"selectattr", selectattr, SIZE_MAX},
               {"rejectattr", rejectattr, SIZE_MAX}};

bool sli_is_filter(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(filters); i++)
    if (!strcmp(filters[i].name, name)) return true;
  return false;
}

sli_value sli_call_filter(sli_values *v, const char *name, sli_value subject, const arguments *a) {
  for (size_t i = 0; i < SLI_COUNT(filters); i++)
    if (!strcmp(filters[i].name, name)) {
      if (a->count > filters[i].most || (a->named && !filters[i].most))
        sli_values_fail(v, "%s has too many arguments", name);
      return v->status ? subject : filters[i].call(v, subject, a);
    }
  sli_values_fail(v, "filter \"%.40s\" is not known", name);
  return subject;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static bool is_container(sli_value s) {
  return s.kind == SLI_TEXT || s.kind == SLI_LIST || s.kind == SLI_TUPLE || s.kind == SLI_DICT ||
         s.kind == SLI_UNDEFINED;
}

static bool of_kind(const char *name, sli_value s, bool *known) {
  *known = true;
  if (!strcmp(name, "defined")) return s.kind != SLI_UNDEFINED;
  if (!strcmp(name, "undefined")) return s.kind == SLI_UNDEFINED;
  if (!strcmp(name, "none")) return s.kind == SLI_NONE;
  if (!strcmp(name, "string")) return s.kind == SLI_TEXT;
  if (!strcmp(name, "mapping")) return s.kind == SLI_DICT;
  if (!strcmp(name, "iterable") || !strcmp(name, "sequence")) return is_container(s);
  if (!strcmp(name, "number")) return sli_value_is_number(s);
  if (!strcmp(name, "integer")) return s.kind == SLI_INT;
  if (!strcmp(name, "float")) return s.kind == SLI_REAL;
  if (!strcmp(name, "boolean")) return s.kind == SLI_BOOL;
  if (!strcmp(name, "true")) return s.kind == SLI_BOOL && s.truth;
  if (!strcmp(name, "false")) return s.kind == SLI_BOOL && !s.truth;
  if (!strcmp(name, "callable")) return s.kind == SLI_MACRO || s.kind == SLI_FUNCTION;
  *known = false;
  return false;
}

static bool divides(sli_values *v, sli_value s, int64_t by) {
  if (s.kind != SLI_INT || by <= 0)
    return sli_values_fail(v, "a test of the remainder of %s", sli_value_kind(s)), false;
  return s.number % by == 0;
}

static const struct {
  const char *name;
  operator op;
} comparisons[] = {
    {"equalto", EQUAL},       {"eq", EQUAL},         {"==", EQUAL},         {"ne", UNEQUAL},
    {"!=", UNEQUAL},          {"lt", LESS},          {"<", LESS},           {"lessthan", LESS},
    {"le", LESS_EQUAL},       {"<=", LESS_EQUAL},    {"gt", GREATER},       {">", GREATER},
    {"greaterthan", GREATER}, {"ge", GREATER_EQUAL}, {">=", GREATER_EQUAL}, {"in", IN}};

static bool compares(sli_values *v, operator op, sli_value a, sli_value b) {
  switch (op) {
  case EQUAL: return sli_value_equal(v, a, b);
  case UNEQUAL: return !sli_value_equal(v, a, b);
  case IN: return sli_value_in(v, a, b);
  case LESS: return sli_value_compare(v, a, b) < 0;
  case LESS_EQUAL: return sli_value_compare(v, a, b) <= 0;
  case GREATER: return sli_value_compare(v, a, b) > 0;
  default: return sli_value_compare(v, a, b) >= 0;
  }
}

bool sli_is_test(const char *name) {
  bool known;
  of_kind(name, sli_value_none(), &known);
  for (size_t i = 0; i < SLI_COUNT(comparisons); i++) known |= !strcmp(comparisons[i].name, name);
  return known || !strcmp(name, "odd") || !strcmp(name, "even") || !strcmp(name, "divisibleby");
}

bool sli_call_test(sli_values *v, const char *name, sli_value s, const arguments *a) {
  bool known, holds = of_kind(name, s, &known);
  size_t wanted = known || !strcmp(name, "odd") || !strcmp(name, "even") ? 0 : 1;
  if (a->count != wanted || a->named)
    sli_values_fail(v, "test %s takes %zu arguments", name, wanted);
  if (known || v->status) return holds;
  if (!wanted) return divides(v, s, 2) == !strcmp(name, "even");
  if (!strcmp(name, "divisibleby")) return divides(v, s, int_argument(v, a, 0, NULL, 0));
  for (size_t i = 0; i < SLI_COUNT(comparisons); i++)
    if (!strcmp(comparisons[i].name, name)) return compares(v, comparisons[i].op, s, a->items[0]);
  sli_values_fail(v, "test \"%.40s\" is not known", name);
  return false;
}

/* ---- functions ------------------------------------------------------------------------------- */

static sli_value raise_exception(sli_values *v, const arguments *a) {
  sli_value what = sli_value_as_text(v, argument(v, a, 0, NULL));
  if (!v->status)
    v->status = sl_fail(SL_E_USAGE, "it says: %.*s", (int)SLI_MIN(what.text.bytes, (size_t)300),
                        what.text.at);
  return what;
}

static sli_value strftime_now(sli_values *v, const arguments *a) {
  enum { MOST = 256 };
  sli_value format = text_argument(v, a, 0, "format");
  char text[MOST], copy[MOST];
  if (format.text.bytes >= MOST)
    return sli_values_fail(v, "strftime_now with a long format"), format;
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
  int64_t one = int_argument(v, a, 0, NULL, 0), step = int_argument(v, a, 2, NULL, 1);
  int64_t from = a->count > 1 ? one : 0, end = a->count > 1 ? int_argument(v, a, 1, NULL, 0) : one;
  bool few = llabs(from) < INT32_MAX && llabs(end) < INT32_MAX && llabs(step) < INT32_MAX && step &&
             (end - from) / step <= MOST;
  if (!few || !a->count || a->count > 3 || a->named)
    return sli_values_fail(v, "a range that is too long or has no step"), all;
  for (int64_t i = from; (step > 0 ? i < end : i > end) && !v->status; i += step)
    sli_value_add(v, all, sli_value_int(i));
  return all;
}

/* Makes a dict, or a namespace, of named arguments. */
static sli_value named(sli_values *v, const arguments *a) {
  sli_value out = sli_value_dict(v);
  if (a->count) sli_values_fail(v, "dict and namespace of another are not supported");
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
