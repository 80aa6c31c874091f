/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation of a template's tree. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/template_inner.h"

enum { MOST_CALLS = 50 };

/* Variables set in a loop body, a macro or the template; `outer` is the enclosing scope. */
typedef struct scope {
  sli_dict names;
  struct scope *outer;
} scope;

typedef struct macro {
  const node *of;
  scope *home;
} macro;

typedef struct loop {
  const sli_list *items;
  size_t at;
  int depth;
} loop;

typedef struct run {
  sli_values *v;
  scope *here;
  sli_value block; /* input of the current filter block */
  int calls, loops;
  enum { GOES_ON, BREAKS, CONTINUES } jump;
} run;

static sli_value eval(run *r, const node *n);
static void execute(run *r, const node *all, text_buffer *out);

static sli_value text_value(const char *text) { return sli_value_span(text, strlen(text)); }

static sli_value fail(run *r, const char *what, sli_value a, sli_value b) {
  const sli_value *none = a.kind == SLI_UNDEFINED ? &a : b.kind == SLI_UNDEFINED ? &b : NULL;
  if (none)
    sli_values_fail(r->v, "\"%.*s\" is undefined", (int)SLI_MIN(none->text.bytes, (size_t)60),
                    none->text.at);
  else sli_values_fail(r->v, "%s of %s and %s", what, sli_value_kind(a), sli_value_kind(b));
  return sli_value_none();
}

/* ---- names ----------------------------------------------------------------------------------- */

static scope *inner_scope(run *r, scope *outer) {
  static scope none;
  scope *s = sli_values_room(r->v, sizeof *s);
  if (!s) return &none;
  s->outer = outer;
  return s;
}

static void assign(run *r, const char *name, sli_value value) {
  sli_dict_set(r->v, &r->here->names, text_value(name), value);
}

static sli_value name(run *r, const char *name) {
  sli_value out;
  for (scope *s = r->here; s; s = s->outer)
    if (sli_dict_get(r->v, &s->names, text_value(name), &out)) return out;
  if (sli_is_function(name)) return (sli_value){.kind = SLI_FUNCTION, .other = name};
  return sli_value_undefined(name);
}

/* Assigns a value to one name, or its items to several. */
static void unpack(run *r, const node *targets, sli_value value) {
  if (!targets->next) return assign(r, targets->name, value);
  sli_list *items = sli_value_items(r->v, value);
  size_t i = 0;
  for (const node *t = targets; t; t = t->next, i++)
    if (i < items->count) assign(r, t->name, items->items[i]);
  if (i != items->count) sli_values_fail(r->v, "%zu values for %zu names", items->count, i);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

static bool whole(sli_value v) { return v.kind == SLI_INT || v.kind == SLI_BOOL; }
static int64_t number_of(sli_value v) { return v.kind == SLI_BOOL ? v.truth : v.number; }

static int64_t floored(int64_t a, int64_t b) { return a / b - (a % b && (a < 0) != (b < 0)); }

static bool power(int64_t a, int64_t b, int64_t *out) {
  bool over = b < 0 || b > 64;
  for (*out = 1; b > 0 && !over; b--) over = __builtin_mul_overflow(*out, a, out);
  return over;
}

static sli_value whole_arithmetic(run *r, operator op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool over = false;
  if ((op == FLOOR_DIVIDE || op == REMAINDER || op == DIVIDE) && !b)
    return sli_values_fail(r->v, "a division by zero"), sli_value_none();
  switch (op) {
  case ADD: over = __builtin_add_overflow(a, b, &out); break;
  case SUBTRACT: over = __builtin_sub_overflow(a, b, &out); break;
  case MULTIPLY: over = __builtin_mul_overflow(a, b, &out); break;
  case DIVIDE: return sli_value_real((double)a / (double)b);
  case FLOOR_DIVIDE: over = a == INT64_MIN && b == -1, out = over ? 0 : floored(a, b); break;
  case REMAINDER: out = b == -1 ? 0 : a - floored(a, b) * b; break;
  default: over = power(a, b, &out);
  }
  if (over) sli_values_fail(r->v, "a number is too large");
  return sli_value_int(out);
}

static sli_value real_arithmetic(run *r, operator op, double a, double b) {
  if (op == DIVIDE && b == 0) return sli_values_fail(r->v, "a division by zero"), sli_value_none();
  switch (op) {
  case ADD: return sli_value_real(a + b);
  case SUBTRACT: return sli_value_real(a - b);
  case MULTIPLY: return sli_value_real(a * b);
  case DIVIDE: return sli_value_real(a / b);
  default: sli_values_fail(r->v, "this operation of numbers that are not whole is not supported");
  }
  return sli_value_none();
}

static sli_value lists_together(run *r, sli_value a, sli_value b) {
  sli_value out = sli_value_list(r->v);
  for (size_t i = 0; i < a.list->count; i++) sli_value_add(r->v, out, a.list->items[i]);
  for (size_t i = 0; i < b.list->count; i++) sli_value_add(r->v, out, b.list->items[i]);
  out.kind = a.kind;
  return out;
}

static sli_value texts_together(run *r, sli_value a, sli_value b) {
  text_buffer out = {0};
  sli_value_print(r->v, a, &out);
  sli_value_print(r->v, b, &out);
  return sli_buffer_value(&out);
}

static sli_value repeated(run *r, sli_value text, int64_t times) {
  text_buffer out = {0};
  while (times-- > 0 && text.text.bytes && sli_values_step(r->v, 1))
    sli_value_print(r->v, text, &out);
  return sli_buffer_value(&out);
}

static sli_value binary(run *r, operator op, sli_value a, sli_value b) {
  static const char *const names[] = {"a sum",      "a difference", "a product", "a quotient",
                                      "a quotient", "a remainder",  "a power"};
  if (op == JOIN) return texts_together(r, a, b);
  if (whole(a) && whole(b)) return whole_arithmetic(r, op, number_of(a), number_of(b));
  if (sli_value_is_number(a) && sli_value_is_number(b))
    return real_arithmetic(r, op, sli_value_as_real(a), sli_value_as_real(b));
  if (op == ADD && a.kind == SLI_TEXT && b.kind == SLI_TEXT) return texts_together(r, a, b);
  if (op == ADD && a.kind == b.kind && (a.kind == SLI_LIST || a.kind == SLI_TUPLE))
    return lists_together(r, a, b);
  if (op == MULTIPLY && a.kind == SLI_TEXT && whole(b)) return repeated(r, a, number_of(b));
  return fail(r, names[op], a, b);
}

static sli_value compare(run *r, operator op, sli_value a, sli_value b) {
  switch (op) {
  case EQUAL: return sli_value_bool(sli_value_equal(r->v, a, b));
  case UNEQUAL: return sli_value_bool(!sli_value_equal(r->v, a, b));
  case IN: return sli_value_bool(sli_value_in(r->v, a, b));
  case NOT_IN: return sli_value_bool(!sli_value_in(r->v, a, b));
  case LESS: return sli_value_bool(sli_value_compare(r->v, a, b) < 0);
  case LESS_EQUAL: return sli_value_bool(sli_value_compare(r->v, a, b) <= 0);
  case GREATER: return sli_value_bool(sli_value_compare(r->v, a, b) > 0);
  default: return sli_value_bool(sli_value_compare(r->v, a, b) >= 0);
  }
}

static sli_value negative(run *r, sli_value a) {
  if (a.kind == SLI_REAL) return sli_value_real(-a.real);
  return whole(a) ? whole_arithmetic(r, SUBTRACT, 0, number_of(a)) : fail(r, "a negative", a, a);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Evaluates a bound of a slice by Python's rules: negative counts from the end; clamped to
 * [least, most]. */
static int64_t bound(run *r, const node *n, int64_t count, int64_t otherwise, int64_t least,
                     int64_t most) {
  sli_value at = n ? eval(r, n) : sli_value_none();
  if (at.kind == SLI_NONE) return otherwise;
  if (at.kind != SLI_INT)
    return sli_values_fail(r->v, "a slice by %s", sli_value_kind(at)), otherwise;
  int64_t place = at.number < 0 ? SLI_MAX(at.number, -count - 1) + count : at.number;
  return SLI_MAX(least, SLI_MIN(place, most));
}

static sli_value slice(run *r, const node *n) {
  sli_value of = eval(r, n->a), step = n->otherwise ? eval(r, n->otherwise) : sli_value_int(1),
            out = sli_value_list(r->v);
  if (of.kind != SLI_LIST && of.kind != SLI_TUPLE && of.kind != SLI_TEXT)
    return fail(r, "a slice", of, of);
  sli_list *all = sli_value_items(r->v, of);
  int64_t count = (int64_t)all->count, by = step.kind == SLI_INT ? step.number : 0;
  if (step.kind == SLI_NONE) by = 1;
  if (!by || by < -INT32_MAX || by > INT32_MAX)
    return sli_values_fail(r->v, "a slice with this step is not supported"), out;
  bool down = by < 0;
  int64_t from =
      bound(r, n->b, count, down ? count - 1 : 0, down ? -1 : 0, down ? count - 1 : count);
  int64_t end = bound(r, n->c, count, down ? -1 : count, down ? -1 : 0, down ? count - 1 : count);
  for (int64_t i = from; (down ? i > end : i < end) && !r->v->status; i += by)
    sli_value_add(r->v, out, all->items[i]);
  if (of.kind != SLI_TEXT) return out.kind = of.kind, out;
  arguments none = {0};
  return sli_call_filter(r->v, "join", out, &none);
}

static sli_value of_loop(run *r, const loop *l, const char *name) {
  int64_t at = (int64_t)l->at, count = (int64_t)l->items->count;
  const struct {
    const char *name;
    sli_value value;
  } all[] = {
      {"index", sli_value_int(at + 1)},
      {"index0", sli_value_int(at)},
      {"revindex", sli_value_int(count - at)},
      {"revindex0", sli_value_int(count - at - 1)},
      {"first", sli_value_bool(!at)},
      {"last", sli_value_bool(at + 1 == count)},
      {"length", sli_value_int(count)},
      {"depth", sli_value_int(l->depth)},
      {"depth0", sli_value_int(l->depth - 1)},
      {"previtem", at ? l->items->items[at - 1] : sli_value_undefined("previtem")},
      {"nextitem", at + 1 < count ? l->items->items[at + 1] : sli_value_undefined("nextitem")}};
  for (size_t i = 0; i < SLI_COUNT(all); i++)
    if (!strcmp(all[i].name, name)) return all[i].value;
  sli_values_fail(r->v, "loop.%.40s is not known", name);
  return sli_value_none();
}

static sli_value attribute(run *r, const node *n) {
  sli_value of = eval(r, n->a);
  if (of.kind == SLI_LOOP) return of_loop(r, of.other, n->name);
  if (of.kind == SLI_DICT && sli_is_method(n->name) && strcmp(n->name, "index") &&
      strcmp(n->name, "title"))
    sli_values_fail(r->v, "the method %.40s of a dict is not called", n->name);
  return sli_value_at(r->v, of, text_value(n->name));
}

/* Evaluates an item by its key; for loops, an attribute. */
static sli_value subscript(run *r, const node *n) {
  sli_value of = eval(r, n->a), key = eval(r, n->b);
  if (of.kind == SLI_LOOP && key.kind == SLI_TEXT) return of_loop(r, of.other, key.text.at);
  return sli_value_at(r->v, of, key);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static arguments arguments_of(run *r, const node *items) {
  sli_value places = sli_value_list(r->v), named = {.kind = SLI_NONE};
  for (const node *n = items; n && !r->v->status; n = n->next) {
    if (!n->name) {
      sli_value_add(r->v, places, eval(r, n->a));
      continue;
    }
    if (named.kind == SLI_NONE) named = sli_value_dict(r->v);
    sli_dict_set(r->v, named.dict, text_value(n->name), eval(r, n->a));
  }
  return (arguments){places.list->items, places.list->count,
                     named.kind == SLI_NONE ? NULL : named.dict};
}

/* Binds a macro's parameters: positional, named, or default values. */
static void set_arguments(run *r, const node *of, const arguments *a) {
  size_t place = 0, found = 0;
  for (const node *n = of->a; n && !r->v->status; n = n->next, place++) {
    sli_value given = sli_value_undefined(n->name);
    bool by_name = a->named && sli_dict_get(r->v, a->named, text_value(n->name), &given);
    bool there = by_name || place < a->count;
    found += by_name;
    if (place < a->count) given = a->items[place];
    assign(r, n->name, there || !n->a ? given : eval(r, n->a));
  }
  if (a->count > place || (a->named && a->named->count > found))
    sli_values_fail(r->v, "macro %.40s has not as many arguments", of->name);
}

static sli_value call_macro(run *r, const macro *m, const arguments *a) {
  scope *outer = r->here;
  text_buffer out = {0};
  if (++r->calls > MOST_CALLS)
    sli_values_fail(r->v, "macros call each other more than %d deep", MOST_CALLS);
  r->here = inner_scope(r, m->home);
  set_arguments(r, m->of, a);
  if (!r->v->status) execute(r, m->of->items, &out);
  r->here = outer;
  r->calls--;
  return sli_buffer_value(&out);
}

static sli_value cycle(run *r, const loop *l, const arguments *a) {
  if (!a->count) return sli_values_fail(r->v, "loop.cycle of nothing"), sli_value_none();
  return a->items[l->at % a->count];
}

static sli_value call_method(run *r, const node *n) {
  sli_value subject = eval(r, n->a->a);
  arguments a = arguments_of(r, n->items);
  if (r->v->status) return subject;
  if (subject.kind == SLI_LOOP && !strcmp(n->a->name, "cycle")) return cycle(r, subject.other, &a);
  if (subject.kind == SLI_UNDEFINED) return fail(r, "a method", subject, subject);
  return sli_call_method(r->v, n->a->name, subject, &a);
}

static sli_value call(run *r, const node *n) {
  if (n->a->kind == ATTRIBUTE) return call_method(r, n);
  sli_value callee = eval(r, n->a);
  arguments a = arguments_of(r, n->items);
  if (r->v->status) return callee;
  r->v->line = n->line;
  if (callee.kind == SLI_FUNCTION) return sli_call_function(r->v, callee.other, &a);
  if (callee.kind == SLI_MACRO) return call_macro(r, callee.other, &a);
  return fail(r, "a call", callee, callee);
}

/* ---- expressions ----------------------------------------------------------------------------- */

static sli_value row(run *r, const node *n) {
  sli_value out = sli_value_list(r->v);
  for (const node *item = n->items; item && !r->v->status; item = item->next)
    sli_value_add(r->v, out, eval(r, item));
  if (n->kind == TUPLE) out.kind = SLI_TUPLE;
  return out;
}

static sli_value dict(run *r, const node *n) {
  sli_value out = sli_value_dict(r->v);
  for (const node *item = n->items; item && !r->v->status; item = item->next) {
    sli_value key = eval(r, item->a), value = eval(r, item->b);
    bool good = key.kind == SLI_TEXT || key.kind == SLI_NONE || sli_value_is_number(key);
    if (good) sli_dict_set(r->v, out.dict, key, value);
    else fail(r, "a key", key, key);
  }
  return out;
}

static sli_value filtered(run *r, const node *n) {
  sli_value subject = n->a ? eval(r, n->a) : r->block;
  arguments a = arguments_of(r, n->items);
  r->v->line = n->line;
  return r->v->status ? subject : sli_call_filter(r->v, n->name, subject, &a);
}

static sli_value tested(run *r, const node *n) {
  sli_value subject = eval(r, n->a);
  arguments a = arguments_of(r, n->items);
  return sli_value_bool(!r->v->status && sli_call_test(r->v, n->name, subject, &a) != n->negated);
}

static sli_value either(run *r, const node *n) {
  sli_value a = eval(r, n->a);
  return sli_value_is_true(a) == (n->kind == OR) ? a : eval(r, n->b);
}

static sli_value if_else(run *r, const node *n) {
  if (sli_value_is_true(eval(r, n->a))) return eval(r, n->b);
  return n->c ? eval(r, n->c) : sli_value_undefined("what has no else");
}

static sli_value operated(run *r, const node *n) {
  sli_value a = eval(r, n->a), b = eval(r, n->b);
  if (r->v->status) return a;
  r->v->line = n->line;
  return n->kind == COMPARE ? compare(r, n->op, a, b) : binary(r, n->op, a, b);
}

static sli_value eval(run *r, const node *n) {
  if (!sli_values_step(r->v, 1)) return sli_value_none();
  r->v->line = n->line;
  switch (n->kind) {
  case CONSTANT: return n->value;
  case NAME: return name(r, n->name);
  case LIST:
  case TUPLE: return row(r, n);
  case DICT: return dict(r, n);
  case ATTRIBUTE: return attribute(r, n);
  case SUBSCRIPT: return subscript(r, n);
  case SLICE: return slice(r, n);
  case CALL: return call(r, n);
  case FILTER: return filtered(r, n);
  case TEST: return tested(r, n);
  case NOT: return sli_value_bool(!sli_value_is_true(eval(r, n->a)));
  case NEGATIVE: return negative(r, eval(r, n->a));
  case POSITIVE: return eval(r, n->a);
  case AND:
  case OR: return either(r, n);
  case IF_ELSE: return if_else(r, n);
  default: return operated(r, n);
  }
}

/* ---- statements ------------------------------------------------------------------------------ */

/* Returns the items for which the loop's condition holds. */
static sli_value kept(run *r, const node *n, const sli_list *all) {
  sli_value out = sli_value_list(r->v);
  scope *outer = r->here;
  for (size_t i = 0; i < all->count && !r->v->status; i++) {
    r->here = inner_scope(r, outer);
    unpack(r, n->a, all->items[i]);
    if (sli_value_is_true(eval(r, n->c))) sli_value_add(r->v, out, all->items[i]);
  }
  r->here = outer;
  return out;
}

static void turns(run *r, const node *n, loop *l, text_buffer *out) {
  scope *outer = r->here;
  for (l->at = 0; l->at < l->items->count && sli_values_step(r->v, 1) && r->jump != BREAKS;
       l->at++) {
    r->jump = GOES_ON;
    r->here = inner_scope(r, outer);
    unpack(r, n->a, l->items->items[l->at]);
    assign(r, "loop", (sli_value){.kind = SLI_LOOP, .other = l});
    execute(r, n->items, out);
  }
  r->jump = GOES_ON;
  r->here = outer;
}

static void for_loop(run *r, const node *n, text_buffer *out) {
  const sli_list *all = sli_value_items(r->v, eval(r, n->b));
  loop *l = sli_values_room(r->v, sizeof *l);
  if (n->c) all = kept(r, n, all).list;
  if (!l || r->v->status) return;
  *l = (loop){.items = all, .depth = ++r->loops};
  turns(r, n, l, out);
  r->loops--;
  if (!all->count) execute(r, n->otherwise, out);
}

static void set(run *r, const node *n) {
  sli_value value = eval(r, n->b);
  if (n->a->kind != ATTRIBUTE) return unpack(r, n->a, value);
  sli_value of = name(r, n->a->name);
  if (of.kind != SLI_NAMESPACE || n->a->next)
    return sli_values_fail(r->v, "%.40s is no namespace", n->a->name);
  sli_dict_set(r->v, of.dict, n->a->a->value, value);
}

/* Renders a block in a scope of its own. */
static sli_value block(run *r, const node *n) {
  scope *outer = r->here;
  text_buffer out = {0};
  r->here = inner_scope(r, outer);
  execute(r, n->items, &out);
  r->here = outer;
  return sli_buffer_value(&out);
}

static void set_block(run *r, const node *n) {
  if (n->a->kind == ATTRIBUTE || n->a->next)
    return sli_values_fail(r->v, "a set block of more than a name is not supported");
  assign(r, n->a->name, block(r, n));
}

static void define(run *r, const node *n) {
  macro *m = sli_values_room(r->v, sizeof *m);
  if (!m) return;
  *m = (macro){n, r->here};
  assign(r, n->name, (sli_value){.kind = SLI_MACRO, .other = m});
}

static void filter_block(run *r, const node *n, text_buffer *out) {
  sli_value outer = r->block;
  r->block = block(r, n);
  sli_value_print(r->v, eval(r, n->a), out);
  r->block = outer;
}

static void one(run *r, const node *n, text_buffer *out) {
  r->v->line = n->line;
  switch (n->kind) {
  case OUTPUT: return sli_value_print(r->v, eval(r, n->a), out);
  case IF: return execute(r, sli_value_is_true(eval(r, n->a)) ? n->items : n->otherwise, out);
  case FOR: return for_loop(r, n, out);
  case SET: return set(r, n);
  case SET_BLOCK: return set_block(r, n);
  case MACRO: return define(r, n);
  case FILTER_BLOCK: return filter_block(r, n, out);
  default: r->jump = n->kind == BREAK ? BREAKS : CONTINUES;
  }
}

static void execute(run *r, const node *all, text_buffer *out) {
  for (const node *n = all; n && !r->jump && sli_values_step(r->v, 1); n = n->next) one(r, n, out);
}

sl_status sli_template_run(const sli_template *t, sli_values *v, sli_value names, char **out) {
  text_buffer text = {0};
  scope top = {.names = *names.dict};
  run r = {.v = v, .here = &top};
  execute(&r, t->body, &text);
  if (v->status) return v->status;
  if (!sli_take(v->memory.allowance, text.bytes + 1))
    return sl_fail(SL_E_MEMORY, "there is no memory for %zu bytes of text", text.bytes);
  *out = sli_strdup(text.bytes ? text.at : "");
  return SL_OK;
}
