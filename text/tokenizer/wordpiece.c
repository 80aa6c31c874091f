/* SPDX-License-Identifier: Apache-2.0 */
/* WordPiece (Schuster & Nakajima, 2012; as used by BERT): the longest token that begins a word,
 * then repeatedly the longest token that continues it, whose text has a prefix. A word that cannot
 * be split completely, or is too long, is one unknown token. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/tokenizer/tokenizer_inner.h"

struct wordpiece {
  char *prefix;
  double most; /* most characters of a word that is looked up */
  text_row room;
};

void sli_wordpiece_destroy(wordpiece *w) {
  if (!w) return;
  free(w->prefix);
  free(w->room.items);
  free(w);
}

sl_status sli_wordpiece_read(model *m, const cJSON *from) {
  const char *prefix = sli_json_text(from, "continuing_subword_prefix");
  const cJSON *most = cJSON_GetObjectItemCaseSensitive(from, "max_input_chars_per_word");
  if (m->byte_level)
    return sl_fail(SL_E_INPUT, "a WordPiece model of bytes (ByteLevel) is not supported");
  if (m->unknown == SLI_NO_TOKEN) return sl_fail(SL_E_INPUT, "model.unk_token is missing");
  m->wordpiece = sli_calloc(1, sizeof *m->wordpiece);
  m->wordpiece->prefix = sli_strdup(prefix ? prefix : "##");
  m->wordpiece->most = cJSON_IsNumber(most) ? most->valuedouble : 100;
  m->fuse_unknown = true;
  return SL_OK;
}

static size_t characters_of(span word) {
  size_t count = 0;
  for (size_t i = 0; i < word.bytes; i += sli_character(word.at + i)) count++;
  return count;
}

/* Finds the longest token that begins at a position in the word, and its end. */
static int32_t longest_at(model *m, span word, size_t at, size_t *end) {
  text_row *room = &m->wordpiece->room;
  room->count = 0;
  if (at) sli_text_add(room, m->wordpiece->prefix, strlen(m->wordpiece->prefix));
  size_t before = room->count;
  sli_text_add(room, word.at + at, word.bytes - at);
  for (*end = word.bytes; *end > at;) {
    int32_t token = sli_vocab_find(&m->vocab, (span){room->items, before + *end - at});
    if (token != SLI_NO_TOKEN) return token;
    do --*end;
    while (*end > at && ((unsigned char)word.at[*end] & 0xc0) == 0x80);
  }
  return SLI_NO_TOKEN;
}

void sli_wordpiece_word(model *m, span word, sli_token_row *out) {
  size_t before = out->count, end = 0;
  bool good = (double)characters_of(word) <= m->wordpiece->most;
  for (size_t at = 0; at < word.bytes && good; at = end) {
    int32_t token = longest_at(m, word, at, &end);
    good = token != SLI_NO_TOKEN;
    if (good) sli_token_row_add(out, token);
  }
  if (good) return;
  out->count = before;
  sli_token_row_add(out, m->unknown);
}
