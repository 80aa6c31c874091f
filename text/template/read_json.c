/* SPDX-License-Identifier: Apache-2.0 */
/* Reads values from JSON. The grammar is checked first, so the reader meets only valid JSON. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/template/template_inner.h"

typedef struct json_source {
  sli_values *v;
  const char *at, *end;
} json_source;

static sli_value read_value(json_source *s);

static void skip_blanks(json_source *s) {
  while (s->at < s->end && strchr(" \t\r\n", *s->at)) s->at++;
}

/* Takes a sign, and the blanks around it. */
static bool takes_sign(json_source *s, char sign) {
  skip_blanks(s);
  if (s->at == s->end || *s->at != sign) return false;
  s->at++;
  skip_blanks(s);
  return true;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static uint32_t read_unit(json_source *s) {
  char digits[5] = {0};
  memcpy(digits, s->at, 4);
  s->at += 4;
  return (uint32_t)strtoul(digits, NULL, 16);
}

/* Reads the character after \u, which has one or two units. */
static void read_unicode(json_source *s, text_buffer *out) {
  char bytes[4];
  uint32_t c = read_unit(s);
  if (c >= 0xd800 && c < 0xdc00) {
    s->at += 2; /* the \u of the second half */
    c = 0x10000 + ((c - 0xd800) << 10) + (read_unit(s) - 0xdc00);
  }
  sli_buffer_add(s->v, out, bytes, sli_text_put(bytes, c));
}

static void read_escape(json_source *s, text_buffer *out) {
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  char name = s->at[1];
  s->at += 2;
  if (name == 'u') read_unicode(s, out);
  else sli_buffer_add(s->v, out, values + (strchr(names, name) - names), 1);
}

static sli_value read_text(json_source *s) {
  text_buffer out = {0};
  for (s->at++; *s->at != '"' && !s->v->status;) {
    const char *from = s->at;
    while (*s->at != '"' && *s->at != '\\') s->at++;
    sli_buffer_add(s->v, &out, from, (size_t)(s->at - from));
    if (*s->at == '\\') read_escape(s, &out);
  }
  s->at++;
  return sli_buffer_value(&out);
}

/* ---- other values ---------------------------------------------------------------------------- */

static sli_value read_number(json_source *s) {
  text_buffer out = {0};
  size_t n = 0;
  while (s->at + n < s->end && strchr("+-.eE0123456789", s->at[n])) n++;
  sli_buffer_add(s->v, &out, s->at, n);
  s->at += n;
  if (s->v->status) return sli_value_none();
  bool whole = !strpbrk(out.at, ".eE");
  errno = 0;
  int64_t number = whole ? strtoll(out.at, NULL, 10) : 0;
  if (whole && !errno) return sli_value_int(number);
  return (sli_value){
      .kind = SLI_REAL, .real = strtod(out.at, NULL), .digits = whole ? out.at : NULL};
}

static sli_value read_list(json_source *s) {
  sli_value all = sli_value_list(s->v);
  if (takes_sign(s, ']')) return all;
  do sli_value_add(s->v, all, read_value(s));
  while (!s->v->status && takes_sign(s, ','));
  takes_sign(s, ']');
  return all;
}

static sli_value read_dict(json_source *s) {
  sli_value all = sli_value_dict(s->v);
  if (takes_sign(s, '}')) return all;
  do {
    sli_value key = read_text(s);
    takes_sign(s, ':');
    sli_dict_set(s->v, all.dict, key, read_value(s));
  } while (!s->v->status && takes_sign(s, ','));
  takes_sign(s, '}');
  return all;
}

static sli_value read_word(json_source *s) {
  char first = *s->at;
  s->at += first == 'f' ? 5 : 4;
  return first == 'n' ? sli_value_none() : sli_value_bool(first == 't');
}

static sli_value read_value(json_source *s) {
  if (!sli_values_step(s->v, 1)) return sli_value_none();
  skip_blanks(s);
  char first = *s->at;
  if (first == '"') return read_text(s);
  if (first == '[') return s->at++, read_list(s);
  if (first == '{') return s->at++, read_dict(s);
  return strchr("tfn", first) ? read_word(s) : read_number(s);
}

sli_value sli_value_read(sli_values *v, const char *json, size_t bytes) {
  sl_status status = v->status ? v->status : sli_json_scan("a value", json, bytes, 0);
  if (status && !v->status) v->status = status;
  if (status) return sli_value_none();
  json_source s = {v, json, json + bytes};
  if (bytes >= 3 && !memcmp(json, "\xef\xbb\xbf", 3)) s.at += 3;
  return read_value(&s);
}
