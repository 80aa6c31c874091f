/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars over tokens of one byte, and checks of the texts that they accept. */
#ifndef SLUICE_TESTS_SUPPORT_GRAMMARS_H
#define SLUICE_TESTS_SUPPORT_GRAMMARS_H

#include <string.h>

#include "text/grammar/grammar.h"
#include "tests/support/test.h"

enum { GRAMMAR_END = 256, GRAMMAR_WORDS = 9 };

static sli_token_trie *bytes_as_tokens;

static inline const char *one_byte(void *ctx, int32_t token, size_t *bytes) {
  static char byte;
  (void)ctx;
  byte = (char)token;
  *bytes = token < 256;
  return &byte;
}

/* Returns a trie with one token for each byte. */
static inline const sli_token_trie *byte_tokens(void) {
  if (!bytes_as_tokens) bytes_as_tokens = sli_token_trie_create(256, one_byte, NULL);
  return bytes_as_tokens;
}

static inline void grammars_end(void) {
  sli_token_trie_destroy(bytes_as_tokens);
  bytes_as_tokens = NULL;
}

/* Returns whether the grammar accepts a text: it allows each byte, and the end after them. */
static inline bool grammar_has_bytes(sli_grammar *g, const char *text, size_t bytes) {
  static const int32_t end = GRAMMAR_END;
  sli_guide *guide = sli_guide_create(g, &end, 1);
  bool good = true;
  for (size_t i = 0; i <= bytes && good; i++) {
    uint32_t allowed[GRAMMAR_WORDS] = {0};
    int32_t token = i < bytes ? (unsigned char)text[i] : GRAMMAR_END;
    CHECK(sli_guide_allow(guide, allowed), "some token may always come");
    good = allowed[token / 32] >> token % 32 & 1;
    if (good && i < bytes) sli_guide_take(guide, token);
  }
  sli_guide_destroy(guide);
  return good;
}

static inline bool grammar_has(sli_grammar *g, const char *text) {
  return grammar_has_bytes(g, text, strlen(text));
}

#endif
