/* SPDX-License-Identifier: Apache-2.0 */
/* Texts around marks: up to a mark, without a mark, and with special tokens inside. */
#include <string.h>

#include "text/grammar/schema.h"

/* ---- automata of a mark ---------------------------------------------------------------------- */

/* Returns how much of the mark a text ends with, after `matched` matching bytes are followed by
 * c. */
static int32_t matched_behind(const char *mark, int32_t matched, char c) {
  for (int32_t n = matched; n >= 0; n--)
    if (mark[n] == c && !memcmp(mark, mark + matched - n, (size_t)n)) return n + 1;
  return 0;
}

/* Adds the edges of a state: each character of the mark leads to some state, all others back to the
 * start. */
static void add_edges(sli_grammar *g, sli_chars *chars, const char *mark, int32_t state) {
  int32_t next = 0, most = (int32_t)chars->count - 1;
  for (int32_t c = 0; c < 128; c++) {
    int32_t to = matched_behind(mark, state, (char)c);
    if (!to || !strchr(mark, c)) continue;
    if (next < c) sli_chars_edge_add(g, chars, state, next, c - 1, 0);
    if (to <= most) sli_chars_edge_add(g, chars, state, c, c, to);
    next = c + 1;
  }
  sli_chars_edge_add(g, chars, state, next, SLI_FIRST_SURROGATE - 1, 0);
  sli_chars_edge_add(g, chars, state, SLI_LAST_SURROGATE + 1, SLI_LAST_CHARACTER, 0);
}

/* Returns the texts that end with the first occurrence of a mark, or those in which it does not
 * occur. */
static sli_chars *chars_of(sli_grammar *g, const char *mark, bool until) {
  int32_t n = (int32_t)strlen(mark);
  sli_chars *a = sli_chars_create(g);
  if (!a) return NULL;
  for (int32_t i = 0; i < n + until; i++) sli_chars_state(g, a, until ? i == n : true);
  for (int32_t i = 0; i < n; i++) add_edges(g, a, mark, i);
  return sli_grammar_failed(g) ? NULL : a;
}

sli_term sli_grammar_until(sli_grammar *g, const char *text) {
  return sli_grammar_chars(g, chars_of(g, text, true), false);
}

sli_term sli_grammar_without(sli_grammar *g, const char *text) {
  return sli_grammar_chars(g, chars_of(g, text, false), false);
}

/* ---- strings of a schema --------------------------------------------------------------------- */

typedef struct strings {
  sli_schema *s;
  const sli_chars *without; /* all texts that may be strings */
  sli_term *terms;
  size_t count, capacity;
} strings;

static void add_string(strings *x, const sli_chars *chars) {
  sli_grammar *g = x->s->g;
  const sli_chars *both = chars ? sli_chars_both(g, chars, x->without) : NULL;
  if (!both || sli_chars_is_empty(g, both)) return;
  sli_term term = sli_grammar_chars(g, both, false);
  if (SLI_GRAMMAR_GROW(g, x->terms, x->count, x->capacity)) x->terms[x->count++] = term;
}

static void add_fixed(strings *x, const sli_accepted *accepted, const cJSON *value) {
  if (cJSON_IsString(value) && sli_values_have(x->s, accepted, value))
    add_string(x, sli_chars_of_text(x->s->g, value->valuestring));
}

static void take_strings(void *ctx, const sli_accepted *accepted) {
  strings *x = ctx;
  const cJSON *fixed = accepted->fixed ? accepted->fixed->item : NULL, *each;
  if (!(accepted->types & SLI_JSON_STRING)) return;
  if (fixed && strcmp(fixed->string, "enum") != 0) add_fixed(x, accepted, fixed);
  else if (fixed) cJSON_ArrayForEach(each, fixed) add_fixed(x, accepted, each);
  else if (accepted->chars) add_string(x, sli_values_chars(x->s, accepted));
  else if (accepted->least_chars <= 0 && accepted->most_chars < 0) add_string(x, x->without);
  else add_string(x, sli_chars_of_length(x->s->g, accepted->least_chars, accepted->most_chars));
}

sli_term sli_grammar_string(sli_grammar *g, const cJSON *schema, const char *where,
                            const char *without) {
  sli_schema s = {.g = g, .doc = {(char *)where, (cJSON *)schema}};
  strings x = {.s = &s, .without = chars_of(g, without, false)};
  const cJSON *root[] = {schema};
  s.last = &s.rules;
  if (sli_json_check(&s.doc)) return sli_grammar_fail(g, SL_E_USAGE, "%s", sl_detail());
  sli_schema_expand(&s, 1, root, take_strings, &x);
  if (sli_grammar_failed(g)) return 0;
  return sli_grammar_either(g, (int)x.count, x.terms);
}

/* ---- special tokens -------------------------------------------------------------------------- */

/* Returns the length of the special token's name that a text begins with, or 0 if there is none. */
static size_t mark_at(const sli_token_trie *tokens, const char *text) {
  const char *end = *text == '<' ? strchr(text, '>') : *text == '[' ? strchr(text, ']') : NULL;
  size_t bytes = end ? (size_t)(end + 1 - text) : 0;
  return bytes && sli_token_trie_has_mark(tokens, text, bytes) ? bytes : 0;
}

sli_term sli_grammar_spelled(sli_grammar *g, const sli_token_trie *tokens, const char *text) {
  size_t n = strlen(text), out = 0, behind = 0;
  char *marked = sli_grammar_alloc(g, 2 * n + 1);
  if (!marked) return 0;
  for (size_t i = 0; i < n; i++) {
    size_t mark = i < behind ? 0 : mark_at(tokens, text + i);
    if (mark) marked[out++] = (char)SLI_TOKEN_MARK, behind = i + mark;
    marked[out++] = text[i];
  }
  return sli_grammar_text(g, marked, out);
}
