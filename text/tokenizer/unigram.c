/* SPDX-License-Identifier: Apache-2.0 */
/* Unigram model (Kudo, arXiv 1804.10959): a word becomes the tokens with the largest sum of scores.
 * A trie finds all tokens that begin at a character, and the best path to each position is kept
 * (Viterbi). A character without a token costs as much as the worst token plus a penalty. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/tokenizer/tokenizer_inner.h"

/* An edge of the trie from a node by a byte. `to` 0 marks a free slot, because no edge leads to the
 * root. */
typedef struct edge {
  int32_t from, to;
  uint8_t byte;
} edge;

/* Best path to a position in the word: its last token begins at `start`. */
typedef struct best {
  double score;
  int32_t start, token; /* start -1: no path leads here */
  int32_t next;         /* end of the token that begins here on the chosen path */
} best;

struct unigram {
  edge *edges;
  size_t nslots, nedges;
  int32_t *tokens; /* token that ends at each node, or SLI_NO_TOKEN */
  size_t nodes, room;
  double *scores; /* of each token */
  double unknown; /* score of a character without a token */
  best *ways;
  size_t nways;
};

void sli_unigram_destroy(unigram *u) {
  if (!u) return;
  free(u->edges);
  free(u->tokens);
  free(u->scores);
  free(u->ways);
  free(u);
}

/* ---- trie ------------------------------------------------------------------------------------ */

static edge *edge_of(const unigram *u, int32_t from, uint8_t byte) {
  uint64_t hash = ((uint64_t)(uint32_t)from << 8 | byte) * UINT64_C(0x9E3779B97F4A7C15) >> 20;
  for (;; hash++) {
    edge *e = &u->edges[hash & (u->nslots - 1)];
    if (!e->to || (e->from == from && e->byte == byte)) return e;
  }
}

static void grow_edges(unigram *u) {
  edge *old = u->edges;
  size_t n = u->nslots;
  u->nslots = n ? 2 * n : 1024;
  u->edges = sli_calloc(u->nslots, sizeof *u->edges);
  for (size_t i = 0; i < n; i++)
    if (old[i].to) *edge_of(u, old[i].from, old[i].byte) = old[i];
  free(old);
}

static int32_t add_node(unigram *u) {
  if (u->nodes == u->room) {
    u->room = SLI_MAX(2 * u->room, (size_t)1024);
    u->tokens = sli_realloc(u->tokens, u->room, sizeof *u->tokens);
  }
  u->tokens[u->nodes] = SLI_NO_TOKEN;
  return (int32_t)u->nodes++;
}

static void add_text(unigram *u, span text, int32_t token) {
  int32_t node = 0;
  for (size_t i = 0; i < text.bytes; i++) {
    if (2 * u->nedges >= u->nslots) grow_edges(u);
    edge *e = edge_of(u, node, (uint8_t)text.at[i]);
    if (!e->to) {
      *e = (edge){node, add_node(u), (uint8_t)text.at[i]};
      u->nedges++;
    }
    node = e->to;
  }
  if (text.bytes) u->tokens[node] = token;
}

/* ---- reading --------------------------------------------------------------------------------- */

static sl_status add_piece(model *m, const cJSON *item, int32_t token) {
  const cJSON *text = item->child, *score = text ? text->next : NULL;
  if (!cJSON_IsString(text) || !cJSON_IsNumber(score) || score->next ||
      !isfinite(score->valuedouble))
    return sl_fail(SL_E_INPUT, "token %d of model.vocab is not a string with a score", token);
  span piece = {text->valuestring, strlen(text->valuestring)};
  sli_vocab_add(&m->vocab, piece, token, true);
  add_text(m->unigram, piece, token);
  m->unigram->scores[token] = score->valuedouble;
  return SL_OK;
}

static sl_status read_unknown(model *m, const cJSON *from) {
  const cJSON *unknown = cJSON_GetObjectItemCaseSensitive(from, "unk_id");
  double number = cJSON_IsNumber(unknown) ? unknown->valuedouble : -1;
  if (!(number >= 0 && number < (double)m->vocab.count) || number != floor(number))
    return sl_fail(SL_E_INPUT, "model.unk_id is not a token number");
  m->unknown = (int32_t)number;
  return SL_OK;
}

sl_status sli_unigram_read(model *m, const cJSON *from) {
  enum { PENALTY = 10 };
  const cJSON *all = cJSON_GetObjectItemCaseSensitive(from, "vocab"), *item;
  if (!cJSON_IsArray(all)) return sl_fail(SL_E_INPUT, "model.vocab is not an array");
  if (m->byte_level)
    return sl_fail(SL_E_INPUT, "a Unigram model of bytes (ByteLevel) is not supported");
  int count = cJSON_GetArraySize(all);
  if (count > SLI_MOST_TOKENS) return sl_fail(SL_E_INPUT, "model.vocab has %d tokens", count);
  unigram *u = m->unigram = sli_calloc(1, sizeof *u);
  u->scores = sli_calloc((size_t)count + 1, sizeof *u->scores);
  sli_vocab_create(&m->vocab, (size_t)count);
  add_node(u);
  sl_status status = SL_OK;
  int32_t token = 0;
  cJSON_ArrayForEach(item, all) if (!status) status = add_piece(m, item, token++);
  for (int i = 0; i < count; i++) u->unknown = i ? fmin(u->unknown, u->scores[i]) : u->scores[i];
  u->unknown -= PENALTY;
  m->fuse_unknown = true;
  return status ? status : read_unknown(m, from);
}

/* ---- words ----------------------------------------------------------------------------------- */

enum { KEPT = 1 << 16, LOOKS = 1 << 12 };

/* Makes room for the paths to each position in a word. Returns false if memory ran out. */
static bool begin(unigram *u, const sli_allowance *allowance, size_t places) {
  if (places > u->nways) {
    size_t room = SLI_MAX(SLI_MIN(2 * u->nways, (size_t)KEPT), places);
    if (!sli_take(allowance, (room - u->nways) * sizeof *u->ways)) return false;
    u->ways = sli_realloc(u->ways, room, sizeof *u->ways);
    u->nways = room;
  }
  for (size_t i = 0; i < places; i++) u->ways[i].start = -1;
  u->ways[0].score = 0;
  return true;
}

static void offer(unigram *u, size_t start, size_t end, int32_t token, double score) {
  best *to = &u->ways[end];
  score += u->ways[start].score;
  if (to->start >= 0 && score <= to->score) return;
  to->score = score;
  to->start = (int32_t)start;
  to->token = token;
}

/* Offers all tokens that begin at a position, or if there is none, the unknown token for its
 * character. */
static void offer_tokens(unigram *u, int32_t unknown, span word, size_t at) {
  size_t character = SLI_MIN(sli_character(word.at + at), word.bytes - at);
  bool single = false;
  int32_t node = 0;
  for (size_t end = at; end < word.bytes && u->nedges;) {
    node = edge_of(u, node, (uint8_t)word.at[end++])->to;
    if (!node) break;
    int32_t token = u->tokens[node];
    if (token == SLI_NO_TOKEN) continue;
    offer(u, at, end, token, u->scores[token]);
    single |= end - at == character;
  }
  if (!single) offer(u, at, at + character, unknown, u->unknown);
}

/* Appends the byte tokens of characters without a token. Returns false if some byte has no
 * token. */
static bool add_bytes(const model *m, span text, sli_token_row *out) {
  for (size_t i = 0; i < text.bytes; i++)
    if (!m->byte_fallback || m->bytes[(unsigned char)text.at[i]] == SLI_NO_TOKEN) return false;
  for (size_t i = 0; i < text.bytes; i++)
    sli_token_row_add(out, m->bytes[(unsigned char)text.at[i]]);
  return true;
}

static void add_run(const model *m, span text, sli_token_row *out) {
  int32_t token = sli_vocab_find(&m->vocab, text);
  if (token != SLI_NO_TOKEN) sli_token_row_add(out, token);
  else if (!add_bytes(m, text, out)) sli_token_row_add(out, m->unknown);
}

/* Appends the tokens of the best path. Consecutive unknown characters count as one text. */
static void add_way(const model *m, span word, sli_token_row *out) {
  best *ways = m->unigram->ways;
  for (int32_t at = (int32_t)word.bytes; at > 0; at = ways[at].start)
    ways[ways[at].start].next = at;
  for (size_t at = 0, end; at < word.bytes; at = end) {
    end = (size_t)ways[at].next;
    if (ways[end].token != m->unknown) {
      sli_token_row_add(out, ways[end].token);
      continue;
    }
    while (end < word.bytes && ways[ways[end].next].token == m->unknown)
      end = (size_t)ways[end].next;
    add_run(m, (span){word.at + at, end - at}, out);
  }
}

void sli_unigram_word(model *m, span word, sli_token_row *out) {
  unigram *u = m->unigram;
  size_t steps = 0;
  if (!begin(u, m->room.allowance, word.bytes + 1)) return;
  for (size_t at = 0; at < word.bytes; at += sli_character(word.at + at)) {
    if (++steps % LOOKS == 0 && sli_is_stopped(m->stop)) return;
    offer_tokens(u, m->unknown, word, at);
  }
  add_way(m, word, out);
  if (u->nways <= KEPT) return;
  sli_give(m->room.allowance, u->nways * sizeof *u->ways);
  free(u->ways);
  u->ways = NULL;
  u->nways = 0;
}
