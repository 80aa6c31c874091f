/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on integers and masks. Integers are i32, and results of int64 that do not fit end the run;
 * narrower types wrap around. Masks are i32 of 0 and 1. */
#include "pytorch/whole.h"

#include <math.h>
#include <string.h>

#include <sluice/functions.h>

#include "pytorch/emit.h"

/* How a call is made of functions of integers. */
typedef enum way {
  PAIR,     /* f(self, alpha other) */
  TURNED,   /* f(other, alpha self) */
  ALONE,    /* f(self, number) */
  LOGICAL,  /* f of the arguments as masks */
  DISTANCE, /* max(self, -self) */
  BOUNDS,   /* between min and max */
  CHOICE,   /* where, masked_fill */
  REDUCED,  /* f along dims */
  MASKS     /* f along dims, of masks */
} way;

static const struct whole_call {
  const char *name; /* of the call, without overload */
  way way;
  int function;
  double number;
} calls[] = {
    {"add", PAIR, SLI_WHOLE_add, 0},
    {"sub", PAIR, SLI_WHOLE_sub, 0},
    {"subtract", PAIR, SLI_WHOLE_sub, 0},
    {"rsub", TURNED, SLI_WHOLE_sub, 0},
    {"mul", PAIR, SLI_WHOLE_mul, 0},
    {"multiply", PAIR, SLI_WHOLE_mul, 0},
    {"floor_divide", PAIR, SLI_WHOLE_floor_div, 0},
    {"remainder", PAIR, SLI_WHOLE_remainder, 0},
    {"fmod", PAIR, SLI_WHOLE_fmod, 0},
    {"maximum", PAIR, SLI_WHOLE_max, 0},
    {"minimum", PAIR, SLI_WHOLE_min, 0},
    {"fmax", PAIR, SLI_WHOLE_max, 0},
    {"fmin", PAIR, SLI_WHOLE_min, 0},
    {"pow", PAIR, SLI_WHOLE_pow, 0},
    {"__and__", PAIR, SLI_WHOLE_bits_and, 0},
    {"bitwise_and", PAIR, SLI_WHOLE_bits_and, 0},
    {"__or__", PAIR, SLI_WHOLE_bits_or, 0},
    {"bitwise_or", PAIR, SLI_WHOLE_bits_or, 0},
    {"__xor__", PAIR, SLI_WHOLE_bits_xor, 0},
    {"bitwise_xor", PAIR, SLI_WHOLE_bits_xor, 0},
    {"bitwise_left_shift", PAIR, SLI_WHOLE_shift_left, 0},
    {"__lshift__", PAIR, SLI_WHOLE_shift_left, 0},
    {"bitwise_right_shift", PAIR, SLI_WHOLE_shift_right, 0},
    {"__rshift__", PAIR, SLI_WHOLE_shift_right, 0},
    {"neg", ALONE, SLI_WHOLE_mul, -1},
    {"negative", ALONE, SLI_WHOLE_mul, -1},
    {"relu", ALONE, SLI_WHOLE_max, 0},
    {"square", ALONE, SLI_WHOLE_pow, 2},
    {"bitwise_not", ALONE, SLI_WHOLE_bits_xor, -1},
    {"abs", DISTANCE, SLI_WHOLE_max, 0},
    {"absolute", DISTANCE, SLI_WHOLE_max, 0},
    {"clamp", BOUNDS, 0, 0},
    {"clamp_min", BOUNDS, 0, 0},
    {"clamp_max", BOUNDS, 0, 0},
    {"where", CHOICE, 0, 0},
    {"masked_fill", CHOICE, 0, 0},
    {"amax", REDUCED, SLI_WHOLE_max, 0},
    {"amin", REDUCED, SLI_WHOLE_min, 0},
    {"sum", REDUCED, SLI_WHOLE_add, 0},
    {"prod", REDUCED, SLI_WHOLE_mul, 0},
    {"max", REDUCED, SLI_WHOLE_max, 0},
    {"min", REDUCED, SLI_WHOLE_min, 0},
    {"logical_and", LOGICAL, SLI_WHOLE_bits_and, 0},
    {"logical_or", LOGICAL, SLI_WHOLE_bits_or, 0},
    {"logical_xor", LOGICAL, SLI_WHOLE_bits_xor, 0},
    {"logical_not", LOGICAL, SLI_WHOLE_bits_xor, 1},
    {"any", MASKS, SLI_WHOLE_max, 0},
    {"all", MASKS, SLI_WHOLE_min, 0},
};

/* div(self, other, rounding_mode). */
static const struct whole_call division = {"div", PAIR, SLI_WHOLE_floor_div, 0};

static const struct whole_call *find_call(const char *target) {
  if (strncmp(target, "aten.", 5) != 0) return NULL;
  size_t length = strcspn(target + 5, ".");
  for (size_t i = 0; i < SLI_COUNT(calls); i++)
    if (strlen(calls[i].name) == length && !strncmp(target + 5, calls[i].name, length))
      return &calls[i];
  return NULL;
}

static sli_whole_range range_of(sli_pt_dtype dtype) {
  switch ((int)dtype) {
  case SLI_PT_BOOL: return SLI_WHOLE_BOOL;
  case SLI_PT_U8: return SLI_WHOLE_U8;
  case SLI_PT_I8: return SLI_WHOLE_I8;
  case SLI_PT_I16: return SLI_WHOLE_I16;
  case SLI_PT_I32: return SLI_WHOLE_I32;
  default: return SLI_WHOLE_CHECKED;
  }
}

/* ---- operands --------------------------------------------------------------------------- */

/* Makes a tensor of one integer. */
static sl_tensor *integer(sli_import *m, const sl_tensor *like, int64_t v) {
  if (!like || v != (int32_t)v) return NULL;
  int32_t *of = sl_graph_alloc(m->g, sizeof *of);
  *of = (int32_t)v;
  sl_type type = {.dtype = SL_I32, .ndim = like->type.ndim ? 1 : 0, .dim = {1}};
  return sl_constant_at(m->at, m->g, type, of, NULL);
}

static sl_tensor *combine(sli_import *m, int function, sli_whole_range range, sl_tensor *a,
                          sl_tensor *b) {
  const sl_attrs attrs = {.function.number = function, .function.range = range};
  return sl_op2_at(m->at, m->g, &sl_op_whole, &attrs, a, b);
}

sl_tensor *sli_pt_wrapped(sli_import *m, sl_tensor *t, sli_pt_dtype dtype) {
  sli_whole_range range = range_of(dtype);
  if (!t || range == SLI_WHOLE_CHECKED || range == SLI_WHOLE_I32) return t;
  return combine(m, SLI_WHOLE_add, range, t, integer(m, t, 0));
}

sl_tensor *sli_pt_from_end(sli_import *m, sl_tensor *t, int64_t length) {
  return combine(m, SLI_WHOLE_position, SLI_WHOLE_I32, t, integer(m, t, length));
}

sl_tensor *sli_pt_truth(sli_import *m, sl_tensor *t, sli_pt_dtype dtype) {
  t = sli_pt_narrow(m, t);
  if (!t || (dtype == SLI_PT_BOOL && t->type.dtype == SL_I32)) return t;
  sl_tensor *zero = t->type.dtype == SL_I32 ? integer(m, t, 0) : sli_pt_filled_like(m, t, 0);
  return sl_op2_at(m->at, m->g, &sl_op_ne, NULL, t, zero);
}

/* Finds an argument as i32, to be combined with another. Returns NULL for a number with a
 * fraction. */
static sl_tensor *operand(sli_import *m, const sli_pt_node *n, const char *name,
                          const sli_pt_value *other) {
  const sli_pt_value *v = sli_pt_arg_value(n, name);
  const sli_pt_array *a = v ? sli_constant(m, v) : NULL;
  sl_tensor *beside = other && (!v || a) ? sli_pt_i32(m, other) : NULL;
  if (!v) {
    double number = sli_pt_number(m, n, name, NAN);
    return number == trunc(number) && fabs(number) <= INT32_MAX
               ? integer(m, beside, (int64_t)number)
               : NULL;
  }
  if (!a) return sli_pt_i32(m, v);
  return beside ? sli_pt_constant_beside(m, a, &other->type, beside) : NULL;
}

static sl_tensor *argument(sli_import *m, const sli_pt_node *n, const char *name,
                           const char *beside) {
  sl_tensor *t = operand(m, n, name, sli_pt_arg_value(n, beside));
  if (!t && !m->g->status)
    sli_pt_refuse(m, n, "%s is not an integer of 32 bits, but is combined with integers", name);
  return t;
}

bool sli_pt_integers(sli_import *m, const sli_pt_node *n, const char *left, const char *right,
                     sl_tensor *out[2]) {
  const char *const names[] = {left, right};
  for (int i = 0; i < 2; i++) {
    const sli_pt_value *v = sli_pt_arg_value(n, names[i]);
    double number = v ? 0 : sli_pt_number(m, n, names[i], NAN);
    if (v ? sli_pt_floats(v->type.dtype) : !(number == trunc(number) && fabs(number) <= INT32_MAX))
      return false;
  }
  for (int i = 0; i < 2; i++) out[i] = operand(m, n, names[i], sli_pt_arg_value(n, names[1 - i]));
  return true;
}

/* ---- calls ------------------------------------------------------------------------------ */

static sl_tensor *emit_pair(sli_import *m, const sli_pt_node *n, const struct whole_call *of,
                            sli_whole_range range) {
  const char *right = sli_pt_arg_peek(n, "exponent") ? "exponent" : "other", *left = "self";
  const char *a_name = of->way == TURNED ? right : left, *b_name = of->way == TURNED ? left : right;
  sl_tensor *a = argument(m, n, a_name, b_name), *b = argument(m, n, b_name, a_name);
  int64_t alpha = sli_pt_whole(m, n, "alpha", 1);
  if (alpha != 1) b = combine(m, SLI_WHOLE_mul, range, b, integer(m, b, alpha));
  int function = of->function;
  const sli_pt_arg *mode = sli_pt_arg_find(n, "rounding_mode");
  if (mode && mode->kind == SLI_PT_TEXT)
    function = strcmp(mode->text, "floor") ? SLI_WHOLE_trunc_div : SLI_WHOLE_floor_div;
  return combine(m, function, range, a, b);
}

static sl_tensor *emit_logical(sli_import *m, const sli_pt_node *n, const struct whole_call *of) {
  const sli_pt_value *x = sli_pt_arg_value(n, "self"), *y = sli_pt_arg_value(n, "other");
  sl_tensor *a, *b;
  if (of->number != 0) {
    a = sli_pt_truth(m, sli_pt_tensor(m, x), x->type.dtype);
    b = integer(m, a, (int64_t)of->number);
  } else {
    if (!x || !y) return NULL;
    a = sli_pt_truth(m, sli_constant(m, x) ? sli_pt_operand(m, n, "self", y) : sli_pt_tensor(m, x),
                     sli_constant(m, x) ? SLI_PT_F32 : x->type.dtype);
    b = sli_pt_truth(m, sli_constant(m, y) ? sli_pt_operand(m, n, "other", x) : sli_pt_tensor(m, y),
                     sli_constant(m, y) ? SLI_PT_F32 : y->type.dtype);
  }
  return combine(m, of->function, SLI_WHOLE_BOOL, a, b);
}

static sl_tensor *emit_bounds(sli_import *m, const sli_pt_node *n, sli_whole_range range) {
  sl_tensor *x = argument(m, n, "self", "self");
  if (x && sli_pt_arg_peek(n, "min"))
    x = combine(m, SLI_WHOLE_max, range, x, argument(m, n, "min", "self"));
  if (x && sli_pt_arg_peek(n, "max"))
    x = combine(m, SLI_WHOLE_min, range, x, argument(m, n, "max", "self"));
  return x;
}

/* b ^ ((a ^ b) & -c): a where the mask is 1, else b. */
static sl_tensor *emit_choice(sli_import *m, const sli_pt_node *n, sli_whole_range range) {
  bool fills = sli_pt_arg_peek(n, "mask") != NULL;
  const char *mask = fills ? "mask" : "condition", *yes = fills ? "value" : "self",
             *no = fills ? "self" : "other";
  const sli_pt_value *values[] = {sli_pt_arg_value(n, mask), sli_pt_arg_value(n, yes),
                                  sli_pt_arg_value(n, no)};
  const sli_pt_value *widest = NULL;
  for (int i = 0; i < 3; i++)
    if (values[i] && !sli_constant(m, values[i]) &&
        (!widest || sli_pt_elements(&values[i]->type) > sli_pt_elements(&widest->type)))
      widest = values[i];
  sl_tensor *c = operand(m, n, mask, widest), *a = operand(m, n, yes, widest),
            *b = operand(m, n, no, widest);
  if (!a || !b || !c) {
    if (!m->g->status) sli_pt_refuse(m, n, "a choice is not an integer of 32 bits");
    return NULL;
  }
  c = combine(m, SLI_WHOLE_mul, SLI_WHOLE_I32, c, integer(m, c, -1));
  sl_tensor *off = combine(m, SLI_WHOLE_bits_xor, SLI_WHOLE_I32, a, b);
  return combine(m, SLI_WHOLE_bits_xor, range, b,
                 combine(m, SLI_WHOLE_bits_and, SLI_WHOLE_I32, off, c));
}

static sl_tensor *emit_reduced(sli_import *m, const sli_pt_node *n, const struct whole_call *of,
                               sli_whole_range range) {
  const sli_pt_value *x = sli_pt_first(n);
  sl_tensor *t =
      of->way == MASKS ? sli_pt_truth(m, sli_pt_tensor(m, x), x->type.dtype) : sli_pt_i32(m, x);
  const sl_attrs attrs = {.function.number = of->function,
                          .function.range = range,
                          .along.axes = sli_pt_axes(m, n, "dim", x->type.ndim),
                          .along.keep = sli_pt_flag(n, "keepdim", false)};
  (void)sli_pt_type_arg(n, "dtype");
  return t && t->type.ndim ? sl_op1_at(m->at, m->g, &sl_op_whole_reduce, &attrs, t) : t;
}

/* Returns whether all tensors of a call, and its result, are integers or masks. */
static bool all_whole(const sli_pt_node *n) {
  bool whole = n->nouts == 1 && n->outs[0] && !sli_pt_floats(n->outs[0]->type.dtype);
  for (int i = 0; i < n->nargs; i++)
    if (n->args[i].kind == SLI_PT_VALUE && !n->args[i].value->symbol)
      whole &= !sli_pt_floats(n->args[i].value->type.dtype);
  return whole;
}

/* A sum over rows stays a number, which devices can add. */
static bool sums_rows(const sli_import *m, const sli_pt_node *n, const struct whole_call *of) {
  const sli_pt_value *x = sli_pt_first(n);
  return of->function == SLI_WHOLE_add && of->way == REDUCED &&
         (!x->type.ndim || (sli_pt_axes(m, n, "dim", x->type.ndim) & 1));
}

bool sli_pt_emit_whole(sli_import *m, const sli_pt_node *n) {
  const struct whole_call *of = find_call(n->target);
  if (!strcmp(n->target, "aten.div.Tensor_mode") || !strcmp(n->target, "aten.div.Scalar_mode"))
    of = &division;
  bool logical = of && (of->way == LOGICAL || of->way == MASKS);
  const sli_pt_value *x = sli_pt_first(n);
  if (!of || (!logical && !all_whole(n)) || (x && sli_made_of(m, x)->sorted)) return false;
  if (x && sums_rows(m, n, of)) return false;
  sli_whole_range range = range_of(n->outs[0]->type.dtype);
  sl_tensor *y = NULL;
  bool pair = of->way == REDUCED && sli_pt_arg_peek(n, "other"); /* max(self, other) */
  switch (pair ? PAIR : of->way) {
  case PAIR:
  case TURNED: y = emit_pair(m, n, of, range); break;
  case ALONE: {
    sl_tensor *t = argument(m, n, "self", "self");
    y = combine(m, of->function, range, t,
                integer(m, t, range == SLI_WHOLE_BOOL ? 1 : (int64_t)of->number));
    break;
  }
  case DISTANCE: {
    sl_tensor *t = argument(m, n, "self", "self");
    y = combine(m, of->function, range, t, combine(m, SLI_WHOLE_mul, range, t, integer(m, t, -1)));
    break;
  }
  case LOGICAL: y = emit_logical(m, n, of); break;
  case BOUNDS: y = emit_bounds(m, n, range); break;
  case CHOICE: y = emit_choice(m, n, range); break;
  case REDUCED:
  case MASKS: y = emit_reduced(m, n, of, range); break;
  }
  sli_pt_out(m, n, 0, y);
  return true;
}

void sli_emit_any(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  sli_emit_whole(m, n, row);
}

void sli_emit_whole(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sli_pt_refuse(m, n, "its arguments are not integers or masks");
}
