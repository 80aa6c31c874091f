/* SPDX-License-Identifier: Apache-2.0 */
/* Translates Oniguruma's syntax to PCRE2's, by recursive descent. Every part is parsed with
 * Oniguruma's rules and written in unambiguous syntax: characters by number, classes by member,
 * flags by group, and no numbered groups. */
#include "text/tokenizer/pattern.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/number.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer_inner.h"

enum { MOST_DEPTH = 100, MOST_REPEAT = 65535, LAST_CHARACTER = 0x10ffff, NO_CHARACTER = -1 };

typedef struct flags {
  bool caseless, any, extended; /* `any`: a dot matches newlines too */
} flags;

typedef struct reader {
  const char *begin, *at;
  text_row out;
  flags flags;
  int depth;
  bool negated;         /* the current class, or an enclosing one, is negated */
  int32_t last, before; /* the characters just written, if adjacent; for case folding */
  sl_status status;
} reader;

/* Kind of item, for quantifiers. */
typedef enum item { NOTHING, ONE, PLACE } item;

static void alternatives(reader *r);

/* ---- reading and writing --------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void refuse(reader *r, const char *format, ...) {
  if (r->status) return;
  char what[160];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  r->status =
      sl_fail(SL_E_INPUT, "pattern \"%.80s\", byte %td: %s", r->begin, r->at - r->begin, what);
  r->at += strlen(r->at);
}

static void pattern_add(text_row *out, const char *text) { sli_text_add(out, text, strlen(text)); }

static void add_number(text_row *out, int32_t character) {
  char text[16];
  snprintf(text, sizeof text, "\\x{%x}", (unsigned)character);
  pattern_add(out, text);
}

static void insert(text_row *out, size_t at, const char *text) {
  size_t n = strlen(text), behind = out->count - at;
  pattern_add(out, text);
  memmove(out->items + at + n, out->items + at, behind);
  memcpy(out->items + at, text, n);
}

static bool pattern_take(reader *r, const char *text) {
  size_t n = strlen(text);
  if (strncmp(r->at, text, n)) return false;
  r->at += n;
  return true;
}

static int32_t next_character(reader *r) {
  bool good = false;
  size_t n = *r->at ? sli_utf8_next(r->at, strnlen(r->at, 4), &good) : 0;
  if (!good) return refuse(r, "invalid UTF-8"), NO_CHARACTER;
  r->at += n;
  return sli_utf8_character(r->at - n);
}

/* Reads the digits of a number. Returns -1 if there are fewer than `least`. */
static long digits(reader *r, int base, int least, int most) {
  long value = 0;
  int n = 0;
  for (; n < most; n++) {
    int digit = sli_hex_digit(r->at[n]);
    if (digit < 0 || digit >= base) break;
    value = value * base + digit;
  }
  if (n < least) return -1;
  r->at += n;
  return value;
}

/* ---- characters ------------------------------------------------------------------------------ */

static int32_t checked(reader *r, long value) {
  bool good = value >= 0 && value <= LAST_CHARACTER && !(value >= 0xd800 && value < 0xe000);
  if (!good) refuse(r, "an escape of no character");
  return good ? (int32_t)value : NO_CHARACTER;
}

/* Reads \xHH or \x{H...}. \xHH from 80 on would be a byte and is rejected. */
static int32_t hex_escape(reader *r) {
  if (!pattern_take(r, "{")) {
    long value = digits(r, 16, 1, 2);
    if (value > 0x7f)
      return refuse(r, "\\x of a byte is not supported, \\x{...} and \\u are"), NO_CHARACTER;
    return checked(r, value);
  }
  long value = digits(r, 16, 1, 8);
  if (!pattern_take(r, "}")) value = -1;
  return checked(r, value);
}

/* Reads the character of an escape, after its backslash. Returns NO_CHARACTER if it is something
 * else; nothing is consumed then. */
static int32_t escaped_character(reader *r) {
  static const char names[] = "tnrfvae", values[] = "\t\n\r\f\v\a\x1b";
  char c = *r->at;
  const char *name = c ? strchr(names, c) : NULL;
  if (name) return r->at++, values[name - names];
  if (pattern_take(r, "x")) return hex_escape(r);
  if (pattern_take(r, "u")) return checked(r, digits(r, 16, 4, 4));
  if (pattern_take(r, "0")) return checked(r, digits(r, 8, 0, 2));
  if (isalnum((unsigned char)c) || !c) return NO_CHARACTER;
  return next_character(r);
}

/* ---- case ------------------------------------------------------------------------------------ */

/* Oniguruma also matches one character with several that fold alike ("ss", "fi"); PCRE2 does
 * not. Letters are supported if their case folds to a single character in every way, and pairs
 * if no single character folds to them. */
static bool folds_alone(int32_t c) {
  bool latin = c >= 0xc0 && c < 0x180 && c != 0xdf && c != 0x130 && c != 0x131 && c != 0x149 &&
               c != 0x17f && c != 0x1f0;
  bool without = (c >= 0x80 && c < 0xc0 && c != 0xb5) || (c >= 0x2010 && c <= 0x2027) ||
                 (c >= 0x3000 && c < 0xa000) || (c >= 0xac00 && c < 0xd7a4);
  return c < 0x80 || latin || without || (c >= 0x400 && c < 0x482);
}

static void check_case(reader *r, int32_t c) {
  static const char *const pairs[] = {"ss", "st", "ff", "fi", "fl"};
  if (!r->flags.caseless) return;
  if (!folds_alone(c)) refuse(r, "U+%04X where case does not matter is not supported", (unsigned)c);
  for (size_t i = 0; i < SLI_COUNT(pairs); i++)
    if (c < 0x80 && tolower(r->before) == pairs[i][0] && tolower(c) == pairs[i][1])
      refuse(r, "\"%s\" where case does not matter is not supported", pairs[i]);
}

static item literal(reader *r, int32_t c) {
  if (c == NO_CHARACTER) return NOTHING;
  check_case(r, c);
  if (c < 0x80 && isalnum(c)) sli_text_add(&r->out, &(char){(char)c}, 1);
  else add_number(&r->out, c);
  r->last = c < 0x80 ? c : NO_CHARACTER;
  return ONE;
}

/* ---- classes --------------------------------------------------------------------------------- */

static const property *property_of(const char *name) {
  const property *p = sli_properties;
  while (p->name && strcmp(p->name, name)) p++;
  return p->name ? p : NULL;
}

/* Rejects properties in caseless patterns: there Oniguruma's classes also match other cases, and
 * sequences of several characters. */
static void check_property(reader *r, const property *p) {
  bool plain = !strcmp(p->name, "\\s") || !strcmp(p->name, "\\d") || !strcmp(p->name, "\\h") ||
               !strcmp(p->name, "\\w");
  if (r->flags.caseless && !plain)
    refuse(r, "a property where case does not matter is not supported");
}

/* Writes a match of one character that has the property, or does not have it. */
static void add_property(text_row *out, const property *p, bool negated) {
  const char *parts[6] = {negated ? "[^" : "[", p->has, "]"};
  if (p->lacks) pattern_add(out, negated ? "(?:" : "(?:(?![");
  if (p->lacks && !negated) pattern_add(out, p->lacks), pattern_add(out, "])");
  for (int i = 0; i < 3; i++) pattern_add(out, parts[i]);
  if (p->lacks && negated)
    pattern_add(out, "|["), pattern_add(out, p->lacks), pattern_add(out, "]");
  if (p->lacks) pattern_add(out, ")");
}

/* Reads a name up to `end`, without insignificant characters. Returns false if it is too long or
 * unterminated. */
static bool read_name(reader *r, const char *end, char out[40]) {
  const char *stop = strstr(r->at, end);
  size_t n = 0;
  for (; stop && r->at < stop; r->at++) {
    if (strchr(" _-", *r->at)) continue;
    if (n + 1 == 40 || !isalnum((unsigned char)*r->at)) return false;
    out[n++] = (char)tolower((unsigned char)*r->at);
  }
  out[n] = 0;
  if (stop) r->at += strlen(end);
  return stop && n;
}

/* Reads the property after \p or \P. */
static const property *named_property(reader *r, bool *negated) {
  char name[40];
  const char *begin = r->at;
  if (!pattern_take(r, "{")) return refuse(r, "\\p without braces is not supported"), NULL;
  if (pattern_take(r, "^")) *negated = !*negated;
  const property *p = read_name(r, "}", name) ? property_of(name) : NULL;
  if (!p)
    refuse(r, "property %.*s is not known", (int)SLI_MIN(strcspn(begin, "}") + 1, (size_t)40),
           begin);
  return p;
}

/* Reads the class of an escape, after its backslash. Returns NULL if it is something else. */
static const property *escaped_property(reader *r, bool inside, bool *negated) {
  char c = *r->at;
  if (!c || !strchr("dDhHsSwWpP", c)) return NULL;
  r->at++;
  *negated = isupper((unsigned char)c);
  if (c == 'p' || c == 'P') return named_property(r, negated);
  const char name[] = {inside && tolower(c) == 'w' ? '[' : '\\',
                       inside && tolower(c) == 'w' ? '\\' : (char)tolower(c),
                       inside && tolower(c) == 'w' ? 'w' : 0, 0};
  return property_of(name);
}

/* One operand of &&: members for one pair of brackets, and alternatives, each preceded by a bar. */
typedef struct side {
  text_row members, others;
} side;

static void class(reader *r, text_row *out);

static void add_class(reader *r, side *s, const property *p, bool negated) {
  check_property(r, p);
  if (r->status) return;
  if (!negated && !p->lacks) {
    pattern_add(&s->members, p->has);
    return;
  }
  pattern_add(&s->others, "|");
  add_property(&s->others, p, negated);
}

/* Reads [:alpha:]. */
static bool posix(reader *r, side *s) {
  char name[40];
  if (!pattern_take(r, "[:")) return false;
  bool negated = pattern_take(r, "^");
  const char *begin = r->at;
  const property *p = read_name(r, ":]", name) ? property_of(name) : NULL;
  if (!p) refuse(r, "[:%.*s is not known", (int)SLI_MIN(strcspn(begin, "]"), (size_t)30), begin);
  else add_class(r, s, p, negated);
  return true;
}

/* Reads one character of a class, escaped or not. Returns NO_CHARACTER if a class was added
 * instead. */
static int32_t member(reader *r, side *s) {
  if (*r->at != '\\') return next_character(r);
  r->at++;
  bool negated = false;
  const property *p = escaped_property(r, true, &negated);
  if (p) return add_class(r, s, p, negated), NO_CHARACTER;
  if (pattern_take(r, "b")) return '\b';
  int32_t c = r->status ? NO_CHARACTER : escaped_character(r);
  if (c == NO_CHARACTER) refuse(r, "\\%.1s in a class is not supported", r->at);
  return c;
}

static bool ends_range(const reader *r) {
  return r->at[0] != '-' || r->at[1] == ']' || !strncmp(r->at, "-&&", 3);
}

static void characters(reader *r, side *s, bool first) {
  bool dash = *r->at == '-' && !first && !ends_range(r);
  if (dash) return refuse(r, "a - in a class that is neither first nor last, nor of a range");
  int32_t from = member(r, s), to = from;
  if (from == NO_CHARACTER) return;
  if (!ends_range(r)) {
    r->at++;
    if (r->at[0] == '[') return refuse(r, "a range to a class");
    to = member(r, s);
    if (to == NO_CHARACTER) return refuse(r, "a range to a class");
  }
  if (to < from) return refuse(r, "a range that ends before it begins");
  if (r->flags.caseless && to > 0x7f && !(from == to && folds_alone(to)))
    return refuse(r, "U+%04X in a class where case does not matter is not supported", (unsigned)to);
  add_number(&s->members, from);
  if (to > from) pattern_add(&s->members, "-"), add_number(&s->members, to);
}

/* Writes one operand as a match of one character, and empties it. */
static void end_side(reader *r, side *s, text_row *out) {
  sli_text_add(&s->members, "", 1);
  sli_text_add(&s->others, "", 1);
  bool members = *s->members.items, others = *s->others.items;
  if (others) pattern_add(out, "(?:");
  if (members) pattern_add(out, "["), pattern_add(out, s->members.items), pattern_add(out, "]");
  if (others) pattern_add(out, s->others.items + !members), pattern_add(out, ")");
  if (!members && !others) refuse(r, "&& of nothing");
  free(s->members.items);
  free(s->others.items);
  *s = (side){0};
}

/* Reads operands of &&: all but the last become lookaheads. */
static void sides(reader *r, text_row *out) {
  side s = {0};
  text_row last = {0};
  bool several = false, first = true;
  while (*r->at && *r->at != ']') {
    if (pattern_take(r, "&&")) {
      several = true, first = true;
      pattern_add(out, "(?=");
      end_side(r, &s, out);
      pattern_add(out, ")");
      continue;
    }
    if (*r->at != '[') characters(r, &s, first);
    else if (r->flags.caseless)
      refuse(r, "a class in a class where case does not matter is not supported");
    else if (!posix(r, &s)) r->at++, pattern_add(&s.others, "|"), class(r, &s.others);
    first = false;
  }
  if (!pattern_take(r, "]")) refuse(r, "a class does not end");
  end_side(r, &s, &last);
  sli_text_add(out, last.items, last.count);
  free(last.items);
  if (several && r->flags.caseless) refuse(r, "&& where case does not matter is not supported");
}

/* Reads a class, after its opening bracket. */
static void class(reader *r, text_row *out) {
  bool negated = pattern_take(r, "^"), outer = r->negated;
  if (negated && outer) refuse(r, "a negated class within a negated one");
  r->negated |= negated;
  if (++r->depth > MOST_DEPTH) refuse(r, "classes or groups are nested too deeply");
  if (*r->at == ']') refuse(r, "a class that is empty or begins with ]");
  pattern_add(out, negated ? "(?:(?!" : "(?:");
  sides(r, out);
  pattern_add(out, negated ? ")(?s:.))" : ")");
  r->negated = outer;
  r->depth--;
}

/* ---- escapes --------------------------------------------------------------------------------- */

/* Escapes that are spelled differently in PCRE2. PLACE: no quantifier may follow. */
static const struct {
  const char *name, *text;
  item kind;
} escapes[] = {
    {"A", "\\A", PLACE},  {"Z", "\\Z", PLACE},
    {"z", "\\z", PLACE},  {"N", "[^\\x{a}]", ONE},
    {"O", "(?s:.)", ONE}, {"R", "(?>\\x{d}\\x{a}|[\\x{a}-\\x{d}\\x{85}\\x{2028}\\x{2029}])", ONE}};

static void edge(reader *r, bool inside) {
  const char *word = property_of("\\w")->has;
  const char *const parts[] = {"(?:(?<=[", word, inside ? "])(?=[" : "])(?![", word,
                               "])|(?<![", word, inside ? "])(?![" : "])(?=[", word,
                               "]))"};
  for (size_t i = 0; i < SLI_COUNT(parts); i++) pattern_add(&r->out, parts[i]);
}

static item escape(reader *r) {
  bool negated = false;
  const property *p = escaped_property(r, false, &negated);
  if (p) {
    check_property(r, p);
    add_property(&r->out, p, negated);
    return ONE;
  }
  if (r->status) return NOTHING;
  for (size_t i = 0; i < SLI_COUNT(escapes); i++)
    if (pattern_take(r, escapes[i].name))
      return pattern_add(&r->out, escapes[i].text), escapes[i].kind;
  if (pattern_take(r, "b")) return edge(r, false), PLACE;
  if (pattern_take(r, "B")) return edge(r, true), PLACE;
  int32_t c = escaped_character(r);
  if (c == NO_CHARACTER)
    refuse(r, *r->at ? "\\%.1s is not supported" : "it ends with a backslash%.1s", r->at);
  return literal(r, c);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Reads to the end of a group and consumes it. */
static void group(reader *r, const char *begin) {
  flags outer = r->flags;
  pattern_add(&r->out, begin);
  if (++r->depth > MOST_DEPTH) refuse(r, "classes or groups are nested too deeply");
  else alternatives(r);
  r->depth--;
  r->flags = outer;
  if (!pattern_take(r, ")")) refuse(r, "a group does not end");
  pattern_add(&r->out, ")");
}

/* Reads flags after "(?": for the rest of the enclosing group, or for a group with a colon. */
static item flagged(reader *r) {
  flags now = r->flags, outer = r->flags;
  bool on = true;
  for (; *r->at && !strchr(":)", *r->at); r->at++) {
    if (*r->at == '-') on = false;
    else if (*r->at == 'i') now.caseless = on;
    else if (*r->at == 'm') now.any = on;
    else if (*r->at == 'x') now.extended = on;
    else return refuse(r, "(?%.1s is not supported", r->at), NOTHING;
  }
  bool rest = *r->at == ')';
  if (!*r->at) return refuse(r, "a group does not end"), NOTHING;
  r->at++;
  r->flags = now;
  if (!rest) {
    group(r, now.caseless ? "(?i:" : "(?-i:");
    r->flags = outer;
    return ONE;
  }
  pattern_add(&r->out, now.caseless ? "(?i:" : "(?-i:");
  if (++r->depth > MOST_DEPTH) refuse(r, "classes or groups are nested too deeply");
  else alternatives(r);
  r->depth--;
  pattern_add(&r->out, ")");
  return NOTHING; /* a bracket or the end comes next */
}

static item parenthesis(reader *r) {
  static const struct {
    const char *begin, *text;
    item kind;
  } kinds[] = {{"?:", "(?:", ONE},   {"?>", "(?>", ONE},     {"?=", "(?=", PLACE},
               {"?!", "(?!", PLACE}, {"?<=", "(?<=", PLACE}, {"?<!", "(?<!", PLACE}};
  for (size_t i = 0; i < SLI_COUNT(kinds); i++)
    if (pattern_take(r, kinds[i].begin)) return group(r, kinds[i].text), kinds[i].kind;
  if (pattern_take(r, "?#")) {
    while (*r->at && *r->at != ')') r->at += r->at[0] == '\\' && r->at[1] ? 2 : 1;
    if (!pattern_take(r, ")")) refuse(r, "a comment does not end");
    return NOTHING;
  }
  bool angle = pattern_take(r, "?<");
  if (angle || pattern_take(r, "?'")) {
    char name[40];
    if (!isalpha((unsigned char)*r->at) || !read_name(r, angle ? ">" : "'", name))
      refuse(r, "a group's name is not known");
    return group(r, "(?:"), ONE;
  }
  if (pattern_take(r, "?")) return flagged(r);
  if (*r->at == '*') return refuse(r, "(* is not supported"), NOTHING;
  return group(r, "(?:"), ONE;
}

/* ---- quantifiers ----------------------------------------------------------------------------- */

/* Reads {n}, {n,}, {n,m} or {,m}. Returns false if it is no interval. *fixed is set for {n}. */
static bool interval(reader *r, long *least, long *most, bool *fixed) {
  const char *begin = r->at;
  if (!pattern_take(r, "{")) return false;
  *least = digits(r, 10, 1, 6);
  *fixed = *least >= 0 && *r->at == '}';
  *most = *least;
  if (pattern_take(r, ",")) *most = digits(r, 10, 1, 6);
  bool none = *least < 0 && *most < 0;
  if (none || !pattern_take(r, "}")) return r->at = begin, false;
  if (!*fixed && *least >= 0 && *most >= 0 && *most < *least)
    refuse(r, "{%ld,%ld} is not supported", *least, *most);
  if (*least > MOST_REPEAT || *most > MOST_REPEAT) refuse(r, "more than %d repeats", MOST_REPEAT);
  *least = SLI_MAX(*least, 0L);
  return true;
}

/* Reads a quantifier of the text written from `from` on. Returns false if there is none. An item
 * that already has one is put into a group. After an interval, ? means lazy, except after {n}, and
 * + is another quantifier. */
static bool quantifier(reader *r, size_t from, bool again) {
  char text[64];
  long least, most;
  bool fixed;
  const char *more;
  if (*r->at && strchr("?*+", *r->at)) {
    snprintf(text, sizeof text, "%c", *r->at++);
    more = "?+";
  } else if (interval(r, &least, &most, &fixed)) {
    if (most < 0) snprintf(text, sizeof text, "{%ld,}", least);
    else snprintf(text, sizeof text, "{%ld,%ld}", least, most);
    more = fixed ? "" : "?";
  } else {
    return false;
  }
  if (again) insert(&r->out, from, "(?:"), pattern_add(&r->out, ")");
  pattern_add(&r->out, text);
  if (*r->at && strchr(more, *r->at)) sli_text_add(&r->out, r->at++, 1);
  return true;
}

/* ---- entry point ----------------------------------------------------------------------------- */

static void skip_space(reader *r) {
  while (r->flags.extended && *r->at && strchr(" \t\n\r\f\v#", *r->at)) {
    if (*r->at == '#') r->at += strcspn(r->at, "\n");
    else r->at++;
  }
}

static item one(reader *r) {
  char c = *r->at;
  r->before = r->last;
  r->last = NO_CHARACTER;
  if (c != '\\' && !strchr("()[.^$", c)) return literal(r, next_character(r));
  r->at++;
  switch (c) {
  case '\\': return escape(r);
  case '(': return parenthesis(r);
  case '[': return class(r, &r->out), ONE;
  case '.': return pattern_add(&r->out, r->flags.any ? "(?s:.)" : "[^\\x{a}]"), ONE;
  case '^': return pattern_add(&r->out, "(?m:^)"), PLACE;
  default: return pattern_add(&r->out, "(?m:$)"), PLACE;
  }
}

static void sequence(reader *r) {
  r->last = NO_CHARACTER;
  for (skip_space(r); *r->at && !strchr("|)", *r->at) && !r->status; skip_space(r)) {
    size_t from = r->out.count;
    bool again = false;
    int32_t last = r->last;
    if (strchr("?*+", *r->at)) return refuse(r, "a quantifier with nothing to repeat");
    item kind = one(r);
    if (r->status) return;
    skip_space(r);
    for (const char *at = r->at; kind != NOTHING && !r->status && quantifier(r, from, again);
         skip_space(r), again = true) {
      if (kind == PLACE && !r->status)
        r->at = at, refuse(r, "a quantifier behind a place in the text");
      r->last = NO_CHARACTER;
    }
    if (kind == NOTHING) r->last = last;
  }
}

static void alternatives(reader *r) {
  sequence(r);
  while (!r->status && pattern_take(r, "|")) {
    pattern_add(&r->out, "|");
    sequence(r);
  }
}

sl_status sli_pattern_translate(const char *pattern, char **out) {
  reader r = {.begin = pattern, .at = pattern, .last = NO_CHARACTER};
  alternatives(&r);
  if (*r.at) refuse(&r, "a ) too many");
  sli_text_add(&r.out, "", 1);
  if (r.status) free(r.out.items);
  else *out = r.out.items;
  return r.status;
}
