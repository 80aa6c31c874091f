/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/answer/functions.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const cJSON *member(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

static const char *copy(sli_bounded *memory, const char *text) {
  char *out = sli_bounded_alloc(memory, strlen(text) + 1);
  return out ? strcpy(out, text) : NULL;
}

/* ---- schemas --------------------------------------------------------------------------------- */

/* Reads the schemas of one function. */
enum { MOST_STEPS = 1 << 14, STEPS_OF_ONE = 256, MOST_DEPTH = 64 };
typedef struct schema_reader {
  const cJSON *root; /* references are relative to it */
  int steps, depth;  /* steps left, and depth: schemas can refer to each other in a circle */
} schema_reader;

static const struct {
  const char *name;
  unsigned kinds;
} types[] = {{"string", ANSWER_IS_TEXT},
             {"integer", ANSWER_IS_INTEGER},
             {"number", ANSWER_IS_INTEGER | ANSWER_IS_FRACTION},
             {"boolean", ANSWER_IS_TRUTH},
             {"null", ANSWER_IS_NULL},
             {"array", ANSWER_IS_LIST},
             {"object", ANSWER_IS_OBJECT}};

static unsigned kinds_named(const cJSON *name) {
  for (size_t i = 0; i < SLI_COUNT(types); i++)
    if (cJSON_IsString(name) && !strcmp(types[i].name, name->valuestring)) return types[i].kinds;
  return 0;
}

static unsigned kind_of(const cJSON *value) {
  return cJSON_IsString(value) ? ANSWER_IS_TEXT
         : cJSON_IsNumber(value) && value->valuedouble == (double)(long long)value->valuedouble
             ? ANSWER_IS_INTEGER
         : cJSON_IsNumber(value) ? ANSWER_IS_FRACTION
         : cJSON_IsBool(value)   ? ANSWER_IS_TRUTH
         : cJSON_IsNull(value)   ? ANSWER_IS_NULL
         : cJSON_IsArray(value)  ? ANSWER_IS_LIST
                                 : ANSWER_IS_OBJECT;
}

/* Copies one part of a JSON pointer, in which ~1 is a slash and ~0 a tilde. */
static char *pointer_part(const char *at, size_t bytes) {
  char *out = sli_calloc(bytes + 1, 1), *to = out;
  for (size_t i = 0; i < bytes; i++) {
    bool escaped = at[i] == '~' && i + 1 < bytes && (at[i + 1] == '0' || at[i + 1] == '1');
    *to++ = !escaped ? at[i] : at[++i] == '1' ? '/' : '~';
  }
  return out;
}

/* Returns the target of a reference within the schema, or NULL. */
static const cJSON *target(const schema_reader *r, const char *reference) {
  const cJSON *at = *reference == '#' ? r->root : NULL;
  for (const char *rest = reference + 1; at && *rest == '/';) {
    size_t bytes = strcspn(++rest, "/");
    char *part = pointer_part(rest, bytes);
    at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, atoi(part)) : member(at, part);
    free(part);
    rest += bytes;
  }
  return at;
}

/* Returns the schema that a schema refers to, or NULL. */
static const cJSON *referred(const schema_reader *r, const cJSON *schema) {
  const cJSON *reference = member(schema, "$ref");
  return cJSON_IsString(reference) ? target(r, reference->valuestring) : NULL;
}

/* Returns the kinds of values that a schema accepts. Keywords that do not restrict the kind are
 * skipped. */
static unsigned kinds_of(schema_reader *r, const cJSON *schema) {
  static const char *const choices[] = {"anyOf", "oneOf"};
  const cJSON *type = member(schema, "type"), *other = referred(r, schema), *each;
  const cJSON *constant = member(schema, "const"), *values = member(schema, "enum");
  unsigned kinds = ANSWER_IS_ANY, some = kinds_named(type);
  if (cJSON_IsFalse(schema) || r->steps-- <= 0 || r->depth == MOST_DEPTH) return ANSWER_IS_ANY;
  r->depth++;
  cJSON_ArrayForEach(each, type) some |= kinds_named(each);
  if (some) kinds &= cJSON_IsTrue(member(schema, "nullable")) ? some | ANSWER_IS_NULL : some;
  if (constant) kinds &= kind_of(constant);
  some = 0;
  cJSON_ArrayForEach(each, values) some |= kind_of(each);
  if (some) kinds &= some;
  if (other) kinds &= kinds_of(r, other);
  for (size_t i = 0; i < SLI_COUNT(choices); i++) {
    some = 0;
    cJSON_ArrayForEach(each, member(schema, choices[i])) some |= kinds_of(r, each);
    if (some) kinds &= some;
  }
  cJSON_ArrayForEach(each, member(schema, "allOf")) kinds &= kinds_of(r, each);
  r->depth--;
  return kinds;
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* Notes the strings of an enum that has other values too. */
static bool read_words(const schema_reader *r, const cJSON *schema, sli_bounded *memory,
                       answer_parameter *out) {
  const cJSON *other = referred(r, schema), *each;
  const cJSON *values = member(other ? other : schema, "enum");
  int count = cJSON_GetArraySize(values);
  if (!count || !(out->takes & ANSWER_IS_TEXT) || out->takes == ANSWER_IS_TEXT) return true;
  out->words = sli_bounded_alloc(memory, (size_t)count * sizeof *out->words);
  if (!out->words) return false;
  cJSON_ArrayForEach(each, values) {
    if (!cJSON_IsString(each)) continue;
    if (!(out->words[out->nwords++] = copy(memory, each->valuestring))) return false;
  }
  return true;
}

static bool add_parameter(const schema_reader *r, const char *name, const cJSON *schema,
                          sli_bounded *memory, answer_function *out) {
  answer_parameter *p = &out->parameters[out->count++];
  schema_reader own = {r->root, STEPS_OF_ONE, 0};
  p->takes = kinds_of(&own, schema);
  if (name && !(p->name = copy(memory, name))) return false;
  return read_words(&own, schema, memory, p);
}

/* Counts the parameters of a schema, or adds them if there is memory. A schema may have them
 * through a reference, and in parts that are joined. */
static bool walk(schema_reader *r, const cJSON *schema, sli_bounded *memory, answer_function *out,
                 int *count) {
  static const char *const parts[] = {"allOf", "anyOf", "oneOf"};
  const cJSON *others = member(schema, "additionalProperties"), *each;
  const cJSON *other = referred(r, schema);
  if (r->steps-- <= 0 || r->depth == MOST_DEPTH) return true;
  r->depth++;
  cJSON_ArrayForEach(each, member(schema, "properties")) {
    if (r->steps-- <= 0) break;
    if (memory && !add_parameter(r, each->string, each, memory, out)) return false;
    if (count) ++*count;
  }
  if (other && !walk(r, other, memory, out, count)) return false;
  for (size_t i = 0; i < SLI_COUNT(parts); i++)
    cJSON_ArrayForEach(
        each, member(schema, parts[i])) if (!walk(r, each, memory, out, count)) return false;
  if (!cJSON_IsObject(others)) return true;
  if (count) ++*count;
  return !memory || add_parameter(r, NULL, others, memory, out);
}

static bool read_parameters(const cJSON *schema, sli_bounded *memory, answer_function *out) {
  int count = 0;
  schema_reader r = {schema, MOST_STEPS, 0};
  if (!cJSON_IsObject(schema)) return true;
  walk(&r, schema, NULL, NULL, &count);
  out->parameters = sli_bounded_alloc(memory, ((size_t)count + 1) * sizeof *out->parameters);
  if (!out->parameters) return false;
  r.steps = MOST_STEPS;
  return walk(&r, schema, memory, out, NULL);
}

bool answer_functions_read(const cJSON *tools, sli_bounded *memory, answer_functions *out) {
  const cJSON *each;
  *out = (answer_functions){0};
  out->of = sli_bounded_alloc(memory, ((size_t)cJSON_GetArraySize(tools) + 1) * sizeof *out->of);
  if (!out->of) return false;
  cJSON_ArrayForEach(each, tools) {
    const cJSON *function = member(each, "function");
    answer_function *f = &out->of[out->count++];
    f->name = copy(memory, member(function, "name")->valuestring);
    if (!f->name || !read_parameters(member(function, "parameters"), memory, f)) return false;
  }
  return true;
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static bool same(const char *word, const char *text, size_t bytes) {
  return strlen(word) == bytes && !memcmp(word, text, bytes);
}

const answer_function *answer_functions_find(const answer_functions *all, const char *name,
                                             size_t bytes) {
  for (int i = 0; all && i < all->count; i++)
    if (same(all->of[i].name, name, bytes)) return &all->of[i];
  return NULL;
}

const answer_parameter *answer_function_parameter(const answer_function *f, const char *name,
                                                  size_t bytes) {
  const answer_parameter *others = NULL;
  for (int i = 0; f && i < f->count; i++) {
    const answer_parameter *p = &f->parameters[i];
    if (p->name && same(p->name, name, bytes)) return p;
    if (!p->name) others = p;
  }
  return others;
}

bool answer_parameter_is_text(const answer_parameter *parameter, const char *value, unsigned kind) {
  if (!kind) return true;
  if (!parameter || !(parameter->takes & ANSWER_IS_TEXT)) return false;
  for (int i = 0; i < parameter->nwords; i++)
    if (!strcmp(parameter->words[i], value)) return true;
  return !(parameter->takes & kind);
}
