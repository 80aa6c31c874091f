/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/answer/functions.h"

#include <string.h>

static const cJSON *member(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

static const char *copy(sli_bounded *memory, const char *text) {
  char *out = sli_bounded_alloc(memory, strlen(text) + 1);
  return out ? strcpy(out, text) : NULL;
}

/* Returns whether a schema's type is a string, or a list that includes string. */
static bool is_text(const cJSON *schema) {
  const cJSON *type = member(schema, "type"), *each;
  bool found = cJSON_IsString(type) && !strcmp(type->valuestring, "string");
  cJSON_ArrayForEach(each, type) found |=
      cJSON_IsString(each) && !strcmp(each->valuestring, "string");
  return found;
}

static bool read_texts(const cJSON *parameters, sli_bounded *memory, answer_function *out) {
  const cJSON *each;
  int count = 0;
  if (!cJSON_IsObject(parameters)) return true;
  cJSON_ArrayForEach(each, parameters) count += is_text(each);
  out->texts = sli_bounded_alloc(memory, ((size_t)count + 1) * sizeof *out->texts);
  cJSON_ArrayForEach(each, parameters) {
    if (!out->texts) return false;
    if (is_text(each) && !(out->texts[out->ntexts++] = copy(memory, each->string))) return false;
  }
  return out->texts;
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
    if (!f->name || !read_texts(member(member(function, "parameters"), "properties"), memory, f))
      return false;
  }
  return true;
}

static bool same(const char *word, const char *text, size_t bytes) {
  return strlen(word) == bytes && !memcmp(word, text, bytes);
}

const answer_function *answer_functions_find(const answer_functions *all, const char *name,
                                             size_t bytes) {
  for (int i = 0; all && i < all->count; i++)
    if (same(all->of[i].name, name, bytes)) return &all->of[i];
  return NULL;
}

bool answer_function_takes_text(const answer_function *f, const char *parameter, size_t bytes) {
  for (int i = 0; f && i < f->ntexts; i++)
    if (same(f->texts[i], parameter, bytes)) return true;
  return false;
}
