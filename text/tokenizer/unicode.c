/* SPDX-License-Identifier: Apache-2.0 */
/* Character classes and Unicode normal forms, by utf8proc. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/base.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer_inner.h"

/* ---- classes --------------------------------------------------------------------------------- */

sl_status sli_characters_check(const char *what) {
  (void)what;
  return SL_OK;
}

/* Circled and squared letters are alphabetic, although their category is that of other symbols. */
static bool is_letter_symbol(int32_t c) {
  static const int32_t ranges[][2] = {
      {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
  bool found = false;
  for (size_t i = 0; i < SLI_COUNT(ranges); i++) found |= c >= ranges[i][0] && c <= ranges[i][1];
  return found;
}

/* Follows \w of Unicode's regular expressions: alphabetic characters, marks, decimal digits,
 * connecting punctuation, and the two that join. */
bool sli_character_is_of_word(int32_t c) {
  enum { NON_JOINER = 0x200c, JOINER = 0x200d };
  if (!c) return false;
  utf8proc_category_t category = utf8proc_category(c);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC || c == NON_JOINER || c == JOINER || is_letter_symbol(c);
}

bool sli_character_is_space(int32_t c) {
  utf8proc_category_t category = utf8proc_category(c);
  return (c >= 9 && c <= 13) || c == 0x85 ||
         (c && category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP);
}

bool sli_character_is_mark(int32_t c) { return utf8proc_category(c) == UTF8PROC_CATEGORY_MN; }

bool sli_character_is_other(int32_t c) {
  utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO;
}

int32_t sli_character_lower(int32_t c) { return utf8proc_tolower(c); }

size_t sli_character_write(int32_t c, char out[4]) {
  return (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)out);
}

/* ---- normal forms ----------------------------------------------------------------------------
 *
 * utf8proc decomposes and composes characters. Combining marks are sorted here, because utf8proc
 * takes quadratic time in the length of a run of marks. */

enum { MOST_PARTS = 32, BLOCK = 4096 }; /* no character has more than 18 parts */

/* Decomposed characters with their combining classes. */
typedef struct characters {
  utf8proc_int32_t *items;
  uint8_t *classes;
  size_t count, room;
  const sli_allowance *allowance;
} characters;

/* Memory of a character, and of its copy while marks are sorted. */
enum { CHARACTER_BYTES = 2 * sizeof(utf8proc_int32_t) + 1 };

static void characters_fini(characters *c) {
  sli_give(c->allowance, c->room * CHARACTER_BYTES);
  free(c->items);
  free(c->classes);
}

/* Makes room for a character's parts. Returns false if memory ran out. */
static bool make_room(characters *c) {
  if (c->room < c->count + MOST_PARTS) {
    size_t room = 2 * c->room + MOST_PARTS;
    if (!sli_take(c->allowance, (room - c->room) * CHARACTER_BYTES)) return false;
    c->room = room;
    /* plus the zero that utf8proc appends */
    c->items = sli_realloc(c->items, c->room + 1, sizeof *c->items);
    c->classes = sli_realloc(c->classes, c->room, 1);
  }
  return true;
}

/* Adds a character. Returns false if memory ran out. */
static bool add_parts(characters *c, utf8proc_int32_t character, utf8proc_option_t form) {
  int bound = 0;
  if (!make_room(c)) return false;
  utf8proc_ssize_t n =
      utf8proc_decompose_char(character, c->items + c->count, MOST_PARTS, form, &bound);
  if (n < 0) { /* beyond Unicode: bytes that are not UTF-8 */
    c->items[c->count] = 0xfffd;
    n = 1;
  }
  SLI_CHECK(n <= MOST_PARTS, "a character has %d parts", (int)n);
  for (utf8proc_ssize_t i = 0; i < n; i++, c->count++)
    c->classes[c->count] = (uint8_t)utf8proc_get_property(c->items[c->count])->combining_class;
  return true;
}

/* Sorts marks [from, end) by class, stably. */
static void sort_marks(characters *c, size_t from, size_t end) {
  size_t places[256] = {0}, at = 0, n = end - from;
  bool sorted = true;
  for (size_t i = from; i < end; i++) {
    places[c->classes[i]]++;
    sorted &= i == from || c->classes[i - 1] <= c->classes[i];
  }
  if (sorted) return;
  for (size_t k = 0; k < SLI_COUNT(places); k++) {
    size_t of_class = places[k];
    places[k] = at;
    at += of_class;
  }
  utf8proc_int32_t *copy = sli_calloc(n, sizeof *copy);
  for (size_t i = from; i < end; i++) copy[places[c->classes[i]]++] = c->items[i];
  memcpy(c->items + from, copy, n * sizeof *copy);
  free(copy);
}

static void order_marks(characters *c) {
  for (size_t i = 0, end; i < c->count; i = end + 1) {
    end = i;
    while (end < c->count && c->classes[end]) end++;
    if (end - i > 1) sort_marks(c, i, end);
  }
}

static void add_ordered(characters *c, utf8proc_option_t form, text_row *out) {
  order_marks(c);
  utf8proc_ssize_t n = c->count ? utf8proc_reencode(c->items, (utf8proc_ssize_t)c->count, form) : 0;
  SLI_CHECK(n >= 0, "a text cannot be normalized: %s", utf8proc_errmsg(n));
  sli_text_add(out, c->items, (size_t)n);
  c->count = 0;
}

static size_t count_ascii(span text) {
  size_t n = 0;
  while (n < text.bytes && !(text.at[n] & 0x80)) n++;
  return n;
}

/* ASCII characters are unchanged in all forms, and everything before one can be composed when it
 * arrives. */
span sli_form_apply(int form, span text, const atomic_bool *stop, text_row *room) {
  /* the last one may compose with what follows */
  size_t at = count_ascii(text), plain = at ? at - 1 : 0;
  if (at == text.bytes) return text;
  sli_text_add(room, text.at, plain);
  characters c = {.allowance = room->allowance};
  bool good = true;
  for (at = plain; at < text.bytes && good && !sli_is_stopped(stop);) {
    for (size_t end = SLI_MIN(text.bytes, at + BLOCK); at < end && good;
         at += sli_character(text.at + at)) {
      if (c.count > BLOCK && !(text.at[at] & 0x80)) add_ordered(&c, (utf8proc_option_t)form, room);
      good = add_parts(&c, sli_utf8_character(text.at + at), (utf8proc_option_t)form);
    }
  }
  add_ordered(&c, (utf8proc_option_t)form, room);
  characters_fini(&c);
  return (span){room->items, room->count};
}

static const struct {
  const char *name;
  utf8proc_option_t form;
} forms[] = {{"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
             {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
             {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
             {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};

sl_status sli_form_find(const char *name, int *form) {
  *form = 0;
  for (size_t i = 0; i < SLI_COUNT(forms); i++)
    if (!strcmp(name, forms[i].name)) *form = (int)forms[i].form;
  return SL_OK;
}
