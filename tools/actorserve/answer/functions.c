/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/answer/functions.h"

#include <math.h>
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

enum { MOST_COMPARED = 1 << 22, MOST_STEPS = 1 << 14, STEPS_OF_ONE = 256, MOST_DEPTH = 64 };

/* Reads the schemas of all functions. Schemas can refer to each other in a circle, and a reference
 * is looked up among any number of names. */
typedef struct schema_reader {
  int64_t compared;   /* members compared so far */
  const cJSON *root;  /* schema of the function; references are relative to it */
  int steps, depth;   /* steps left for the function or the parameter, and depth */
  const char **words; /* [nwords] strings of enums and constants; NULL: they are only counted */
  int nwords;
} schema_reader;

/* Counts the members of an object or array before they are compared. */
static bool compare(schema_reader *r, const cJSON *with) {
  r->compared += 1 + cJSON_GetArraySize(with);
  return r->compared <= MOST_COMPARED;
}

/* Begins to read a schema, unless it lies too deep or takes too long. */
static bool enter(schema_reader *r, const cJSON *schema) {
  if (r->steps-- <= 0 || r->depth == MOST_DEPTH || !compare(r, schema)) return false;
  r->depth++;
  return true;
}

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
         : cJSON_IsNumber(value)
             ? (floor(value->valuedouble) == value->valuedouble ? ANSWER_IS_INTEGER
                                                                : ANSWER_IS_FRACTION)
         : cJSON_IsBool(value)  ? ANSWER_IS_TRUTH
         : cJSON_IsNull(value)  ? ANSWER_IS_NULL
         : cJSON_IsArray(value) ? ANSWER_IS_LIST
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
static const cJSON *target(schema_reader *r, const char *reference) {
  const cJSON *at = *reference == '#' ? r->root : NULL;
  for (const char *rest = reference + 1; at && *rest == '/' && compare(r, at);) {
    size_t bytes = strcspn(++rest, "/");
    char *part = pointer_part(rest, bytes);
    at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, atoi(part)) : member(at, part);
    free(part);
    rest += bytes;
  }
  return r->compared <= MOST_COMPARED ? at : NULL;
}

/* Returns the schema that a schema refers to, or NULL. */
static const cJSON *referred(schema_reader *r, const cJSON *schema) {
  const cJSON *reference = member(schema, "$ref");
  return cJSON_IsString(reference) ? target(r, reference->valuestring) : NULL;
}

/* Returns the kind of a value that a schema lists, and notes it if it is a string. */
static unsigned listed(schema_reader *r, const cJSON *value) {
  if (!value) return 0;
  if (cJSON_IsString(value) && r->words) r->words[r->nwords] = value->valuestring;
  r->nwords += cJSON_IsString(value);
  return kind_of(value);
}

static unsigned kinds_of(schema_reader *r, const cJSON *schema);

/* Returns the kinds that one of several schemas accepts. */
static unsigned kinds_of_any(schema_reader *r, const cJSON *schemas) {
  const cJSON *each;
  unsigned some = 0;
  cJSON_ArrayForEach(each, schemas) some |= kinds_of(r, each);
  return some;
}

/* Returns the kinds of values that a schema accepts. Keywords that do not restrict the kind are
 * skipped. */
static unsigned kinds_of(schema_reader *r, const cJSON *schema) {
  if (cJSON_IsFalse(schema) || !enter(r, schema)) return ANSWER_IS_ANY;
  const cJSON *type = member(schema, "type"), *other = referred(r, schema), *each;
  const cJSON *values = member(schema, "enum");
  unsigned named = kinds_named(type), list = 0;
  cJSON_ArrayForEach(each, type) named |= kinds_named(each);
  if (named && cJSON_IsTrue(member(schema, "nullable"))) named |= ANSWER_IS_NULL;
  if (compare(r, values)) cJSON_ArrayForEach(each, values) list |= listed(r, each);
  const unsigned given[] = {named,
                            list,
                            listed(r, member(schema, "const")),
                            other ? kinds_of(r, other) : 0,
                            kinds_of_any(r, member(schema, "anyOf")),
                            kinds_of_any(r, member(schema, "oneOf"))};
  unsigned kinds = ANSWER_IS_ANY;
  for (size_t i = 0; i < SLI_COUNT(given); i++)
    if (given[i]) kinds &= given[i];
  cJSON_ArrayForEach(each, member(schema, "allOf")) kinds &= kinds_of(r, each);
  r->depth--;
  return kinds;
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* Keeps the strings that a schema lists, if it takes other values too. */
static bool keep_words(schema_reader *r, const cJSON *schema, sli_bounded *memory,
                       answer_parameter *out) {
  int count = r->nwords;
  if (!count || !(out->takes & ANSWER_IS_TEXT) || out->takes == ANSWER_IS_TEXT) return true;
  r->words = out->words = sli_bounded_alloc(memory, (size_t)count * sizeof *out->words);
  if (!out->words) return false;
  r->steps = STEPS_OF_ONE, r->nwords = 0;
  kinds_of(r, schema);
  for (; out->nwords < r->nwords; out->nwords++)
    if (!(out->words[out->nwords] = copy(memory, out->words[out->nwords]))) return false;
  return true;
}

static bool add_parameter(schema_reader *r, const char *name, const cJSON *schema,
                          sli_bounded *memory, answer_function *out) {
  answer_parameter *p = &out->parameters[out->count++];
  schema_reader own = {.compared = r->compared, .root = r->root, .steps = STEPS_OF_ONE};
  p->takes = kinds_of(&own, schema);
  bool good = (!name || (p->name = copy(memory, name))) && keep_words(&own, schema, memory, p);
  r->compared = own.compared;
  return good;
}

static bool walk(schema_reader *r, const cJSON *schema, sli_bounded *memory, answer_function *out,
                 int *count);

/* Walks the parts of a schema that are joined: a reference, and alternatives. */
static bool walk_parts(schema_reader *r, const cJSON *schema, sli_bounded *memory,
                       answer_function *out, int *count) {
  static const char *const parts[] = {"allOf", "anyOf", "oneOf"};
  const cJSON *other = referred(r, schema), *each;
  bool good = !other || walk(r, other, memory, out, count);
  for (size_t i = 0; i < SLI_COUNT(parts); i++)
    cJSON_ArrayForEach(each, member(schema, parts[i])) good =
        good && walk(r, each, memory, out, count);
  return good;
}

/* Counts the parameters of a schema, or adds them if there is memory. A schema may have them
 * through a reference, and in parts that are joined. */
static bool walk(schema_reader *r, const cJSON *schema, sli_bounded *memory, answer_function *out,
                 int *count) {
  if (!enter(r, schema)) return true;
  const cJSON *others = member(schema, "additionalProperties"), *each;
  cJSON_ArrayForEach(each, member(schema, "properties")) {
    if (r->steps-- <= 0) break;
    if (memory && !add_parameter(r, each->string, each, memory, out)) return false;
    if (count) ++*count;
  }
  if (!walk_parts(r, schema, memory, out, count)) return false;
  r->depth--;
  if (!cJSON_IsObject(others)) return true;
  if (count) ++*count;
  return !memory || add_parameter(r, NULL, others, memory, out);
}

static bool read_parameters(schema_reader *r, const cJSON *schema, sli_bounded *memory,
                            answer_function *out) {
  int count = 0;
  if (!cJSON_IsObject(schema)) return true;
  r->root = schema;
  r->steps = MOST_STEPS, r->depth = 0;
  walk(r, schema, NULL, NULL, &count);
  out->parameters = sli_bounded_alloc(memory, ((size_t)count + 1) * sizeof *out->parameters);
  r->steps = MOST_STEPS;
  return out->parameters && walk(r, schema, memory, out, NULL);
}

static bool read_function(schema_reader *r, const cJSON *function, sli_bounded *memory,
                          answer_function *out) {
  out->name = copy(memory, member(function, "name")->valuestring);
  return out->name && read_parameters(r, member(function, "parameters"), memory, out);
}

sl_status answer_functions_read(const cJSON *tools, sli_bounded *memory, answer_functions *out) {
  const cJSON *each;
  schema_reader r = {0};
  *out = (answer_functions){0};
  out->functions =
      sli_bounded_alloc(memory, ((size_t)cJSON_GetArraySize(tools) + 1) * sizeof *out->functions);
  bool good = out->functions;
  cJSON_ArrayForEach(each, tools) good =
      good && read_function(&r, member(each, "function"), memory, &out->functions[out->count++]);
  if (r.compared > MOST_COMPARED)
    return sl_fail(SL_E_USAGE, "tools: the parameters take more than %d comparisons to read",
                   MOST_COMPARED);
  return good ? SL_OK : sl_fail(SL_E_MEMORY, "there is no memory for the tools");
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static bool same(const char *word, const char *text, size_t bytes) {
  return strlen(word) == bytes && !memcmp(word, text, bytes);
}

const answer_function *answer_functions_find(const answer_functions *all, const char *name,
                                             size_t bytes) {
  for (int i = 0; all && i < all->count; i++)
    if (same(all->functions[i].name, name, bytes)) return &all->functions[i];
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
