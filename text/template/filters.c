/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of one value. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/template/template_inner.h"

/* ---- texts ----------------------------------------------------------------------------------- */

static sli_value trim(sli_values *v, sli_value s, const arguments *a) {
  static const char *const names[] = {"chars", NULL};
  if (!sli_arguments_check(v, "trim", a, 1, names)) return s;
  sli_value set = sli_argument_or(v, a, 0, "chars", sli_value_none()),
            text = sli_value_as_text(v, s);
  if (set.kind != SLI_NONE && set.kind != SLI_TEXT)
    sli_values_fail(v, "cannot trim %s", sli_value_kind(set));
  if (!sli_values_step(v, text.text.bytes / 64)) return text;
  return sli_text_strip(text, set.kind == SLI_TEXT ? &set : NULL, true, true);
}

static sli_value upper(sli_values *v, sli_value text, const arguments *a) {
  (void)a;
  return sli_text_case(v, sli_value_as_text(v, text), UPPER);
}
static sli_value lower(sli_values *v, sli_value text, const arguments *a) {
  (void)a;
  return sli_text_case(v, sli_value_as_text(v, text), LOWER);
}
static sli_value capitalize(sli_values *v, sli_value text, const arguments *a) {
  (void)a;
  return sli_text_case(v, sli_value_as_text(v, text), CAPITALIZED);
}
static sli_value title(sli_values *v, sli_value text, const arguments *a) {
  (void)a;
  return sli_text_case(v, sli_value_as_text(v, text), WORDS);
}

static sli_value replace(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"old", "new", "count", NULL};
  if (!sli_arguments_check(v, "replace", a, 3, names)) return text;
  sli_value from = sli_value_as_text(v, sli_argument(v, a, 0, "old")),
            to = sli_value_as_text(v, sli_argument(v, a, 1, "new"));
  return sli_text_replace(v, sli_value_as_text(v, text), from, to,
                          sli_argument_int(v, a, 2, "count", -1));
}

static sli_value center(sli_values *v, sli_value s, const arguments *a) {
  static const char *const names[] = {"width", NULL};
  if (!sli_arguments_check(v, "center", a, 1, names)) return s;
  sli_value text = sli_value_as_text(v, s);
  int64_t width = sli_argument_int(v, a, 0, "width", 80),
          pad = SLI_MAX(width - (int64_t)sli_text_characters(text), 0);
  int64_t left = pad / 2 + (pad & width & 1);
  return sli_text_pad(v, text, left, pad - left, ' ');
}

/* Formats the arguments as "..." % (...) does. */
static sli_value format(sli_values *v, sli_value text, const arguments *a) {
  sli_value all = sli_value_list(v);
  for (size_t i = 0; i < a->count; i++) sli_value_add(v, all, a->items[i]);
  if (a->named) sli_values_fail(v, "format with named arguments is not supported");
  all.kind = SLI_TUPLE;
  return sli_format_percent(v, sli_value_as_text(v, text), all);
}

/* Returns the text of a width, which is a text or a number of spaces. */
static sli_value width_of(sli_values *v, sli_value width) {
  enum { MOST = 1000 };
  if (width.kind == SLI_TEXT) return width;
  if (width.kind != SLI_INT || width.number > MOST)
    sli_values_fail(v, "a width must be a text or a number up to %d", MOST);
  return sli_text_pad(v, sli_value_span("", 0), v->status ? 0 : width.number, 0, ' ');
}

/* Indents all lines, but the first only with `first`, and empty ones only with `blank`. */
static sli_value indent(sli_values *v, sli_value s, const arguments *a) {
  static const char *const names[] = {"width", "first", "blank", NULL};
  if (!sli_arguments_check(v, "indent", a, 3, names)) return s;
  sli_value width = width_of(v, sli_argument_or(v, a, 0, "width", sli_value_int(4)));
  bool first = sli_argument_flag(v, a, 1, "first"), blank = sli_argument_flag(v, a, 2, "blank");
  text_buffer text = {0}, out = {0};
  if (s.kind != SLI_TEXT) sli_values_fail(v, "cannot indent %s", sli_value_kind(s));
  sli_value_print(v, s, &text);
  sli_buffer_add(v, &text, "\n", 1); /* so that an empty last line counts as a line */
  const sli_list *lines = sli_text_lines(v, sli_buffer_value(&text), false).list;
  for (size_t i = 0; i < lines->count && !v->status; i++) {
    if (i) sli_buffer_add(v, &out, "\n", 1);
    bool deep = i ? blank || lines->items[i].text.bytes : first;
    if (deep) sli_value_print(v, width, &out);
    sli_value_print(v, lines->items[i], &out);
  }
  return sli_buffer_value(&out);
}

static sli_value string(sli_values *v, sli_value text, const arguments *a) {
  (void)a;
  return sli_value_as_text(v, text);
}

static sli_value same(sli_values *v, sli_value text, const arguments *a) {
  (void)v, (void)a;
  return text;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Reads the number in a text. Returns false if there is none. */
static bool read_real(sli_values *v, sli_value text, double *out) {
  sli_value inner = sli_text_strip(text, NULL, true, true);
  text_buffer b = {0};
  sli_value_print(v, inner, &b);
  for (size_t i = 0; i < b.bytes; i++)
    if (!strchr("0123456789+-.eE", b.at[i]) || !b.at[i]) return false;
  char *end = NULL;
  if (!b.bytes) return false;
  *out = strtod(b.at, &end);
  return !*end;
}

static sli_value int_of(sli_values *v, sli_value s, const arguments *a) {
  static const char *const names[] = {"default", NULL};
  if (!sli_arguments_check(v, "int", a, 1, names)) return s;
  sli_value otherwise = sli_argument_or(v, a, 0, "default", sli_value_int(0));
  double real = NAN;
  if (s.kind == SLI_INT) return s;
  if (s.kind == SLI_BOOL) return sli_value_int(s.truth);
  if (s.kind == SLI_REAL) real = s.real;
  if (s.kind == SLI_UNDEFINED) sli_values_fail(v, "cannot convert an undefined value to int");
  if (s.kind == SLI_TEXT) {
    sli_value text = sli_text_strip(s, NULL, true, true);
    size_t sign = text.text.bytes && strchr("+-", *text.text.at);
    bool digits = text.text.bytes > sign && text.text.bytes < 19;
    for (size_t i = sign; i < text.text.bytes; i++)
      digits &= isdigit((unsigned char)text.text.at[i]) != 0;
    if (digits) return sli_value_int(strtoll(text.text.at, NULL, 10));
    if (!read_real(v, s, &real)) return otherwise;
  }
  return real > -9e18 && real < 9e18 ? sli_value_int((int64_t)real) : otherwise;
}

static sli_value float_of(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"default", NULL};
  if (!sli_arguments_check(v, "float", a, 1, names)) return text;
  double real;
  if (sli_value_is_number(text)) return sli_value_real(sli_value_as_real(text));
  if (text.kind == SLI_UNDEFINED) sli_values_fail(v, "cannot convert an undefined value to float");
  if (text.kind == SLI_TEXT && read_real(v, text, &real)) return sli_value_real(real);
  return sli_argument_or(v, a, 0, "default", sli_value_real(0));
}

static sli_value absolute(sli_values *v, sli_value text, const arguments *a) {
  (void)a;
  if (text.kind == SLI_REAL) return sli_value_real(fabs(text.real));
  if (text.kind == SLI_BOOL) return sli_value_int(text.truth);
  if (text.kind != SLI_INT) sli_values_fail(v, "cannot take abs of %s", sli_value_kind(text));
  return text.kind == SLI_INT && text.number < 0 && text.number > INT64_MIN
             ? sli_value_int(-text.number)
             : text;
}

/* Rounds to a number of decimals as Python does: by the exact value, halves to even. */
static double rounded(double real, int digits) {
  char text[400];
  snprintf(text, sizeof text, "%.*f", digits, real);
  return strtod(text, NULL);
}

static sli_value round_to(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"precision", "method", NULL};
  enum { MOST = 15 };
  if (!sli_arguments_check(v, "round", a, 2, names)) return text;
  int64_t digits = sli_argument_int(v, a, 0, "precision", 0);
  sli_value method = sli_argument_or(v, a, 1, "method", sli_value_span("common", 6));
  bool common = sli_text_is(method, "common"), up = sli_text_is(method, "ceil");
  if (!common && !up && !sli_text_is(method, "floor"))
    sli_values_fail(v, "round: the method must be common, ceil or floor");
  if (!sli_value_is_number(text)) sli_values_fail(v, "cannot round %s", sli_value_kind(text));
  if (digits < 0 || digits > MOST)
    sli_values_fail(v, "round: fewer than 0 or more than %d digits are not supported", MOST);
  if (v->status || (common && text.kind != SLI_REAL))
    return text.kind == SLI_BOOL ? sli_value_int(text.truth) : text;
  double real = sli_value_as_real(text), scale = pow(10, (double)digits);
  if (common) return sli_value_real(rounded(real, (int)digits));
  return sli_value_real((up ? ceil(real * scale) : floor(real * scale)) / scale);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void separators(sli_values *v, const arguments *a, json_style *style) {
  sli_value both = sli_argument_or(v, a, 2, "separators", sli_value_none());
  if (both.kind == SLI_NONE) return;
  bool good = sli_value_is_row(both) && both.list->count == 2 &&
              both.list->items[0].kind == SLI_TEXT && both.list->items[1].kind == SLI_TEXT;
  if (!good) return sli_values_fail(v, "the separators of tojson must be two texts");
  style->between = both.list->items[0];
  style->behind_key = both.list->items[1];
}

/* Formats JSON as transformers does: Python's json.dumps() with ensure_ascii off. */
static sli_value tojson(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys", NULL};
  if (!sli_arguments_check(v, "tojson", a, 4, names)) return text;
  sli_value width = sli_argument_or(v, a, 1, "indent", sli_value_none());
  bool line = width.kind == SLI_NONE;
  json_style style = {.indent = line ? width : width_of(v, width),
                      .ascii = sli_argument_flag(v, a, 0, "ensure_ascii"),
                      .sorted = sli_argument_flag(v, a, 3, "sort_keys"),
                      .between = sli_value_span(", ", line ? 2 : 1),
                      .behind_key = sli_value_span(": ", 2)};
  if (!line) style.between.text.bytes = 1;
  separators(v, a, &style);
  text_buffer b = {0};
  if (!v->status) sli_value_json(v, text, &style, 0, &b);
  return sli_buffer_value(&b);
}

/* ---- any values ------------------------------------------------------------------------------ */

static sli_value length(sli_values *v, sli_value text, const arguments *a) {
  (void)a;
  if (text.kind == SLI_TEXT)
    return sli_values_step(v, text.text.bytes / 64),
           sli_value_int((int64_t)sli_text_characters(text));
  if (text.kind == SLI_ITERATOR) sli_values_fail(v, "an iterator has no length");
  return sli_value_int(v->status ? 0 : (int64_t)sli_value_items(v, text)->count);
}

static sli_value otherwise(sli_values *v, sli_value text, const arguments *a) {
  static const char *const names[] = {"default_value", "boolean", NULL};
  if (!sli_arguments_check(v, "default", a, 2, names)) return text;
  bool empty = sli_argument_flag(v, a, 1, "boolean") && !sli_value_is_true(text);
  return empty || text.kind == SLI_UNDEFINED
             ? sli_argument_or(v, a, 0, "default_value", sli_value_span("", 0))
             : text;
}

static sli_value attribute(sli_values *v, sli_value text, const arguments *a) {
  sli_value name = sli_argument_text(v, a, 0, "name");
  return text.kind == SLI_DICT ? sli_value_undefined("an attribute of a dict")
                               : sli_value_at(v, text, name);
}

static const struct {
  const char *name;
  template_callable *call;
  size_t most; /* most arguments */
} filters[] = {{"trim", trim, 1},         {"upper", upper, 0},
               {"lower", lower, 0},       {"capitalize", capitalize, 0},
               {"title", title, 0},       {"replace", replace, 3},
               {"center", center, 1},     {"format", format, SIZE_MAX},
               {"indent", indent, 3},     {"string", string, 0},
               {"safe", same, 0},         {"int", int_of, 1},
               {"float", float_of, 1},    {"abs", absolute, 0},
               {"round", round_to, 2},    {"tojson", tojson, 4},
               {"length", length, 0},     {"count", length, 0},
               {"default", otherwise, 2}, {"d", otherwise, 2},
               {"attr", attribute, 1}};

template_callable *sli_value_filter(const char *name, size_t *most) {
  for (size_t i = 0; i < SLI_COUNT(filters); i++)
    if (!strcmp(filters[i].name, name)) return *most = filters[i].most, filters[i].call;
  return NULL;
}
