/* SPDX-License-Identifier: Apache-2.0 */
/* Edits of a request's logits: penalties of tokens seen so far, biases, and stop tokens banned
 * until min_tokens. They depend only on the request's settings and tokens. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/serve.h"

/* A token, and how often it occurs in the text. */
typedef struct known {
  int32_t token;
  int32_t answered; /* occurrences in the answer */
  bool seen;        /* it occurs in the prompt or in the answer */
  bool stops;       /* it is a stop token */
  float bias;
} known;

struct sli_edits {
  float repetition, presence, frequency;
  int64_t min_tokens;
  size_t count, capacity;
  known *items;
  size_t slots;   /* a power of two, at least twice the count */
  int32_t *index; /* [slots] index of a token in `of`, plus 1; 0: the slot is empty */
};

static bool has_penalties(const sli_edits *e) {
  return e->repetition != 1 || e->presence != 0 || e->frequency != 0;
}

/* ---- table of tokens ------------------------------------------------------------------------- */

static int32_t *slot_of(const sli_edits *e, int32_t token) {
  size_t at = (size_t)sli_hash_word(0, (uint64_t)token) & (e->slots - 1);
  while (e->index[at] && e->items[e->index[at] - 1].token != token) at = (at + 1) & (e->slots - 1);
  return &e->index[at];
}

static void grow(sli_edits *e) {
  e->slots = SLI_MAX(2 * e->slots, 64);
  free(e->index);
  e->index = sli_calloc(e->slots, sizeof *e->index);
  for (size_t i = 0; i < e->count; i++) *slot_of(e, e->items[i].token) = (int32_t)i + 1;
}

/* Returns the entry of a token; creates it if missing. */
static known *know(sli_edits *e, int32_t token) {
  if (2 * (e->count + 1) > e->slots) grow(e);
  int32_t *slot = slot_of(e, token);
  if (!*slot) {
    SLI_GROW(e->items, e->count, e->capacity);
    e->items[e->count++] = (known){.token = token};
    *slot = (int32_t)e->count;
  }
  return &e->items[*slot - 1];
}

/* ---- edits ----------------------------------------------------------------------------------- */

sli_edits *sli_edits_create(const sl_request *request) {
  float repetition = request->repetition_penalty > 0 ? request->repetition_penalty : 1;
  sli_edits all = {.repetition = repetition,
                   .presence = request->presence_penalty,
                   .frequency = request->frequency_penalty,
                   .min_tokens = request->min_tokens};
  if (!has_penalties(&all) && !request->nbias && !(request->min_tokens && request->nstop))
    return NULL;
  sli_edits *e = sli_calloc(1, sizeof *e);
  *e = all;
  for (int i = 0; i < request->nbias; i++)
    know(e, request->bias[i].token)->bias = request->bias[i].bias;
  for (int i = 0; i < request->nstop && request->min_tokens; i++)
    know(e, request->stop[i])->stops = true;
  for (int64_t i = 0; i < request->nprompt && repetition != 1; i++)
    know(e, request->prompt[i])->seen = true;
  return e;
}

sli_edits *sli_edits_copy(const sli_edits *e) {
  if (!e) return NULL;
  sli_edits *copy = sli_calloc(1, sizeof *copy);
  *copy = *e;
  copy->capacity = e->count;
  copy->items = sli_calloc(e->count + 1, sizeof *e->items);
  copy->index = sli_calloc(e->slots + 1, sizeof *e->index);
  if (e->count) memcpy(copy->items, e->items, e->count * sizeof *e->items);
  if (e->slots) memcpy(copy->index, e->index, e->slots * sizeof *e->index);
  return copy;
}

void sli_edits_free(sli_edits *e) {
  if (!e) return;
  free(e->items);
  free(e->index);
  free(e);
}

void sli_edits_note(sli_edits *e, int32_t token) {
  if (!has_penalties(e)) return;
  known *k = know(e, token);
  k->seen = true;
  k->answered++;
}

int64_t sli_edits_count(const sli_edits *e) { return (int64_t)e->count; }

static sl_batch_edit edit_of(const sli_edits *e, const known *k, int64_t place) {
  bool never = k->stops && place < e->min_tokens;
  float less = k->answered ? e->presence + e->frequency * (float)k->answered : 0;
  return (sl_batch_edit){k->token, never ? -INFINITY : k->bias, k->seen ? e->repetition : 1, less};
}

/* Returns the entry of the last of n drafted tokens, with all n counted as part of the answer. */
static known know_drafted(const sli_edits *e, int n, const int32_t *drafted) {
  int32_t token = drafted[n - 1], slot = e->slots ? *slot_of(e, token) : 0;
  known k = slot ? e->items[slot - 1] : (known){.token = token};
  for (int i = 0; i < n && has_penalties(e); i++) k.answered += drafted[i] == token;
  k.seen |= k.answered > 0;
  return k;
}

int64_t sli_edits_write(const sli_edits *e, int64_t place, int n, const int32_t *drafted,
                        sl_batch_edit *out) {
  for (size_t i = 0; i < e->count; i++) out[i] = edit_of(e, &e->items[i], place);
  for (int i = 1; i <= n; i++) {
    known k = know_drafted(e, i, drafted);
    out[(int64_t)e->count + i - 1] = edit_of(e, &k, place + i);
  }
  return (int64_t)e->count;
}
