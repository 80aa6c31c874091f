/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions in ECMAScript's syntax. A pattern becomes a tree, the tree a nondeterministic
 * automaton, and that a deterministic one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/grammar/grammar_inner.h"

enum { MOST_PATTERN = 1 << 14, MOST_DEPTH = 100, MOST_PARTS = 1 << 15, SORTED_STEPS = 8 };

typedef struct range {
  int32_t low, high;
} range;

/* A set of characters: sorted ranges that do not touch, once it is settled. */
typedef struct set {
  range *ranges;
  size_t count, capacity;
} set;

typedef struct tree {
  enum { EMPTY, SET, SEQUENCE, EITHER, REPEAT, BEGIN, END } kind;
  set set;
  struct tree *left, *right; /* right: for SEQUENCE and EITHER */
  int64_t least, most;       /* for REPEAT; most below 0: any number */
} tree;

typedef struct parser {
  sli_grammar *g;
  const char *where, *pattern, *at;
  int depth;
} parser;

static tree *refuse(parser *p, const char *what) {
  sli_grammar_fail(p->g, SL_E_USAGE, "%s%spattern %.200s: %s, at byte %zu",
                   p->where ? p->where : "", p->where ? ": " : "", p->pattern, what,
                   (size_t)(p->at - p->pattern));
  return NULL;
}

static tree *add_tree(parser *p, tree t) {
  tree *out = sli_grammar_alloc(p->g, sizeof *out);
  if (out) *out = t;
  return out;
}

/* ---- sets of characters ---------------------------------------------------------------------- */

static void add_range(parser *p, set *s, int32_t low, int32_t high) {
  if (sli_grammar_spend(p->g, 1) && SLI_GRAMMAR_GROW(p->g, s->ranges, s->count, s->capacity))
    s->ranges[s->count++] = (range){low, high};
}

static int by_low(const void *a, const void *b) {
  const range *x = a, *y = b;
  return x->low < y->low ? -1 : x->low > y->low;
}

/* Sorts and joins the ranges. */
static void settle(set *s) {
  size_t n = 0;
  if (s->count) qsort(s->ranges, s->count, sizeof *s->ranges, by_low);
  for (size_t i = 0; i < s->count; i++) {
    if (n && s->ranges[i].low <= s->ranges[n - 1].high + 1)
      s->ranges[n - 1].high = SLI_MAX(s->ranges[n - 1].high, s->ranges[i].high);
    else s->ranges[n++] = s->ranges[i];
  }
  s->count = n;
}

/* Makes the set of all other characters. */
static set invert(parser *p, set s) {
  set out = {0};
  int32_t from = 0;
  settle(&s);
  for (size_t i = 0; i < s.count; i++) {
    if (s.ranges[i].low > from) add_range(p, &out, from, s.ranges[i].low - 1);
    from = s.ranges[i].high + 1;
  }
  if (from <= SLI_LAST_CHARACTER) add_range(p, &out, from, SLI_LAST_CHARACTER);
  return out;
}

/* Adds a set or its complement. */
static void add_set(parser *p, set *to, set s, bool inverted) {
  if (inverted) s = invert(p, s);
  for (size_t i = 0; i < s.count; i++) add_range(p, to, s.ranges[i].low, s.ranges[i].high);
}

static set set_of(parser *p, const range *ranges, size_t count) {
  set s = {0};
  for (size_t i = 0; i < count; i++) add_range(p, &s, ranges[i].low, ranges[i].high);
  return s;
}

/* Adds the class of an escape such as \d. Returns false if there is no such class. */
static bool add_class(parser *p, set *to, char c) {
  static const range digits[] = {{'0', '9'}},
                     word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                     space[] = {{9, 13},          {' ', ' '},       {0xa0, 0xa0},
                                {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
                                {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
                                {0xfeff, 0xfeff}};
  bool inverted = c >= 'A' && c <= 'Z';
  switch (c) {
  case 'd':
  case 'D': add_set(p, to, set_of(p, digits, SLI_COUNT(digits)), inverted); return true;
  case 'w':
  case 'W': add_set(p, to, set_of(p, word, SLI_COUNT(word)), inverted); return true;
  case 's':
  case 'S': add_set(p, to, set_of(p, space, SLI_COUNT(space)), inverted); return true;
  default: return false;
  }
}

/* ---- characters ------------------------------------------------------------------------------ */

static int32_t take_character(parser *p) {
  bool good;
  int32_t character = sli_utf8_character(p->at);
  p->at += sli_utf8_next(p->at, strlen(p->at), &good);
  return character;
}

/* Reads exactly n hexadecimal digits. Returns a negative value if there are fewer. */
static int32_t take_hex(parser *p, int n) {
  int32_t value = 0;
  for (int i = 0; i < n; i++) {
    char digit[] = {p->at[i], 0}, *end;
    value = value * 16 + (int32_t)strtol(digit, &end, 16);
    if (!*digit || *end || *digit == ' ' || *digit == '+' || *digit == '-') return -1;
  }
  p->at += n;
  return value;
}

/* Reads \u0041, a surrogate pair, or \u{1f600}. p->at is after the u. */
static int32_t take_unicode(parser *p) {
  if (*p->at == '{') {
    int digits = (int)strspn(p->at + 1, "0123456789abcdefABCDEF");
    if (!digits || digits > 6 || p->at[digits + 1] != '}') return -1;
    p->at++;
    int32_t value = take_hex(p, digits);
    p->at++;
    return value;
  }
  int32_t high = take_hex(p, 4);
  if (high < 0xd800 || high > 0xdbff || strncmp(p->at, "\\u", 2)) return high;
  p->at += 2;
  int32_t low = take_hex(p, 4);
  return low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

static int32_t control(parser *p) {
  char c = *p->at;
  if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) return -1;
  p->at++;
  return c % 32;
}

/* Reads an escape that denotes one character. p->at is after the backslash. Returns a negative
 * value if it denotes none; the pattern is then refused. */
static int32_t take_escape(parser *p) {
  static const char names[] = "tnvfr", values[] = "\t\n\v\f\r";
  char c = *p->at;
  const char *name = c ? strchr(names, c) : NULL;
  int32_t value = -1;
  if (!c) refuse(p, "a backslash at the end");
  else if (c & 0x80) return take_character(p);
  else if (++p->at, name) return values[name - names];
  else if (c == '0' && !(*p->at >= '0' && *p->at <= '9')) return 0;
  else if (c == 'x') value = take_hex(p, 2);
  else if (c == 'u') value = take_unicode(p);
  else if (c == 'c') value = control(p);
  else if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) return c;
  if (c && (value < 0 || value > SLI_LAST_CHARACTER)) {
    char what[80];
    snprintf(what, sizeof what, "the escape \\%c is not supported", c);
    refuse(p, what);
  }
  return value;
}

/* Reads a member of a class in brackets: a character, or a set, which is added and returned as
 * -2. */
static int32_t take_member(parser *p, set *to) {
  if (*p->at != '\\') return take_character(p);
  p->at++;
  if (add_class(p, to, *p->at)) return p->at++, -2;
  if (*p->at == 'b') return p->at++, '\b';
  if (*p->at == '-') return p->at++, '-';
  return take_escape(p);
}

/* Reads one member, or a range of them. */
static void take_members(parser *p, set *to) {
  int32_t low = take_member(p, to), high;
  if (*p->at != '-' || !p->at[1] || p->at[1] == ']') {
    if (low >= 0) add_range(p, to, low, low);
    return;
  }
  p->at++;
  high = take_member(p, to);
  if (low == -2 || high == -2) {
    add_range(p, to, '-', '-');
    if (low >= 0) add_range(p, to, low, low);
    if (high >= 0) add_range(p, to, high, high);
  } else if (low > high) refuse(p, "a range ends before it begins");
  else add_range(p, to, low, high);
}

static tree *take_class(parser *p) {
  set s = {0};
  bool inverted = *++p->at == '^';
  p->at += inverted;
  while (*p->at && *p->at != ']' && !sli_grammar_failed(p->g)) take_members(p, &s);
  if (!*p->at) return refuse(p, "a [ without its ]");
  p->at++;
  if (inverted) s = invert(p, s);
  return add_tree(p, (tree){.kind = SET, .set = s});
}

static tree *any_but_line_ends(parser *p) {
  static const range ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  set s = {0};
  add_set(p, &s, set_of(p, ends, SLI_COUNT(ends)), true);
  return add_tree(p, (tree){.kind = SET, .set = s});
}

static tree *one(parser *p, int32_t character) {
  set s = {0};
  add_range(p, &s, character, character);
  return add_tree(p, (tree){.kind = SET, .set = s});
}

/* ---- trees ----------------------------------------------------------------------------------- */

static tree *take_either(parser *p);

/* Skips the beginning of a group. Returns false if that kind of group is not supported. */
static bool take_group_kind(parser *p) {
  if (*p->at != '?') return true;
  if (p->at[1] == ':') return p->at += 2, true;
  if (p->at[1] == '=' || p->at[1] == '!') return refuse(p, "lookahead is not supported"), false;
  const char *name = p->at + 1 + (p->at[1] == 'P');
  if (*name != '<') return refuse(p, "a group of this kind is not supported"), false;
  if (name[1] == '=' || name[1] == '!') return refuse(p, "lookbehind is not supported"), false;
  const char *end = strchr(name, '>');
  if (!end) return refuse(p, "a group name without its >"), false;
  p->at = end + 1;
  return true;
}

static tree *take_group(parser *p) {
  if (++p->depth > MOST_DEPTH) return refuse(p, "groups are nested too deeply");
  p->at++;
  tree *t = take_group_kind(p) ? take_either(p) : NULL;
  if (t && *p->at != ')') return refuse(p, "a ( without its )");
  p->at++;
  p->depth--;
  return t;
}

static tree *take_escaped(parser *p) {
  set s = {0};
  p->at++;
  if (*p->at == 'b' || *p->at == 'B') return refuse(p, "word boundaries are not supported");
  if (*p->at == 'p' || *p->at == 'P') return refuse(p, "Unicode classes \\p are not supported");
  if ((*p->at >= '1' && *p->at <= '9') || *p->at == 'k')
    return refuse(p, "backreferences are not supported");
  if (add_class(p, &s, *p->at)) return p->at++, add_tree(p, (tree){.kind = SET, .set = s});
  int32_t character = take_escape(p);
  return character < 0 ? NULL : one(p, character);
}

static tree *take_atom(parser *p) {
  switch (*p->at) {
  case '(': return take_group(p);
  case '[': return take_class(p);
  case '\\': return take_escaped(p);
  case '.': return p->at++, any_but_line_ends(p);
  case '^': return p->at++, add_tree(p, (tree){.kind = BEGIN});
  case '$': return p->at++, add_tree(p, (tree){.kind = END});
  case '*':
  case '+':
  case '?': return refuse(p, "nothing to repeat");
  default: return one(p, take_character(p));
  }
}

/* Reads {2}, {2,} or {2,5}. Returns false for anything else. */
static bool take_counts(parser *p, int64_t *least, int64_t *most) {
  char *end;
  if (*p->at != '{' || p->at[1] < '0' || p->at[1] > '9') return false;
  *least = *most = strtoll(p->at + 1, &end, 10);
  if (*end == ',') {
    const char *from = end + 1;
    bool digit = *from >= '0' && *from <= '9';
    *most = digit ? strtoll(from, &end, 10) : (end++, -1);
  }
  if (*end != '}') return false;
  p->at = end + 1;
  return true;
}

static bool take_times(parser *p, int64_t *least, int64_t *most) {
  char c = *p->at;
  if (take_counts(p, least, most)) return true;
  if (!c || !strchr("*+?", c)) return false;
  *least = c == '+';
  *most = c == '?' ? 1 : -1;
  p->at++;
  return true;
}

static tree *take_repeated(parser *p) {
  tree *t = take_atom(p);
  int64_t least, most;
  while (t && take_times(p, &least, &most)) {
    if (*p->at == '?') p->at++; /* matches the same texts */
    else if (*p->at == '+') return refuse(p, "possessive quantifiers are not supported");
    if (most >= 0 && least > most) return refuse(p, "the minimum is greater than the maximum");
    if (least > SLI_MOST_REPEATS || most > SLI_MOST_REPEATS)
      return refuse(p, "too many repetitions");
    t = add_tree(p, (tree){.kind = REPEAT, .left = t, .least = least, .most = most});
  }
  return t;
}

static tree *take_sequence(parser *p) {
  tree *t = NULL;
  while (*p->at && *p->at != '|' && *p->at != ')') {
    tree *next = take_repeated(p);
    if (!next) return NULL;
    t = t ? add_tree(p, (tree){.kind = SEQUENCE, .left = t, .right = next}) : next;
  }
  return t ? t : add_tree(p, (tree){.kind = EMPTY});
}

static tree *take_either(parser *p) {
  tree *t = take_sequence(p);
  while (t && *p->at == '|') {
    p->at++;
    tree *next = take_sequence(p);
    t = next ? add_tree(p, (tree){.kind = EITHER, .left = t, .right = next}) : NULL;
  }
  return t;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

typedef struct part {
  enum { FINAL, AT_SET, SPLIT, AT_BEGIN, AT_END } kind;
  const set *set;
  int32_t to, other; /* other: for SPLIT; -1 if none */
} part;

typedef struct builder {
  sli_grammar *g;
  part *parts;
  size_t count, capacity;
  sli_chars *out;
  int32_t **sets; /* [out->count] nodes of each state: their number, then the nodes */
  size_t sets_room;
  int32_t *slots; /* hash table of states, by their nodes; -1 if free */
  size_t nslots;
  int32_t *now; /* nodes of the state being made */
  size_t nnow, now_room;
  bool *on; /* [count] */
} builder;

static int32_t add_part(builder *b, part x) {
  if (b->count >= MOST_PARTS) sli_grammar_fail(b->g, SL_E_USAGE, "a pattern is too large");
  if (!SLI_GRAMMAR_GROW(b->g, b->parts, b->count, b->capacity)) return 0;
  b->parts[b->count] = x;
  return (int32_t)b->count++;
}

static int32_t build(builder *b, tree *t, int32_t to);

/* Builds a loop: a split that leads to the tree, which leads back. */
static int32_t build_any(builder *b, tree *t, int32_t to) {
  int32_t split = add_part(b, (part){.kind = SPLIT, .to = to, .other = -1});
  int32_t begin = build(b, t, split);
  if (!sli_grammar_failed(b->g)) b->parts[split].other = begin;
  return split;
}

static int32_t build_repeat(builder *b, tree *t, int32_t to) {
  int32_t end = to;
  if (t->most < 0) to = build_any(b, t->left, to);
  for (int64_t i = t->least; i < t->most && !sli_grammar_failed(b->g); i++)
    to = add_part(b, (part){.kind = SPLIT, .to = build(b, t->left, to), .other = end});
  for (int64_t i = 0; i < t->least && !sli_grammar_failed(b->g); i++) to = build(b, t->left, to);
  return to;
}

/* Adds the nodes of a tree that continues at `to`. Returns the first. */
static int32_t build(builder *b, tree *t, int32_t to) {
  switch (t->kind) {
  case SET: return settle(&t->set), add_part(b, (part){.kind = AT_SET, .set = &t->set, .to = to});
  case SEQUENCE: return build(b, t->left, build(b, t->right, to));
  case EITHER: {
    int32_t left = build(b, t->left, to), right = build(b, t->right, to);
    return add_part(b, (part){.kind = SPLIT, .to = left, .other = right});
  }
  case REPEAT: return build_repeat(b, t, to);
  case BEGIN: return add_part(b, (part){.kind = AT_BEGIN, .to = to});
  case END: return add_part(b, (part){.kind = AT_END, .to = to});
  default: return to;
  }
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Adds a node, and all nodes that it leads to without a character. */
static void visit(builder *b, int32_t x, bool at_begin, bool at_end) {
  if (x < 0 || b->on[x] || !sli_grammar_spend(b->g, 1)) return;
  const part *p = &b->parts[x];
  b->on[x] = true;
  if (SLI_GRAMMAR_GROW(b->g, b->now, b->nnow, b->now_room)) b->now[b->nnow++] = x;
  bool passes =
      p->kind == SPLIT || (p->kind == AT_BEGIN && at_begin) || (p->kind == AT_END && at_end);
  if (!passes) return;
  visit(b, p->to, at_begin, at_end);
  if (p->kind == SPLIT) visit(b, p->other, at_begin, at_end);
}

static void forget_now(builder *b) {
  for (size_t i = 0; i < b->nnow; i++) b->on[b->now[i]] = false;
  b->nnow = 0;
}

/* Returns whether a text may end in the current nodes. */
static bool may_end(builder *b, bool at_begin) {
  size_t n = b->nnow;
  bool end = false;
  for (size_t i = 0; i < n; i++) {
    const part *p = &b->parts[b->now[i]];
    if (p->kind == AT_END) visit(b, p->to, at_begin, true);
  }
  for (size_t i = 0; i < b->nnow; i++) end |= b->parts[b->now[i]].kind == FINAL;
  for (size_t i = n; i < b->nnow; i++) b->on[b->now[i]] = false;
  b->nnow = n;
  return end;
}

static int by_number(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return x < y ? -1 : x > y;
}

static int32_t *slot_of(const builder *b, const int32_t *parts, size_t count) {
  uint64_t hash = sli_hash(SLI_HASH_SEED, parts, count * sizeof *parts);
  for (size_t at = hash & (b->nslots - 1);; at = (at + 1) & (b->nslots - 1)) {
    int32_t *slot = &b->slots[at];
    const int32_t *other = *slot < 0 ? NULL : b->sets[*slot];
    if (!other || ((size_t)other[0] == count && !memcmp(other + 1, parts, count * sizeof *parts)))
      return slot;
  }
}

/* Keeps half of the table empty. The first state is not in it, because more is possible at the
 * beginning. */
static bool grow_table(builder *b) {
  if (2 * (b->out->count + 1) < b->nslots) return true;
  b->nslots = SLI_MAX(2 * b->nslots, (size_t)64);
  b->slots = sli_grammar_alloc(b->g, b->nslots * sizeof *b->slots);
  if (!b->slots) return false;
  memset(b->slots, 0xff, b->nslots * sizeof *b->slots);
  for (size_t i = 1; i < b->out->count; i++)
    *slot_of(b, b->sets[i] + 1, (size_t)b->sets[i][0]) = (int32_t)i;
  return true;
}

/* Adds a state of the current nodes. */
static int32_t add_state(builder *b, bool first) {
  size_t bytes = b->nnow * sizeof *b->now;
  if (!SLI_GRAMMAR_GROW(b->g, b->sets, b->out->count, b->sets_room)) return 0;
  int32_t *copy = sli_grammar_alloc(b->g, bytes + sizeof *copy);
  if (!copy) return 0;
  copy[0] = (int32_t)b->nnow;
  if (bytes) memcpy(copy + 1, b->now, bytes);
  b->sets[b->out->count] = copy;
  return sli_chars_state(b->g, b->out, may_end(b, first));
}

/* Returns the state of the current nodes. */
static int32_t state_of_now(builder *b) {
  if (!sli_grammar_spend(b->g, SORTED_STEPS * b->nnow) || !grow_table(b)) return 0;
  qsort(b->now, b->nnow, sizeof *b->now, by_number);
  int32_t *slot = slot_of(b, b->now, b->nnow);
  if (*slot < 0) *slot = add_state(b, false);
  return *slot;
}

static bool has(const set *s, int32_t character) {
  size_t low = 0, high = s->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (character < s->ranges[middle].low) high = middle;
    else if (character > s->ranges[middle].high) low = middle + 1;
    else return true;
  }
  return false;
}

/* Lists where ranges of the nodes of a state begin or have ended. */
static size_t find_bounds(builder *b, const int32_t *parts, int32_t **out) {
  int32_t *bounds = NULL;
  size_t count = 0, capacity = 0, n = 0;
  for (int32_t i = 1; i <= parts[0]; i++) {
    const part *p = &b->parts[parts[i]];
    if (!sli_grammar_spend(b->g, p->kind == AT_SET ? SORTED_STEPS * p->set->count : 1)) break;
    for (size_t r = 0; p->kind == AT_SET && r < p->set->count; r++)
      for (int end = 0; end < 2; end++)
        if (SLI_GRAMMAR_GROW(b->g, bounds, count, capacity))
          bounds[count++] = end ? p->set->ranges[r].high + 1 : p->set->ranges[r].low;
  }
  if (count) qsort(bounds, count, sizeof *bounds, by_number);
  for (size_t i = 0; i < count; i++)
    if (!n || bounds[i] != bounds[n - 1]) bounds[n++] = bounds[i];
  *out = bounds;
  return n;
}

static void add_edge(builder *b, int32_t state, int32_t low, int32_t high, int32_t to) {
  if (low < SLI_FIRST_SURROGATE)
    sli_chars_edge_add(b->g, b->out, state, low, SLI_MIN(high, SLI_FIRST_SURROGATE - 1), to);
  if (high > SLI_LAST_SURROGATE)
    sli_chars_edge_add(b->g, b->out, state, SLI_MAX(low, SLI_LAST_SURROGATE + 1), high, to);
}

/* Adds the edges of a state. */
static void build_edges(builder *b, int32_t state) {
  const int32_t *parts = b->sets[state];
  int32_t *bounds;
  size_t n = find_bounds(b, parts, &bounds);
  for (size_t i = 0; i + 1 < n && sli_grammar_spend(b->g, (size_t)parts[0]); i++) {
    for (int32_t k = 1; k <= parts[0]; k++) {
      const part *p = &b->parts[parts[k]];
      if (p->kind == AT_SET && has(p->set, bounds[i])) visit(b, p->to, false, false);
    }
    if (b->nnow) add_edge(b, state, bounds[i], bounds[i + 1] - 1, state_of_now(b));
    forget_now(b);
  }
}

/* Builds the automaton of a tree. With `within`, other characters may surround its texts. */
static sli_chars *determine(sli_grammar *g, tree *t, bool within) {
  static range every[] = {{0, SLI_LAST_CHARACTER}};
  tree any = {.kind = SET, .set = {every, 1, 1}},
       around = {.kind = REPEAT, .left = &any, .most = -1};
  builder b = {.g = g, .out = sli_chars_create(g)};
  int32_t final = add_part(&b, (part){.kind = FINAL});
  int32_t begin = build(&b, t, within ? build(&b, &around, final) : final);
  if (within) begin = build(&b, &around, begin);
  b.on = sli_grammar_alloc(g, b.count);
  if (!b.on) return NULL;
  visit(&b, begin, true, false);
  add_state(&b, true);
  forget_now(&b);
  for (size_t i = 0; i < b.out->count && !sli_grammar_failed(g); i++) build_edges(&b, (int32_t)i);
  return sli_grammar_failed(g) ? NULL : b.out;
}

sli_chars *sli_chars_of_regex(sli_grammar *g, const char *where, const char *pattern, bool within) {
  parser p = {.g = g, .where = where, .pattern = pattern, .at = pattern};
  if (strlen(pattern) > MOST_PATTERN) return refuse(&p, "it is too long"), NULL;
  tree *t = take_either(&p);
  if (t && *p.at) return refuse(&p, "a ) without its ("), NULL;
  return t ? determine(g, t, within) : NULL;
}
