/* SPDX-License-Identifier: Apache-2.0 */
/* Converts SentencePiece models to merges. Such a model has pieces with scores, and no merges: of
 * two adjacent pieces that form a piece, the one with the best score is merged first. The
 * equivalent merges are all ways to split a piece into two other pieces. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/tokenizer/tokenizer_inner.h"

/* Types in tokenizer.ggml.token_type that occur in text. */
enum { NORMAL = 1, USER_DEFINED = 4 };

enum { MOST_BYTES = 1024 }; /* longest piece that is split; real pieces have a few dozen */

typedef struct pair {
  double score;
  int32_t whole, left, right; /* tokens */
  int32_t nleft, nright;      /* characters */
} pair;

typedef struct pairs {
  const vocab *vocab;
  pair *items;
  size_t count, capacity;
} pairs;

static int32_t count_characters(span text) {
  int32_t n = 0;
  for (size_t i = 0; i < text.bytes; i++) n += (text.at[i] & 0xc0) != 0x80;
  return n;
}

static void add_cuts(pairs *p, int32_t whole, double score) {
  span text = p->vocab->texts[whole];
  if (text.bytes > MOST_BYTES || !isfinite(score)) return;
  for (size_t at = 1; at < text.bytes; at++) {
    span left = {text.at, at}, right = {text.at + at, text.bytes - at};
    int32_t a = sli_vocab_find(p->vocab, left), b = sli_vocab_find(p->vocab, right);
    if (a == SLI_NO_TOKEN || b == SLI_NO_TOKEN) continue;
    SLI_GROW(p->items, p->count, p->capacity);
    p->items[p->count++] =
        (pair){score, whole, a, b, count_characters(left), count_characters(right)};
  }
}

/* Orders by best score; for one piece, longest left side first; then like Hugging Face's
 * converters. */
static int by_score(const void *a, const void *b) {
  const pair *x = a, *y = b;
  if (x->score != y->score) return x->score > y->score ? -1 : 1;
  if (x->nleft != y->nleft) return x->nleft > y->nleft ? -1 : 1;
  if (x->nright != y->nright) return x->nright > y->nright ? -1 : 1;
  if (x->whole != y->whole) return x->whole < y->whole ? -1 : 1;
  return x->left != y->left ? (x->left < y->left ? -1 : 1)
                            : (x->right > y->right) - (x->right < y->right);
}

static cJSON *pairs_json(const pairs *p, const cJSON *const *tokens) {
  cJSON *out = cJSON_CreateArray();
  for (size_t i = 0; i < p->count; i++) {
    const char *sides[] = {tokens[p->items[i].left]->valuestring,
                           tokens[p->items[i].right]->valuestring};
    cJSON_AddItemToArray(out, cJSON_CreateStringArray(sides, 2));
  }
  return out;
}

cJSON *sli_pieces_merges(const cJSON *tokens, const cJSON *types, const cJSON *scores) {
  size_t n = (size_t)cJSON_GetArraySize(tokens), i = 0;
  const cJSON **all = sli_calloc(n + 1, sizeof *all), *type = types->child, *score = scores->child;
  vocab v = {0};
  sli_vocab_create(&v, n);
  for (const cJSON *t = tokens->child; t; t = t->next, type = type ? type->next : NULL, i++) {
    bool text = type && (type->valuedouble == NORMAL || type->valuedouble == USER_DEFINED);
    all[i] = t;
    sli_vocab_add(&v, (span){t->valuestring, strlen(t->valuestring)}, (int32_t)i, text);
  }
  pairs p = {.vocab = &v};
  for (i = 0, type = types->child; i < n && type && score;
       i++, type = type->next, score = score->next)
    if (type->valuedouble == NORMAL) add_cuts(&p, (int32_t)i, score->valuedouble);
  if (p.count) qsort(p.items, p.count, sizeof *p.items, by_score);
  cJSON *out = pairs_json(&p, all);
  free(p.items);
  free(all);
  sli_vocab_fini(&v);
  return out;
}
