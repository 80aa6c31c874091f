/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of texts, lists and dicts, as Python has them. */
#include <ctype.h>
#include <string.h>

#include "text/template/template_inner.h"

/* Fails unless there are from `least` to `most` arguments, none of them named. */
static bool takes(sli_values *v, const char *name, const arguments *a, size_t least, size_t most) {
  static const char *const none[] = {NULL};
  if (a->count < least) sli_values_fail(v, "%s takes at least %zu arguments", name, least);
  return sli_arguments_check(v, name, a, most, none);
}

/* ---- pieces of texts ------------------------------------------------------------------------- */

static sli_value split(sli_values *v, sli_value text, const arguments *a, bool right) {
  static const char *const names[] = {"sep", "maxsplit", NULL};
  if (!sli_arguments_check(v, "split", a, 2, names)) return text;
  sli_value by = sli_argument_or(v, a, 0, "sep", sli_value_none());
  int64_t most = sli_argument_int(v, a, 1, "maxsplit", -1);
  bool space = by.kind == SLI_NONE;
  if (!space && (by.kind != SLI_TEXT || !by.text.bytes))
    sli_values_fail(v, "cannot split by %s",
                    by.kind == SLI_TEXT ? "an empty text" : sli_value_kind(by));
  if (right && space && most >= 0)
    sli_values_fail(v, "rsplit by white space with a limit is not supported");
  if (v->status) return text;
  return right && !space ? sli_text_rsplit(v, text, by, most)
                         : sli_text_split(v, text, space ? NULL : &by, most);
}
static sli_value split_left(sli_values *v, sli_value text, const arguments *a) {
  return split(v, text, a, false);
}
static sli_value split_right(sli_values *v, sli_value text, const arguments *a) {
  return split(v, text, a, true);
}

static sli_value lines(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"keepends", NULL};
  if (!sli_arguments_check(v, "splitlines", a, 1, names)) return text;
  return sli_text_lines(v, text, sli_argument_flag(v, a, 0, "keepends"));
}

static sli_value partition(sli_values *v, sli_value text, const arguments *a, bool right) {
  sli_value by = sli_argument_text(v, a, 0, NULL), out = sli_value_list(v),
            none = sli_value_span("", 0);
  if (!takes(v, "partition", a, 1, 1)) return text;
  if (!by.text.bytes) return sli_values_fail(v, "cannot partition by an empty text"), text;
  sli_value parts = right ? sli_text_rsplit(v, text, by, 1) : sli_text_split(v, text, &by, 1);
  bool found = parts.list->count == 2;
  sli_value first = parts.list->items[0];
  sli_value_add(v, out, found || !right ? first : none);
  sli_value_add(v, out, found ? by : none);
  sli_value_add(v, out, found ? parts.list->items[1] : right ? first : none);
  out.kind = SLI_TUPLE;
  return out;
}
static sli_value partition_left(sli_values *v, sli_value text, const arguments *a) {
  return partition(v, text, a, false);
}
static sli_value partition_right(sli_values *v, sli_value text, const arguments *a) {
  return partition(v, text, a, true);
}

static sli_value strip(sli_values *v, sli_value text, const arguments *a, bool left, bool right) {
  sli_value set = sli_argument_or(v, a, 0, NULL, sli_value_none());
  if (!takes(v, "strip", a, 0, 1)) return text;
  if (set.kind != SLI_NONE && set.kind != SLI_TEXT)
    sli_values_fail(v, "cannot strip %s", sli_value_kind(set));
  size_t each = set.kind == SLI_TEXT ? set.text.bytes : 1; /* compared with every character */
  if (!sli_values_step(v, text.text.bytes / 16 * each)) return text;
  return sli_text_strip(text, set.kind == SLI_TEXT ? &set : NULL, left, right);
}
static sli_value strip_both(sli_values *v, sli_value text, const arguments *a) {
  return strip(v, text, a, true, true);
}
static sli_value strip_left(sli_values *v, sli_value text, const arguments *a) {
  return strip(v, text, a, true, false);
}
static sli_value strip_right(sli_values *v, sli_value text, const arguments *a) {
  return strip(v, text, a, false, true);
}

static bool begins(sli_value text, sli_value with) {
  return with.text.bytes <= text.text.bytes && !memcmp(text.text.at, with.text.at, with.text.bytes);
}

static bool ends(sli_value text, sli_value with) {
  return with.text.bytes <= text.text.bytes &&
         !memcmp(text.text.at + text.text.bytes - with.text.bytes, with.text.at, with.text.bytes);
}

/* Tests for a prefix or suffix: a text, or any text of a tuple. */
static sli_value stands_at(sli_values *v, sli_value text, const arguments *a,
                           bool (*at)(sli_value, sli_value)) {
  sli_value with = sli_argument(v, a, 0, NULL);
  bool found = false;
  if (!takes(v, "a test of a prefix or suffix", a, 1, 1)) return with;
  if (with.kind == SLI_TEXT) return sli_value_bool(at(text, with));
  if (with.kind != SLI_TUPLE)
    return sli_values_fail(v, "a prefix must be a text, not %s", sli_value_kind(with)), with;
  for (size_t i = 0; i < with.list->count && sli_values_step(v, 1 + text.text.bytes / 64); i++)
    found |= with.list->items[i].kind == SLI_TEXT && at(text, with.list->items[i]);
  return sli_value_bool(found);
}
static sli_value startswith(sli_values *v, sli_value text, const arguments *a) {
  return stands_at(v, text, a, begins);
}
static sli_value endswith(sli_values *v, sli_value text, const arguments *a) {
  return stands_at(v, text, a, ends);
}

static sli_value removeprefix(sli_values *v, sli_value text, const arguments *a) {
  sli_value with = sli_argument_text(v, a, 0, NULL);
  size_t n = begins(text, with) ? with.text.bytes : 0;
  return sli_value_span(text.text.at + n, text.text.bytes - n);
}
static sli_value removesuffix(sli_values *v, sli_value text, const arguments *a) {
  sli_value with = sli_argument_text(v, a, 0, NULL);
  return sli_value_span(text.text.at, text.text.bytes - (ends(text, with) ? with.text.bytes : 0));
}

/* ---- places in texts ------------------------------------------------------------------------- */

/* Reads a bound of a search, by Python's rules for slices. */
static size_t bound(sli_values *v, const arguments *a, size_t place, size_t characters,
                    size_t otherwise) {
  int64_t at = sli_argument_int(v, a, place, NULL, (int64_t)otherwise);
  if (at < 0) at = SLI_MAX(at, -(int64_t)characters) + (int64_t)characters;
  return (size_t)SLI_MIN(at, (int64_t)characters);
}

/* Returns the index of the character at which a text is found, searching from the left or right, or
 * -1. */
static int64_t place_of(sli_values *v, sli_value text, const arguments *a, bool right) {
  sli_value what = sli_argument_text(v, a, 0, NULL);
  if (!takes(v, "find", a, 1, 3) || !sli_values_step(v, text.text.bytes)) return -1;
  size_t all = sli_text_characters(text), from = bound(v, a, 1, all, 0),
         to = bound(v, a, 2, all, all);
  if (to < from) return -1;
  sli_value part = sli_text_part(text, from, to);
  const char *found;
  found = right ? sli_text_last(v, part, what)
                : memmem(part.text.at, part.text.bytes, what.text.at, what.text.bytes);
  if (!found) return -1;
  size_t before = (size_t)(found - part.text.at);
  return (int64_t)(from + sli_text_characters(sli_value_span(part.text.at, before)));
}
static sli_value find_left(sli_values *v, sli_value text, const arguments *a) {
  return sli_value_int(place_of(v, text, a, false));
}
static sli_value find_right(sli_values *v, sli_value text, const arguments *a) {
  return sli_value_int(place_of(v, text, a, true));
}

static sli_value there(sli_values *v, int64_t place) {
  if (place < 0) sli_values_fail(v, "index: the text is not found");
  return sli_value_int(place);
}
static sli_value index_left(sli_values *v, sli_value text, const arguments *a) {
  return there(v, place_of(v, text, a, false));
}
static sli_value index_right(sli_values *v, sli_value text, const arguments *a) {
  return there(v, place_of(v, text, a, true));
}

static sli_value count_in_text(sli_values *v, sli_value text, const arguments *a) {
  sli_value what = sli_argument_text(v, a, 0, NULL);
  int64_t n = 0;
  if (!takes(v, "count", a, 1, 1)) return text;
  if (!what.text.bytes) return sli_value_int((int64_t)sli_text_characters(text) + 1);
  const char *end = text.text.at + text.text.bytes;
  for (const char *at = text.text.at;
       sli_values_step(v, 1 + what.text.bytes / 16) &&
       (at = memmem(at, (size_t)(end - at), what.text.at, what.text.bytes));
       n++)
    at += what.text.bytes;
  return sli_value_int(n);
}

/* ---- changes of texts ------------------------------------------------------------------------ */

static sli_value upper(sli_values *v, sli_value text, const arguments *a) {
  return takes(v, "upper", a, 0, 0) ? sli_text_case(v, text, UPPER) : text;
}
static sli_value lower(sli_values *v, sli_value text, const arguments *a) {
  return takes(v, "lower", a, 0, 0) ? sli_text_case(v, text, LOWER) : text;
}
static sli_value capitalize(sli_values *v, sli_value text, const arguments *a) {
  return takes(v, "capitalize", a, 0, 0) ? sli_text_case(v, text, CAPITALIZED) : text;
}
static sli_value title(sli_values *v, sli_value text, const arguments *a) {
  return takes(v, "title", a, 0, 0) ? sli_text_case(v, text, TITLE) : text;
}

static sli_value replace(sli_values *v, sli_value text, const arguments *a) {
  sli_value from = sli_argument_text(v, a, 0, NULL), to = sli_argument_text(v, a, 1, NULL);
  if (!takes(v, "replace", a, 2, 3)) return text;
  return sli_text_replace(v, text, from, to, sli_argument_int(v, a, 2, NULL, -1));
}

/* Joins texts. As in Python, other items are errors. */
static sli_value join(sli_values *v, sli_value text, const arguments *a) {
  if (!takes(v, "join", a, 1, 1)) return text;
  sli_value all = {.kind = SLI_LIST, .list = sli_value_items(v, a->items[0])};
  for (size_t i = 0; i < all.list->count; i++)
    if (all.list->items[i].kind != SLI_TEXT)
      sli_values_fail(v, "cannot join %s", sli_value_kind(all.list->items[i]));
  return v->status ? text : sli_text_join(v, all, text, NULL);
}

/* Reads the requested width of a text, and returns the number of characters missing. */
static int64_t missing(sli_values *v, sli_value text, const arguments *a, char *fill) {
  sli_value with = sli_argument_or(v, a, 1, NULL, sli_value_span(" ", 1));
  if (!takes(v, "a method for a width", a, 1, 2)) return 0;
  if (with.kind != SLI_TEXT || with.text.bytes != 1)
    return sli_values_fail(v, "the fill character must be one ASCII character"), 0;
  *fill = *with.text.at;
  return SLI_MAX(sli_argument_int(v, a, 0, NULL, 0) - (int64_t)sli_text_characters(text), 0);
}
static sli_value ljust(sli_values *v, sli_value text, const arguments *a) {
  char fill = ' ';
  int64_t n = missing(v, text, a, &fill);
  return sli_text_pad(v, text, 0, n, fill);
}
static sli_value rjust(sli_values *v, sli_value text, const arguments *a) {
  char fill = ' ';
  int64_t n = missing(v, text, a, &fill);
  return sli_text_pad(v, text, n, 0, fill);
}

static sli_value zfill(sli_values *v, sli_value text, const arguments *a) {
  size_t sign = text.text.bytes && strchr("+-", *text.text.at);
  if (!takes(v, "zfill", a, 1, 1)) return text;
  int64_t n = sli_argument_int(v, a, 0, NULL, 0) - (int64_t)sli_text_characters(text);
  sli_value digits = sli_value_span(text.text.at + sign, text.text.bytes - sign);
  text_buffer b = {0};
  sli_buffer_add(v, &b, text.text.at, sign);
  sli_value_print(v, sli_text_pad(v, digits, n, 0, '0'), &b);
  return sli_buffer_value(&b);
}

/* ---- kinds of characters --------------------------------------------------------------------- */

/* Tests whether a text is not empty and all its characters are of a kind. Fails beyond ASCII. */
static sli_value all_are(sli_values *v, sli_value text, const arguments *a, int (*is)(int)) {
  bool good = text.text.bytes > 0 && sli_values_step(v, text.text.bytes);
  for (size_t i = 0; i < text.text.bytes && takes(v, "a test of characters", a, 0, 0); i++) {
    if ((unsigned char)text.text.at[i] >= 0x80)
      sli_values_fail(v, "testing characters beyond ASCII is not supported");
    good &= is((unsigned char)text.text.at[i]) != 0;
  }
  return sli_value_bool(good);
}
static sli_value isdigits(sli_values *v, sli_value text, const arguments *a) {
  return all_are(v, text, a, isdigit);
}
static sli_value isletters(sli_values *v, sli_value text, const arguments *a) {
  return all_are(v, text, a, isalpha);
}
static sli_value isletters_or_digits(sli_values *v, sli_value text, const arguments *a) {
  return all_are(v, text, a, isalnum);
}
static sli_value isspaces(sli_values *v, sli_value text, const arguments *a) {
  if (!takes(v, "isspace", a, 0, 0)) return text;
  return sli_value_bool(text.text.bytes && !sli_text_strip(text, NULL, true, false).text.bytes);
}

/* Tests for letters of one case, and none of the other. */
static sli_value has_case(sli_values *v, sli_value text, const arguments *a, text_case how) {
  if (!takes(v, "a test of case", a, 0, 0)) return text;
  sli_value up = sli_text_case(v, text, UPPER), low = sli_text_case(v, text, LOWER);
  return sli_value_bool(!sli_value_equal(v, up, low) &&
                        sli_value_equal(v, text, how == UPPER ? up : low));
}
static sli_value isupper_case(sli_values *v, sli_value text, const arguments *a) {
  return has_case(v, text, a, UPPER);
}
static sli_value islower_case(sli_values *v, sli_value text, const arguments *a) {
  return has_case(v, text, a, LOWER);
}

/* ---- dicts and lists ------------------------------------------------------------------------- */

static sli_value items(sli_values *v, sli_value d, const arguments *a) {
  takes(v, "items", a, 0, 0);
  return sli_call_filter(v, "list", sli_call_filter(v, "items", d, a), a);
}

static sli_value keys(sli_values *v, sli_value d, const arguments *a) {
  takes(v, "keys", a, 0, 0);
  return (sli_value){.kind = SLI_LIST, .list = sli_value_items(v, d)};
}

static sli_value values(sli_values *v, sli_value d, const arguments *a) {
  sli_value all = sli_value_list(v);
  takes(v, "values", a, 0, 0);
  for (size_t i = 0; i < d.dict->count; i++) sli_value_add(v, all, d.dict->items[i].value);
  return all;
}

static sli_value get(sli_values *v, sli_value d, const arguments *a) {
  sli_value out = sli_argument_or(v, a, 1, NULL, sli_value_none());
  if (takes(v, "get", a, 1, 2)) sli_dict_get(v, d.dict, a->items[0], &out);
  return out;
}

static sli_value copy_dict(sli_values *v, sli_value d, const arguments *a) {
  sli_value out = sli_value_dict(v);
  takes(v, "copy", a, 0, 0);
  for (size_t i = 0; i < d.dict->count; i++)
    sli_dict_set(v, out.dict, d.dict->items[i].key, d.dict->items[i].value);
  return out;
}

static sli_value copy_list(sli_values *v, sli_value list, const arguments *a) {
  sli_value out = sli_value_list(v);
  takes(v, "copy", a, 0, 0);
  for (size_t i = 0; i < list.list->count; i++) sli_value_add(v, out, list.list->items[i]);
  return out;
}

static sli_value index_in_list(sli_values *v, sli_value list, const arguments *a) {
  if (!takes(v, "index", a, 1, 1)) return list;
  for (size_t i = 0; i < list.list->count; i++)
    if (sli_value_equal(v, list.list->items[i], a->items[0])) return sli_value_int((int64_t)i);
  sli_values_fail(v, "index: the item is not in the list");
  return list;
}

static sli_value count_in_list(sli_values *v, sli_value list, const arguments *a) {
  int64_t n = 0;
  if (!takes(v, "count", a, 1, 1)) return list;
  for (size_t i = 0; i < list.list->count; i++)
    n += sli_value_equal(v, list.list->items[i], a->items[0]);
  return sli_value_int(n);
}

/* Rejects a change, as transformers' sandbox does. */
static sli_value change(sli_values *v, sli_value subject, const arguments *a) {
  (void)a;
  sli_values_fail(v, "a template must not change %s", sli_value_kind(subject));
  return subject;
}

/* ---- table ----------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  int kind;
  template_callable *call;
} methods[] = {{"strip", SLI_TEXT, strip_both},
               {"lstrip", SLI_TEXT, strip_left},
               {"rstrip", SLI_TEXT, strip_right},
               {"split", SLI_TEXT, split_left},
               {"rsplit", SLI_TEXT, split_right},
               {"splitlines", SLI_TEXT, lines},
               {"partition", SLI_TEXT, partition_left},
               {"rpartition", SLI_TEXT, partition_right},
               {"startswith", SLI_TEXT, startswith},
               {"endswith", SLI_TEXT, endswith},
               {"removeprefix", SLI_TEXT, removeprefix},
               {"removesuffix", SLI_TEXT, removesuffix},
               {"find", SLI_TEXT, find_left},
               {"rfind", SLI_TEXT, find_right},
               {"index", SLI_TEXT, index_left},
               {"rindex", SLI_TEXT, index_right},
               {"count", SLI_TEXT, count_in_text},
               {"upper", SLI_TEXT, upper},
               {"lower", SLI_TEXT, lower},
               {"title", SLI_TEXT, title},
               {"capitalize", SLI_TEXT, capitalize},
               {"replace", SLI_TEXT, replace},
               {"join", SLI_TEXT, join},
               {"format", SLI_TEXT, sli_format_braces},
               {"ljust", SLI_TEXT, ljust},
               {"rjust", SLI_TEXT, rjust},
               {"zfill", SLI_TEXT, zfill},
               {"isdigit", SLI_TEXT, isdigits},
               {"isnumeric", SLI_TEXT, isdigits},
               {"isdecimal", SLI_TEXT, isdigits},
               {"isalpha", SLI_TEXT, isletters},
               {"isalnum", SLI_TEXT, isletters_or_digits},
               {"isspace", SLI_TEXT, isspaces},
               {"isupper", SLI_TEXT, isupper_case},
               {"islower", SLI_TEXT, islower_case},
               {"items", SLI_DICT, items},
               {"keys", SLI_DICT, keys},
               {"values", SLI_DICT, values},
               {"get", SLI_DICT, get},
               {"copy", SLI_DICT, copy_dict},
               {"pop", SLI_DICT, change},
               {"update", SLI_DICT, change},
               {"setdefault", SLI_DICT, change},
               {"clear", SLI_DICT, change},
               {"index", SLI_LIST, index_in_list},
               {"count", SLI_LIST, count_in_list},
               {"copy", SLI_LIST, copy_list},
               {"append", SLI_LIST, change},
               {"extend", SLI_LIST, change},
               {"insert", SLI_LIST, change},
               {"pop", SLI_LIST, change},
               {"remove", SLI_LIST, change},
               {"reverse", SLI_LIST, change},
               {"sort", SLI_LIST, change},
               {"clear", SLI_LIST, change}};

static template_callable *method_of(sli_value of, const char *name, size_t bytes) {
  int kind = of.kind == SLI_TUPLE ? SLI_LIST : (int)of.kind;
  for (size_t i = 0; i < SLI_COUNT(methods); i++)
    if (methods[i].kind == kind && strlen(methods[i].name) == bytes &&
        !memcmp(methods[i].name, name, bytes))
      return methods[i].call;
  return NULL;
}

bool sli_has_method(sli_value of, sli_value name) {
  return name.kind == SLI_TEXT && method_of(of, name.text.at, name.text.bytes);
}

sli_value sli_call_method(sli_values *v, const char *name, sli_value subject, const arguments *a) {
  template_callable *call = method_of(subject, name, strlen(name));
  if (!call) sli_values_fail(v, "%s has no method \"%.40s\"", sli_value_kind(subject), name);
  return v->status || !sli_arguments_step(v, subject, a) ? subject : call(v, subject, a);
}
