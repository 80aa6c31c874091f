/* SPDX-License-Identifier: Apache-2.0 */
/* Python's operators on values. */
#include <math.h>
#include <stdlib.h>

#include "text/template/template_inner.h"

static sli_value fail(sli_values *v, const char *what, sli_value a, sli_value b) {
  const sli_value *none = a.kind == SLI_UNDEFINED ? &a : b.kind == SLI_UNDEFINED ? &b : NULL;
  if (none)
    sli_values_fail(v, "\"%.*s\" is undefined", (int)SLI_MIN(none->text.bytes, (size_t)60),
                    none->text.at);
  else sli_values_fail(v, "%s of %s and %s", what, sli_value_kind(a), sli_value_kind(b));
  return sli_value_none();
}

/* ---- numbers --------------------------------------------------------------------------------- */

static bool whole(sli_value v) { return v.kind == SLI_INT || v.kind == SLI_BOOL; }
static int64_t number_of(sli_value v) { return v.kind == SLI_BOOL ? v.truth : v.number; }

static int64_t floored(int64_t a, int64_t b) { return a / b - (a % b && (a < 0) != (b < 0)); }

static bool power(int64_t a, int64_t b, int64_t *out) {
  bool small = a >= -1 && a <= 1, over = b > 64 && !small;
  if (small) b = b > 64 ? 64 + b % 2 : b;
  for (*out = 1; b > 0 && !over; b--) over = __builtin_mul_overflow(*out, a, out);
  return over;
}

static sli_value whole_arithmetic(sli_values *v, operator op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool over = false;
  if ((op == FLOOR_DIVIDE || op == REMAINDER || op == DIVIDE) && !b)
    return sli_values_fail(v, "division by zero"), sli_value_none();
  switch (op) {
  case ADD: over = __builtin_add_overflow(a, b, &out); break;
  case SUBTRACT: over = __builtin_sub_overflow(a, b, &out); break;
  case MULTIPLY: over = __builtin_mul_overflow(a, b, &out); break;
  case DIVIDE: return sli_value_real((double)a / (double)b);
  case FLOOR_DIVIDE: over = a == INT64_MIN && b == -1, out = over ? 0 : floored(a, b); break;
  case REMAINDER: out = b == -1 ? 0 : a - floored(a, b) * b; break;
  default:
    if (b < 0) return sli_operate(v, POWER, sli_value_real((double)a), sli_value_real((double)b));
    over = power(a, b, &out);
  }
  if (over) sli_values_fail(v, "number too large");
  return sli_value_int(out);
}

/* Computes the remainder as Python does, with the sign of b. */
static double remainder_of(double a, double b) {
  double out = fmod(a, b);
  if (out && (out < 0) != (b < 0)) return out + b;
  return out ? out : copysign(0, b);
}

/* Computes a quotient rounded down as Python does, from an exact remainder. */
static double floor_quotient(double a, double b) {
  double q = (a - remainder_of(a, b)) / b, down = floor(q);
  if (!q) return copysign(0, a / b);
  return q - down > 0.5 ? down + 1 : down;
}

static sli_value real_power(sli_values *v, double a, double b) {
  double out = pow(a, b);
  if (!a && b < 0) sli_values_fail(v, "division by zero");
  else if (a < 0 && b != floor(b)) sli_values_fail(v, "a power is not a real number");
  else if (isinf(out) && !isinf(a) && !isinf(b)) sli_values_fail(v, "number too large");
  return sli_value_real(out);
}

static sli_value real_arithmetic(sli_values *v, operator op, double a, double b) {
  if ((op == DIVIDE || op == FLOOR_DIVIDE || op == REMAINDER) && b == 0)
    return sli_values_fail(v, "division by zero"), sli_value_none();
  switch (op) {
  case ADD: return sli_value_real(a + b);
  case SUBTRACT: return sli_value_real(a - b);
  case MULTIPLY: return sli_value_real(a * b);
  case DIVIDE: return sli_value_real(a / b);
  case FLOOR_DIVIDE: return sli_value_real(floor_quotient(a, b));
  case REMAINDER: return sli_value_real(remainder_of(a, b));
  default: return real_power(v, a, b);
  }
}

sli_value sli_negative(sli_values *v, sli_value a) {
  if (a.kind == SLI_REAL) return sli_value_real(-a.real);
  return whole(a) ? whole_arithmetic(v, SUBTRACT, 0, number_of(a)) : fail(v, "a negative", a, a);
}

/* ---- texts and lists ------------------------------------------------------------------------- */

static sli_value lists_together(sli_values *v, sli_value a, sli_value b) {
  sli_value out = sli_value_list(v);
  for (size_t i = 0; i < a.list->count; i++) sli_value_add(v, out, a.list->items[i]);
  for (size_t i = 0; i < b.list->count; i++) sli_value_add(v, out, b.list->items[i]);
  out.kind = a.kind;
  return out;
}

static sli_value texts_together(sli_values *v, sli_value a, sli_value b) {
  text_buffer out = {0};
  sli_value_print(v, a, &out);
  sli_value_print(v, b, &out);
  return sli_buffer_value(&out);
}

static sli_value text_repeated(sli_values *v, sli_value text, int64_t times) {
  text_buffer out = {0};
  while (times-- > 0 && text.text.bytes && sli_values_step(v, 1)) sli_value_print(v, text, &out);
  return sli_buffer_value(&out);
}

static sli_value list_repeated(sli_values *v, sli_value list, int64_t times) {
  sli_value out = sli_value_list(v);
  while (times-- > 0 && list.list->count && sli_values_step(v, list.list->count))
    for (size_t i = 0; i < list.list->count; i++) sli_value_add(v, out, list.list->items[i]);
  out.kind = list.kind;
  return out;
}

static sli_value product(sli_values *v, sli_value a, sli_value b) {
  if (whole(a)) return product(v, b, a);
  if (a.kind == SLI_TEXT && whole(b)) return text_repeated(v, a, number_of(b));
  if (sli_value_is_row(a) && whole(b)) return list_repeated(v, a, number_of(b));
  return fail(v, "a product", a, b);
}

/* ---- all ------------------------------------------------------------------------------------- */

static sli_value arithmetic(sli_values *v, operator op, sli_value a, sli_value b) {
  static const char *const names[] = {"a sum",      "a difference", "a product", "a quotient",
                                      "a quotient", "a remainder",  "a power"};
  if (whole(a) && whole(b)) return whole_arithmetic(v, op, number_of(a), number_of(b));
  if (sli_value_is_number(a) && sli_value_is_number(b))
    return real_arithmetic(v, op, sli_value_as_real(a), sli_value_as_real(b));
  if (op == ADD && a.kind == SLI_TEXT && b.kind == SLI_TEXT) return texts_together(v, a, b);
  if (op == ADD && a.kind == b.kind && sli_value_is_row(a)) return lists_together(v, a, b);
  if (op == MULTIPLY && (whole(a) || whole(b))) return product(v, a, b);
  if (op == REMAINDER && a.kind == SLI_TEXT) return sli_format_percent(v, a, b);
  return fail(v, names[op], a, b);
}

/* Compares by order. Undefined values have none. */
static int order(sli_values *v, sli_value a, sli_value b) {
  if (a.kind != SLI_UNDEFINED && b.kind != SLI_UNDEFINED) return sli_value_compare(v, a, b);
  fail(v, "an order", a, b);
  return 0;
}

sli_value sli_operate(sli_values *v, operator op, sli_value a, sli_value b) {
  switch (op) {
  case JOIN: return texts_together(v, a, b);
  case EQUAL: return sli_value_bool(sli_value_equal(v, a, b));
  case UNEQUAL: return sli_value_bool(!sli_value_equal(v, a, b));
  case IN: return sli_value_bool(sli_value_in(v, a, b));
  case NOT_IN: return sli_value_bool(!sli_value_in(v, a, b));
  case LESS: return sli_value_bool(order(v, a, b) < 0);
  case LESS_EQUAL: return sli_value_bool(order(v, a, b) <= 0);
  case GREATER: return sli_value_bool(order(v, a, b) > 0);
  case GREATER_EQUAL: return sli_value_bool(order(v, a, b) >= 0);
  default: return arithmetic(v, op, a, b);
  }
}
