/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens by number and by text. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/tokenizer/tokenizer_inner.h"

void sli_text_add(text_row *text, const void *bytes, size_t count) {
  if (text->count + count > text->capacity) {
    size_t capacity = SLI_MAX(2 * text->capacity, text->count + count);
    if (!sli_take(text->allowance, capacity - text->capacity)) return;
    text->capacity = capacity;
    text->items = sli_realloc(text->items, text->capacity, 1);
  }
  if (count) memcpy(text->items + text->count, bytes, count);
  text->count += count;
}

void sli_text_keep(text_row *text, const sli_allowance *allowance) {
  enum { KEPT = 1 << 18 };
  text->allowance = allowance;
  if (allowance || text->capacity <= KEPT) return;
  free(text->items);
  *text = (text_row){0};
}

void sli_token_row_add(sli_token_row *row, int32_t token) {
  if (row->refused) return;
  if (row->count == row->capacity) {
    size_t capacity = SLI_MAX(2 * row->capacity, (size_t)16);
    row->refused = !sli_take(row->allowance, (capacity - row->capacity) * sizeof *row->items);
    if (row->refused) return;
    int32_t *items = sli_try_realloc(row->items, capacity, sizeof *row->items);
    row->refused = !items;
    if (!items) return;
    row->items = items;
    row->capacity = capacity;
  }
  row->items[row->count++] = token;
}

/* ---- hash table ----------------------------------------------------------------------------- */

void sli_vocab_create(vocab *v, size_t most) {
  v->nslots = 64;
  while (v->nslots < 2 * most) v->nslots *= 2;
  v->slots = sli_calloc(v->nslots, sizeof *v->slots);
  memset(v->slots, 0xff, v->nslots * sizeof *v->slots); /* SLI_NO_TOKEN */
}

void sli_vocab_fini(vocab *v) {
  for (int64_t i = 0; i < v->count; i++) free((char *)v->texts[i].at);
  free(v->texts);
  free(v->slots);
}

static uint64_t hash_text(span text) {
  uint64_t hash = SLI_HASH_SEED, word;
  for (; text.bytes >= 8; text.at += 8, text.bytes -= 8) {
    memcpy(&word, text.at, 8);
    hash = sli_hash_word(hash, word);
  }
  word = text.bytes;
  for (size_t i = 0; i < text.bytes; i++) word = word << 8 | (unsigned char)text.at[i];
  return sli_hash_word(hash, word);
}

static int32_t *slot_of(const vocab *v, span text) {
  for (uint64_t at = hash_text(text);; at++) {
    int32_t *slot = &v->slots[at & (v->nslots - 1)];
    if (*slot == SLI_NO_TOKEN) return slot;
    span other = v->texts[*slot];
    if (other.bytes == text.bytes && !memcmp(other.at, text.at, text.bytes)) return slot;
  }
}

void sli_vocab_add(vocab *v, span text, int32_t token, bool found) {
  while (token >= v->room) {
    int64_t room = SLI_MAX(2 * v->room, 1024);
    v->texts = sli_realloc(v->texts, (size_t)room, sizeof *v->texts);
    memset(v->texts + v->room, 0, (size_t)(room - v->room) * sizeof *v->texts);
    v->room = room;
  }
  if (v->texts[token].at) return; /* the first text of a number is kept */
  char *copy = sli_calloc(1, text.bytes + 1);
  memcpy(copy, text.at, text.bytes);
  v->texts[token] = (span){copy, text.bytes};
  v->count = SLI_MAX(v->count, token + 1);
  if (found) *slot_of(v, text) = token;
}

int32_t sli_vocab_find(const vocab *v, span text) { return *slot_of(v, text); }

size_t sli_vocab_longest(const vocab *v) {
  size_t longest = 0;
  for (int64_t i = 0; i < v->count; i++) longest = SLI_MAX(longest, v->texts[i].bytes);
  return longest;
}

/* ---- byte-level characters ------------------------------------------------------------------- */

/* GPT-2's byte-level alphabet gives every byte a visible character: its Latin-1 character if that
 * is visible, otherwise the next one from U+0100 on. */
static bool is_visible(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static unsigned character_of(unsigned byte) {
  if (is_visible(byte)) return byte;
  unsigned others = 0;
  for (unsigned b = 0; b < byte; b++) others += !is_visible(b);
  return 0x100 + others;
}

size_t sli_text_of_byte(uint8_t byte, char out[2]) {
  unsigned c = character_of(byte);
  if (c < 0x80) return out[0] = (char)c, 1;
  out[0] = (char)(0xc0 | c >> 6);
  out[1] = (char)(0x80 | (c & 63));
  return 2;
}

/* Returns a table with the byte that each character below U+0144 represents, or -1. */
static const int16_t *byte_table(void) {
  enum { CHARACTERS = 0x144 };
  static _Thread_local int16_t table[CHARACTERS];
  static _Thread_local bool made;
  if (made) return table;
  for (int c = 0; c < CHARACTERS; c++) table[c] = -1;
  for (unsigned b = 0; b < 256; b++) table[character_of(b)] = (int16_t)b;
  made = true;
  return table;
}

bool sli_bytes_of_text(span text, char *out, size_t *bytes) {
  const int16_t *table = byte_table();
  *bytes = 0;
  for (size_t i = 0; i < text.bytes;) {
    unsigned char c = (unsigned char)text.at[i++];
    unsigned character = c;
    if (c >= 0x80) {
      if (c >= 0xc6 || i == text.bytes) return false;
      character = (c & 31u) << 6 | ((unsigned char)text.at[i++] & 63u);
    }
    if (character >= 0x144 || table[character] < 0) return false;
    out[(*bytes)++] = (char)table[character];
  }
  return true;
}
