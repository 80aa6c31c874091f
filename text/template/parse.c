/* SPDX-License-Identifier: Apache-2.0 */
/* Parser from tokens to trees: recursive descent, with Jinja's operator precedence. */
#include <stdlib.h>
#include <string.h>

#include "text/template/template_inner.h"

enum { MOST_HEIGHT = 400 }; /* limit for an expression: a + b + c + ... */

static node *unary(parser *p, bool filtered);

/* ---- tokens ---------------------------------------------------------------------------------- */

static bool token_is(const token *t, token_kind kind, const char *text) {
  return t->kind == kind && t->bytes == strlen(text) && !memcmp(t->at, text, t->bytes);
}

bool sli_parse_sees(const parser *p, const char *sign) { return token_is(&p->s.now, SIGN, sign); }
bool sli_parse_sees_word(const parser *p, const char *word) {
  return token_is(&p->s.now, WORD, word);
}

bool sli_parse_next_word(const parser *p, const char *word) {
  return token_is(&p->s.next, WORD, word);
}

bool sli_parse_take(parser *p, const char *sign) {
  bool there = sli_parse_sees(p, sign);
  if (there) sli_source_advance(&p->s);
  return there;
}

bool sli_parse_take_word(parser *p, const char *word) {
  bool there = sli_parse_sees_word(p, word);
  if (there) sli_source_advance(&p->s);
  return there;
}

void sli_parse_unexpected(parser *p, const char *wanted) {
  const token *t = &p->s.now;
  if (t->kind == END) sli_source_fail(&p->s, "the template ends where %s should be", wanted);
  else
    sli_source_fail(&p->s, "\"%.*s\" where %s should be", (int)SLI_MIN(t->bytes, (size_t)40), t->at,
                    wanted);
}

void sli_parse_expect(parser *p, const char *sign) {
  if (!sli_parse_take(p, sign)) sli_parse_unexpected(p, sign);
}

void sli_parse_end_block(parser *p) {
  if (p->s.now.kind == END_BLOCK) sli_source_advance(&p->s);
  else sli_parse_unexpected(p, "the end of the tag");
}

static char *text_of(parser *p, const token *t) {
  char *text = sli_arena_alloc(p->s.arena, t->bytes + 1);
  memcpy(text, t->at, t->bytes);
  return text;
}

const char *sli_parse_name(parser *p) {
  if (p->s.now.kind != WORD) return sli_parse_unexpected(p, "a name"), "";
  const char *text = text_of(p, &p->s.now);
  sli_source_advance(&p->s);
  return text;
}

bool sli_parse_deeper(parser *p) {
  if (++p->depth > SLI_TEMPLATE_DEPTH)
    sli_source_fail(&p->s, "nested deeper than %d", SLI_TEMPLATE_DEPTH);
  return !p->s.status;
}

node *sli_parse_node(parser *p, node_kind kind) {
  node *n = sli_arena_alloc(p->s.arena, sizeof *n);
  n->kind = kind;
  n->line = p->s.now.line;
  return n;
}

static node *binary(parser *p, node_kind kind, operator op, node *a, node *b) {
  node *n = sli_parse_node(p, kind);
  n->op = op, n->a = a, n->b = b;
  n->height = 1 + SLI_MAX(a ? a->height : 0, b ? b->height : 0);
  if (n->height > MOST_HEIGHT)
    sli_source_fail(&p->s, "an expression has more than %d operators in a row", MOST_HEIGHT);
  return n;
}

node *sli_parse_constant(parser *p, sli_value value) {
  node *n = sli_parse_node(p, CONSTANT);
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
  node *n = sli_parse_node(p, CONSTANT);
  for (; p->s.now.kind == STRING; sli_source_advance(&p->s))
    sli_buffer_add(p->constants, &all, p->s.now.at, p->s.now.bytes);
  n->value = sli_buffer_value(&all);
  return n;
}

/* Parses expressions up to `end`, which is consumed. */
static node *row(parser *p, node_kind kind, const char *end) {
  node *n = sli_parse_node(p, kind), **last = &n->items;
  while (!p->s.status && !sli_parse_take(p, end)) {
    *last = sli_parse_expression(p);
    last = &(*last)->next;
    if (!sli_parse_sees(p, end)) sli_parse_expect(p, ",");
  }
  return n;
}

static node *dict(parser *p) {
  node *n = sli_parse_node(p, DICT), **last = &n->items;
  while (!p->s.status && !sli_parse_take(p, "}")) {
    node *key = sli_parse_expression(p);
    sli_parse_expect(p, ":");
    *last = binary(p, DICT, ADD, key, sli_parse_expression(p));
    last = &(*last)->next;
    if (!sli_parse_sees(p, "}")) sli_parse_expect(p, ",");
  }
  return n;
}

/* Parses what follows an opening parenthesis: one expression, or, with a comma, a tuple. */
static node *parenthesis(parser *p) {
  if (sli_parse_take(p, ")")) return sli_parse_node(p, TUPLE);
  node *first = sli_parse_expression(p);
  if (sli_parse_take(p, ")")) return first;
  sli_parse_expect(p, ",");
  node *all = row(p, TUPLE, ")");
  first->next = all->items;
  all->items = first;
  return all;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Rejects names that Jinja or transformers define and this implementation does not. */
static void check_name(parser *p, const char *text) {
  static const char *const unknown[] = {"joiner", "cycler", "lipsum", "self", "super"};
  for (size_t i = 0; i < SLI_COUNT(unknown); i++)
    if (!strcmp(text, unknown[i])) sli_source_fail(&p->s, "\"%s\" is not supported", text);
}

static node *word(parser *p) {
  static const char *const fixed[] = {"true", "True", "false", "False", "none", "None"};
  for (size_t i = 0; i < SLI_COUNT(fixed); i++)
    if (sli_parse_take_word(p, fixed[i]))
      return sli_parse_constant(p, i < 4 ? sli_value_bool(i < 2) : sli_value_none());
  node *n = sli_parse_node(p, NAME);
  n->name = text_of(p, &p->s.now);
  check_name(p, n->name);
  if (!strcmp(n->name, "varargs")) p->rest |= REST_LIST;
  if (!strcmp(n->name, "kwargs")) p->rest |= REST_DICT;
  if (!strcmp(n->name, "caller")) p->rest |= REST_CALLER;
  sli_source_advance(&p->s);
  return n;
}

static node *primary(parser *p) {
  token_kind kind = p->s.now.kind;
  if (kind == WORD) return word(p);
  if (kind == STRING) return string(p);
  if (kind == INTEGER || kind == FLOAT) {
    node *n = sli_parse_constant(p, number(p));
    sli_source_advance(&p->s);
    return n;
  }
  if (sli_parse_take(p, "(")) return parenthesis(p);
  if (sli_parse_take(p, "[")) return row(p, LIST, "]");
  if (sli_parse_take(p, "{")) return dict(p);
  sli_parse_unexpected(p, "an expression");
  return sli_parse_node(p, CONSTANT);
}

/* ---- calls, attributes, filters, tests ------------------------------------------------------- */

/* Parses one argument: positional, named (name=value), or unpacked with * or **. */
static node *argument(parser *p) {
  node *n = sli_parse_node(p, LIST); /* separate: the expression's `next` may be in use */
  if (sli_parse_take(p, "**")) n->as = UNPACKED_DICT;
  else if (sli_parse_take(p, "*")) n->as = UNPACKED_LIST;
  else if (p->s.now.kind == WORD && token_is(&p->s.next, SIGN, "=")) {
    n->name = sli_parse_name(p);
    sli_parse_expect(p, "=");
  }
  n->a = sli_parse_expression(p);
  return n;
}

/* Parses arguments after an opening parenthesis. */
static node *arguments_of(parser *p) {
  node *first = NULL, **last = &first;
  while (!p->s.status && !sli_parse_take(p, ")")) {
    *last = argument(p);
    last = &(*last)->next;
    if (!sli_parse_sees(p, ")")) sli_parse_expect(p, ",");
  }
  return first;
}

static node *call(parser *p, node *of) {
  node *n = binary(p, CALL, ADD, of, NULL);
  n->items = arguments_of(p);
  return n;
}

static node *attribute(parser *p, node *of) {
  if (p->s.now.kind != INTEGER) {
    node *n = binary(p, ATTRIBUTE, ADD, of, NULL);
    n->name = sli_parse_name(p);
    return n;
  }
  node *n = binary(p, SUBSCRIPT, ADD, of, sli_parse_constant(p, number(p)));
  sli_source_advance(&p->s);
  return n;
}

static node *slice_part(parser *p) {
  return sli_parse_sees(p, ":") || sli_parse_sees(p, "]") ? NULL : sli_parse_expression(p);
}

static node *subscript(parser *p, node *of) {
  node *from = slice_part(p);
  if (!from && !sli_parse_sees(p, ":")) sli_parse_unexpected(p, "an expression");
  if (!sli_parse_take(p, ":")) {
    sli_parse_expect(p, "]");
    return binary(p, SUBSCRIPT, ADD, of, from);
  }
  node *n = binary(p, SLICE, ADD, of, from);
  n->c = slice_part(p);
  if (sli_parse_take(p, ":")) n->otherwise = slice_part(p);
  sli_parse_expect(p, "]");
  return n;
}

static node *postfix(parser *p, node *n) {
  while (!p->s.status) {
    if (sli_parse_take(p, ".")) n = attribute(p, n);
    else if (sli_parse_take(p, "[")) n = subscript(p, n);
    else if (sli_parse_take(p, "(")) n = call(p, n);
    else break;
  }
  return n;
}

static node *filter(parser *p, node *of) {
  node *n = binary(p, FILTER, ADD, of, NULL);
  n->name = sli_parse_name(p);
  if (!sli_is_filter(n->name)) sli_source_fail(&p->s, "filter \"%.40s\" is not known", n->name);
  if (sli_parse_take(p, "(")) n->items = arguments_of(p);
  return n;
}

/* Returns whether a test's single argument follows without parentheses. */
static bool begins_argument(const parser *p) {
  token_kind kind = p->s.now.kind;
  if (kind == WORD)
    return !sli_parse_sees_word(p, "else") && !sli_parse_sees_word(p, "or") &&
           !sli_parse_sees_word(p, "and") && !sli_parse_sees_word(p, "is") &&
           !sli_parse_sees_word(p, "if");
  return kind == STRING || kind == INTEGER || kind == FLOAT || sli_parse_sees(p, "[") ||
         sli_parse_sees(p, "{");
}

static node *test(parser *p, node *of) {
  node *n = binary(p, TEST, ADD, of, NULL);
  n->negated = sli_parse_take_word(p, "not");
  n->name = sli_parse_name(p);
  if (!sli_is_test(n->name)) sli_source_fail(&p->s, "test \"%.40s\" is not known", n->name);
  if (sli_parse_take(p, "(")) n->items = arguments_of(p);
  else if (begins_argument(p)) {
    n->items = sli_parse_node(p, LIST);
    n->items->a = postfix(p, primary(p));
  }
  return n;
}

static node *filters(parser *p, node *n) {
  while (!p->s.status) {
    if (sli_parse_take(p, "|")) n = filter(p, n);
    else if (sli_parse_take_word(p, "is")) n = test(p, n);
    else if (sli_parse_take(p, "(")) n = call(p, n);
    else break;
  }
  return n;
}

node *sli_parse_filters(parser *p) { return filters(p, filter(p, NULL)); }

/* ---- operators ------------------------------------------------------------------------------- */

static node *unary(parser *p, bool filtered) {
  if (!sli_parse_deeper(p)) return sli_parse_node(p, CONSTANT);
  bool minus = sli_parse_take(p, "-"), plus = !minus && sli_parse_take(p, "+");
  node *n = minus || plus ? binary(p, minus ? NEGATIVE : POSITIVE, ADD, unary(p, false), NULL)
                          : primary(p);
  n = postfix(p, n);
  if (filtered) n = filters(p, n);
  p->depth--;
  return n;
}

/* Operators by precedence, lowest first. */
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
    if (operators[i].level == level && sli_parse_take(p, operators[i].sign))
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
    if (sli_parse_take(p, all[i].sign)) return *op = all[i].op, true;
  if (sli_parse_take_word(p, "in")) return *op = IN, true;
  if (!sli_parse_sees_word(p, "not") || !token_is(&p->s.next, WORD, "in")) return false;
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
  if (!sli_parse_take_word(p, "not")) return comparison(p);
  if (!sli_parse_deeper(p)) return sli_parse_node(p, CONSTANT);
  node *n = binary(p, NOT, ADD, negation(p), NULL);
  p->depth--;
  return n;
}

static node *conjunction(parser *p) {
  node *n = negation(p);
  while (!p->s.status && sli_parse_take_word(p, "and")) n = binary(p, AND, ADD, n, negation(p));
  return n;
}

node *sli_parse_disjunction(parser *p) {
  node *n = conjunction(p);
  while (!p->s.status && sli_parse_take_word(p, "or")) n = binary(p, OR, ADD, n, conjunction(p));
  return n;
}

node *sli_parse_expression(parser *p) {
  if (!sli_parse_deeper(p)) return sli_parse_node(p, CONSTANT);
  node *n = sli_parse_disjunction(p);
  while (!p->s.status && sli_parse_take_word(p, "if")) {
    n = binary(p, IF_ELSE, ADD, sli_parse_disjunction(p), n);
    if (sli_parse_take_word(p, "else")) n->c = sli_parse_expression(p);
  }
  p->depth--;
  return n;
}

/* Parses one expression, or several with commas as a tuple. */
node *sli_parse_expressions(parser *p) {
  node *first = sli_parse_expression(p), **last = &first->next;
  if (!sli_parse_sees(p, ",")) return first;
  node *all = sli_parse_node(p, TUPLE);
  all->items = first;
  while (!p->s.status && sli_parse_take(p, ",") && p->s.now.kind != END_BLOCK &&
         p->s.now.kind != END_OUTPUT) {
    *last = sli_parse_expression(p);
    last = &(*last)->next;
  }
  return all;
}
