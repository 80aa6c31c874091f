/* SPDX-License-Identifier: Apache-2.0 */
/* Automata over characters as nodes: by their UTF-8 bytes, plain or as JSON writes characters in a
 * string. A character that JSON escapes has one form there: the short one, or \u00xx. */
#include <string.h>

#include "text/grammar/grammar_inner.h"

static void add_byte(sli_grammar *g, int32_t from, int low, int high, int32_t to) {
  sli_grammar_edge(
      g, from,
      (sli_edge){.kind = SLI_EDGE_BYTES, .low = (uint8_t)low, .high = (uint8_t)high, .to = to});
}

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

static int length_of(int32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

static int byte_of(int32_t c, int length, int i) {
  static const int heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
  int shift = 6 * (length - 1 - i), bits = c >> shift;
  return i ? 0x80 | (bits & 0x3f) : heads[length] | bits;
}

/* Adds characters of one length from byte i on. Their earlier bytes are equal. */
static void add_tail(sli_grammar *g, int32_t from, int32_t low, int32_t high, int length, int i,
                     int32_t to) {
  int shift = 6 * (length - 1 - i);
  int32_t span = (INT32_C(1) << shift) - 1;
  if (!shift) {
    add_byte(g, from, byte_of(low, length, i), byte_of(high, length, i), to);
    return;
  }
  for (int32_t at = low; at <= high && !sli_grammar_failed(g);) {
    /* a whole number of spans, or part of one */
    int32_t last = SLI_MIN(high, at | span);
    if (!(at & span) && high >= (at | span)) last = ((high + 1) & ~span) - 1;
    bool whole = !(at & span) && (last & span) == span;
    int32_t next = sli_grammar_node(g);
    add_byte(g, from, byte_of(at, length, i), byte_of(last, length, i), next);
    if (whole) add_tail(g, next, at & span, span, length, i + 1, to);
    else add_tail(g, next, at, last, length, i + 1, to);
    at = last + 1;
  }
}

static void add_plain(sli_grammar *g, int32_t from, int32_t low, int32_t high, int32_t to) {
  static const int32_t last[] = {0x7f, 0x7ff, 0xffff, SLI_LAST_CHARACTER};
  for (int i = 0; i < 4 && low <= high; i++) {
    if (low > last[i]) continue;
    add_tail(g, from, low, SLI_MIN(high, last[i]), length_of(low), 0, to);
    low = last[i] + 1;
  }
}

/* ---- JSON strings ---------------------------------------------------------------------------- */

static const char short_names[] = "\"\\bfnrt", short_values[] = "\"\\\b\f\n\r\t";

/* Adds an escape of one character. */
static void add_escape(sli_grammar *g, int32_t from, int32_t c, int32_t to) {
  const char *name = c ? strchr(short_values, c) : NULL;
  char text[8] = {'u', '0', '0', (char)('0' + c / 16), "0123456789abcdef"[c % 16]};
  if (name) text[0] = short_names[name - short_values], text[1] = 0;
  int32_t at = sli_grammar_node(g);
  add_byte(g, from, '\\', '\\', at);
  for (const char *t = text; *t; t++) {
    int32_t next = t[1] ? sli_grammar_node(g) : to;
    add_byte(g, at, *t, *t, next);
    at = next;
  }
}

static bool is_escaped(int32_t c) { return c < ' ' || c == '"' || c == '\\'; }

static void add_quoted(sli_grammar *g, int32_t from, int32_t low, int32_t high, int32_t to) {
  int32_t begin = low;
  for (int32_t c = low; c <= SLI_MIN(high, '\\'); c++) {
    if (!is_escaped(c)) continue;
    if (begin < c) add_plain(g, from, begin, c - 1, to);
    add_escape(g, from, c, to);
    begin = c + 1;
  }
  if (begin <= high) add_plain(g, from, begin, high, to);
}

void sli_grammar_encode(sli_grammar *g, const sli_chars *chars, bool quoted, int32_t from,
                        int32_t to) {
  int32_t first = (int32_t)g->nnodes;
  for (size_t i = 0; i < chars->count && !sli_grammar_failed(g); i++) sli_grammar_node(g);
  sli_grammar_edge(g, from, (sli_edge){.kind = SLI_EDGE_FREE, .to = first});
  for (size_t i = 0; i < chars->count && !sli_grammar_failed(g); i++) {
    const struct sli_chars_state *s = &chars->states[i];
    int32_t node = first + (int32_t)i;
    if (s->accepts) sli_grammar_edge(g, node, (sli_edge){.kind = SLI_EDGE_FREE, .to = to});
    for (size_t e = 0; e < s->count; e++)
      (quoted ? add_quoted : add_plain)(g, node, s->edges[e].low, s->edges[e].high,
                                        first + s->edges[e].to);
  }
}
