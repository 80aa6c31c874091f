/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of a build without utf8proc, which has neither character classes nor normal forms. */
#include <string.h>

#include "base/left_out.h"
#include "text/tokenizer/tokenizer_inner.h"

sl_status sli_characters_check(const char *what) {
  return SLI_LEFT_OUT(what, "utf8proc", "UTF8PROC", "libutf8proc-dev");
}

sl_status sli_form_find(const char *name, int *form) {
  *form = 0;
  return strncmp(name, "NF", 2) ? SL_OK : sli_characters_check("a tokenizer with a normal form");
}

/* This build does not load a tokenizer that needs these. */
bool sli_character_is_of_word(int32_t character) {
  (void)character;
  return false;
}

bool sli_character_is_space(int32_t character) {
  (void)character;
  return false;
}

bool sli_character_is_mark(int32_t character) {
  (void)character;
  return false;
}

bool sli_character_is_other(int32_t character) {
  (void)character;
  return false;
}

int32_t sli_character_lower(int32_t character) { return character; }

size_t sli_character_write(int32_t character, char out[4]) {
  (void)character, (void)out;
  return 0;
}

span sli_form_apply(int form, span text, const atomic_bool *stop, text_row *room) {
  (void)form, (void)stop, (void)room;
  return text;
}
