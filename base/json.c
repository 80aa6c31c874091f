/* SPDX-License-Identifier: Apache-2.0 */
/* Scanner for JSON text, and checks of parsed values. Nothing here calls the parser: see
 * sli_json_read(). */
#include "base/json.h"
#include "base/number.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ----------------------------------------------------------------------------------- */

typedef struct scan {
  const unsigned char *at, *end;
  size_t values, most; /* 0: any number */
  int depth;
  const char *wrong; /* the error, at `at` */
} scan;

static bool fail(scan *s, const char *wrong) {
  s->wrong = wrong;
  return false;
}

static int next_byte(const scan *s) { return s->at < s->end ? *s->at : -1; }

static bool take_byte(scan *s, int c) {
  if (next_byte(s) != c) return false;
  s->at++;
  return true;
}

static void skip_blanks(scan *s) {
  while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
    s->at++;
}

static bool is_digit(int c) { return c >= '0' && c <= '9'; }

static bool take_digits(scan *s) {
  if (!is_digit(next_byte(s))) return fail(s, "expected a digit");
  while (is_digit(next_byte(s))) s->at++;
  return true;
}

static bool scan_number(scan *s) {
  enum { MOST_CHARS = 63 }; /* longest number that the parser reads */
  const unsigned char *begin = s->at;
  take_byte(s, '-');
  if (!take_byte(s, '0') && !take_digits(s)) return false;
  if (take_byte(s, '.') && !take_digits(s)) return false;
  if (take_byte(s, 'e') || take_byte(s, 'E')) {
    if (!take_byte(s, '+')) take_byte(s, '-');
    if (!take_digits(s)) return false;
  }
  return s->at - begin <= MOST_CHARS || fail(s, "number longer than 63 characters");
}

/* Reads the four hexadecimal digits after "\u". Returns -1 if they are malformed. */
static int read_unit(scan *s) {
  int unit = 0;
  for (int i = 0; i < 4; i++) {
    int digit = sli_hex_digit(next_byte(s));
    if (digit < 0) return -1;
    unit = unit << 4 | digit;
    s->at++;
  }
  return unit;
}

static bool scan_unit(scan *s) {
  int unit = read_unit(s);
  if (unit < 0) return fail(s, "expected four hexadecimal digits");
  if (!unit) return fail(s, "string with a zero character");
  if (unit < 0xd800 || unit > 0xdfff) return true;
  bool pair = unit < 0xdc00 && take_byte(s, '\\') && take_byte(s, 'u');
  int low = pair ? read_unit(s) : -1;
  return (low >= 0xdc00 && low <= 0xdfff) || fail(s, "unpaired surrogate");
}

static bool scan_escape(scan *s) {
  int c = next_byte(s);
  if (c < 0 || !c || !strchr("\"\\/bfnrtu", c)) return fail(s, "invalid escape");
  s->at++;
  return c != 'u' || scan_unit(s);
}

/* Returns the length of the character at `at`, or 0 if it is not UTF-8. */
static size_t utf8_bytes(const unsigned char *at, const unsigned char *end) {
  static const struct {
    unsigned char mask, lead;
    uint32_t least, most;
  } rows[] = {{0x80, 0, 0, 0x7f},
              {0xe0, 0xc0, 0x80, 0x7ff},
              {0xf0, 0xe0, 0x800, 0xffff},
              {0xf8, 0xf0, 0x10000, 0x10ffff}};
  for (size_t n = 0; n < SLI_COUNT(rows) && n < (size_t)(end - at); n++) {
    if ((*at & rows[n].mask) != rows[n].lead) continue;
    uint32_t code = *at & (unsigned char)~rows[n].mask;
    for (size_t i = 1; i <= n; i++) {
      if ((at[i] & 0xc0) != 0x80) return 0;
      code = code << 6 | (at[i] & 0x3f);
    }
    bool good = code >= rows[n].least && code <= rows[n].most && (code < 0xd800 || code > 0xdfff);
    return good ? n + 1 : 0;
  }
  return 0;
}

/* Scans a string, starting after its opening quote. */
static bool scan_text(scan *s) {
  while (s->at < s->end) {
    if (take_byte(s, '"')) return true;
    if (*s->at < 0x20) return fail(s, "control character in a string");
    if (take_byte(s, '\\')) {
      if (!scan_escape(s)) return false;
      continue;
    }
    size_t n = utf8_bytes(s->at, s->end);
    if (!n) return fail(s, "invalid UTF-8");
    s->at += n;
  }
  return fail(s, "unterminated string");
}

static bool scan_word(scan *s, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n)) return fail(s, "expected a value");
  s->at += n;
  return true;
}

static bool scan_value(scan *s);

static bool scan_array(scan *s) {
  skip_blanks(s);
  if (take_byte(s, ']')) return true;
  do {
    if (!scan_value(s)) return false;
    skip_blanks(s);
  } while (take_byte(s, ','));
  return take_byte(s, ']') || fail(s, "expected a comma or ]");
}

static bool scan_object(scan *s) {
  skip_blanks(s);
  if (take_byte(s, '}')) return true;
  do {
    skip_blanks(s);
    if (!take_byte(s, '"')) return fail(s, "expected a key in quotes");
    if (!scan_text(s)) return false;
    skip_blanks(s);
    if (!take_byte(s, ':')) return fail(s, "expected a colon");
    if (!scan_value(s)) return false;
    skip_blanks(s);
  } while (take_byte(s, ','));
  return take_byte(s, '}') || fail(s, "expected a comma or }");
}

static bool scan_value(scan *s) {
  skip_blanks(s);
  if (++s->values > s->most && s->most) return fail(s, "too many values");
  int c = next_byte(s);
  if (c == '"') return s->at++, scan_text(s);
  if (c == '-' || is_digit(c)) return scan_number(s);
  if (c == 't') return scan_word(s, "true");
  if (c == 'f') return scan_word(s, "false");
  if (c == 'n') return scan_word(s, "null");
  if (c != '[' && c != '{') return fail(s, "expected a value");
  if (s->depth == SLI_JSON_DEPTH) return fail(s, "nested too deeply");
  s->at++, s->depth++;
  bool good = c == '[' ? scan_array(s) : scan_object(s);
  s->depth--;
  return good;
}

static bool scan_all(scan *s) {
  /* byte order mark of some editors */
  if (s->end - s->at >= 3 && !memcmp(s->at, "\xef\xbb\xbf", 3)) s->at += 3;
  if (!scan_value(s)) return false;
  skip_blanks(s);
  return s->at == s->end || fail(s, "more than one value");
}

/* Returns the bytes of the printable character at `at`. No more is shown: the text may be a secret
 * in a file that was named by mistake or by a stranger. */
static int shown_bytes(const scan *s) {
  return s->at < s->end && *s->at >= 0x20 ? (int)utf8_bytes(s->at, s->end) : 0;
}

sl_status sli_json_scan(const char *name, const char *text, size_t bytes, size_t most) {
  const unsigned char *begin = (const unsigned char *)text, *line = begin;
  scan s = {.at = begin, .end = begin + bytes, .most = most};
  if (scan_all(&s)) return SL_OK;
  size_t lines = 1;
  for (const unsigned char *at = begin; at < s.at; at++)
    if (*at == '\n') line = at + 1, lines++;
  int shown = shown_bytes(&s);
  return sl_fail(SL_E_INPUT, "%s: not JSON at line %zu, column %td: %s%s%.*s", name, lines,
                 s.at - line + 1, s.wrong,
                 shown           ? ", found "
                 : s.at == s.end ? ", found the end"
                                 : "",
                 shown, (const char *)s.at);
}

/* ---- paths ----------------------------------------------------------------------------------- */

typedef struct path {
  const cJSON *to;
  char text[512];
  size_t used;
} path;

static void append(path *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(path *p, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(p->text + p->used, sizeof p->text - p->used, format, args);
  va_end(args);
  p->used = SLI_MIN(p->used + (size_t)SLI_MAX(n, 0), sizeof p->text - 1);
}

static void append_key(path *p, const char *key) {
  char shown[80];
  sli_escape(shown, sizeof shown, key);
  for (char *at = shown; *at; at++)
    if (*at == '\n') *at = ' ';
  append(p, "%s%s", p->used ? "." : "", shown);
}

static bool find_path(path *p, const cJSON *from) {
  size_t before = p->used, i = 0;
  if (from == p->to) return true;
  for (const cJSON *at = from ? from->child : NULL; at; at = at->next, i++) {
    if (at->string) append_key(p, at->string);
    else append(p, "[%zu]", i);
    if (find_path(p, at)) return true;
    p->text[p->used = before] = 0;
  }
  return false;
}

/* Finds the path of a value, extended by `key` unless it is NULL. */
static void path_of(path *p, const sli_json *doc, const cJSON *to, const char *key) {
  *p = (path){.to = to};
  find_path(p, doc->root);
  if (key) append_key(p, key);
}

sl_status sli_json_fail(const sli_json *doc, const cJSON *at, const char *format, ...) {
  char text[1024];
  path p;
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  path_of(&p, doc, at, NULL);
  return sl_fail(SL_E_INPUT, "%s: %s%s%s", doc->name, p.text, *p.text ? ": " : "", text);
}

/* ---- one value ------------------------------------------------------------------------------- */

static const char *const kinds[] = {
    [SLI_JSON_NUMBER] = "a number",    [SLI_JSON_WHOLE] = "a whole number",
    [SLI_JSON_FLAG] = "true or false", [SLI_JSON_TEXT] = "a string",
    [SLI_JSON_OBJECT] = "an object",   [SLI_JSON_ARRAY] = "an array",
    [SLI_JSON_ANY] = "a value"};

static int type_of(const cJSON *item) { return item ? item->type & 0xff : cJSON_Invalid; }

/* Names the kind of a value for messages. */
static const char *kind_of(const cJSON *item) {
  switch (type_of(item)) {
  case cJSON_Number: return kinds[SLI_JSON_NUMBER];
  case cJSON_String: return kinds[SLI_JSON_TEXT];
  case cJSON_Object: return kinds[SLI_JSON_OBJECT];
  case cJSON_Array: return kinds[SLI_JSON_ARRAY];
  case cJSON_True: return "true";
  case cJSON_False: return "false";
  case cJSON_NULL: return "null";
  default: return "nothing";
  }
}

static bool is_kind(const cJSON *item, sli_json_kind kind) {
  int type = type_of(item);
  switch (kind) {
  case SLI_JSON_NUMBER: return type == cJSON_Number;
  case SLI_JSON_WHOLE: return type == cJSON_Number && item->valuedouble == floor(item->valuedouble);
  case SLI_JSON_FLAG: return type == cJSON_True || type == cJSON_False;
  case SLI_JSON_TEXT: return type == cJSON_String;
  case SLI_JSON_OBJECT: return type == cJSON_Object;
  case SLI_JSON_ARRAY: return type == cJSON_Array;
  default: return item;
  }
}

sl_status sli_json_is(const sli_json *doc, const cJSON *item, sli_json_kind kind) {
  if (is_kind(item, kind)) return SL_OK;
  if (type_of(item) == cJSON_Number)
    return sli_json_fail(doc, item, "expected %s, found %.9g", kinds[kind], item->valuedouble);
  return sli_json_fail(doc, item, "expected %s, found %s", kinds[kind], kind_of(item));
}

static sl_status read_number(const sli_json *doc, const cJSON *item, sli_json_kind kind,
                             double least, double most, double *out) {
  double v = type_of(item) == cJSON_Number ? item->valuedouble : NAN;
  if (is_kind(item, kind) && v >= least && v <= most) {
    *out = v;
    return SL_OK;
  }
  char found[32];
  snprintf(found, sizeof found, "%.9g", v);
  return sli_json_fail(doc, item, "expected %s from %.9g to %.9g, found %s", kinds[kind], least,
                       most, isnan(v) ? kind_of(item) : found);
}

sl_status sli_json_number(const sli_json *doc, const cJSON *item, double least, double most,
                          double *out) {
  return read_number(doc, item, SLI_JSON_NUMBER, least, most, out);
}

/* largest whole number up to which doubles are exact */
static const int64_t most_exact = INT64_C(1) << 53;

sl_status sli_json_whole(const sli_json *doc, const cJSON *item, int64_t least, int64_t most,
                         int64_t *out) {
  double value = 0;
  sl_status status = read_number(doc, item, SLI_JSON_WHOLE, (double)SLI_MAX(least, -most_exact),
                                 (double)SLI_MIN(most, most_exact), &value);
  if (!status) *out = (int64_t)value;
  return status;
}

size_t sli_json_count(const cJSON *item) {
  size_t n = 0;
  for (const cJSON *at = item ? item->child : NULL; at; at = at->next) n++;
  return n;
}

/* ---- all values ------------------------------------------------------------------------------ */

static int by_key(const void *a, const void *b) {
  return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

static sl_status check_keys(const sli_json *doc, const cJSON *of) {
  size_t n = sli_json_count(of), i = 0;
  if (n < 2) return SL_OK;
  const cJSON **all = sli_calloc(n, sizeof *all);
  for (const cJSON *at = of->child; at; at = at->next) all[i++] = at;
  qsort(all, n, sizeof *all, by_key);
  sl_status status = SL_OK;
  for (i = 1; i < n && !status; i++)
    if (!by_key(&all[i - 1], &all[i])) status = sli_json_fail(doc, all[i], "duplicate key");
  free(all);
  return status;
}

static sl_status check_values(const sli_json *doc, const cJSON *of) {
  if (type_of(of) == cJSON_Number && !isfinite(of->valuedouble))
    return sli_json_fail(doc, of, "number beyond %g", DBL_MAX);
  sl_status status = type_of(of) == cJSON_Object ? check_keys(doc, of) : SL_OK;
  for (const cJSON *at = of->child; at && !status; at = at->next) status = check_values(doc, at);
  return status;
}

sl_status sli_json_check(const sli_json *doc) { return check_values(doc, doc->root); }

/* ---- objects --------------------------------------------------------------------------------- */

static const cJSON *json_find(const cJSON *of, const char *key) {
  const cJSON *at = of->child;
  while (at && strcmp(at->string, key)) at = at->next;
  return at;
}

static sl_status is_missing(const sli_json *doc, const cJSON *of, const char *key) {
  path p;
  path_of(&p, doc, of, key);
  return sl_fail(SL_E_INPUT, "%s: %s is missing", doc->name, p.text);
}

sl_status sli_json_member(const sli_json *doc, const cJSON *of, const char *key, sli_json_kind kind,
                          bool needed, const cJSON **out) {
  sl_status status = sli_json_is(doc, of, SLI_JSON_OBJECT);
  if (status) return status;
  const cJSON *item = json_find(of, key);
  if (item) status = sli_json_is(doc, item, kind);
  else if (needed) status = is_missing(doc, of, key);
  if (!status) *out = item;
  return status;
}

static sl_status read_whole(const sli_json *doc, const cJSON *item, const sli_json_field *f) {
  double least = SLI_MAX(f->least, -(double)most_exact),
         most = SLI_MIN(f->most, (double)most_exact);
  return sli_json_whole(doc, item, (int64_t)least, (int64_t)most, f->out);
}

static sl_status read_field(const sli_json *doc, const cJSON *of, const sli_json_field *f) {
  const cJSON *item = json_find(of, f->key);
  if (!item) return f->needed ? is_missing(doc, of, f->key) : SL_OK;
  if (!f->out) return SL_OK;
  if (f->kind == SLI_JSON_NUMBER) return sli_json_number(doc, item, f->least, f->most, f->out);
  if (f->kind == SLI_JSON_WHOLE) return read_whole(doc, item, f);
  sl_status status = sli_json_is(doc, item, f->kind);
  if (status) return status;
  if (f->kind == SLI_JSON_FLAG) *(bool *)f->out = type_of(item) == cJSON_True;
  else if (f->kind == SLI_JSON_TEXT) *(const char **)f->out = item->valuestring;
  else *(const cJSON **)f->out = item;
  return SL_OK;
}

sl_status sli_json_pick(const sli_json *doc, const cJSON *of, const sli_json_field *fields,
                        size_t count) {
  sl_status status = sli_json_is(doc, of, SLI_JSON_OBJECT);
  for (size_t i = 0; i < count && !status; i++) status = read_field(doc, of, &fields[i]);
  return status;
}

static bool is_known(const char *key, const sli_json_field *fields, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!strcmp(key, fields[i].key)) return true;
  return false;
}

static sl_status refuse_unknown(const sli_json *doc, const cJSON *item,
                                const sli_json_field *fields, size_t count) {
  char text[512] = "";
  size_t used = 0;
  for (size_t i = 0; i < count && used < sizeof text - 64; i++)
    used +=
        (size_t)snprintf(text + used, sizeof text - used, "%s%.48s", i ? ", " : "", fields[i].key);
  return sli_json_fail(doc, item, "unknown key; the keys are %s", text);
}

sl_status sli_json_take(const sli_json *doc, const cJSON *of, const sli_json_field *fields,
                        size_t count) {
  sl_status status = sli_json_is(doc, of, SLI_JSON_OBJECT);
  for (const cJSON *at = status ? NULL : of->child; at && !status; at = at->next)
    if (!is_known(at->string, fields, count)) status = refuse_unknown(doc, at, fields, count);
  return status ? status : sli_json_pick(doc, of, fields, count);
}
