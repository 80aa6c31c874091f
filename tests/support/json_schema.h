/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON schema validator for tests. It checks values, not text, and is independent of grammars. It
 * ignores formats. */
#ifndef SLUICE_TESTS_SUPPORT_JSON_SCHEMA_H
#define SLUICE_TESTS_SUPPORT_JSON_SCHEMA_H

#include <cjson/cJSON.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

static bool schema_accepts(const cJSON *root, const cJSON *schema, const cJSON *value);

static inline const cJSON *keyword(const cJSON *schema, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(schema, name);
}

static inline bool keyword_number(const cJSON *schema, const char *name, double *out) {
  const cJSON *item = keyword(schema, name);
  if (item) *out = item->valuedouble;
  return item;
}

static inline bool has_type(const char *type, const cJSON *value) {
  if (!strcmp(type, "null")) return cJSON_IsNull(value);
  if (!strcmp(type, "boolean")) return cJSON_IsBool(value);
  if (!strcmp(type, "string")) return cJSON_IsString(value);
  if (!strcmp(type, "object")) return cJSON_IsObject(value);
  if (!strcmp(type, "array")) return cJSON_IsArray(value);
  bool whole = cJSON_IsNumber(value) && value->valuedouble == floor(value->valuedouble);
  return cJSON_IsNumber(value) && (whole || !strcmp(type, "number"));
}

static inline bool type_accepts(const cJSON *type, const cJSON *value) {
  const cJSON *each;
  if (cJSON_IsString(type)) return has_type(type->valuestring, value);
  cJSON_ArrayForEach(each, type) if (has_type(each->valuestring, value)) return true;
  return !type;
}

/* Matches with the C library's regular expressions, in a UTF-8 locale. */
static inline bool matches(const char *pattern, const char *text) {
  char plain[512], *to = plain;
  for (const char *at = pattern; *at; at++) {
    bool digit = !strncmp(at, "\\d", 2);
    to += digit ? sprintf(to, "[0-9]") : sprintf(to, "%c", *at);
    at += digit;
  }
  regex_t code;
  CHECK(!regcomp(&code, plain, REG_EXTENDED | REG_NOSUB), "%s is a pattern", plain);
  bool found = !regexec(&code, text, 0, NULL, 0);
  regfree(&code);
  return found;
}

static inline double characters(const char *text) {
  double n = 0;
  for (; *text; text++) n += (*text & 0xc0) != 0x80;
  return n;
}

static inline bool within(const cJSON *schema, const char *least, const char *most, double n) {
  double bound;
  if (keyword_number(schema, least, &bound) && n < bound) return false;
  return !keyword_number(schema, most, &bound) || n <= bound;
}

static inline bool number_accepts(const cJSON *schema, double n) {
  double bound;
  if (keyword_number(schema, "exclusiveMinimum", &bound) && n <= bound) return false;
  if (keyword_number(schema, "exclusiveMaximum", &bound) && n >= bound) return false;
  if (keyword_number(schema, "multipleOf", &bound) && fabs(n / bound - round(n / bound)) > 1e-9)
    return false;
  return within(schema, "minimum", "maximum", n);
}

static inline bool string_accepts(const cJSON *schema, const char *text) {
  const cJSON *pattern = keyword(schema, "pattern");
  return within(schema, "minLength", "maxLength", characters(text)) &&
         (!pattern || matches(pattern->valuestring, text));
}

static inline bool member_accepts(const cJSON *root, const cJSON *schema, const cJSON *member) {
  const cJSON *own = keyword(keyword(schema, "properties"), member->string), *each,
              *names = keyword(schema, "propertyNames"),
              *rest = keyword(schema, "additionalProperties");
  const cJSON name = {.type = cJSON_String, .valuestring = member->string};
  bool good = !own || schema_accepts(root, own, member), known = own;
  cJSON_ArrayForEach(each, keyword(schema, "patternProperties")) {
    if (!matches(each->string, member->string)) continue;
    good = good && schema_accepts(root, each, member);
    known = true;
  }
  if (!known && rest) good = good && schema_accepts(root, rest, member);
  return good && (!names || schema_accepts(root, names, &name));
}

static inline bool object_accepts(const cJSON *root, const cJSON *schema, const cJSON *value) {
  const cJSON *each;
  cJSON_ArrayForEach(
      each, keyword(schema, "required")) if (!keyword(value, each->valuestring)) return false;
  cJSON_ArrayForEach(each, value) if (!member_accepts(root, schema, each)) return false;
  return within(schema, "minProperties", "maxProperties", cJSON_GetArraySize(value));
}

static inline bool array_accepts(const cJSON *root, const cJSON *schema, const cJSON *value) {
  const cJSON *prefix = keyword(schema, "prefixItems"), *rest = keyword(schema, "items"), *each;
  int i = 0;
  cJSON_ArrayForEach(each, value) {
    const cJSON *own = cJSON_GetArrayItem(prefix, i++);
    if (!own) own = rest;
    if (own && !schema_accepts(root, own, each)) return false;
  }
  return within(schema, "minItems", "maxItems", i);
}

static inline const cJSON *referred(const cJSON *root, const char *ref) {
  char path[256];
  snprintf(path, sizeof path, "%s", ref);
  for (char *token = strtok(path + 1, "/"); token; token = strtok(NULL, "/")) {
    char name[256] = "", *to = name;
    for (const char *at = token; *at; at++) {
      if (!strncmp(at, "~1", 2)) *to++ = '/', at++;
      else if (!strncmp(at, "~0", 2)) *to++ = '~', at++;
      else if (!strncmp(at, "%20", 3)) *to++ = ' ', at += 2;
      else *to++ = *at;
    }
    root = keyword(root, name);
  }
  CHECK(root, "%s leads somewhere", ref);
  return root;
}

static inline int count_accepting(const cJSON *root, const cJSON *schemas, const cJSON *value) {
  const cJSON *each;
  int n = 0;
  cJSON_ArrayForEach(each, schemas) n += schema_accepts(root, each, value);
  return n;
}

static inline bool parts_accept(const cJSON *root, const cJSON *schema, const cJSON *value) {
  const cJSON *all = keyword(schema, "allOf"), *any = keyword(schema, "anyOf"),
              *one = keyword(schema, "oneOf"), *ref = keyword(schema, "$ref");
  return (!all || count_accepting(root, all, value) == cJSON_GetArraySize(all)) &&
         (!any || count_accepting(root, any, value)) &&
         (!one || count_accepting(root, one, value) == 1) &&
         (!ref || schema_accepts(root, referred(root, ref->valuestring), value));
}

static inline bool fixed_accept(const cJSON *schema, const cJSON *value) {
  const cJSON *one = keyword(schema, "const"), *several = keyword(schema, "enum"), *each;
  bool found = !several;
  cJSON_ArrayForEach(each, several) found |= cJSON_Compare(each, value, true);
  return found && (!one || cJSON_Compare(one, value, true));
}

/* Returns whether the schema, a part of `root`, accepts the value. */
static bool schema_accepts(const cJSON *root, const cJSON *schema, const cJSON *value) {
  if (cJSON_IsBool(schema)) return cJSON_IsTrue(schema);
  if (!type_accepts(keyword(schema, "type"), value) || !fixed_accept(schema, value)) return false;
  if (cJSON_IsNumber(value) && !number_accepts(schema, value->valuedouble)) return false;
  if (cJSON_IsString(value) && !string_accepts(schema, value->valuestring)) return false;
  if (cJSON_IsObject(value) && !object_accepts(root, schema, value)) return false;
  if (cJSON_IsArray(value) && !array_accepts(root, schema, value)) return false;
  return parts_accept(root, schema, value);
}

#endif
