/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizer of templates: trimmed data, and the tokens between braces. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/template/template_inner.h"
#include "base/number.h"

void sli_source_fail(source *s, const char *format, ...) {
  if (s->status) return;
  char what[200];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  s->status =
      sl_fail(SL_E_INPUT, "line %d of the template: %s", s->now.line ? s->now.line : s->line, what);
  s->now = (token){.kind = END, .line = s->line, .at = ""};
  s->next = s->now;
  s->at += strlen(s->at);
}

static void pass(source *s, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) s->line += s->at[i] == '\n';
  s->at += bytes;
}

/* ---- white space ----------------------------------------------------------------------------- */

static size_t space_at(const char *at) { return strspn(at, " \t\n\r\f\v"); }

static size_t without_space(const char *text, size_t bytes) {
  while (bytes && strchr(" \t\n\r\f\v", text[bytes - 1])) bytes--;
  return bytes;
}

/* Returns the length without the last line if that line is only white space. */
static size_t without_indent(const source *s, const char *text, size_t bytes) {
  size_t line = bytes;
  while (line && text[line - 1] != '\n') line--;
  if (!line && !s->begins_line) return bytes;
  return without_space(text + line, bytes - line) ? bytes : line;
}

/* ---- data ------------------------------------------------------------------------------------ */

static const char *next_tag(const char *at) {
  while ((at = strchr(at, '{')) && !strchr("{%#", at[1] ? at[1] : ' ')) at++;
  return at;
}

static token data(source *s, const char *text, size_t bytes) {
  char *copy = sli_arena_alloc(s->arena, bytes + 1);
  memcpy(copy, text, bytes);
  return (token){DATA, s->line, copy, bytes};
}

/* Returns the length, after trimming, of the data before a tag. `tag` points past the tag's two
 * signs. */
static size_t trimmed(const source *s, const char *text, size_t bytes, const char *tag) {
  if (*tag == '-') return without_space(text, bytes);
  return *tag == '+' || tag[-1] == '{' ? bytes : without_indent(s, text, bytes);
}

/* Skips white space, or the end of the line, after a tag. */
static void pass_end(source *s, char sign, bool block) {
  size_t n = sign == '-' ? space_at(s->at) : block && sign != '+' && *s->at == '\n';
  s->begins_line = n && s->at[n - 1] == '\n';
  pass(s, n);
}

static void pass_comment(source *s) {
  const char *end = strstr(s->at + 2, "#}");
  if (!end) {
    sli_source_fail(s, "a comment has no end");
    return;
  }
  char sign = end > s->at + 2 ? end[-1] : ' ';
  pass(s, (size_t)(end + 2 - s->at));
  pass_end(s, sign == '-' || sign == '+' ? sign : ' ', true);
}

/* Matches a tag {% NAME %}; returns its length, or 0. *begin and *end are its trim signs. */
static size_t plain_tag(const char *at, const char *name, char *begin, char *end) {
  const char *from = at;
  if (strncmp(at, "{%", 2)) return 0;
  at += 2;
  *begin = *at == '-' || *at == '+' ? *at++ : ' ';
  at += space_at(at);
  if (strncmp(at, name, strlen(name))) return 0;
  at += strlen(name);
  at += space_at(at);
  *end = *at == '-' || *at == '+' ? *at++ : ' ';
  return strncmp(at, "%}", 2) ? 0 : (size_t)(at + 2 - from);
}

/* Reads the text between {% raw %} and {% endraw %}. */
static token raw(source *s, size_t tag, char end) {
  char last = ' ', begin = ' ';
  pass(s, tag);
  pass_end(s, end, true);
  const char *stop = s->at;
  while ((stop = strstr(stop, "{%")) && !(tag = plain_tag(stop, "endraw", &begin, &last))) stop++;
  if (!stop) {
    sli_source_fail(s, "raw has no end");
    return s->now;
  }
  size_t bytes = (size_t)(stop - s->at);
  char sign[] = {'%', begin, 0};
  token out = data(s, s->at, trimmed(s, s->at, bytes, sign + 1));
  pass(s, bytes + tag);
  pass_end(s, last, true);
  return out;
}

/* Reads the next piece of data, or the beginning of a tag. */
static token outside(source *s) {
  char begin, end;
  size_t tag = plain_tag(s->at, "raw", &begin, &end);
  if (tag) return raw(s, tag, end);
  if (!strncmp(s->at, "{#", 2)) {
    pass_comment(s);
    return data(s, "", 0);
  }
  if (!strncmp(s->at, "{{", 2) || !strncmp(s->at, "{%", 2)) {
    s->inside = true;
    s->of_block = s->at[1] == '%';
    token out = {s->of_block ? BEGIN_BLOCK : BEGIN_OUTPUT, s->line, s->at, 2};
    pass(s, s->at[2] == '-' || s->at[2] == '+' ? 3 : 2);
    return out;
  }
  if (!*s->at) return (token){END, s->line, s->at, 0};
  const char *stop = next_tag(s->at);
  size_t bytes = stop ? (size_t)(stop - s->at) : strlen(s->at);
  token out = data(s, s->at, stop ? trimmed(s, s->at, bytes, stop + 2) : bytes);
  pass(s, bytes);
  s->begins_line = false;
  return out;
}

/* ---- tokens between braces ------------------------------------------------------------------- */

/* Decodes \xHH, \uHHHH, \UHHHHHHHH. */
static const char *hex_escape(source *s, const char *at, char **to) {
  int digits = *at == 'x' ? 2 : *at == 'u' ? 4 : 8;
  uint32_t c = 0;
  for (int i = 1; i <= digits; i++) {
    int digit = sli_hex_digit(at[i]);
    if (digit < 0) return sli_source_fail(s, "a string has an incomplete escape"), at;
    c = c * 16 + (uint32_t)digit;
  }
  bool good = c && c <= 0x10ffff && !(c >= 0xd800 && c < 0xe000);
  if (!good) return sli_source_fail(s, "a string has an escape that is not a character"), at;
  *to += sli_text_put(*to, c);
  return at + 1 + digits;
}

static const char *escape(source *s, const char *at, char **to) {
  static const char names[] = "ntrabfv\\'\"", values[] = "\n\t\r\a\b\f\v\\'\"";
  const char *name = strchr(names, *at);
  if (*at == '\n') return at + 1;
  if (strchr("xuU", *at)) return hex_escape(s, at, to);
  if (isdigit((unsigned char)*at) || *at == 'N')
    return sli_source_fail(s, "the escape \\%c is not supported", *at), at;
  if (!name) *(*to)++ = '\\';
  *(*to)++ = name ? values[name - names] : *at;
  return at + 1;
}

static token string(source *s) {
  const char *at = s->at + 1, *end = at;
  while (*end && *end != *s->at) end += *end == '\\' && end[1] ? 2 : 1;
  token out = {STRING, s->line, "", 0};
  if (!*end) {
    sli_source_fail(s, "a string has no end");
    return s->now;
  }
  char *copy = sli_arena_alloc(s->arena, (size_t)(end - at) + 1), *to = copy;
  while (at < end && !s->status) {
    if (*at == '\\') at = escape(s, at + 1, &to);
    else *to++ = *at++;
  }
  if (s->status) return s->now;
  out.at = copy;
  out.bytes = (size_t)(to - copy);
  pass(s, (size_t)(end + 1 - s->at));
  return out;
}

static token number(source *s) {
  size_t n = strspn(s->at, "0123456789_");
  bool real = s->at[n] == '.' && isdigit((unsigned char)s->at[n + 1]);
  if (real) n += 1 + strspn(s->at + n + 1, "0123456789_");
  size_t e = n + (s->at[n] == 'e' || s->at[n] == 'E'),
         sign = e > n && strchr("+-", s->at[e]) && s->at[e];
  if (e > n && isdigit((unsigned char)s->at[e + sign]))
    real = true, n = e + sign + strspn(s->at + e + sign, "0123456789_");
  if (isalpha((unsigned char)s->at[n]))
    sli_source_fail(s, "a number of this kind is not supported");
  token out = {real ? FLOAT : INTEGER, s->line, s->at, n};
  pass(s, s->status ? 0 : n);
  return s->status ? s->now : out;
}

static token sign(source *s) {
  static const char *const signs[] = {"//", "**", "==", "!=", ">=", "<="};
  size_t n = 0;
  for (size_t i = 0; i < SLI_COUNT(signs) && !n; i++) n = strncmp(s->at, signs[i], 2) ? 0 : 2;
  if (!n && strchr("+-/*%~[](){}<>=.:|,", *s->at)) n = 1;
  if (!n) {
    sli_source_fail(s, "%.*s is not understood", *s->at & 0x80 ? 0 : 1, s->at);
    return s->now;
  }
  s->open += n == 1 && strchr("([{", *s->at) != NULL;
  s->open -= n == 1 && strchr(")]}", *s->at) != NULL;
  token out = {SIGN, s->line, s->at, n};
  pass(s, n);
  return out;
}

/* Returns whether a tag ends here, rather than a bracket within it. */
static bool ends_tag(source *s, token *out) {
  const char *end = s->of_block ? "%}" : "}}";
  size_t skip = *s->at == '-' || (*s->at == '+' && s->of_block);
  if (strncmp(s->at + skip, end, 2) || (s->open > 0 && !s->of_block)) return false;
  char mark = skip ? *s->at : ' ';
  *out = (token){s->of_block ? END_BLOCK : END_OUTPUT, s->line, s->at, 2};
  pass(s, skip + 2);
  s->inside = false;
  s->open = 0;
  pass_end(s, mark, s->of_block);
  return true;
}

static token inside(source *s) {
  token out;
  pass(s, space_at(s->at));
  unsigned char c = (unsigned char)*s->at;
  if (ends_tag(s, &out)) return out;
  if (!c) {
    sli_source_fail(s, "a tag has no end");
    return s->now;
  }
  if (c == '\'' || c == '"') return string(s);
  if (isdigit(c)) return number(s);
  if (!isalpha(c) && c != '_') return sign(s);
  out = (token){WORD, s->line, s->at, 0};
  while (isalnum((unsigned char)out.at[out.bytes]) || out.at[out.bytes] == '_') out.bytes++;
  pass(s, out.bytes);
  return out;
}

void sli_source_advance(source *s) {
  s->now = s->next;
  if (s->now.kind == END) return;
  do s->next = s->inside ? inside(s) : outside(s);
  while (s->next.kind == DATA && !s->next.bytes && !s->status);
}

/* Starts on a copy of the text in which all line ends are \n and a final one is dropped. */
sl_status sli_source_begin(source *s, sli_arena *arena, const char *text) {
  char *copy = sli_arena_alloc(arena, strlen(text) + 1), *to = copy;
  for (const char *at = text; *at; at++) {
    bool both = at[0] == '\r' && at[1] == '\n';
    *to++ = *at == '\r' ? '\n' : *at;
    at += both;
  }
  if (to > copy && to[-1] == '\n') to[-1] = 0;
  *s = (source){.arena = arena,
                .text = copy,
                .at = copy,
                .line = 1,
                .begins_line = true,
                .next = {.kind = DATA, .line = 1}};
  sli_source_advance(s);
  sli_source_advance(s);
  return s->status;
}
