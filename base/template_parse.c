/* SPDX-License-Identifier: Apache-2.0 */
/* Parser from tokens to trees: recursive descent, with Jinja's operator precedence. */
#include <stdlib.h>
#include <string.h>

#include "base/template_inner.h"

enum { MOST_DEPTH = 100 };

typedef struct parser {
  source s;
  sli_values *constants;
  int depth, loops;
} parser;

static node *expression(parser *p);
static node *unary(parser *p, bool filtered);
static node *statements(parser *p, const char *const *ends);

/* ---- tokens ---------------------------------------------------------------------------------- */

static bool token_is(const token *t, token_kind kind, const char *text) {
  return t->kind == kind && t->bytes == strlen(text) && !memcmp(t->at, text, t->bytes);
}

static bool sees(const parser *p, const char *sign) { return token_is(&p->s.now, SIGN, sign); }
static bool sees_word(const parser *p, const char *word) { return token_is(&p->s.now, WORD, word); }

static bool template_parse_take(parser *p, const char *sign) {
  bool there = sees(p, sign);
  if (there) sli_source_advance(&p->s);
  return there;
}

static bool take_word(parser *p, const char *word) {
  bool there = sees_word(p, word);
  if (there) sli_source_advance(&p->s);
  return there;
}

static void unexpected(parser *p, const char *wanted) {
  const token *t = &p->s.now;
  if (t->kind == END) sli_source_fail(&p->s, "it ends where %s should be", wanted);
  else
    sli_source_fail(&p->s, "\"%.*s\" where %s should be", (int)SLI_MIN(t->bytes, (size_t)40), t->at,
                    wanted);
}

static void expect(parser *p, const char *sign) {
  if (!template_parse_take(p, sign)) unexpected(p, sign);
}

static void end_block(parser *p) {
  if (p->s.now.kind == END_BLOCK) sli_source_advance(&p->s);
  else unexpected(p, "the end of the tag");
}

static char *text_of(parser *p, const token *t) {
  char *text = sli_arena_alloc(p->s.arena, t->bytes + 1);
  memcpy(text, t->at, t->bytes);
  return text;
}

static const char *name(parser *p) {
  if (p->s.now.kind != WORD) return unexpected(p, "a name"), "";
  const char *text = text_of(p, &p->s.now);
  sli_source_advance(&p->s);
  return text;
}

static bool deeper(parser *p) {
  if (++p->depth > MOST_DEPTH) sli_source_fail(&p->s, "it is deeper than %d", MOST_DEPTH);
  return !p->s.status;
}

static node *node_of(parser *p, node_kind kind) {
  node *n = sli_arena_alloc(p->s.arena, sizeof *n);
  n->kind = kind;
  n->line = p->s.now.line;
  return n;
}

static node *binary(parser *p, node_kind kind, operator op, node *a, node *b) {
  node *n = node_of(p, kind);
  n->op = op, n->a = a, n->b = b;
  return n;
}

static node *constant(parser *p, sli_value value) {
  node *n = node_of(p, CONSTANT);
  n->value = value;
  return n;
}

/* ---- literals -------------------------------------------------------------------------------- */

static sli_value number(parser *p) {
  char *text = text_of(p, &p->s.now), *to = text;
  for (char *at = text; *at; at++)
    if (*at != '_') *to++ = *at;
  *to = 0;
  bool real = p->s.now.kind == FLOAT;
  if (!real && strlen(text) > 18) sli_source_fail(&p->s, "number %.40s is too large", text);
  return real ? sli_value_real(strtod(text, NULL)) : sli_value_int(strtoll(text, NULL, 10));
}

/* Parses adjacent strings as one. */
static node *string(parser *p) {
  text_buffer all = {0};
  node *n = node_of(p, CONSTANT);
  for (; p->s.now.kind == STRING; sli_source_advance(&p->s))
    sli_buffer_add(p->constants, &all, p->s.now.at, p->s.now.bytes);
  n->value = sli_buffer_value(&all);
  return n;
}

/* Parses expressions up to `end`, which is consumed. */
static node *row(parser *p, node_kind kind, const char *end) {
  node *n = node_of(p, kind), **last = &n->items;
  while (!p->s.status && !template_parse_take(p, end)) {
    *last = expression(p);
    last = &(*last)->next;
    if (!sees(p, end)) expect(p, ",");
  }
  return n;
}

static node *dict(parser *p) {
  node *n = node_of(p, DICT), **last = &n->items;
  while (!p->s.status && !template_parse_take(p, "}")) {
    node *key = expression(p);
    expect(p, ":");
    *last = binary(p, DICT, ADD, key, expression(p));
    last = &(*last)->next;
    if (!sees(p, "}")) expect(p, ",");
  }
  return n;
}

/* Parses behind an opening bracket: one expression, or with a comma a tuple. */
static node *parenthesis(parser *p) {
  if (template_parse_take(p, ")")) return node_of(p, TUPLE);
  node *first = expression(p);
  if (template_parse_take(p, ")")) return first;
  expect(p, ",");
  node *all = row(p, TUPLE, ")");
  first->next = all->items;
  all->items = first;
  return all;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Rejects names that Jinja or transformers define and this implementation does not. */
static void check_name(parser *p, const char *text) {
  static const char *const unknown[] = {
      "joiner", "cycler",    "lipsum",    "self",      "super",     "caller",    "varargs",
      "kwargs", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"};
  for (size_t i = 0; i < SLI_COUNT(unknown); i++)
    if (!strcmp(text, unknown[i])) sli_source_fail(&p->s, "\"%s\" is not supported", text);
}

static node *word(parser *p) {
  static const char *const fixed[] = {"true", "True", "false", "False", "none", "None"};
  for (size_t i = 0; i < SLI_COUNT(fixed); i++)
    if (take_word(p, fixed[i]))
      return constant(p, i < 4 ? sli_value_bool(i < 2) : sli_value_none());
  node *n = node_of(p, NAME);
  n->name = text_of(p, &p->s.now);
  check_name(p, n->name);
  sli_source_advance(&p->s);
  return n;
}

static node *primary(parser *p) {
  token_kind kind = p->s.now.kind;
  if (kind == WORD) return word(p);
  if (kind == STRING) return string(p);
  if (kind == INTEGER || kind == FLOAT) {
    node *n = constant(p, number(p));
    sli_source_advance(&p->s);
    return n;
  }
  if (template_parse_take(p, "(")) return parenthesis(p);
  if (template_parse_take(p, "[")) return row(p, LIST, "]");
  if (template_parse_take(p, "{")) return dict(p);
  unexpected(p, "an expression");
  return node_of(p, CONSTANT);
}

/* ---- calls, attributes, filters, tests ------------------------------------------------------- */

/* Parses one argument; a name followed by = makes it a named one. */
static node *argument(parser *p) {
  if (sees(p, "*") || sees(p, "**"))
    sli_source_fail(&p->s, "arguments from a list or a dict are not supported");
  if (p->s.now.kind != WORD || !token_is(&p->s.next, SIGN, "=")) {
    node *n = node_of(p, LIST); /* a node of its own, since the expression's `next` is taken */
    n->a = expression(p);
    return n;
  }
  node *n = node_of(p, LIST);
  n->name = name(p);
  expect(p, "=");
  n->a = expression(p);
  return n;
}

/* Parses arguments behind an opening bracket. */
static node *arguments_of(parser *p) {
  node *first = NULL, **last = &first;
  while (!p->s.status && !template_parse_take(p, ")")) {
    *last = argument(p);
    last = &(*last)->next;
    if (!sees(p, ")")) expect(p, ",");
  }
  return first;
}

static node *call(parser *p, node *of) {
  node *n = binary(p, CALL, ADD, of, NULL);
  if (of->kind == ATTRIBUTE && !sli_is_method(of->name))
    sli_source_fail(&p->s, "method \"%.40s\" is not known", of->name);
  n->items = arguments_of(p);
  return n;
}

static node *attribute(parser *p, node *of) {
  if (p->s.now.kind != INTEGER) {
    node *n = binary(p, ATTRIBUTE, ADD, of, NULL);
    n->name = name(p);
    return n;
  }
  node *n = binary(p, SUBSCRIPT, ADD, of, constant(p, number(p)));
  sli_source_advance(&p->s);
  return n;
}

static node *slice_part(parser *p) { return sees(p, ":") || sees(p, "]") ? NULL : expression(p); }

static node *subscript(parser *p, node *of) {
  node *from = slice_part(p);
  if (!from && !sees(p, ":")) unexpected(p, "an expression");
  if (!template_parse_take(p, ":")) {
    expect(p, "]");
    return binary(p, SUBSCRIPT, ADD, of, from);
  }
  node *n = binary(p, SLICE, ADD, of, from);
  n->c = slice_part(p);
  if (template_parse_take(p, ":")) n->otherwise = slice_part(p);
  expect(p, "]");
  return n;
}

static node *postfix(parser *p, node *n) {
  while (!p->s.status) {
    if (template_parse_take(p, ".")) n = attribute(p, n);
    else if (template_parse_take(p, "[")) n = subscript(p, n);
    else if (template_parse_take(p, "(")) n = call(p, n);
    else break;
  }
  return n;
}

static node *filter(parser *p, node *of) {
  node *n = binary(p, FILTER, ADD, of, NULL);
  n->name = name(p);
  if (!sli_is_filter(n->name)) sli_source_fail(&p->s, "filter \"%.40s\" is not known", n->name);
  if (template_parse_take(p, "(")) n->items = arguments_of(p);
  return n;
}

/* Returns whether a test's single argument follows without brackets. */
static bool begins_argument(const parser *p) {
  token_kind kind = p->s.now.kind;
  if (kind == WORD)
    return !sees_word(p, "else") && !sees_word(p, "or") && !sees_word(p, "and") &&
           !sees_word(p, "is") && !sees_word(p, "if");
  return kind == STRING || kind == INTEGER || kind == FLOAT || sees(p, "[") || sees(p, "{");
}

static node *test(parser *p, node *of) {
  node *n = binary(p, TEST, ADD, of, NULL);
  n->negated = take_word(p, "not");
  n->name = name(p);
  if (!sli_is_test(n->name)) sli_source_fail(&p->s, "test \"%.40s\" is not known", n->name);
  if (template_parse_take(p, "(")) n->items = arguments_of(p);
  else if (begins_argument(p)) {
    n->items = node_of(p, LIST);
    n->items->a = postfix(p, primary(p));
  }
  return n;
}

static node *filters(parser *p, node *n) {
  while (!p->s.status) {
    if (template_parse_take(p, "|")) n = filter(p, n);
    else if (take_word(p, "is")) n = test(p, n);
    else if (template_parse_take(p, "(")) n = call(p, n);
    else break;
  }
  return n;
}

/* ---- operators ------------------------------------------------------------------------------- */

static node *unary(parser *p, bool filtered) {
  if (!deeper(p)) return node_of(p, CONSTANT);
  bool minus = template_parse_take(p, "-"), plus = !minus && template_parse_take(p, "+");
  node *n = minus || plus ? binary(p, minus ? NEGATIVE : POSITIVE, ADD, unary(p, false), NULL)
                          : primary(p);
  n = postfix(p, n);
  if (filtered) n = filters(p, n);
  p->depth--;
  return n;
}

/* Operators by precedence, the lowest first. */
static const struct {
  const char *sign;
  operator op;
  int level;
} operators[] = {{"+", ADD, 0},
                 {"-", SUBTRACT, 0},
                 {"~", JOIN, 1},
                 {"*", MULTIPLY, 2},
                 {"/", DIVIDE, 2},
                 {"/"
                  "/",
                  FLOOR_DIVIDE, 2},
                 {"%", REMAINDER, 2},
                 {"**", POWER, 3}};

static bool take_operator(parser *p, int level, operator* op) {
  for (size_t i = 0; i < SLI_COUNT(operators); i++)
    if (operators[i].level == level && template_parse_take(p, operators[i].sign))
      return *op = operators[i].op, true;
  return false;
}

static node *arithmetic(parser *p, int level) {
  enum { LEVELS = 4 };
  if (level == LEVELS) return unary(p, true);
  operator op;
  node *n = arithmetic(p, level + 1);
  while (!p->s.status && take_operator(p, level, &op))
    n = binary(p, BINARY, op, n, arithmetic(p, level + 1));
  return n;
}

static bool take_comparison(parser *p, operator* op) {
  static const struct {
    const char *sign;
    operator op;
  } all[] = {{"==", EQUAL},         {"!=", UNEQUAL}, {"<=", LESS_EQUAL},
             {">=", GREATER_EQUAL}, {"<", LESS},     {">", GREATER}};
  for (size_t i = 0; i < SLI_COUNT(all); i++)
    if (template_parse_take(p, all[i].sign)) return *op = all[i].op, true;
  if (take_word(p, "in")) return *op = IN, true;
  if (!sees_word(p, "not") || !token_is(&p->s.next, WORD, "in")) return false;
  sli_source_advance(&p->s);
  sli_source_advance(&p->s);
  return *op = NOT_IN, true;
}

/* Parses a < b < c as a < b and b < c; b has no side effects, so it may be evaluated twice. */
static node *comparison(parser *p) {
  node *left = arithmetic(p, 0), *all = NULL;
  operator op;
  while (!p->s.status && take_comparison(p, &op)) {
    node *right = arithmetic(p, 0), *one = binary(p, COMPARE, op, left, right);
    all = all ? binary(p, AND, ADD, all, one) : one;
    left = right;
  }
  return all ? all : left;
}

static node *negation(parser *p) {
  if (!take_word(p, "not")) return comparison(p);
  if (!deeper(p)) return node_of(p, CONSTANT);
  node *n = binary(p, NOT, ADD, negation(p), NULL);
  p->depth--;
  return n;
}

static node *conjunction(parser *p) {
  node *n = negation(p);
  while (!p->s.status && take_word(p, "and")) n = binary(p, AND, ADD, n, negation(p));
  return n;
}

static node *disjunction(parser *p) {
  node *n = conjunction(p);
  while (!p->s.status && take_word(p, "or")) n = binary(p, OR, ADD, n, conjunction(p));
  return n;
}

static node *expression(parser *p) {
  if (!deeper(p)) return node_of(p, CONSTANT);
  node *n = disjunction(p);
  while (!p->s.status && take_word(p, "if")) {
    n = binary(p, IF_ELSE, ADD, disjunction(p), n);
    if (take_word(p, "else")) n->c = expression(p);
  }
  p->depth--;
  return n;
}

/* Parses one expression, or several with commas as a tuple. */
static node *expressions(parser *p) {
  node *first = expression(p), **last = &first->next;
  if (!sees(p, ",")) return first;
  node *all = node_of(p, TUPLE);
  all->items = first;
  while (!p->s.status && template_parse_take(p, ",") && p->s.now.kind != END_BLOCK &&
         p->s.now.kind != END_OUTPUT) {
    *last = expression(p);
    last = &(*last)->next;
  }
  return all;
}

/* ---- statements ------------------------------------------------------------------------------ */

static const char *const end_if[] = {"elif", "else", "endif", NULL};

static node *if_statement(parser *p) {
  static const char *const last[] = {"endif", NULL};
  node *n = node_of(p, IF);
  n->a = expression(p);
  end_block(p);
  n->items = statements(p, end_if);
  if (take_word(p, "elif")) {
    if (deeper(p)) n->otherwise = if_statement(p);
    p->depth--;
    return n;
  }
  if (take_word(p, "else")) {
    end_block(p);
    n->otherwise = statements(p, last);
  }
  take_word(p, "endif");
  end_block(p);
  return n;
}

/* Parses names with commas, linked by next; or an attribute of a namespace. */
static node *targets(parser *p, bool attributes) {
  node *first = NULL, **last = &first;
  bool bracket = template_parse_take(p, "(");
  do {
    node *n = *last = node_of(p, NAME);
    last = &n->next;
    n->name = name(p);
    if (attributes && template_parse_take(p, "."))
      n->kind = ATTRIBUTE, n->a = constant(p, sli_value_text(p->constants, name(p)));
  } while (!p->s.status && template_parse_take(p, ","));
  if (bracket) expect(p, ")");
  return first;
}

static node *for_statement(parser *p) {
  static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
  node *n = node_of(p, FOR);
  n->a = targets(p, false);
  if (!take_word(p, "in")) unexpected(p, "in");
  n->b = disjunction(p);
  if (take_word(p, "if")) n->c = expression(p);
  if (sees_word(p, "recursive")) sli_source_fail(&p->s, "a recursive loop is not supported");
  end_block(p);
  p->loops++;
  n->items = statements(p, ends);
  p->loops--;
  if (take_word(p, "else")) {
    end_block(p);
    n->otherwise = statements(p, last);
  }
  take_word(p, "endfor");
  end_block(p);
  return n;
}

static node *set_statement(parser *p) {
  static const char *const ends[] = {"endset", NULL};
  node *n = node_of(p, SET);
  n->a = targets(p, true);
  if (template_parse_take(p, "=")) {
    n->b = expressions(p);
    end_block(p);
    return n;
  }
  n->kind = SET_BLOCK;
  if (sees(p, "|")) sli_source_fail(&p->s, "a filter of a set block is not supported");
  end_block(p);
  n->items = statements(p, ends);
  take_word(p, "endset");
  end_block(p);
  return n;
}

static node *macro_statement(parser *p) {
  static const char *const ends[] = {"endmacro", NULL};
  node *n = node_of(p, MACRO), **last = &n->a;
  int loops = p->loops;
  n->name = name(p);
  expect(p, "(");
  while (!p->s.status && !template_parse_take(p, ")")) {
    node *argument = *last = node_of(p, NAME);
    last = &argument->next;
    argument->name = name(p);
    if (template_parse_take(p, "=")) argument->a = expression(p);
    if (!sees(p, ")")) expect(p, ",");
  }
  end_block(p);
  p->loops = 0;
  n->items = statements(p, ends);
  p->loops = loops;
  take_word(p, "endmacro");
  end_block(p);
  return n;
}

static node *filter_statement(parser *p) {
  static const char *const ends[] = {"endfilter", NULL};
  node *n = node_of(p, FILTER_BLOCK);
  n->a = filters(p, filter(p, NULL));
  end_block(p);
  n->items = statements(p, ends);
  take_word(p, "endfilter");
  end_block(p);
  return n;
}

/* Parses transformers' generation block, which marks answers: it renders its body. */
static node *generation_statement(parser *p) {
  static const char *const ends[] = {"endgeneration", NULL};
  node *n = node_of(p, IF);
  n->a = constant(p, sli_value_bool(true));
  end_block(p);
  n->items = statements(p, ends);
  take_word(p, "endgeneration");
  end_block(p);
  return n;
}

static node *jump(parser *p, node_kind kind) {
  node *n = node_of(p, kind);
  if (!p->loops) sli_source_fail(&p->s, "%s outside a loop", kind == BREAK ? "break" : "continue");
  end_block(p);
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
               {"break", break_statement},   {"continue", continue_statement}};
  for (size_t i = 0; i < SLI_COUNT(kinds); i++)
    if (take_word(p, kinds[i].word)) return kinds[i].parse(p);
  if (p->s.now.kind == WORD)
    sli_source_fail(&p->s, "the tag \"%.*s\" is not supported here",
                    (int)SLI_MIN(p->s.now.bytes, (size_t)40), p->s.now.at);
  else unexpected(p, "the name of a tag");
  return node_of(p, OUTPUT);
}

static node *output(parser *p) {
  node *n = node_of(p, OUTPUT);
  n->a = expressions(p);
  if (p->s.now.kind == END_OUTPUT) sli_source_advance(&p->s);
  else unexpected(p, "the end of the tag");
  return n;
}

static node *plain(parser *p) {
  node *n = node_of(p, OUTPUT);
  n->a = constant(p, sli_value_span(p->s.now.at, p->s.now.bytes));
  sli_source_advance(&p->s);
  return n;
}

static bool ends_here(const parser *p, const char *const *ends) {
  for (; ends && *ends; ends++)
    if (token_is(&p->s.next, WORD, *ends)) return true;
  return false;
}

/* Parses up to one of the tags `ends`, whose word is then the next token, or to the end of the
 * text. */
static node *statements(parser *p, const char *const *ends) {
  node *first = NULL, **last = &first;
  if (!deeper(p)) return NULL;
  while (!p->s.status && p->s.now.kind != END) {
    token_kind kind = p->s.now.kind;
    bool over = kind == BEGIN_BLOCK && ends_here(p, ends);
    if (kind != DATA) sli_source_advance(&p->s);
    if (over) break;
    *last = kind == DATA ? plain(p) : kind == BEGIN_BLOCK ? block(p) : output(p);
    last = &(*last)->next;
  }
  if (ends && !p->s.status && p->s.now.kind == END)
    sli_source_fail(&p->s, "it ends before %s", ends[0]);
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
  if (status) sli_template_free(t);
  else *out = t;
  return status;
}

void sli_template_free(sli_template *t) {
  if (!t) return;
  sli_values_destroy(t->constants);
  sli_arena_fini(&t->arena);
  free(t);
}
