/* SPDX-License-Identifier: Apache-2.0 */
/* Functions used by the files about schemas: messages, lists, rules for values, strings. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar/schema.h"

void sli_schema_refuse(const sli_schema *s, const cJSON *at, const char *format, ...) {
  char text[400];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  sli_json_fail(&s->doc, at, "%s", text);
  sli_grammar_fail(s->g, SL_E_USAGE, "%s", sl_detail());
}

/* ---- lists ----------------------------------------------------------------------------------- */

const sli_items *sli_items_add(const sli_schema *s, const sli_items *to, const cJSON *item) {
  sli_items *out = sli_grammar_alloc(s->g, sizeof *out);
  if (out) *out = (sli_items){item, to};
  return out ? out : to;
}

size_t sli_items_list(const sli_schema *s, const sli_items *items, const cJSON ***out) {
  size_t n = 0, i;
  for (const sli_items *x = items; x; x = x->next) n++;
  *out = sli_grammar_alloc(s->g, n * sizeof **out);
  if (!*out) return 0;
  for (i = n; items; items = items->next) (*out)[--i] = items->item;
  return n;
}

/* ---- rules of values ------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b) {
  const cJSON *x = *(const cJSON *const *)a, *y = *(const cJSON *const *)b;
  return x < y ? -1 : x > y;
}

static sli_schema_rule *find_rule(const sli_schema *s, size_t count, const cJSON **of) {
  for (sli_schema_rule *r = s->rules; r && sli_grammar_spend(s->g, 1); r = r->next)
    if (r->count == count && (!count || !memcmp(r->items, of, count * sizeof *of))) return r;
  return NULL;
}

sli_term sli_schema_value(sli_schema *s, size_t count, const cJSON **of) {
  size_t n = 0;
  if (count) qsort(of, count, sizeof *of, by_address);
  for (size_t i = 0; i < count; i++)
    if (!n || of[i] != of[n - 1]) of[n++] = of[i];
  sli_schema_rule *r = find_rule(s, n, of);
  if (!r && (r = sli_grammar_alloc(s->g, sizeof *r))) {
    *r = (sli_schema_rule){.rule = sli_grammar_rule(s->g), .count = n};
    r->items = sli_grammar_alloc(s->g, n * sizeof *of);
    if (r->items && n) memcpy(r->items, of, n * sizeof *of);
    *s->last = r;
    s->last = &r->next;
  }
  return r ? sli_grammar_call(s->g, r->rule) : 0;
}

/* ---- terms ----------------------------------------------------------------------------------- */

sli_term sli_schema_row(sli_schema *s, const sli_term *terms) {
  int n = 0;
  while (terms[n] >= 0) n++;
  return sli_grammar_sequence(s->g, n, terms);
}

sli_term sli_schema_word(sli_schema *s, const char *text) {
  return sli_grammar_text(s->g, text, strlen(text));
}

sli_term sli_schema_string(sli_schema *s, const sli_chars *chars) {
  sli_term quote = sli_schema_word(s, "\""), text = sli_grammar_chars(s->g, chars, true);
  return sli_schema_row(s, (sli_term[]){quote, text, quote, -1});
}

/* ---- patterns -------------------------------------------------------------------------------- */

struct sli_schema_pattern_of {
  const char *text;
  const sli_chars *chars;
  struct sli_schema_pattern_of *next;
};

const sli_chars *sli_schema_pattern(sli_schema *s, const cJSON *at, const char *pattern) {
  for (const struct sli_schema_pattern_of *p = s->patterns; p && sli_grammar_spend(s->g, 1);
       p = p->next)
    if (!strcmp(p->text, pattern)) return p->chars;
  const sli_chars *chars = sli_chars_of_regex(s->g, NULL, pattern, true);
  struct sli_schema_pattern_of *p = sli_grammar_alloc(s->g, sizeof *p);
  if (!p) {
    if (s->g->status != SL_E_USAGE) return NULL;
    char why[sizeof s->g->failure];
    snprintf(why, sizeof why, "%s", s->g->failure);
    s->g->status = SL_OK; /* reported again, with the path */
    sli_schema_refuse(s, at, "%s", why);
    return NULL;
  }
  *p = (struct sli_schema_pattern_of){pattern, chars, s->patterns};
  s->patterns = p;
  return chars;
}
