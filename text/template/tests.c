/* SPDX-License-Identifier: Apache-2.0 */
/* Tests, such as "x is defined". */
#include <string.h>

#include "text/template/template_inner.h"

static bool is_container(sli_value text) {
  return text.kind == SLI_TEXT || sli_value_is_row(text) || text.kind == SLI_DICT ||
         text.kind == SLI_UNDEFINED;
}

static bool of_kind(const char *name, sli_value text, bool *known) {
  *known = true;
  if (!strcmp(name, "defined")) return text.kind != SLI_UNDEFINED;
  if (!strcmp(name, "undefined")) return text.kind == SLI_UNDEFINED;
  if (!strcmp(name, "none")) return text.kind == SLI_NONE;
  if (!strcmp(name, "string")) return text.kind == SLI_TEXT;
  if (!strcmp(name, "mapping")) return text.kind == SLI_DICT;
  if (!strcmp(name, "iterable")) return is_container(text) || text.kind == SLI_ITERATOR;
  if (!strcmp(name, "sequence")) return is_container(text);
  if (!strcmp(name, "number")) return sli_value_is_number(text);
  if (!strcmp(name, "integer")) return text.kind == SLI_INT;
  if (!strcmp(name, "float")) return text.kind == SLI_REAL;
  if (!strcmp(name, "boolean")) return text.kind == SLI_BOOL;
  if (!strcmp(name, "true")) return text.kind == SLI_BOOL && text.truth;
  if (!strcmp(name, "false")) return text.kind == SLI_BOOL && !text.truth;
  if (!strcmp(name, "callable"))
    return text.kind == SLI_MACRO || text.kind == SLI_FUNCTION || text.kind == SLI_UNDEFINED;
  *known = false;
  return false;
}

static bool leaves(sli_values *v, sli_value text, sli_value by, int64_t rest) {
  return sli_value_equal(v, sli_operate(v, REMAINDER, text, by), sli_value_int(rest));
}

static const struct {
  const char *name;
  operator op;
} comparisons[] = {
    {"equalto", EQUAL},       {"eq", EQUAL},         {"==", EQUAL},         {"ne", UNEQUAL},
    {"!=", UNEQUAL},          {"lt", LESS},          {"<", LESS},           {"lessthan", LESS},
    {"le", LESS_EQUAL},       {"<=", LESS_EQUAL},    {"gt", GREATER},       {">", GREATER},
    {"greaterthan", GREATER}, {"ge", GREATER_EQUAL}, {">=", GREATER_EQUAL}, {"in", IN}};

/* Returns whether two values are the same object. Scalars and texts are if they are equal. */
static bool is_same(sli_values *v, sli_value a, sli_value b) {
  return a.kind == b.kind && (a.kind < SLI_LIST ? sli_value_equal(v, a, b) : a.other == b.other);
}

/* Tests for letters of one case, and none of the other. */
static bool has_case(sli_values *v, sli_value s, text_case how) {
  sli_value text = sli_value_as_text(v, s), up = sli_text_case(v, text, UPPER),
            low = sli_text_case(v, text, LOWER);
  return !sli_value_equal(v, up, low) && sli_value_equal(v, text, how == UPPER ? up : low);
}

bool sli_is_test(const char *name) {
  bool known;
  of_kind(name, sli_value_none(), &known);
  for (size_t i = 0; i < SLI_COUNT(comparisons); i++) known |= !strcmp(comparisons[i].name, name);
  return known || !strcmp(name, "odd") || !strcmp(name, "even") || !strcmp(name, "upper") ||
         !strcmp(name, "lower") || !strcmp(name, "divisibleby") || !strcmp(name, "sameas");
}

bool sli_call_test(sli_values *v, const char *name, sli_value text, const arguments *a) {
  bool known, holds = of_kind(name, text, &known);
  bool cased = !strcmp(name, "upper") || !strcmp(name, "lower");
  size_t wanted = known || cased || !strcmp(name, "odd") || !strcmp(name, "even") ? 0 : 1;
  if (a->count != wanted || a->named)
    sli_values_fail(v, "test %s takes %zu arguments", name, wanted);
  if (known || v->status) return holds;
  if (cased) return has_case(v, text, *name == 'u' ? UPPER : LOWER);
  if (!wanted) return leaves(v, text, sli_value_int(2), *name == 'o');
  if (!strcmp(name, "divisibleby")) return leaves(v, text, a->items[0], 0);
  if (!strcmp(name, "sameas")) return is_same(v, text, a->items[0]);
  for (size_t i = 0; i < SLI_COUNT(comparisons); i++)
    if (!strcmp(comparisons[i].name, name))
      return sli_operate(v, comparisons[i].op, text, a->items[0]).truth;
  sli_values_fail(v, "test \"%.40s\" is not known", name);
  return false;
}
