/* Added tokens: texts that are a token wherever they stand, before anything else is cut. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/base.h"
#include "io/tokenizer/inner.h"

typedef struct token {
  char *text;              /* as it is decoded */
  char *sought;            /* as it is looked for */
  size_t bytes;            /* of sought */
  int32_t number;
  bool special, normalized, word, left, right; /* right: takes white space behind it along */
} token;

struct added {
  token *items;
  size_t count, capacity;
  bool begins[2][256]; /* with which bytes tokens that are looked for begin, [normalized] */
};

added *sli_added_create(void) { return sli_calloc(1, sizeof(added)); }

void sli_added_destroy(added *a) {
  for (size_t i = 0; a && i < a->count; i++) {
    free(a->items[i].text);
    free(a->items[i].sought);
  }
  if (a) free(a->items);
  free(a);
}

/* ---- looking for them ------------------------------------------------------------------------- */

/* The character that ends at `at`, or begins there; 0 at the ends of the text. */
static utf8proc_int32_t character_before(span text, size_t at) {
  utf8proc_int32_t c = 0;
  size_t begin = at;
  while (begin && (text.at[begin - 1] & 0xc0) == 0x80) begin--;
  if (begin) begin--;
  if (at) utf8proc_iterate((const utf8proc_uint8_t *)text.at + begin, (utf8proc_ssize_t)(at - begin), &c);
  return c;
}

static utf8proc_int32_t character_at(span text, size_t at) {
  utf8proc_int32_t c = 0;
  if (at < text.bytes)
    utf8proc_iterate((const utf8proc_uint8_t *)text.at + at, (utf8proc_ssize_t)(text.bytes - at), &c);
  return c;
}

static bool is_of_word(utf8proc_int32_t c) {
  if (!c) return false;
  utf8proc_category_t category = utf8proc_category(c);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO) ||
         category == UTF8PROC_CATEGORY_PC;
}

static bool is_space(utf8proc_int32_t c) {
  utf8proc_category_t category = utf8proc_category(c);
  return (c >= 9 && c <= 13) || c == 0x85 ||
         (c && category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP);
}

static bool stands_at(const token *k, span text, size_t at) {
  return k->bytes <= text.bytes - at && !memcmp(text.at + at, k->sought, k->bytes);
}

static bool is_alone(const token *k, span text, size_t at) {
  return !is_of_word(character_before(text, at)) && !is_of_word(character_at(text, at + k->bytes));
}

/* The longest that stands there. */
static const token *token_at(const added *a, bool normalized, span text, size_t at) {
  const token *best = NULL;
  for (size_t i = 0; i < a->count; i++) {
    const token *k = &a->items[i];
    if (k->normalized == normalized && k->bytes && (!best || k->bytes > best->bytes) &&
        stands_at(k, text, at))
      best = k;
  }
  return best;
}

static span with_spaces(const token *k, span text, size_t from, size_t begin) {
  size_t end = begin + k->bytes;
  while (k->left && begin > from && is_space(character_before(text, begin)))
    do begin--;
    while (begin > from && (text.at[begin] & 0xc0) == 0x80);
  while (k->right && end < text.bytes && is_space(character_at(text, end)))
    end += sli_character(text.at + end);
  return (span){text.at + begin, end - begin};
}

bool sli_added_find(const added *a, bool normalized, span text, size_t from, span *found,
                    int32_t *number) {
  const bool *begins = a->begins[normalized];
  for (size_t at = from; a->count && at < text.bytes; at++) {
    if (!begins[(unsigned char)text.at[at]]) continue;
    const token *k = token_at(a, normalized, text, at);
    if (!k) continue;
    if (k->word && !is_alone(k, text, at)) {
      at += k->bytes - 1;
      continue;
    }
    *found = with_spaces(k, text, from, at);
    *number = k->number;
    return true;
  }
  return false;
}

span sli_added_text(const added *a, int32_t number, bool *special) {
  for (size_t i = 0; i < a->count; i++)
    if (a->items[i].number == number) {
      *special = a->items[i].special;
      return (span){a->items[i].text, strlen(a->items[i].text)};
    }
  *special = false;
  return (span){NULL, 0};
}

/* ---- reading -------------------------------------------------------------------------------------- */

static void seek(token *k, normalizer *n) {
  span text = {k->text, strlen(k->text)};
  if (k->normalized) text = sli_normalize(n, text);
  k->sought = sli_calloc(1, text.bytes + 1);
  k->bytes = text.bytes;
  if (text.bytes) memcpy(k->sought, text.at, text.bytes);
}

sl_status sli_added_read(added *a, const cJSON *item, normalizer *n) {
  const cJSON *number = cJSON_GetObjectItemCaseSensitive(item, "id");
  const char *text = sli_json_text(item, "content");
  if (!text || !*text) return sl_fail(SL_E_INPUT, "an added token has no content");
  if (!cJSON_IsNumber(number) || !(number->valuedouble >= 0 && number->valuedouble < SLI_MOST_TOKENS) ||
      number->valuedouble != (double)number->valueint)
    return sl_fail(SL_E_INPUT, "added token \"%.40s\" has no id that can be", text);
  SLI_GROW(a->items, a->count, a->capacity);
  token *k = &a->items[a->count++];
  bool special = sli_json_flag(item, "special", false);
  *k = (token){.text = sli_strdup(text), .number = number->valueint, .special = special,
               .normalized = sli_json_flag(item, "normalized", !special),
               .word = sli_json_flag(item, "single_word", false),
               .left = sli_json_flag(item, "lstrip", false),
               .right = sli_json_flag(item, "rstrip", false)};
  seek(k, n);
  if (k->bytes) a->begins[k->normalized][(unsigned char)*k->sought] = true;
  return SL_OK;
}
