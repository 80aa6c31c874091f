/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as texts: bounds and multiples as automata over digits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar/schema.h"

/* Digits before and after the decimal point. */
typedef struct decimal {
  char whole[64], part[64];
} decimal;

char *sli_number_text(double value, char *out) {
  if (value == floor(value) && fabs(value) < 1e15) return snprintf(out, 32, "%.0f", value), out;
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(out, 32, "%.*g", digits, value);
    if (strtod(out, NULL) == value) break;
  }
  return out;
}

/* Splits a non-negative number. Returns false if it is too large or too small. */
static bool split(double value, decimal *out) {
  char text[32], digits[32] = "";
  int n = 0, point;
  snprintf(text, sizeof text, "%.16e", value);
  for (int precision = 0; precision <= 16; precision++) {
    snprintf(text, sizeof text, "%.*e", precision, value);
    if (strtod(text, NULL) == value) break;
  }
  for (const char *t = text; *t && *t != 'e'; t++)
    if (*t != '.') digits[n++] = *t;
  point = 1 + atoi(strchr(text, 'e') + 1);
  *out = (decimal){{0}, {0}};
  if (point > 40 || point < -40) return false;
  int w = 0, p = 0;
  for (int i = SLI_MIN(0, point); i < SLI_MAX(n, point); i++) {
    char c = i < 0 || i >= n ? '0' : digits[i];
    if (i < point) out->whole[w++] = c;
    else out->part[p++] = c;
  }
  while (p && out->part[p - 1] == '0') out->part[--p] = 0;
  if (!w) out->whole[0] = '0';
  return true;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* An automaton that compares the digits of a text with those of a value. */
typedef struct comparing {
  sli_grammar *g;
  sli_chars *a;
  unsigned ways;
  int32_t behind[3]; /* after the point, once the text is known to be less or more */
} comparing;

static bool is_among(const comparing *c, int order) {
  return c->ways & (order < 0 ? SLI_LESS : order > 0 ? SLI_MORE : SLI_EQUAL);
}

static void add_digits(const comparing *c, int32_t from, int low, int high, int32_t to) {
  if (low <= high) sli_chars_edge_add(c->g, c->a, from, '0' + low, '0' + high, to);
}

static int32_t add_behind(const comparing *c, int order) {
  int32_t state = sli_chars_state(c->g, c->a, is_among(c, order));
  add_digits(c, state, 0, 9, state);
  return state;
}

static void add_point(const comparing *c, int32_t from, int32_t to) {
  sli_chars_edge_add(c->g, c->a, from, '.', '.', to);
}

/* Adds the states after the point for a text whose whole part is equal. */
static int32_t add_part(const comparing *c, const char *part) {
  size_t n = strlen(part);
  int32_t first = 0, before = 0;
  for (size_t i = 0; i <= n; i++) {
    int32_t state = sli_chars_state(c->g, c->a, is_among(c, i < n ? -1 : 0));
    if (i) {
      int d = part[i - 1] - '0';
      add_digits(c, before, 0, d - 1, c->behind[0]);
      add_digits(c, before, d, d, state);
      add_digits(c, before, d + 1, 9, c->behind[2]);
    } else first = state;
    before = state;
  }
  add_digits(c, before, 0, 0, before);
  add_digits(c, before, 1, 9, c->behind[2]);
  return first;
}

/* Adds an automaton over all digits. Returns its first state, which has read none. */
static int32_t add_compared(comparing *c, const decimal *value) {
  int n = (int)strlen(value->whole);
  int32_t states[64][3]; /* by number of digits read, and by less, equal, more */
  c->behind[0] = add_behind(c, -1);
  c->behind[2] = add_behind(c, 1);
  int32_t part = add_part(c, value->part), longer = sli_chars_state(c->g, c->a, is_among(c, 1));
  for (int i = 0; i <= n; i++)
    for (int order = -1; order <= 1; order++) {
      int known = i < n ? -1 : order ? order : *value->part ? -1 : 0;
      states[i][order + 1] = sli_chars_state(c->g, c->a, i && is_among(c, known));
    }
  for (int i = 0; i <= n && !sli_grammar_failed(c->g); i++)
    for (int order = -1; order <= 1; order++) {
      int32_t from = states[i][order + 1];
      if (i) add_point(c, from, i < n ? c->behind[0] : order ? c->behind[order + 1] : part);
      if (i == n) add_digits(c, from, 0, 9, longer);
      else if (order) add_digits(c, from, 0, 9, states[i + 1][order + 1]);
      else {
        int d = value->whole[i] - '0';
        add_digits(c, from, 0, d - 1, states[i + 1][0]);
        add_digits(c, from, d, d, states[i + 1][1]);
        add_digits(c, from, d + 1, 9, states[i + 1][2]);
      }
    }
  add_point(c, longer, c->behind[2]);
  add_digits(c, longer, 0, 9, longer);
  return states[0][1];
}

/* Returns how the absolute value of a number may compare with that of `value`, if the number itself
 * compares in one of these ways. */
static unsigned amounts(unsigned ways, bool negative, bool value_negative) {
  if (negative != value_negative)
    return negative ? (ways & SLI_LESS ? 7 : 0) : (ways & SLI_MORE ? 7 : 0);
  if (!negative) return ways;
  return (ways & SLI_EQUAL) | (ways & SLI_LESS ? SLI_MORE : 0) | (ways & SLI_MORE ? SLI_LESS : 0);
}

/* Copies the edges of a state to the first one. */
static void begin_like(sli_grammar *g, sli_chars *chars, int32_t state) {
  for (size_t i = 0; !sli_grammar_failed(g) && i < chars->states[state].count; i++) {
    sli_chars_edge e = chars->states[state].edges[i];
    sli_chars_edge_add(g, chars, 0, e.low, e.high, e.to);
  }
}

sli_chars *sli_numbers_compared(sli_grammar *g, double value, unsigned ways) {
  decimal d;
  sli_chars *a = sli_chars_create(g);
  if (!a || !split(fabs(value), &d)) return NULL;
  sli_chars_state(g, a, false);
  bool negative = value < 0;
  comparing below = {.g = g, .a = a, .ways = amounts(ways, true, negative)},
            above = {.g = g, .a = a, .ways = amounts(ways, false, negative)};
  /* -0 is not less than 0 */
  if (value == 0) below.ways = (ways & SLI_EQUAL) | (ways & SLI_LESS ? SLI_MORE : 0);
  int32_t minus = add_compared(&below, &d), plus = add_compared(&above, &d);
  sli_chars_edge_add(g, a, 0, '-', '-', minus);
  begin_like(g, a, plus);
  return sli_grammar_failed(g) ? NULL : a;
}

/* ---- multiples and forms --------------------------------------------------------------------- */

sli_chars *sli_numbers_multiples(sli_grammar *g, int32_t of) {
  sli_chars *a = sli_chars_create(g);
  if (!a) return NULL;
  int32_t begin = sli_chars_state(g, a, false), minus = sli_chars_state(g, a, false);
  for (int32_t rest = 0; rest < of && !sli_grammar_failed(g); rest++)
    sli_chars_state(g, a, !rest); /* number 2 + rest */
  sli_chars_edge_add(g, a, begin, '-', '-', minus);
  for (int32_t state = 0; state < 2 + of; state++)
    for (int32_t d = 0; d < 10; d++) {
      int32_t rest = (int32_t)(((int64_t)SLI_MAX(state - 2, 0) * 10 + d) % of);
      sli_chars_edge_add(g, a, state, '0' + d, '0' + d, 2 + rest);
    }
  return sli_grammar_failed(g) ? NULL : a;
}

sli_chars *sli_numbers_places(sli_grammar *g, int places) {
  char pattern[64];
  snprintf(pattern, sizeof pattern, "-?[0-9]+(\\.[0-9]{1,%d}0*)?", places);
  return sli_chars_of_regex(g, NULL, pattern, false);
}

sli_chars *sli_numbers_all(sli_grammar *g, bool exponents) {
  return sli_chars_of_regex(g, NULL,
                            exponents ? "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?"
                                      : "-?(0|[1-9][0-9]*)(\\.[0-9]+)?",
                            false);
}

sli_chars *sli_numbers_whole(sli_grammar *g) {
  return sli_chars_of_regex(g, NULL, "-?(0|[1-9][0-9]*)", false);
}
