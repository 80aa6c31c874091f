/* SPDX-License-Identifier: Apache-2.0 */
/* Marks tokens that represent parts of a text. Most words are located inside the normalized text. A
 * word with characters that a step has inserted or replaced is located elsewhere, and is compared
 * with the text from the last offset on. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/tokenizer/tokenizer_inner.h"

void sli_marking_fini(marking *m) {
  free(m->kept.items);
  free(m->here.items);
  free(m->map);
}

/* Returns whether a part of a text overlaps one of the spans. */
static bool meets(const sli_text_spans *spans, size_t begin, size_t end) {
  size_t low = 0, high = spans->count;
  while (low < high) { /* the first span that ends after `begin` */
    size_t middle = (low + high) / 2;
    if (spans->items[middle].end > begin) high = middle;
    else low = middle + 1;
  }
  return low < spans->count && spans->items[low].begin < end;
}

static void mark(marking *m, const sli_text_spans *spans, size_t begin, size_t end) {
  sli_token_row_add(m->marks, meets(spans, begin, end));
}

void sli_marking_added(marking *m, span found, bool normalized) {
  span in = normalized ? m->normal : m->text;
  size_t begin = (size_t)(found.at - in.at), end = begin + found.bytes;
  mark(m, normalized ? &m->here : m->spans, begin, end);
  if (normalized) m->at = end;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Returns the offset in the normalized piece for an offset in the piece: the length of its
 * preceding bytes, normalized alone. */
static size_t place_of(const marking *m, normalizer *n, span piece, size_t at) {
  span begin = sli_normalize(n, (span){piece.at, at}, NULL);
  size_t same = 0, most = SLI_MIN(begin.bytes, m->normal.bytes);
  while (same < most && begin.at[same] == m->normal.at[same]) same++;
  return same;
}

static size_t place_within(const marking *m, normalizer *n, span piece, bool changed, size_t at) {
  size_t begin = (size_t)(piece.at - m->text.at);
  if (at <= begin) return 0;
  if (at - begin >= piece.bytes) return m->normal.bytes;
  return changed ? place_of(m, n, piece, at - begin) : at - begin;
}

span sli_marking_piece(marking *m, normalizer *n, span piece, span normal) {
  bool changed = normal.at != piece.at;
  size_t begin = (size_t)(piece.at - m->text.at);
  if (changed) { /* the next normalization may reuse its memory */
    m->kept.count = 0;
    sli_text_add(&m->kept, normal.at, normal.bytes);
    normal.at = m->kept.items;
  }
  m->normal = normal;
  m->here.count = m->at = 0;
  for (size_t i = 0; i < m->spans->count; i++) {
    sli_text_span s = m->spans->items[i];
    if (s.end <= begin || s.begin >= begin + piece.bytes) continue;
    SLI_GROW(m->here.items, m->here.count, m->here.capacity);
    m->here.items[m->here.count++] = (sli_text_span){place_within(m, n, piece, changed, s.begin),
                                                     place_within(m, n, piece, changed, s.end)};
  }
  return normal;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Returns the bytes of the character at `at`. */
static size_t character_at(span word, size_t at) {
  return SLI_MIN(sli_character(word.at + at), word.bytes - at);
}

/* Finds the offset of each byte of a word. A space may have become a mark, and a mark or a space
 * may have been prepended. */
static void compare(marking *m, span word) {
  size_t at = m->at;
  for (size_t i = 0; i < word.bytes;) {
    bool more = at < m->normal.bytes, same = more && m->normal.at[at] == word.at[i];
    size_t n = same ? 1 : character_at(word, i);
    for (size_t k = 0; k < n; k++) m->map[i + k] = at;
    at += same || (more && m->normal.at[at] == ' ');
    i += n;
  }
  m->map[word.bytes] = at;
}

static void find_places(marking *m, span word) {
  if (word.bytes >= m->room) {
    m->room = 2 * word.bytes + 64;
    m->map = sli_realloc(m->map, m->room, sizeof *m->map);
  }
  const char *begin = m->normal.at, *end = begin + m->normal.bytes;
  if (word.at < begin || word.at + word.bytes > end) return compare(m, word);
  size_t at = (size_t)(word.at - begin);
  for (size_t i = 0; i <= word.bytes; i++) m->map[i] = at + i;
}

/* Returns the bytes of the characters from `at` on that are not tokens; unless `all`, only those of
 * the first. */
static size_t unknown_bytes(const model *of, span word, size_t at, bool all) {
  size_t end = at, n;
  while (end < word.bytes && (n = character_at(word, end)) &&
         sli_vocab_find(&of->vocab, (span){word.at + end, n}) == SLI_NO_TOKEN) {
    end += n;
    if (!all) break;
  }
  return end - at;
}

/* Returns the bytes of a word that a token represents, from `at` on, or 0 if not known. */
static size_t bytes_of(const model *of, int32_t token, span word, size_t at) {
  size_t left = word.bytes - at;
  span text = token >= 0 && token < of->vocab.count ? of->vocab.texts[token] : (span){NULL, 0};
  if (token == of->unknown && !of->byte_level) return unknown_bytes(of, word, at, of->fuse_unknown);
  if (text.at && text.bytes <= left && !memcmp(text.at, word.at + at, text.bytes))
    return text.bytes;
  return left && of->bytes[(unsigned char)word.at[at]] == token ? 1 : 0;
}

/* Finds where each token of a word ends. Characters without any token are left out. */
static bool find_ends(const model *of, span word, const int32_t *tokens, size_t count,
                      size_t *ends) {
  bool drops = of->unknown == SLI_NO_TOKEN && !of->byte_level && !of->byte_fallback;
  size_t at = 0, n = 1;
  for (size_t i = 0; i < count && n; i++) {
    if (drops) at += unknown_bytes(of, word, at, true);
    n = bytes_of(of, tokens[i], word, at);
    at += n;
    ends[i] = at;
  }
  if (drops) at += unknown_bytes(of, word, at, true);
  return n && at == word.bytes;
}

void sli_marking_word(marking *m, const model *of, span word, const int32_t *tokens, size_t count) {
  find_places(m, word);
  m->at = m->map[word.bytes];
  size_t *ends = sli_calloc(count + 1, sizeof *ends), at = 0;
  bool known = find_ends(of, word, tokens, count, ends);
  for (size_t i = 0; i < count; i++) {
    size_t begin = m->map[at], end = m->map[known ? ends[i] : word.bytes];
    mark(m, &m->here, begin, SLI_MAX(end, begin + 1)); /* a prepended mark takes what follows */
    at = known ? ends[i] : 0;
  }
  free(ends);
}
