/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation of a template's tree. */
#include <stdlib.h>
#include <string.h>

#include "text/template/template_inner.h"

/* Variables set in a loop body, a macro or the template; `outer` is the enclosing scope. */
typedef struct scope {
  sli_dict names;
  struct scope *outer;
} scope;

typedef struct macro {
  const node *node;
  scope *home;
} macro;

typedef struct loop {
  const sli_list *items;
  size_t at;
  int depth;
  const node *node;
  scope *home;
  sli_value seen; /* last arguments of loop.changed() */
} loop;

typedef struct run {
  sli_values *v;
  scope *here;
  sli_value block; /* input of the current filter block */
  int calls, levels;
  const text_buffer *whole; /* the whole text */
  sli_text_spans *answers;  /* parts of it that are answers; NULL if not wanted */
  enum { GOES_ON, BREAKS, CONTINUES } jump;
} run;

static sli_value eval(run *r, const node *n);
static void execute(run *r, const node *all, text_buffer *out);
static void loop_over(run *r, const node *n, const sli_list *all, int depth, text_buffer *out);

static sli_value text_value(const char *text) { return sli_value_span(text, strlen(text)); }

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

static void set_attribute(run *r, const node *n, sli_value value) {
  sli_value of = name(r, n->name);
  if (of.kind != SLI_NAMESPACE) sli_values_fail(r->v, "%.40s is not a namespace", n->name);
  else sli_dict_set(r->v, of.dict, n->value, value);
}

/* Assigns a value to one target, or its items to several. */
static void unpack(run *r, const node *target, sli_value value) {
  if (target->kind == ATTRIBUTE) return set_attribute(r, target, value);
  if (target->kind != TUPLE) return assign(r, target->name, value);
  const sli_list *items = sli_value_items(r->v, value);
  size_t i = 0;
  for (const node *t = target->items; t; t = t->next, i++)
    if (i < items->count) unpack(r, t, items->items[i]);
  if (i != items->count)
    sli_values_fail(r->v, "cannot unpack %zu values into %zu names", items->count, i);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Evaluates a bound of a slice by Python's rules: a negative one counts from the end. Clamps it to
 * [least, most]. */
static int64_t bound(run *r, const node *n, int64_t count, int64_t otherwise, int64_t least,
                     int64_t most) {
  sli_value at = n ? eval(r, n) : sli_value_none();
  if (at.kind == SLI_NONE) return otherwise;
  if (at.kind != SLI_INT)
    return sli_values_fail(r->v, "cannot slice by %s", sli_value_kind(at)), otherwise;
  int64_t place = at.number < 0 ? SLI_MAX(at.number, -count - 1) + count : at.number;
  return SLI_MAX(least, SLI_MIN(place, most));
}

static sli_value slice(run *r, const node *n) {
  sli_value of = eval(r, n->a), step = n->otherwise ? eval(r, n->otherwise) : sli_value_int(1),
            out = sli_value_list(r->v);
  if (!sli_value_is_row(of) && of.kind != SLI_TEXT) {
    if (of.kind == SLI_UNDEFINED) return sli_value_at(r->v, of, step); /* fails */
    sli_values_fail(r->v, "cannot slice %s", sli_value_kind(of));
    return of;
  }
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

static sli_value of_loop(const loop *l, const char *name) {
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
  return sli_value_undefined(name);
}

/* Returns a placeholder for a method that is not called: templates only test whether it exists. */
static sli_value method_value(void) {
  return (sli_value){.kind = SLI_FUNCTION, .other = "a method"};
}

/* Evaluates an attribute. As in Jinja, a method takes precedence over a member of a dict. */
static sli_value attribute(run *r, const node *n) {
  sli_value of = eval(r, n->a), key = text_value(n->name);
  if (of.kind == SLI_LOOP) return of_loop(of.other, n->name);
  return sli_has_method(of, key) ? method_value() : sli_value_at(r->v, of, key);
}

/* Evaluates an item by its key. As in Jinja, falls back to an attribute of that name. */
static sli_value subscript(run *r, const node *n) {
  sli_value of = eval(r, n->a), key = eval(r, n->b);
  if (of.kind == SLI_LOOP && key.kind == SLI_TEXT) return of_loop(of.other, key.text.at);
  sli_value out = sli_value_at(r->v, of, key);
  return out.kind == SLI_UNDEFINED && sli_has_method(of, key) ? method_value() : out;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void add_named(run *r, sli_value *named, sli_value key, sli_value value) {
  if (named->kind == SLI_NONE) *named = sli_value_dict(r->v);
  sli_dict_set(r->v, named->dict, key, value);
}

/* Adds the items of *list, or the members of **dict. */
static void unpack_argument(run *r, const node *n, sli_value places, sli_value *named) {
  sli_value all = eval(r, n->a);
  if (r->v->status) return;
  if (n->as == UNPACKED_LIST) {
    const sli_list *items = sli_value_items(r->v, all);
    for (size_t i = 0; i < items->count; i++) sli_value_add(r->v, places, items->items[i]);
    return;
  }
  if (all.kind != SLI_DICT)
    return sli_values_fail(r->v, "cannot take arguments from %s", sli_value_kind(all));
  for (size_t i = 0; i < all.dict->count && !r->v->status; i++) {
    sli_value key = all.dict->items[i].key;
    if (key.kind == SLI_TEXT) add_named(r, named, key, all.dict->items[i].value);
    else sli_values_fail(r->v, "the name of an argument must not be %s", sli_value_kind(key));
  }
}

static arguments arguments_of(run *r, const node *items) {
  sli_value places = sli_value_list(r->v), named = {.kind = SLI_NONE};
  for (const node *n = items; n && !r->v->status; n = n->next) {
    if (n->as != GIVEN) unpack_argument(r, n, places, &named);
    else if (!n->name) sli_value_add(r->v, places, eval(r, n->a));
    else add_named(r, &named, text_value(n->name), eval(r, n->a));
  }
  return (arguments){places.list->items, places.list->count,
                     named.kind == SLI_NONE ? NULL : named.dict};
}

static bool is_parameter(const node *of, sli_value name) {
  for (const node *n = of->a; n; n = n->next)
    if (sli_text_is(name, n->name)) return true;
  return false;
}

/* Binds the arguments that no parameter takes, as varargs, kwargs and caller. */
static void set_rest(run *r, const node *of, const arguments *a, size_t places) {
  sli_value all = sli_value_list(r->v), others = sli_value_dict(r->v);
  for (size_t i = places; i < a->count; i++) sli_value_add(r->v, all, a->items[i]);
  for (size_t i = 0; a->named && i < a->named->count; i++) {
    sli_value key = a->named->items[i].key, value = a->named->items[i].value;
    if (is_parameter(of, key)) continue;
    if (sli_text_is(key, "caller") && of->rest & REST_CALLER) assign(r, "caller", value);
    else sli_dict_set(r->v, others.dict, key, value);
  }
  all.kind = SLI_TUPLE;
  if (of->rest & REST_LIST) assign(r, "varargs", all);
  else if (all.list->count) sli_values_fail(r->v, "macro %.40s takes fewer arguments", of->name);
  if (of->rest & REST_DICT) assign(r, "kwargs", others);
  else if (others.dict->count)
    sli_values_fail(r->v, "macro %.40s has no argument %.*s", of->name,
                    (int)SLI_MIN(others.dict->items[0].key.text.bytes, (size_t)40),
                    others.dict->items[0].key.text.at);
}

/* Binds a macro's parameters: positional, named, or default values. */
static void set_arguments(run *r, const node *of, const arguments *a) {
  size_t place = 0;
  for (const node *n = of->a; n && !r->v->status; n = n->next, place++) {
    sli_value given = sli_value_undefined(n->name);
    bool by_name = a->named && sli_dict_get(r->v, a->named, text_value(n->name), &given);
    if (by_name && place < a->count)
      sli_values_fail(r->v, "macro %.40s gets %.40s twice", of->name, n->name);
    if (place < a->count) given = a->items[place];
    else if (!by_name && n->a) given = eval(r, n->a);
    assign(r, n->name, given);
  }
  set_rest(r, of, a, place);
}

/* Counts a nested call. Returns false if there are too many. */
static bool enter_call(run *r) {
  if (++r->calls > SLI_TEMPLATE_CALLS)
    sli_values_fail(r->v, "macros are nested more than %d calls deep", SLI_TEMPLATE_CALLS);
  return !r->v->status;
}

static sli_value call_macro(run *r, const macro *m, const arguments *a) {
  scope *outer = r->here;
  text_buffer out = {0};
  if (enter_call(r)) {
    r->here = inner_scope(r, m->home);
    set_arguments(r, m->node, a);
    execute(r, m->node->items, &out);
    r->here = outer;
  }
  r->calls--;
  return sli_buffer_value(&out);
}

/* Runs a recursive loop over other items. */
static sli_value call_loop(run *r, const loop *l, const arguments *a) {
  scope *outer = r->here;
  text_buffer out = {0};
  if (a->count != 1 || !l->node->recursive)
    sli_values_fail(r->v, "a loop was called that is not recursive, or without one argument");
  if (enter_call(r)) {
    r->here = l->home;
    loop_over(r, l->node, sli_value_items(r->v, a->items[0]), l->depth + 1, &out);
    r->here = outer;
  }
  r->calls--;
  return sli_buffer_value(&out);
}

static sli_value cycle(run *r, const loop *l, const arguments *a) {
  if (!a->count) return sli_values_fail(r->v, "loop.cycle needs arguments"), sli_value_none();
  return a->items[l->at % a->count];
}

/* Returns whether the arguments differ from those of the previous call. */
static sli_value changed(run *r, loop *l, const arguments *a) {
  sli_value all = sli_value_list(r->v), before = l->seen;
  for (size_t i = 0; i < a->count; i++) sli_value_add(r->v, all, a->items[i]);
  l->seen = all;
  return sli_value_bool(before.kind != SLI_LIST || !sli_value_equal(r->v, all, before));
}

static sli_value call_method(run *r, const node *n) {
  sli_value subject = eval(r, n->a->a);
  arguments a = arguments_of(r, n->items);
  if (r->v->status) return subject;
  r->v->line = n->line;
  const char *method = n->a->name;
  if (subject.kind == SLI_LOOP && !strcmp(method, "cycle")) return cycle(r, subject.other, &a);
  if (subject.kind == SLI_LOOP && !strcmp(method, "changed"))
    return changed(r, (loop *)subject.other, &a);
  if (subject.kind == SLI_UNDEFINED)
    return sli_value_at(r->v, subject, text_value(method)); /* fails */
  sli_value member = {.kind = SLI_NONE};
  if (subject.kind == SLI_NAMESPACE ||
      (subject.kind == SLI_DICT && !sli_has_method(subject, text_value(method))))
    member = sli_value_at(r->v, subject, text_value(method));
  if (member.kind == SLI_MACRO) return call_macro(r, member.other, &a);
  return sli_call_method(r->v, method, subject, &a);
}

static sli_value call_with(run *r, const node *n, const macro *caller) {
  sli_value callee = eval(r, n->a);
  arguments a = arguments_of(r, n->items);
  if (r->v->status) return callee;
  r->v->line = n->line;
  if (caller) {
    if (!a.named) a.named = sli_value_dict(r->v).dict;
    sli_dict_set(r->v, a.named, text_value("caller"),
                 (sli_value){.kind = SLI_MACRO, .other = caller});
  }
  if (callee.kind == SLI_FUNCTION) return sli_call_function(r->v, callee.other, &a);
  if (callee.kind == SLI_MACRO) return call_macro(r, callee.other, &a);
  if (callee.kind == SLI_LOOP) return call_loop(r, callee.other, &a);
  if (callee.kind == SLI_UNDEFINED) return sli_value_at(r->v, callee, callee); /* fails */
  sli_values_fail(r->v, "cannot call %s", sli_value_kind(callee));
  return callee;
}

static sli_value call(run *r, const node *n) {
  return n->a->kind == ATTRIBUTE ? call_method(r, n) : call_with(r, n, NULL);
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
    else sli_values_fail(r->v, "a key of a dict cannot be %s", sli_value_kind(key));
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
  return n->c ? eval(r, n->c) : sli_value_undefined("a condition without else");
}

static sli_value operated(run *r, const node *n) {
  sli_value a = eval(r, n->a), b = eval(r, n->b);
  if (r->v->status) return a;
  r->v->line = n->line;
  return sli_operate(r->v, n->op, a, b);
}

static sli_value evaluate(run *r, const node *n) {
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
  case NEGATIVE: return sli_negative(r->v, eval(r, n->a));
  case POSITIVE: return eval(r, n->a);
  case AND:
  case OR: return either(r, n);
  case IF_ELSE: return if_else(r, n);
  default: return operated(r, n);
  }
}

/* Counts a level of evaluation, each of which uses stack. Returns false if there are too many. */
static bool enter_level(run *r) {
  if (++r->levels > SLI_TEMPLATE_LEVELS)
    sli_values_fail(r->v, "evaluation is nested more than %d levels deep", SLI_TEMPLATE_LEVELS);
  return !r->v->status;
}

static sli_value eval(run *r, const node *n) {
  sli_value out = sli_value_none();
  if (!sli_values_step(r->v, 1)) return out;
  r->v->line = n->line;
  if (enter_level(r)) out = evaluate(r, n);
  r->levels--;
  return out;
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

static void loop_over(run *r, const node *n, const sli_list *all, int depth, text_buffer *out) {
  loop *l = sli_values_room(r->v, sizeof *l);
  if (n->c) all = kept(r, n, all).list;
  if (!l || r->v->status) return;
  *l = (loop){.items = all, .depth = depth, .node = n, .home = r->here};
  turns(r, n, l, out);
  if (!all->count) execute(r, n->otherwise, out);
}

/* Renders a block in its own scope. */
static sli_value block(run *r, const node *n) {
  scope *outer = r->here;
  text_buffer out = {0};
  r->here = inner_scope(r, outer);
  execute(r, n->items, &out);
  r->here = outer;
  return sli_buffer_value(&out);
}

/* Renders a block, and passes it through the filters of `by`. */
static sli_value filtered_block(run *r, const node *n, const node *by) {
  sli_value outer = r->block, out = block(r, n);
  r->block = out;
  if (by) out = eval(r, by);
  r->block = outer;
  return out;
}

static void define(run *r, const node *n) {
  macro *m = sli_values_room(r->v, sizeof *m);
  if (!m) return;
  *m = (macro){n, r->here};
  assign(r, n->name, (sli_value){.kind = SLI_MACRO, .other = m});
}

/* Calls a macro that may call the block. */
static void call_block(run *r, const node *n, text_buffer *out) {
  macro *m = sli_values_room(r->v, sizeof *m);
  if (!m) return;
  *m = (macro){n, r->here};
  sli_value_print(r->v, call_with(r, n->b, m), out);
}

/* Executes a block in a scope with additional names, whose values are evaluated in the outer
 * scope. */
static void with(run *r, const node *n, text_buffer *out) {
  scope *outer = r->here, *inner = inner_scope(r, outer);
  for (const node *one = n->a; one && !r->v->status; one = one->next) {
    sli_value value = eval(r, one->b);
    r->here = inner;
    unpack(r, one->a, value);
    r->here = outer;
  }
  r->here = inner;
  execute(r, n->items, out);
  r->here = outer;
}

/* Renders a block that marks an answer. */
static void generation(run *r, const node *n, text_buffer *out) {
  enum { MOST = 1 << 20 };
  sli_text_spans *all = r->answers;
  size_t begin = out->bytes;
  if (all && out != r->whole)
    return sli_values_fail(r->v, "a generation block must not be in a macro or a captured block");
  execute(r, n->items, out);
  if (!all || out->bytes == begin || r->v->status) return;
  if (all->count >= MOST) return sli_values_fail(r->v, "the template has too many answers");
  SLI_GROW(all->items, all->count, all->capacity);
  all->items[all->count++] = (sli_text_span){begin, out->bytes};
}

static void one(run *r, const node *n, text_buffer *out) {
  r->v->line = n->line;
  switch (n->kind) {
  case OUTPUT: return sli_value_print(r->v, eval(r, n->a), out);
  case IF: return execute(r, sli_value_is_true(eval(r, n->a)) ? n->items : n->otherwise, out);
  case FOR: return loop_over(r, n, sli_value_items(r->v, eval(r, n->b)), 1, out);
  case SET: return unpack(r, n->a, eval(r, n->b));
  case SET_BLOCK: return unpack(r, n->a, filtered_block(r, n, n->b));
  case MACRO: return define(r, n);
  case FILTER_BLOCK: return sli_value_print(r->v, filtered_block(r, n, n->a), out);
  case CALL_BLOCK: return call_block(r, n, out);
  case WITH: return with(r, n, out);
  case GENERATION: return generation(r, n, out);
  default: r->jump = n->kind == BREAK ? BREAKS : CONTINUES;
  }
}

static void execute(run *r, const node *all, text_buffer *out) {
  if (enter_level(r))
    for (const node *n = all; n && !r->jump && sli_values_step(r->v, 1); n = n->next)
      one(r, n, out);
  r->levels--;
}

sl_status sli_template_run(const sli_template *t, sli_values *v, sli_value names,
                           sli_text_spans *answers, char **out) {
  text_buffer text = {0};
  scope top = {.names = *names.dict};
  run r = {.v = v, .here = &top, .whole = &text, .answers = answers};
  execute(&r, t->body, &text);
  if (v->status) return v->status;
  if (!sli_take(v->memory.allowance, text.bytes + 1))
    return sl_fail(SL_E_MEMORY, "out of memory: %zu bytes of text", text.bytes);
  *out = sli_strdup(text.bytes ? text.at : "");
  return SL_OK;
}
