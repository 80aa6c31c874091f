/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on UTF-8 texts: case, replacement, splitting, joining, padding. */
#include <ctype.h>
#include <string.h>

#include "text/template/template_inner.h"

/* ---- case ------------------------------------------------------------------------------------ */

/* Returns whether the character at `i` begins a word for Jinja's filter "title". */
static bool begins_word(const char *text, size_t i) {
  return !i || strchr("- ({[<\t\n\r\f\v", text[i - 1]);
}

sli_value sli_text_case(sli_values *v, sli_value text, text_case how) {
  static const char *const names[] = {"upper", "lower", "capitalize", "title", "title"};
  text_buffer b = {0};
  sli_buffer_add(v, &b, text.text.at, text.text.bytes);
  bool inner = false;
  for (size_t i = 0; i < b.bytes; i++) {
    unsigned char c = (unsigned char)text.text.at[i];
    if (c >= 0x80) {
      sli_values_fail(v, "%s of text beyond ASCII is not supported", names[how]);
      return sli_value_span("", 0);
    }
    if (how == WORDS) inner = !begins_word(text.text.at, i);
    bool up = how == UPPER || (how != LOWER && !inner);
    b.at[i] = (char)(up ? toupper(c) : tolower(c));
    inner = how == CAPITALIZED || isalpha(c);
  }
  return sli_buffer_value(&b);
}

/* ---- replacement ----------------------------------------------------------------------------- */

/* Puts a text before each character and at the end, as Python does to replace an empty text. */
static sli_value put_between(sli_values *v, sli_value text, sli_value to, int64_t most) {
  text_buffer b = {0};
  size_t at = 0;
  for (size_t n; at < text.text.bytes && most && !v->status; at += n, most--) {
    n = sli_text_step(text, at);
    sli_value_print(v, to, &b);
    sli_buffer_add(v, &b, text.text.at + at, n);
  }
  sli_buffer_add(v, &b, text.text.at + at, text.text.bytes - at);
  if (most) sli_value_print(v, to, &b);
  return sli_buffer_value(&b);
}

sli_value sli_text_replace(sli_values *v, sli_value text, sli_value from, sli_value to,
                           int64_t most) {
  text_buffer b = {0};
  const char *at = text.text.at, *end = at + text.text.bytes;
  if (!from.text.bytes) return put_between(v, text, to, most);
  while (most-- && sli_values_step(v, 1 + from.text.bytes / 16)) {
    const char *found = memmem(at, (size_t)(end - at), from.text.at, from.text.bytes);
    if (!found) break;
    sli_buffer_add(v, &b, at, (size_t)(found - at));
    sli_buffer_add(v, &b, to.text.at, to.text.bytes);
    at = found + from.text.bytes;
  }
  sli_buffer_add(v, &b, at, (size_t)(end - at));
  return sli_buffer_value(&b);
}

/* ---- split and join -------------------------------------------------------------------------- */

/* Returns the number of bytes before the first white space. */
static size_t word_bytes(sli_value text) {
  size_t at = 0;
  for (size_t n; at < text.text.bytes; at += n) {
    n = sli_text_step(text, at);
    if (sli_text_is_space(text.text.at + at, n)) break;
  }
  return at;
}

static sli_value rest_from(sli_value text, size_t at) {
  return sli_value_span(text.text.at + at, text.text.bytes - at);
}

static sli_value split_at_space(sli_values *v, sli_value text, int64_t most) {
  sli_value all = sli_value_list(v), rest = sli_text_strip(text, NULL, true, false);
  while (rest.text.bytes && most-- && sli_values_step(v, 1)) {
    size_t n = word_bytes(rest);
    sli_value_add(v, all, sli_value_span(rest.text.at, n));
    rest = sli_text_strip(rest_from(rest, n), NULL, true, false);
  }
  if (rest.text.bytes) sli_value_add(v, all, rest);
  return all;
}

sli_value sli_text_split(sli_values *v, sli_value text, const sli_value *by, int64_t most) {
  if (!by) return split_at_space(v, text, most);
  sli_value all = sli_value_list(v);
  while (most-- && sli_values_step(v, 1 + by->text.bytes / 16)) {
    const char *found = memmem(text.text.at, text.text.bytes, by->text.at, by->text.bytes);
    if (!found) break;
    size_t n = (size_t)(found - text.text.at);
    sli_value_add(v, all, sli_value_span(text.text.at, n));
    text = rest_from(text, n + by->text.bytes);
  }
  sli_value_add(v, all, text);
  return all;
}

const char *sli_text_last(sli_values *v, sli_value text, sli_value what) {
  size_t bytes = what.text.bytes;
  if (bytes > text.text.bytes) return NULL;
  for (size_t i = text.text.bytes - bytes + 1; i-- > 0;) {
    if (memcmp(text.text.at + i, what.text.at, bytes) == 0) return text.text.at + i;
    /* Each comparison may go through the whole text that is looked for. */
    if (i % 16 == 0 && !sli_values_step(v, 16 + bytes)) return NULL;
  }
  return NULL;
}

sli_value sli_text_rsplit(sli_values *v, sli_value text, sli_value by, int64_t most) {
  sli_value back = sli_value_list(v), all = sli_value_list(v);
  while (most-- && sli_values_step(v, 1 + text.text.bytes / 64)) {
    const char *found = sli_text_last(v, text, by);
    if (!found) break;
    size_t n = (size_t)(found - text.text.at);
    sli_value_add(v, back, rest_from(text, n + by.text.bytes));
    text.text.bytes = n;
  }
  sli_value_add(v, all, text);
  for (size_t i = back.list->count; i--;) sli_value_add(v, all, back.list->items[i]);
  return all;
}

/* Returns the length of a line, including its line end of *end bytes. */
static size_t line_bytes(sli_value text, size_t from, size_t *end) {
  static const char *const wide[] = {"\xc2\x85", "\u2028", "\u2029"};
  for (size_t at = from, n; at < text.text.bytes; at += n) {
    const char *c = text.text.at + at;
    n = sli_text_step(text, at);
    bool ends = n == 1 && (strchr("\n\r\v\f\x1c\x1d\x1e", *c) && *c);
    for (size_t i = 0; i < SLI_COUNT(wide); i++)
      ends |= n == strlen(wide[i]) && !memcmp(c, wide[i], n);
    if (!ends) continue;
    *end = *c == '\r' && at + 1 < text.text.bytes && c[1] == '\n' ? 2 : n;
    return at + *end - from;
  }
  *end = 0;
  return text.text.bytes - from;
}

sli_value sli_text_lines(sli_values *v, sli_value text, bool ends) {
  sli_value all = sli_value_list(v);
  for (size_t at = 0, n, end; at < text.text.bytes && sli_values_step(v, 1); at += n) {
    n = line_bytes(text, at, &end);
    sli_value_add(v, all, sli_value_span(text.text.at + at, ends ? n : n - end));
  }
  return all;
}

sli_value sli_text_join(sli_values *v, sli_value all, sli_value by, const sli_value *attribute) {
  sli_list *items = sli_value_items(v, all);
  text_buffer b = {0};
  for (size_t i = 0; i < items->count && sli_values_step(v, 1); i++) {
    if (i) sli_value_print(v, by, &b);
    sli_value_print(
        v, attribute ? sli_value_follow(v, items->items[i], *attribute) : items->items[i], &b);
  }
  return sli_buffer_value(&b);
}

sli_value sli_text_pad(sli_values *v, sli_value text, int64_t left, int64_t right, char fill) {
  text_buffer b = {0};
  for (; left > 0 && sli_values_step(v, 1); left--) sli_buffer_add(v, &b, &fill, 1);
  sli_value_print(v, text, &b);
  for (; right > 0 && sli_values_step(v, 1); right--) sli_buffer_add(v, &b, &fill, 1);
  return sli_buffer_value(&b);
}
