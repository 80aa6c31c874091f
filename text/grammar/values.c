/* SPDX-License-Identifier: Apache-2.0 */
/* String and number values that schemas accept. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "text/grammar/schema.h"

const sli_chars *sli_values_chars(sli_schema *s, const sli_accepted *accepted) {
  if (!accepted->chars || (accepted->least_chars <= 0 && accepted->most_chars < 0))
    return accepted->chars;
  return sli_chars_both(s->g, accepted->chars,
                        sli_chars_of_length(s->g, accepted->least_chars, accepted->most_chars));
}

const sli_chars *sli_values_digits(sli_schema *s, const sli_accepted *accepted) {
  bool whole = !(accepted->types & SLI_JSON_FRACTION);
  if (!accepted->digits && !whole) return NULL;
  sli_chars *form = whole ? sli_numbers_whole(s->g) : sli_numbers_all(s->g, false);
  return accepted->digits ? sli_chars_both(s->g, form, accepted->digits) : form;
}

static unsigned type_of(const cJSON *value) {
  if (cJSON_IsNull(value)) return SLI_JSON_NULL;
  if (cJSON_IsBool(value)) return SLI_JSON_BOOLEAN;
  if (cJSON_IsString(value)) return SLI_JSON_STRING;
  if (cJSON_IsArray(value)) return SLI_JSON_LIST;
  if (cJSON_IsObject(value)) return SLI_JSON_MAP;
  return value->valuedouble == floor(value->valuedouble) ? SLI_JSON_INTEGER : SLI_JSON_FRACTION;
}

static bool has_string(const sli_accepted *accepted, const char *text) {
  int64_t count = 0;
  bool good = true;
  for (const char *at = text; *at && good; count++) at += sli_utf8_next(at, strlen(at), &good);
  return count >= accepted->least_chars &&
         (accepted->most_chars < 0 || count <= accepted->most_chars) &&
         (!accepted->chars || sli_chars_match(accepted->chars, text));
}

static bool are_equal(sli_schema *s, const cJSON *a, const cJSON *b);

static bool have_equal_parts(sli_schema *s, const cJSON *a, const cJSON *b) {
  const cJSON *each, *other = b->child;
  size_t count = sli_json_count(b);
  if (sli_json_count(a) != count) return false;
  cJSON_ArrayForEach(each, a) {
    bool named = cJSON_IsObject(a);
    if (!sli_grammar_spend(s->g, named ? count : 1)) return false;
    if (named) other = cJSON_GetObjectItemCaseSensitive(b, each->string);
    if (!other || !are_equal(s, each, other)) return false;
    other = other->next;
  }
  return true;
}

/* Returns whether two values are equal; the names of an object have any order. */
static bool are_equal(sli_schema *s, const cJSON *a, const cJSON *b) {
  bool whole = cJSON_IsObject(a) || cJSON_IsArray(a);
  if (!whole || (a->type & 0xff) != (b->type & 0xff)) return cJSON_Compare(a, b, true);
  return have_equal_parts(s, a, b);
}

static bool is_fixed(sli_schema *s, const cJSON *fixed, const cJSON *value) {
  const cJSON *each;
  if (strcmp(fixed->string, "enum") != 0) return are_equal(s, fixed, value);
  cJSON_ArrayForEach(each, fixed) {
    if (!sli_grammar_spend(s->g, 1)) return false;
    if (are_equal(s, each, value)) return true;
  }
  return false;
}

bool sli_values_have(sli_schema *s, const sli_accepted *accepted, const cJSON *value) {
  char number[32];
  if (!(accepted->types & type_of(value))) return false;
  for (const sli_items *x = accepted->fixed; x; x = x->next)
    if (!is_fixed(s, x->item, value)) return false;
  if (cJSON_IsString(value)) return has_string(accepted, value->valuestring);
  if (!cJSON_IsNumber(value) || !accepted->digits) return true;
  return sli_chars_match(accepted->digits, sli_number_text(value->valuedouble, number));
}
