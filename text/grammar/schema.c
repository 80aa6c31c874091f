/* SPDX-License-Identifier: Apache-2.0 */
/* JSON schemas as terms: a rule for the values of each schema, or of several together.
 *
 * Members come in the order in which schemas name them, followed by others. Between JSON tokens
 * there is at most one space, or a line break with indentation, so that a model cannot emit white
 * space forever. */
#include "text/grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/memory.h"

/* ---- fixed values ---------------------------------------------------------------------------- */

static sli_term fixed_term(sli_schema *s, const cJSON *value);

static void put_text(void *to, const char *text, size_t bytes) { fwrite(text, 1, bytes, to); }

static sli_term fixed_text(sli_schema *s, const char *value) {
  char *text;
  size_t bytes;
  FILE *out = sli_memory_stream(&text, &bytes);
  sli_json_string(value, strlen(value), false, put_text, out);
  fclose(out);
  sli_term term = sli_grammar_text(s->g, text, bytes);
  free(text);
  return term;
}

/* Returns the members or elements of a fixed value. */
static sli_term fixed_parts(sli_schema *s, const cJSON *value) {
  size_t n = 0, count = (size_t)cJSON_GetArraySize(value);
  sli_term *parts = sli_grammar_alloc(s->g, (6 * count + 3) * sizeof *parts);
  const cJSON *each;
  if (!parts) return 0;
  parts[n++] = sli_schema_word(s, cJSON_IsObject(value) ? "{" : "[");
  cJSON_ArrayForEach(each, value) {
    if (each->prev && each != value->child) parts[n++] = sli_schema_word(s, ",");
    parts[n++] = s->space;
    if (cJSON_IsObject(value)) {
      parts[n++] = fixed_text(s, each->string);
      parts[n++] = sli_schema_word(s, ":");
      parts[n++] = s->gap;
    }
    parts[n++] = fixed_term(s, each);
  }
  parts[n++] = s->space;
  parts[n++] = sli_schema_word(s, cJSON_IsObject(value) ? "}" : "]");
  return sli_grammar_sequence(s->g, (int)n, parts);
}

static sli_term fixed_term(sli_schema *s, const cJSON *value) {
  char number[32];
  if (cJSON_IsNull(value)) return sli_schema_word(s, "null");
  if (cJSON_IsBool(value)) return sli_schema_word(s, cJSON_IsTrue(value) ? "true" : "false");
  if (cJSON_IsString(value)) return fixed_text(s, value->valuestring);
  if (cJSON_IsNumber(value)) return sli_schema_word(s, sli_number_text(value->valuedouble, number));
  return fixed_parts(s, value);
}

static bool asks_of_parts(const sli_accepted *accepted, const cJSON *value) {
  if (cJSON_IsObject(value))
    return accepted->maps || accepted->required || accepted->names || accepted->least_members ||
           accepted->most_members >= 0;
  return cJSON_IsArray(value) &&
         (accepted->lists || accepted->least_items || accepted->most_items >= 0);
}

static void add_fixed(sli_schema *s, const sli_accepted *accepted, const cJSON *value, sli_term *to,
                      int *n) {
  if (!sli_values_have(s, accepted, value)) return;
  if (asks_of_parts(accepted, value))
    sli_schema_refuse(s, accepted->fixed->item,
                      "objects and arrays are not supported beside keywords for their parts");
  to[(*n)++] = fixed_term(s, value);
}

static sli_term fixed_terms(sli_schema *s, const sli_accepted *accepted) {
  const cJSON *fixed = accepted->fixed->item, *each;
  bool several = !strcmp(fixed->string, "enum");
  size_t most = several ? (size_t)cJSON_GetArraySize(fixed) : 1;
  sli_term *terms = sli_grammar_alloc(s->g, (most + 1) * sizeof *terms);
  int n = 0;
  if (!terms) return 0;
  if (!several) add_fixed(s, accepted, fixed, terms, &n);
  else cJSON_ArrayForEach(each, fixed) add_fixed(s, accepted, each, terms, &n);
  return n ? sli_grammar_either(s->g, n, terms) : 0;
}

/* ---- values by type -------------------------------------------------------------------------- */

static sli_term null_term(sli_schema *s, const sli_accepted *accepted) {
  (void)accepted;
  return sli_schema_word(s, "null");
}

static sli_term boolean_term(sli_schema *s, const sli_accepted *accepted) {
  sli_term both[] = {sli_schema_word(s, "true"), sli_schema_word(s, "false")};
  (void)accepted;
  return sli_grammar_either(s->g, 2, both);
}

static sli_term number_term(sli_schema *s, const sli_accepted *accepted) {
  enum { MOST_DIGITS = 32 }; /* a model could go on for ever */
  const sli_chars *digits = sli_values_digits(s, accepted);
  if (!digits) digits = sli_numbers_all(s->g, true);
  digits = sli_chars_both(s->g, digits, sli_chars_of_length(s->g, 1, MOST_DIGITS));
  return sli_grammar_chars(s->g, digits, false);
}

static sli_term string_term(sli_schema *s, const sli_accepted *accepted) {
  if (accepted->chars) return sli_schema_string(s, sli_values_chars(s, accepted));
  if (accepted->most_chars >= 0 && accepted->most_chars < accepted->least_chars) return 0;
  bool counts = accepted->least_chars > 0 || accepted->most_chars >= 0;
  sli_term one = counts ? sli_grammar_call(s->g, s->character) : s->plain,
           all = sli_grammar_repeat(s->g, one, accepted->least_chars, accepted->most_chars),
           quote = sli_schema_word(s, "\"");
  return sli_schema_row(s, (sli_term[]){quote, all, quote, -1});
}

static const struct {
  unsigned types;
  sli_term (*term)(sli_schema *s, const sli_accepted *v);
} kinds[] = {{SLI_JSON_MAP, sli_schema_map}, {SLI_JSON_LIST, sli_schema_list},
             {SLI_JSON_STRING, string_term}, {SLI_JSON_NUMBERS, number_term},
             {SLI_JSON_NULL, null_term},     {SLI_JSON_BOOLEAN, boolean_term}};

static sli_term values_term(sli_schema *s, const sli_accepted *accepted) {
  sli_term terms[SLI_COUNT(kinds)];
  int n = 0;
  if (accepted->fixed) return fixed_terms(s, accepted);
  for (size_t i = 0; i < SLI_COUNT(kinds); i++)
    if (accepted->types & kinds[i].types) terms[n++] = kinds[i].term(s, accepted);
  return sli_grammar_either(s->g, n, terms);
}

/* ---- parts of all values --------------------------------------------------------------------- */

static sli_term hex_digits(sli_schema *s, const char *first, int more) {
  char pattern[64];
  snprintf(pattern, sizeof pattern, "\\\\u%s[0-9A-Fa-f]{%d}", first, more);
  return sli_grammar_regex(s->g, pattern);
}

/* Returns one character of a string, in any form that JSON allows. */
static sli_term character_term(sli_schema *s) {
  sli_term high = hex_digits(s, "[Dd][89ABab]", 2), low = hex_digits(s, "[Dd][C-Fc-f]", 2),
           pair = sli_schema_row(s, (sli_term[]){high, low, -1});
  sli_term ways[] = {sli_grammar_chars(s->g, sli_chars_of_length(s->g, 1, 1), true),
                     sli_schema_word(s, "\\/"), hex_digits(s, "[0-9A-CE-Fa-ce-f]", 3),
                     hex_digits(s, "[Dd][0-7]", 2), pair};
  return sli_grammar_either(s->g, SLI_COUNT(ways), ways);
}

static void make_shared(sli_schema *s) {
  enum { INDENTATION = 32 };
  sli_grammar *g = s->g;
  sli_term none = sli_schema_word(s, ""), space = sli_schema_word(s, " "),
           indents[] = {space, sli_schema_word(s, "\t")},
           indent = sli_grammar_either(g, 2, indents),
           line[] = {sli_schema_word(s, "\n"), sli_grammar_repeat(g, indent, 0, INDENTATION), -1};
  int32_t line_rule = sli_grammar_rule(g);
  s->character = sli_grammar_rule(g);
  s->plain = character_term(s);
  sli_term line_term = sli_schema_row(s, line);
  if (sli_grammar_failed(g)) return;
  g->rules[line_rule].term = line_term;
  g->rules[s->character].term = s->plain;
  sli_term gaps[] = {none, space, sli_grammar_call(g, line_rule)};
  s->gap = sli_grammar_either(g, 2, gaps);
  s->space = sli_grammar_either(g, 3, gaps);
}

/* ---- rules ----------------------------------------------------------------------------------- */

typedef struct alternatives {
  sli_schema *s;
  sli_term *terms;
  size_t count, capacity;
} alternatives;

static void take(void *ctx, const sli_accepted *accepted) {
  alternatives *a = ctx;
  sli_term term = values_term(a->s, accepted);
  if (SLI_GRAMMAR_GROW(a->s->g, a->terms, a->count, a->capacity)) a->terms[a->count++] = term;
}

static void make_rule(sli_schema *s, const sli_schema_rule *r) {
  alternatives a = {.s = s};
  sli_schema_expand(s, r->count, r->items, take, &a);
  if (sli_grammar_failed(s->g)) return;
  sli_term term = a.count ? sli_grammar_either(s->g, (int)a.count, a.terms) : 0;
  s->g->rules[r->rule].term = term;
}

static void check_ones(sli_schema *s) {
  for (const sli_items *x = s->ones; x && !sli_grammar_failed(s->g); x = x->next) {
    bool again = false;
    for (const sli_items *y = s->ones; y != x && !again && sli_grammar_spend(s->g, 1); y = y->next)
      again = x->item == y->item;
    if (!again) sli_schema_check_one(s, x->item);
  }
}

sli_term sli_grammar_schema(sli_grammar *g, const cJSON *schema, const char *where) {
  sli_schema s = {.g = g, .doc = {(char *)where, (cJSON *)schema}};
  s.last = &s.rules;
  if (!cJSON_IsObject(schema) && !cJSON_IsBool(schema))
    return sli_grammar_fail(g, SL_E_USAGE, "%s: a schema is an object, true or false", where);
  if (sli_json_check(&s.doc)) return sli_grammar_fail(g, SL_E_USAGE, "%s", sl_detail());
  make_shared(&s);
  const cJSON *root[] = {schema};
  sli_term term = sli_schema_value(&s, 1, root);
  for (const sli_schema_rule *r = s.rules; r && !sli_grammar_failed(g); r = r->next)
    make_rule(&s, r);
  check_ones(&s);
  return term;
}
