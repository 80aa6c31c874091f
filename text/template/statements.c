/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of statements and of whole templates. */
#include <stdlib.h>
#include <string.h>

#include "text/template/template_inner.h"

static node *statements(parser *p, const char *const *ends);

/* ---- statements ------------------------------------------------------------------------------ */

static const char *const end_if[] = {"elif", "else", "endif", NULL};

static node *if_statement(parser *p) {
  static const char *const last[] = {"endif", NULL};
  node *n = sli_parse_node(p, IF);
  n->a = sli_parse_expression(p);
  sli_parse_end_block(p);
  n->items = statements(p, end_if);
  if (sli_parse_take_word(p, "elif")) {
    if (sli_parse_deeper(p)) n->otherwise = if_statement(p);
    p->depth--;
    return n;
  }
  if (sli_parse_take_word(p, "else")) {
    sli_parse_end_block(p);
    n->otherwise = statements(p, last);
  }
  sli_parse_take_word(p, "endif");
  sli_parse_end_block(p);
  return n;
}

static node *targets(parser *p, bool attributes);

/* Parses a name, an attribute of a namespace, or targets in parentheses. */
static node *target(parser *p, bool attributes) {
  if (sli_parse_sees(p, "(")) {
    if (!sli_parse_deeper(p)) return sli_parse_node(p, NAME);
    sli_parse_take(p, "(");
    node *all = targets(p, attributes);
    sli_parse_expect(p, ")");
    p->depth--;
    return all;
  }
  node *n = sli_parse_node(p, NAME);
  n->name = sli_parse_name(p);
  if (!attributes || !sli_parse_take(p, ".")) return n;
  n->kind = ATTRIBUTE;
  n->value = sli_value_text(p->constants, sli_parse_name(p));
  return n;
}

/* Parses one target, or several with commas as a tuple. */
static node *targets(parser *p, bool attributes) {
  node *first = target(p, attributes), **last = &first->next;
  if (!sli_parse_sees(p, ",")) return first;
  node *all = sli_parse_node(p, TUPLE);
  all->items = first;
  while (!p->s.status && sli_parse_take(p, ",") && !sli_parse_sees_word(p, "in") &&
         !sli_parse_sees(p, "=") && !sli_parse_sees(p, ")")) {
    *last = target(p, attributes);
    last = &(*last)->next;
  }
  return all;
}

static node *for_statement(parser *p) {
  static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
  node *n = sli_parse_node(p, FOR);
  n->a = targets(p, false);
  if (!sli_parse_take_word(p, "in")) sli_parse_unexpected(p, "in");
  n->b = sli_parse_disjunction(p);
  if (sli_parse_take_word(p, "if")) n->c = sli_parse_expression(p);
  n->recursive = sli_parse_take_word(p, "recursive");
  sli_parse_end_block(p);
  p->loops++;
  n->items = statements(p, ends);
  p->loops--;
  if (sli_parse_take_word(p, "else")) {
    sli_parse_end_block(p);
    n->otherwise = statements(p, last);
  }
  sli_parse_take_word(p, "endfor");
  sli_parse_end_block(p);
  return n;
}

static node *set_statement(parser *p) {
  static const char *const ends[] = {"endset", NULL};
  node *n = sli_parse_node(p, SET);
  n->a = targets(p, true);
  if (sli_parse_take(p, "=")) {
    n->b = sli_parse_expressions(p);
    sli_parse_end_block(p);
    return n;
  }
  n->kind = SET_BLOCK;
  if (sli_parse_take(p, "|")) n->b = sli_parse_filters(p);
  sli_parse_end_block(p);
  n->items = statements(p, ends);
  sli_parse_take_word(p, "endset");
  sli_parse_end_block(p);
  return n;
}

/* Parses a macro's parameters after the opening parenthesis. */
static node *parameters(parser *p) {
  node *first = NULL, **last = &first;
  while (!p->s.status && !sli_parse_take(p, ")")) {
    node *argument = *last = sli_parse_node(p, NAME);
    last = &argument->next;
    argument->name = sli_parse_name(p);
    if (sli_parse_take(p, "=")) argument->a = sli_parse_expression(p);
    if (!sli_parse_sees(p, ")")) sli_parse_expect(p, ",");
  }
  return first;
}

/* Parses the body of a macro, which no break or continue can leave. */
static void macro_body(parser *p, node *n, const char *const *ends) {
  int loops = p->loops, rest = p->rest;
  p->loops = p->rest = 0;
  n->items = statements(p, ends);
  n->rest = p->rest;
  p->loops = loops;
  p->rest = rest;
  sli_parse_take_word(p, ends[0]);
  sli_parse_end_block(p);
}

static node *macro_statement(parser *p) {
  static const char *const ends[] = {"endmacro", NULL};
  node *n = sli_parse_node(p, MACRO);
  n->name = sli_parse_name(p);
  sli_parse_expect(p, "(");
  n->a = parameters(p);
  sli_parse_end_block(p);
  macro_body(p, n, ends);
  return n;
}

/* Parses a call block. The macro it calls may call the block as caller(). */
static node *call_statement(parser *p) {
  static const char *const ends[] = {"endcall", NULL};
  node *n = sli_parse_node(p, CALL_BLOCK);
  n->name = "caller";
  if (sli_parse_take(p, "(")) n->a = parameters(p);
  n->b = sli_parse_expression(p);
  if (n->b->kind != CALL) sli_source_fail(&p->s, "a call block needs a call");
  sli_parse_end_block(p);
  macro_body(p, n, ends);
  return n;
}

static node *with_statement(parser *p) {
  static const char *const ends[] = {"endwith", NULL};
  node *n = sli_parse_node(p, WITH), **last = &n->a;
  while (!p->s.status && p->s.now.kind != END_BLOCK) {
    node *one = *last = sli_parse_node(p, SET);
    last = &one->next;
    one->a = target(p, false);
    sli_parse_expect(p, "=");
    one->b = sli_parse_expression(p);
    if (p->s.now.kind != END_BLOCK) sli_parse_expect(p, ",");
  }
  sli_parse_end_block(p);
  n->items = statements(p, ends);
  sli_parse_take_word(p, "endwith");
  sli_parse_end_block(p);
  return n;
}

static node *filter_statement(parser *p) {
  static const char *const ends[] = {"endfilter", NULL};
  node *n = sli_parse_node(p, FILTER_BLOCK);
  n->a = sli_parse_filters(p);
  sli_parse_end_block(p);
  n->items = statements(p, ends);
  sli_parse_take_word(p, "endfilter");
  sli_parse_end_block(p);
  return n;
}

/* Parses transformers' generation block, which marks answers. */
static node *generation_statement(parser *p) {
  static const char *const ends[] = {"endgeneration", NULL};
  node *n = sli_parse_node(p, GENERATION);
  p->marks = true;
  sli_parse_end_block(p);
  n->items = statements(p, ends);
  sli_parse_take_word(p, "endgeneration");
  sli_parse_end_block(p);
  return n;
}

static node *jump(parser *p, node_kind kind) {
  node *n = sli_parse_node(p, kind);
  if (!p->loops) sli_source_fail(&p->s, "%s outside a loop", kind == BREAK ? "break" : "continue");
  sli_parse_end_block(p);
  return n;
}

static node *break_statement(parser *p) { return jump(p, BREAK); }
static node *continue_statement(parser *p) { return jump(p, CONTINUE); }

static node *block(parser *p) {
  static const struct {
    const char *word;
    node *(*parse)(parser *p);
  } kinds[] = {{"if", if_statement},         {"for", for_statement},
               {"set", set_statement},       {"macro", macro_statement},
               {"filter", filter_statement}, {"generation", generation_statement},
               {"call", call_statement},     {"with", with_statement},
               {"break", break_statement},   {"continue", continue_statement}};
  for (size_t i = 0; i < SLI_COUNT(kinds); i++)
    if (sli_parse_take_word(p, kinds[i].word)) return kinds[i].parse(p);
  if (p->s.now.kind == WORD)
    sli_source_fail(&p->s, "the tag \"%.*s\" is not supported here",
                    (int)SLI_MIN(p->s.now.bytes, (size_t)40), p->s.now.at);
  else sli_parse_unexpected(p, "the name of a tag");
  return sli_parse_node(p, OUTPUT);
}

static node *output(parser *p) {
  node *n = sli_parse_node(p, OUTPUT);
  n->a = sli_parse_expressions(p);
  if (p->s.now.kind == END_OUTPUT) sli_source_advance(&p->s);
  else sli_parse_unexpected(p, "the end of the tag");
  return n;
}

static node *plain(parser *p) {
  node *n = sli_parse_node(p, OUTPUT);
  n->a = sli_parse_constant(p, sli_value_span(p->s.now.at, p->s.now.bytes));
  sli_source_advance(&p->s);
  return n;
}

static bool ends_here(const parser *p, const char *const *ends) {
  for (; ends && *ends; ends++)
    if (sli_parse_next_word(p, *ends)) return true;
  return false;
}

/* Parses up to one of the tags `ends`, whose word is then the next token, or to the end of the
 * text. */
static node *statements(parser *p, const char *const *ends) {
  node *first = NULL, **last = &first;
  if (!sli_parse_deeper(p)) return NULL;
  while (!p->s.status && p->s.now.kind != END) {
    token_kind kind = p->s.now.kind;
    bool over = kind == BEGIN_BLOCK && ends_here(p, ends);
    if (kind != DATA) sli_source_advance(&p->s);
    if (over) break;
    *last = kind == DATA ? plain(p) : kind == BEGIN_BLOCK ? block(p) : output(p);
    last = &(*last)->next;
  }
  if (ends && !p->s.status && p->s.now.kind == END)
    sli_source_fail(&p->s, "the template ends before %s", ends[0]);
  p->depth--;
  return first;
}

/* ---- entry point ----------------------------------------------------------------------------- */

sl_status sli_template_read(const char *text, sli_template **out) {
  sli_template *t = sli_calloc(1, sizeof *t);
  t->constants = sli_values_create(strlen(text) * 4 + 4096, NULL);
  parser p = {.constants = t->constants};
  sl_status status = sli_source_begin(&p.s, &t->arena, text);
  if (!status) t->body = statements(&p, NULL);
  status = p.s.status;
  t->marks = p.marks;
  if (status) sli_template_free(t);
  else *out = t;
  return status;
}

bool sli_template_marks(const sli_template *t) { return t->marks; }

void sli_template_free(sli_template *t) {
  if (!t) return;
  sli_values_destroy(t->constants);
  sli_arena_fini(&t->arena);
  free(t);
}
