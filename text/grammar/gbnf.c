/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars as texts, in llama.cpp's notation (GBNF):
 *
 *     root ::= "[" (item ("," ws item)*)? "]"     # names, texts, groups, comments
 *     item ::= [0-9a-f]{1,4} | "\"" [^"\n]* "\""
 *     ws ::= " "?
 *
 * The text becomes a tree of parts. Rules of a grammar cannot match the empty text, so a part is
 * turned into terms in two ways: with all of its texts, and without the empty one. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/grammar/grammar_inner.h"

typedef enum part_kind {
  PART_TEXT,
  PART_CHARS,
  PART_RULE,
  PART_ROW,
  PART_EITHER,
  PART_REPEAT
} part_kind;

typedef struct part {
  part_kind kind;
  sli_term term;              /* for TEXT and CHARS */
  bool empty;                 /* TEXT: it is empty */
  int32_t rule;               /* for RULE */
  int64_t least, most;        /* for REPEAT */
  struct part *inside, *next; /* first part inside; next part of the enclosing part */
} part;

typedef struct rule {
  char *name;
  part *body; /* NULL: not defined */
  int32_t number;
  bool nullable;
  struct rule *next;
} rule;

typedef struct reader {
  sli_grammar *g;
  const char *begin, *at;
  rule *rules, **last;
  int32_t count, depth;
} reader;

enum { DEEPEST = 64, MOST_RULES = 4096, STEPS_OF_TERM = 4 };

/* ---- tokens of the notation ------------------------------------------------------------------ */

static int line_of(const reader *r) {
  int line = 1;
  for (const char *at = r->begin; at < r->at; at++) line += *at == '\n';
  return line;
}

static void *fail(const reader *r, const char *why) {
  sli_grammar_fail(r->g, SL_E_USAGE, "guided_grammar: line %d: %s", line_of(r), why);
  return NULL;
}

static void skip(reader *r) {
  for (;; r->at++) {
    if (*r->at == '#') r->at += strcspn(r->at, "\n");
    if (!*r->at || !strchr(" \t\r\n", *r->at)) return;
  }
}

static bool take(reader *r, const char *sign) {
  skip(r);
  size_t n = strlen(sign);
  bool there = !strncmp(r->at, sign, n);
  r->at += there ? n : 0;
  return there;
}

static size_t name_at(const char *at) {
  return strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_");
}

/* Reads the digits of a character's number. */
static int32_t take_hex(reader *r, int digits) {
  char text[9] = "";
  memcpy(text, r->at, strnlen(r->at, (size_t)digits));
  char *end;
  unsigned long value = strtoul(text, &end, 16);
  if (end != text + digits || value > SLI_LAST_CHARACTER)
    return fail(r, "a character number is invalid"), 0;
  r->at += digits;
  return (int32_t)value;
}

/* Reads a character of a text or a set. */
static int32_t take_character(reader *r) {
  static const char signs[] = "nrt\\\"[]^-", values[] = "\n\r\t\\\"[]^-";
  if (*r->at != '\\') {
    bool good = true;
    int32_t c = sli_utf8_character(r->at);
    r->at += sli_utf8_next(r->at, strlen(r->at), &good);
    return c;
  }
  char sign = r->at[1];
  const char *found = sign ? strchr(signs, sign) : NULL;
  r->at += sign ? 2 : 1;
  if (found) return values[found - signs];
  if (sign == 'x') return take_hex(r, 2);
  if (sign == 'u') return take_hex(r, 4);
  if (sign == 'U') return take_hex(r, 8);
  return fail(r, "unknown escape"), 0;
}

/* ---- characters ------------------------------------------------------------------------------ */

typedef struct span {
  int32_t low, high;
} span;

static int by_low(const void *a, const void *b) {
  const span *x = a, *y = b;
  return x->low < y->low ? -1 : x->low > y->low;
}

/* Adds edges for characters other than surrogates. */
static void add_edge(sli_grammar *g, sli_chars *chars, int32_t low, int32_t high) {
  int32_t below = SLI_MIN(high, SLI_FIRST_SURROGATE - 1),
          above = SLI_MAX(low, SLI_LAST_SURROGATE + 1);
  if (low <= below) sli_chars_edge_add(g, chars, 0, low, below, 1);
  if (above <= high) sli_chars_edge_add(g, chars, 0, above, high, 1);
}

/* Returns a term for one character in the spans, or for one outside them. */
static sli_term characters(sli_grammar *g, span *of, size_t count, bool others) {
  sli_chars *a = sli_chars_create(g);
  int32_t next = 0;
  if (!a) return 0;
  sli_chars_state(g, a, false);
  sli_chars_state(g, a, true);
  if (count) qsort(of, count, sizeof *of, by_low);
  for (size_t i = 0; i < count && !sli_grammar_failed(g); i++) {
    int32_t low = SLI_MAX(of[i].low, next);
    if (others && low > next) add_edge(g, a, next, low - 1);
    if (!others && low <= of[i].high) add_edge(g, a, low, of[i].high);
    next = SLI_MAX(next, of[i].high + 1);
  }
  if (others && next <= SLI_LAST_CHARACTER) add_edge(g, a, next, SLI_LAST_CHARACTER);
  return sli_grammar_chars(g, a, false);
}

static sli_term take_set(reader *r) {
  span *of = NULL;
  size_t count = 0, room = 0;
  bool others = *r->at == '^';
  r->at += others;
  while (*r->at && *r->at != ']' && !sli_grammar_failed(r->g)) {
    int32_t low = take_character(r), high = low;
    if (*r->at == '-' && r->at[1] && r->at[1] != ']') {
      r->at++;
      high = take_character(r);
    }
    if (SLI_GRAMMAR_GROW(r->g, of, count, room)) of[count++] = (span){low, high};
  }
  if (!*r->at) return fail(r, "a set of characters is not closed"), 0;
  r->at++;
  return characters(r->g, of, count, others);
}

static sli_term take_text(reader *r, bool *empty) {
  sli_term *terms = NULL;
  size_t count = 0, room = 0;
  while (*r->at && *r->at != '"' && !sli_grammar_failed(r->g)) {
    int32_t c = take_character(r);
    sli_term one = characters(r->g, &(span){c, c}, 1, false);
    if (SLI_GRAMMAR_GROW(r->g, terms, count, room)) terms[count++] = one;
  }
  *empty = !count;
  if (!*r->at) return fail(r, "a string is not closed"), 0;
  r->at++;
  return count ? sli_grammar_sequence(r->g, (int)count, terms) : sli_grammar_text(r->g, "", 0);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static part *make(reader *r, part with) {
  part *p = sli_grammar_alloc(r->g, sizeof *p);
  if (p) *p = with;
  return p;
}

/* Returns the rule of a name, and creates it if needed. */
static rule *rule_of(reader *r, const char *name, size_t bytes) {
  for (rule *x = r->rules; x && sli_grammar_spend(r->g, 1); x = x->next)
    if (strlen(x->name) == bytes && !memcmp(x->name, name, bytes)) return x;
  if (r->count++ == MOST_RULES) return fail(r, "there are more than 4096 rules");
  rule *x = sli_grammar_alloc(r->g, sizeof *x);
  char *copy = sli_grammar_alloc(r->g, bytes + 1);
  if (!x || !copy) return NULL;
  memcpy(copy, name, bytes);
  *x = (rule){.name = copy, .number = sli_grammar_rule(r->g)};
  *r->last = x;
  r->last = &x->next;
  return x;
}

static rule *rule_at(const reader *r, int32_t number) {
  rule *x = r->rules;
  while (x->number != number && sli_grammar_spend(r->g, 1)) x = x->next;
  return x;
}

/* Returns whether the next token is the name of the next rule. */
static bool begins_rule(const reader *r) {
  reader ahead = *r;
  ahead.at += name_at(ahead.at);
  return ahead.at > r->at && take(&ahead, "::=");
}

static part *take_either(reader *r);

static part *take_one(reader *r) {
  part p = {.kind = PART_CHARS};
  skip(r);
  size_t name = name_at(r->at);
  if (take(r, "(")) {
    part *within = take_either(r);
    return take(r, ")") ? within : fail(r, "a bracket is not closed");
  }
  if (take(r, "\"")) {
    p.kind = PART_TEXT;
    p.term = take_text(r, &p.empty);
  } else if (take(r, "[")) p.term = take_set(r);
  else if (take(r, ".")) p.term = characters(r->g, NULL, 0, true);
  else if (name) {
    rule *x = rule_of(r, r->at, name);
    r->at += name;
    p = (part){.kind = PART_RULE, .rule = x ? x->number : 0};
  } else return fail(r, "expected a string, a set, a name or a bracket");
  return make(r, p);
}

/* Reads {2}, {2,} or {2,5}. */
static void take_counts(reader *r, part *p) {
  char *end;
  skip(r);
  p->least = p->most = strtol(r->at, &end, 10);
  bool good = end > r->at;
  r->at = end;
  if (take(r, ",")) {
    skip(r);
    p->most = strtol(r->at, &end, 10);
    if (end == r->at) p->most = -1;
    r->at = end;
  }
  if (!good || !take(r, "}") || p->least < 0) fail(r, "a repetition must be {2}, {2,} or {2,5}");
}

static part *take_repeated(reader *r) {
  part *one = take_one(r);
  while (one) {
    part p = {.kind = PART_REPEAT, .inside = one, .most = -1};
    if (take(r, "+")) p.least = 1;
    else if (take(r, "?")) p.most = 1;
    else if (take(r, "{")) take_counts(r, &p);
    else if (!take(r, "*")) return one;
    one = make(r, p);
  }
  return one;
}

static part *take_row(reader *r) {
  part *row = make(r, (part){.kind = PART_ROW}), **last = row ? &row->inside : NULL;
  for (skip(r); last && *r->at && !strchr("|)", *r->at) && !begins_rule(r); skip(r)) {
    if (!(*last = take_repeated(r))) return NULL;
    last = &(*last)->next;
  }
  return row;
}

static part *take_either(reader *r) {
  part *either = make(r, (part){.kind = PART_EITHER}), **last = either ? &either->inside : NULL;
  if (++r->depth > DEEPEST) return fail(r, "brackets are nested too deeply");
  do {
    if (!last || !(*last = take_row(r))) return NULL;
    last = &(*last)->next;
  } while (take(r, "|"));
  r->depth--;
  return either;
}

static void take_rule(reader *r) {
  size_t name = name_at(r->at);
  rule *x = name ? rule_of(r, r->at, name) : fail(r, "expected a rule: NAME ::= ...");
  if (!x) return;
  if (x->body) fail(r, "the rule is defined twice");
  r->at += name;
  if (!take(r, "::=")) fail(r, "::= must follow the name of a rule");
  x->body = sli_grammar_failed(r->g) ? NULL : take_either(r);
  skip(r);
}

/* ---- terms ----------------------------------------------------------------------------------- */

static bool is_nullable(const reader *r, const part *p) {
  bool any = false, all = true;
  if (!sli_grammar_spend(r->g, 1)) return true;
  if (p->kind == PART_TEXT) return p->empty;
  if (p->kind == PART_CHARS) return false;
  if (p->kind == PART_RULE) return rule_at(r, p->rule)->nullable;
  for (const part *x = p->inside; x; x = x->next) {
    bool is = is_nullable(r, x);
    any |= is;
    all &= is;
  }
  return p->kind == PART_EITHER ? any : p->kind == PART_ROW ? all : !p->least || all;
}

static void find_nullable(reader *r) {
  for (bool more = true; more && !sli_grammar_failed(r->g);) {
    more = false;
    for (rule *x = r->rules; x; x = x->next)
      if (!x->nullable && is_nullable(r, x->body)) x->nullable = more = true;
  }
}

static sli_term all_texts(reader *r, const part *p);
static sli_term some_text(reader *r, const part *p);

/* Lists the terms of the parts from p on. */
static int list(reader *r, const part *p, sli_term (*term)(reader *r, const part *p),
                sli_term **out) {
  int n = 0;
  size_t count = 1;
  *out = NULL;
  for (const part *x = p; x && sli_grammar_spend(r->g, STEPS_OF_TERM); x = x->next) count++;
  if (sli_grammar_failed(r->g)) return 0;
  *out = sli_grammar_alloc(r->g, count * sizeof **out);
  for (const part *x = p; x && *out; x = x->next) (*out)[n++] = term(r, x);
  return *out ? n : 0;
}

static sli_term row_from(reader *r, const part *first, const part *p) {
  sli_term *terms;
  int n = list(r, p, all_texts, &terms);
  if (!terms) return 0;
  if (first && n) terms[0] = some_text(r, first);
  return sli_grammar_sequence(r->g, n, terms);
}

static sli_term maybe(reader *r, bool is, sli_term term) {
  return is ? sli_grammar_repeat(r->g, term, 0, 1) : term;
}

/* Returns all texts of a part. */
static sli_term all_texts(reader *r, const part *p) {
  sli_term *terms;
  bool nullable = is_nullable(r, p);
  switch (p->kind) {
  case PART_TEXT:
  case PART_CHARS: return p->term;
  case PART_RULE: return maybe(r, nullable, sli_grammar_call(r->g, p->rule));
  case PART_ROW: return row_from(r, NULL, p->inside);
  case PART_REPEAT:
    if (is_nullable(r, p->inside)) return maybe(r, true, some_text(r, p));
    return sli_grammar_repeat(r->g, all_texts(r, p->inside), p->least, p->most);
  default: {
    int n = list(r, p->inside, all_texts, &terms);
    return terms ? sli_grammar_either(r->g, n, terms) : 0;
  }
  }
}

/* Returns the non-empty texts of a row: the parts before the first non-empty one are empty. */
static sli_term some_row(reader *r, const part *p) {
  sli_term out = 0;
  for (const part *x = p; x && !sli_grammar_failed(r->g); x = x->next) {
    sli_term term = row_from(r, x, x);
    out = out ? sli_grammar_either(r->g, 2, (sli_term[]){out, term}) : term;
    if (!is_nullable(r, x)) break;
  }
  return out;
}

/* Returns the non-empty texts of a part, or 0 if there are none. */
static sli_term some_text(reader *r, const part *p) {
  sli_term *terms;
  switch (p->kind) {
  case PART_TEXT: return p->empty ? 0 : p->term;
  case PART_CHARS: return p->term;
  case PART_RULE: return sli_grammar_call(r->g, p->rule);
  case PART_ROW: return some_row(r, p->inside);
  case PART_REPEAT:
    if (!p->most) return 0;
    return sli_grammar_repeat(r->g, some_text(r, p->inside),
                              is_nullable(r, p->inside) ? 1 : SLI_MAX(p->least, 1), p->most);
  default: {
    int n = list(r, p->inside, some_text, &terms);
    return terms ? sli_grammar_either(r->g, n, terms) : 0;
  }
  }
}

sli_term sli_grammar_gbnf(sli_grammar *g, const char *text) {
  reader r = {.g = g, .begin = text, .at = text};
  r.last = &r.rules;
  const rule *root = rule_of(&r, "root", strlen("root"));
  for (skip(&r); *r.at && !sli_grammar_failed(g);) take_rule(&r);
  for (const rule *x = r.rules; x && !sli_grammar_failed(g); x = x->next)
    if (!x->body)
      sli_grammar_fail(g, SL_E_USAGE, "guided_grammar: there is no rule %.80s", x->name);
  if (sli_grammar_failed(g)) return 0;
  find_nullable(&r);
  for (rule *x = r.rules; x; x = x->next) {
    sli_term term = some_text(&r, x->body);
    if (!sli_grammar_failed(g)) g->rules[x->number].term = term;
  }
  return maybe(&r, root->nullable, sli_grammar_call(g, root->number));
}
