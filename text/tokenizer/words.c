/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a word to tokens: symbols, then merges, or with another model. Words recur, so short
 * ones are cached with their tokens. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/tokenizer/tokenizer_inner.h"

enum { CACHED = 1 << 15, CACHED_BYTES = 30, CACHED_TOKENS = 8 };

struct cached {
  uint8_t bytes, count; /* 0 bytes if free */
  char text[CACHED_BYTES];
  int32_t tokens[CACHED_TOKENS];
};

void sli_model_fini(model *m) {
  sli_vocab_fini(&m->vocab);
  sli_merges_destroy(m->merges);
  sli_unigram_destroy(m->unigram);
  sli_wordpiece_destroy(m->wordpiece);
  sli_merging_fini(&m->room);
  free(m->cache);
}

/* ---- symbols -------------------------------------------------------------------------------- */

/* Adds the byte tokens of a character that is not a token. Returns false if one of the bytes has no
 * token. */
static bool add_bytes(model *m, span character, size_t *count) {
  if (!m->byte_fallback) return false;
  for (size_t i = 0; i < character.bytes; i++)
    if (m->bytes[(unsigned char)character.at[i]] == SLI_NO_TOKEN) return false;
  for (size_t i = 0; i < character.bytes; i++)
    m->room.tokens[(*count)++] = m->bytes[(unsigned char)character.at[i]];
  return true;
}

static void add_unknown(model *m, bool after_unknown, size_t *count) {
  if (m->unknown == SLI_NO_TOKEN || (after_unknown && m->fuse_unknown)) return;
  m->room.tokens[(*count)++] = m->unknown;
}

static size_t begin_characters(model *m, span word) {
  size_t count = 0;
  bool unknown = false;
  for (size_t i = 0, n; i < word.bytes; i += n) {
    n = SLI_MIN(sli_character(word.at + i), word.bytes - i);
    int32_t token = sli_vocab_find(&m->vocab, (span){word.at + i, n});
    if (token != SLI_NO_TOKEN) m->room.tokens[count++] = token, unknown = false;
    else if (!add_bytes(m, (span){word.at + i, n}, &count)) {
      add_unknown(m, unknown, &count);
      unknown = true;
    }
  }
  return count;
}

static size_t begin_bytes(model *m, span word) {
  size_t count = 0;
  bool unknown = false;
  for (size_t i = 0; i < word.bytes; i++) {
    int32_t token = m->bytes[(unsigned char)word.at[i]];
    if (token != SLI_NO_TOKEN) m->room.tokens[count++] = token;
    else add_unknown(m, unknown, &count);
    unknown = token == SLI_NO_TOKEN;
  }
  return count;
}

/* ---- words ----------------------------------------------------------------------------------- */

static void make_word(model *m, span word, sli_token_row *out) {
  if (m->unigram || m->wordpiece) {
    (m->unigram ? sli_unigram_word : sli_wordpiece_word)(m, word, out);
    return;
  }
  int32_t token = m->whole_words ? sli_vocab_find(&m->vocab, word) : SLI_NO_TOKEN;
  if (token != SLI_NO_TOKEN) {
    sli_token_row_add(out, token);
    return;
  }
  if (!sli_merging_begin(&m->room, word.bytes)) return;
  size_t count = m->byte_level ? begin_bytes(m, word) : begin_characters(m, word);
  sli_merge(m->merges, &m->room, count, m->stop, out);
}

static void add_cached(const cached *c, sli_token_row *out) {
  for (int i = 0; i < c->count; i++) sli_token_row_add(out, c->tokens[i]);
}

static cached *cached_of(model *m, span word) {
  if (!m->cache) m->cache = sli_calloc(CACHED, sizeof *m->cache);
  uint64_t hash = word.bytes;
  for (size_t i = 0; i < word.bytes; i++)
    hash = (hash ^ (unsigned char)word.at[i]) * UINT64_C(0x100000001b3);
  return &m->cache[(hash ^ hash >> 32) & (CACHED - 1)];
}

static void take_word(model *m, span word, sli_token_row *out) {
  if (word.bytes > CACHED_BYTES) {
    make_word(m, word, out);
    return;
  }
  cached *c = cached_of(m, word);
  if (c->bytes == word.bytes && !memcmp(c->text, word.at, word.bytes)) {
    add_cached(c, out);
    return;
  }
  size_t before = out->count;
  make_word(m, word, out);
  size_t made = out->count - before;
  if (made > CACHED_TOKENS || out->refused || sli_is_stopped(m->stop)) return;
  c->bytes = (uint8_t)word.bytes;
  c->count = (uint8_t)made;
  memcpy(c->text, word.at, word.bytes);
  if (made) memcpy(c->tokens, out->items + before, made * sizeof *c->tokens);
}

static bool is_mark(span word, size_t at) {
  return word.bytes - at >= 3 && !memcmp(word.at + at, "\u2581", 3);
}

/* Returns the end of a part: if no token crosses a space mark, the parts around it are separate
 * words. */
static size_t end_of_part(span word, size_t at) {
  while (at < word.bytes && is_mark(word, at)) at += 3;
  while (at < word.bytes && !is_mark(word, at)) at++;
  return at;
}

void sli_model_word(model *m, span word, sli_token_row *out) {
  for (size_t at = 0, end; at < word.bytes; at = end) {
    end = m->splits_at_marks ? end_of_part(word, at) : word.bytes;
    take_word(m, (span){word.at + at, end - at}, out);
  }
}

/* Unknown characters are one token each, unless they are dropped or fused. */
size_t sli_model_longest(const model *m) {
  enum { CHARACTER = 4 };
  size_t longest = sli_vocab_longest(&m->vocab);
  bool all = m->byte_level || m->byte_fallback;
  for (int i = 0; i < 256; i++) all &= m->bytes[i] != SLI_NO_TOKEN;
  if (all) return longest;
  return m->unknown == SLI_NO_TOKEN || m->fuse_unknown ? 0 : SLI_MAX(longest, (size_t)CHARACTER);
}
