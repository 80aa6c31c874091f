/* SPDX-License-Identifier: Apache-2.0 */
/* Added tokens: texts that are a token wherever they occur. They are matched before the text is
 * split. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer_inner.h"

typedef struct token {
  char *text;   /* right: also matches white space after it */
  char *sought; /* text to search for */
  size_t bytes; /* bytes of sought */
  int32_t number;
  bool special, normalized, word, left, right; /* right: also matches the white space after it */
} token;

/* A sorted list of tokens. */
typedef struct order {
  const token **items;
  size_t count;
} order;

struct added {
  token *items;
  size_t count, capacity;
  order sought[2];     /* tokens to search for, sorted by text, [normalized] */
  order numbered;      /* all tokens, sorted by number */
  bool begins[2][256]; /* first bytes of tokens to search for, [normalized] */
};

added *sli_added_create(void) { return sli_calloc(1, sizeof(added)); }

void sli_added_destroy(added *a) {
  for (size_t i = 0; a && i < a->count; i++) {
    free(a->items[i].text);
    free(a->items[i].sought);
  }
  if (a) {
    free(a->items);
    free(a->sought[0].items);
    free(a->sought[1].items);
    free(a->numbered.items);
  }
  free(a);
}

/* ---- search ---------------------------------------------------------------------------------- */

/* Returns the character that ends at `at`, or that begins there, or 0 at the ends of the text. */
static int32_t character_before(span text, size_t at) {
  size_t begin = at;
  while (begin && (text.at[begin - 1] & 0xc0) == 0x80) begin--;
  return begin ? sli_utf8_character(text.at + begin - 1) : 0;
}

static int32_t character_at(span text, size_t at) {
  return at < text.bytes ? sli_utf8_character(text.at + at) : 0;
}

static bool is_alone(const token *k, span text, size_t at) {
  return !sli_character_is_of_word(character_before(text, at)) &&
         !sli_character_is_of_word(character_at(text, at + k->bytes));
}

/* Binary search: among tokens from `from` on that share `depth` bytes, the first whose next byte
 * is `byte` or more. */
static size_t first_with(const order *o, size_t from, size_t end, size_t depth, int byte) {
  while (from < end) {
    size_t middle = from + (end - from) / 2;
    const token *k = o->items[middle];
    int other = k->bytes > depth ? (unsigned char)k->sought[depth] : -1;
    if (other < byte) from = middle + 1;
    else end = middle;
  }
  return from;
}

/* Returns the longest token at `at`. Each further byte narrows the range of matching tokens. */
static const token *token_at(const added *a, bool normalized, span text, size_t at) {
  const order *o = &a->sought[normalized];
  const token *best = NULL;
  size_t from = 0, end = o->count;
  for (size_t depth = 0; at + depth < text.bytes && from < end; depth++) {
    int byte = (unsigned char)text.at[at + depth];
    from = first_with(o, from, end, depth, byte);
    end = first_with(o, from, end, depth, byte + 1);
    if (from < end && o->items[from]->bytes == depth + 1) best = o->items[from];
  }
  return best;
}

static span with_spaces(const token *k, span text, size_t from, size_t begin) {
  size_t end = begin + k->bytes;
  while (k->left && begin > from && sli_character_is_space(character_before(text, begin))) do
      begin--;
    while (begin > from && (text.at[begin] & 0xc0) == 0x80);
  while (k->right && end < text.bytes && sli_character_is_space(character_at(text, end)))
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
  size_t from = 0, end = a->numbered.count;
  while (from < end) {
    size_t middle = from + (end - from) / 2;
    if (a->numbered.items[middle]->number < number) from = middle + 1;
    else end = middle;
  }
  *special = false;
  if (from == a->numbered.count || a->numbered.items[from]->number != number)
    return (span){NULL, 0};
  const token *k = a->numbered.items[from];
  *special = k->special;
  return (span){k->text, strlen(k->text)};
}

size_t sli_added_longest(const added *a, size_t most) {
  for (size_t i = 0; i < a->count; i++) {
    const token *k = &a->items[i];
    if (k->bytes && (k->left || k->right)) return 0; /* matches any number of spaces */
    most = SLI_MAX(most, k->bytes);
  }
  return most;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void seek(token *k, normalizer *n) {
  span text = {k->text, strlen(k->text)};
  if (k->normalized) text = sli_normalize(n, text, NULL);
  k->sought = sli_calloc(1, text.bytes + 1);
  k->bytes = text.bytes;
  if (text.bytes) memcpy(k->sought, text.at, text.bytes);
}

sl_status sli_added_read(added *a, const cJSON *item, normalizer *n) {
  const cJSON *number = cJSON_GetObjectItemCaseSensitive(item, "id");
  const char *text = sli_json_text(item, "content");
  if (!text || !*text) return sl_fail(SL_E_INPUT, "an added token has no content");
  if (!cJSON_IsNumber(number) ||
      !(number->valuedouble >= 0 && number->valuedouble < SLI_MOST_TOKENS) ||
      number->valuedouble != (double)number->valueint)
    return sl_fail(SL_E_INPUT, "added token \"%.40s\" has no id that can be", text);
  SLI_GROW(a->items, a->count, a->capacity);
  token *k = &a->items[a->count++];
  bool special = sli_json_flag(item, "special", false);
  *k = (token){.text = sli_strdup(text),
               .number = number->valueint,
               .special = special,
               .normalized = sli_json_flag(item, "normalized", !special),
               .word = sli_json_flag(item, "single_word", false),
               .left = sli_json_flag(item, "lstrip", false),
               .right = sli_json_flag(item, "rstrip", false)};
  bool heeds = k->word || k->left || k->right; /* depends on the surrounding text */
  sl_status status =
      heeds ? sli_characters_check("a tokenizer with single_word, lstrip or rstrip") : SL_OK;
  if (status) return status;
  seek(k, n);
  if (k->bytes) a->begins[k->normalized][(unsigned char)*k->sought] = true;
  return SL_OK;
}

/* ---- sorting --------------------------------------------------------------------------------- */

/* Tie-break: the token that was read first comes first. */
static int by_place(const token *a, const token *b) { return (a > b) - (a < b); }

static int by_sought(const void *one, const void *other) {
  const token *a = *(const token *const *)one, *b = *(const token *const *)other;
  int way = memcmp(a->sought, b->sought, SLI_MIN(a->bytes, b->bytes));
  if (way) return way;
  return a->bytes != b->bytes ? (a->bytes < b->bytes ? -1 : 1) : by_place(a, b);
}

static int by_number(const void *one, const void *other) {
  const token *a = *(const token *const *)one, *b = *(const token *const *)other;
  return a->number != b->number ? (a->number < b->number ? -1 : 1) : by_place(a, b);
}

static void sort(order *o, int (*compare)(const void *, const void *)) {
  if (o->count) qsort(o->items, o->count, sizeof *o->items, compare);
}

void sli_added_sort(added *a) {
  order *all[] = {&a->sought[0], &a->sought[1], &a->numbered};
  for (size_t i = 0; i < SLI_COUNT(all); i++)
    all[i]->items = sli_calloc(a->count + 1, sizeof *all[i]->items);
  for (size_t i = 0; i < a->count; i++) {
    const token *k = &a->items[i];
    order *o = &a->sought[k->normalized];
    if (k->bytes) o->items[o->count++] = k;
    a->numbered.items[a->numbered.count++] = k;
  }
  sort(&a->sought[0], by_sought);
  sort(&a->sought[1], by_sought);
  sort(&a->numbered, by_number);
}
