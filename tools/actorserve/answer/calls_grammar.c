/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/answer/calls_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/memory.h"

static const cJSON *member(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

static sli_term row(sli_grammar *g, const sli_term *terms) {
  int n = 0;
  while (terms[n] >= 0) n++;
  return sli_grammar_sequence(g, n, terms);
}

static sli_term maybe(sli_grammar *g, sli_term term) { return sli_grammar_repeat(g, term, 0, 1); }

static sli_term plain(sli_grammar *g, const char *text) {
  return sli_grammar_text(g, text, strlen(text));
}

static sli_term spelled(sli_grammar *g, const answer_calls *how, const char *text) {
  return sli_grammar_spelled(g, how->tokens, text);
}

/* ---- arguments as JSON ----------------------------------------------------------------------- */

/* Returns the schema of a function's arguments, closed unless it says otherwise, so that the model
 * invents no parameters. `more` holds the added member. */
static cJSON closed(const cJSON *parameters, cJSON *more) {
  cJSON schema = cJSON_IsObject(parameters) ? *parameters : (cJSON){.type = cJSON_Object};
  schema.next = schema.prev = NULL;
  schema.string = NULL;
  if (member(&schema, "additionalProperties") || member(&schema, "patternProperties") ||
      (schema.child && !member(&schema, "properties")))
    return schema;
  static char name[] = "additionalProperties";
  *more = (cJSON){.type = cJSON_False, .string = name, .next = schema.child, .prev = more};
  schema.child = more;
  return schema;
}

static sli_term json_arguments(sli_grammar *g, const cJSON *parameters, const char *where) {
  cJSON more, schema = closed(parameters, &more);
  return schema.child == &more && !more.next ? plain(g, "{}")
                                             : sli_grammar_schema(g, &schema, where);
}

/* ---- arguments between tags ------------------------------------------------------------------ */

static const char parameter_end[] = "\n</parameter>\n";

static bool is_named(const cJSON *names, const char *name) {
  const cJSON *each;
  cJSON_ArrayForEach(
      each, names) if (cJSON_IsString(each) && !strcmp(each->valuestring, name)) return true;
  return false;
}

static bool is_text(const cJSON *schema) {
  const cJSON *type = member(schema, "type");
  return (cJSON_IsString(type) && !strcmp(type->valuestring, "string")) || is_named(type, "string");
}

/* Returns a parameter's schema with the definitions of the root schema, which it may refer to. */
static cJSON with_definitions(const cJSON *root, const cJSON *schema, cJSON more[2]) {
  static const char *const names[] = {"$defs", "definitions"};
  cJSON out = *schema;
  out.next = out.prev = NULL;
  for (int i = 0; i < 2; i++) {
    const cJSON *all = member(root, names[i]);
    if (!cJSON_IsObject(schema) || !all || member(schema, names[i])) continue;
    more[i] = *all;
    more[i].next = out.child;
    more[i].prev = &more[i];
    out.child = &more[i];
  }
  return out;
}

static sli_term tagged_value(sli_grammar *g, const cJSON *root, const cJSON *schema,
                             const char *where) {
  cJSON more[2], whole = with_definitions(root, schema, more);
  return is_text(schema) ? sli_grammar_string(g, &whole, where, "</parameter>")
                         : sli_grammar_schema(g, &whole, where);
}

static sli_term tagged(sli_grammar *g, const cJSON *root, const cJSON *schema, const char *name,
                       const char *where) {
  char *begin = sli_format("<parameter=%s>\n", name),
       *path = sli_format("%s.properties.%s", where, name);
  sli_term term = row(g, (sli_term[]){plain(g, begin), tagged_value(g, root, schema, path),
                                      plain(g, parameter_end), -1});
  free(begin);
  free(path);
  return is_named(member(root, "required"), name) ? term : maybe(g, term);
}

static sli_term tagged_arguments(sli_grammar *g, const cJSON *parameters, const char *where) {
  const cJSON *properties = member(parameters, "properties"), *each;
  static const cJSON any = {.type = cJSON_True};
  int count = cJSON_GetArraySize(properties) + cJSON_GetArraySize(member(parameters, "required"));
  sli_term *terms = sli_calloc((size_t)count + 1, sizeof *terms);
  int n = 0;
  cJSON_ArrayForEach(each, properties) terms[n++] =
      tagged(g, parameters, each, each->string, where);
  cJSON_ArrayForEach(
      each, member(parameters, "required")) if (cJSON_IsString(each) &&
                                                !member(properties, each->valuestring)) terms[n++] =
      tagged(g, parameters, &any, each->valuestring, where);
  sli_term out = sli_grammar_sequence(g, n, terms);
  free(terms);
  return out;
}

static bool is_offered(const answer_calls *how, const cJSON *function) {
  return !how->only || !strcmp(member(function, "name")->valuestring, how->only);
}

sl_status answer_calls_check(const answer_calls *how) {
  static const char *const refused[] = {"$ref",
                                        "allOf",
                                        "anyOf",
                                        "oneOf",
                                        "not",
                                        "if",
                                        "const",
                                        "minProperties",
                                        "maxProperties",
                                        "patternProperties",
                                        "enum",
                                        "propertyNames",
                                        "dependentRequired"};
  const cJSON *each;
  int i = 0;
  cJSON_ArrayForEach(each, how->tools) {
    const cJSON *function = member(each, "function"), *parameters = member(function, "parameters");
    for (size_t k = 0; k < SLI_COUNT(refused); k++)
      if (how->format->tagged && is_offered(how, function) && member(parameters, refused[k]))
        return sl_fail(SL_E_USAGE,
                       "tools[%d].function.parameters.%s: this keyword is not supported here, with "
                       "calls as %s has them",
                       i, refused[k], how->format->name);
    i++;
  }
  return SL_OK;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static const answer_spelling *spelling_of(const answer_calls *how) {
  const answer_format *f = how->format;
  bool other =
      f->other_mark && sli_token_trie_has_mark(how->tokens, f->other_mark, strlen(f->other_mark));
  return other ? &f->others : &f->calls;
}

static void put_bytes(void *to, const char *text, size_t bytes) { fwrite(text, 1, bytes, to); }

/* Returns a function's name as the format writes it: escaped inside a JSON string, or unchanged. */
static sli_term name_term(sli_grammar *g, const answer_spelling *s, const char *name) {
  size_t n = strlen(s->begin), bytes;
  if (!n || s->begin[n - 1] != '"') return plain(g, name);
  char *text;
  FILE *out = sli_memory_stream(&text, &bytes);
  sli_json_string(name, strlen(name), false, put_bytes, out);
  fclose(out);
  sli_term term = sli_grammar_text(g, text + 1, bytes - 2);
  free(text);
  return term;
}

static sli_term call_term(sli_grammar *g, const answer_calls *how, const answer_spelling *s,
                          const cJSON *function, int i) {
  const cJSON *parameters = member(function, "parameters");
  char *where = sli_format("tools[%d].function.parameters", i);
  sli_term arguments = how->format->tagged ? tagged_arguments(g, parameters, where)
                                           : json_arguments(g, parameters, where);
  free(where);
  sli_term terms[] = {name_term(g, s, member(function, "name")->valuestring),
                      spelled(g, how, s->middle), arguments, spelled(g, how, s->end), -1};
  return row(g, terms);
}

/* Returns the grammar of a call of any function, without its beginning. */
static sli_term any_call(sli_grammar *g, const answer_calls *how, const answer_spelling *s) {
  const cJSON *each;
  sli_term *terms = sli_calloc((size_t)cJSON_GetArraySize(how->tools) + 1, sizeof *terms);
  int n = 0, i = 0;
  cJSON_ArrayForEach(each, how->tools) {
    const cJSON *function = member(each, "function");
    if (is_offered(how, function)) terms[n++] = call_term(g, how, s, function, i);
    i++;
  }
  sli_term out = sli_grammar_either(g, n, terms);
  free(terms);
  return out;
}

/* Returns the grammar of an answer's calls, without `head` and the beginning of the first call. */
static sli_term calls_behind(sli_grammar *g, const answer_calls *how, const answer_spelling *s) {
  sli_term call = any_call(g, how, s), none = plain(g, ""), more = none;
  if (how->several && s->between) {
    sli_term next[] = {spelled(g, how, s->between), spelled(g, how, s->begin), call, -1};
    more = sli_grammar_repeat(g, row(g, next), 0, -1);
  }
  return row(g, (sli_term[]){call, more, spelled(g, how, s->tail), -1});
}

/* ---- reasoning ------------------------------------------------------------------------------- */

/* Returns the grammar of text up to and including the first occurrence of a mark, which may be a
 * special token. */
static sli_term up_to(sli_grammar *g, const answer_calls *how, const char *mark) {
  if (!sli_token_trie_has_mark(how->tokens, mark, strlen(mark))) return sli_grammar_until(g, mark);
  return row(g, (sli_term[]){sli_grammar_without(g, mark), spelled(g, how, mark), -1});
}

static sli_term thought_term(sli_grammar *g, const answer_calls *how) {
  const char *const *thought = how->format->thought;
  if (thought[0]) {
    sli_term terms[] = {spelled(g, how, thought[0]), sli_grammar_without(g, "<|end|>"),
                        spelled(g, how, thought[1]), -1};
    return maybe(g, row(g, terms));
  }
  sli_term gap = sli_grammar_repeat(g, plain(g, "\n"), 0, 2),
           end = row(g, (sli_term[]){up_to(g, how, "</think>"), gap, -1});
  if (how->within) return end;
  if (!how->thinks) return plain(g, "");
  return maybe(g, row(g, (sli_term[]){spelled(g, how, ANSWER_THINK), end, -1}));
}

sli_term answer_calls_term(sli_grammar *g, const answer_calls *how) {
  const answer_spelling *s = spelling_of(how);
  sli_term terms[] = {thought_term(g, how), spelled(g, how, s->head), spelled(g, how, s->begin),
                      calls_behind(g, how, s), -1};
  return row(g, terms);
}
