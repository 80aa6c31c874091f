/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizers: changes to a text before it is split. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/base.h"
#include "io/tokenizer/inner.h"

typedef struct step {
  span (*run)(const struct step *p, span text, const atomic_bool *stop, text_row *room);
  utf8proc_option_t form;
  char *from, *to; /* replace, prepend: `to` */
} step;

struct normalizer {
  step *steps;
  size_t count, capacity;
  text_row rooms[2];
};

void sli_normalizer_heed(normalizer *n, const sli_allowance *allowance) {
  for (int i = 0; i < 2; i++) sli_text_keep(&n->rooms[i], allowance);
}

normalizer *sli_normalizer_create(void) { return sli_calloc(1, sizeof(normalizer)); }

void sli_normalizer_destroy(normalizer *n) {
  for (size_t i = 0; n && i < n->count; i++) {
    free(n->steps[i].from);
    free(n->steps[i].to);
  }
  if (n) {
    free(n->steps);
    free(n->rooms[0].items);
    free(n->rooms[1].items);
  }
  free(n);
}

span sli_normalize(normalizer *n, span text, const atomic_bool *stop) {
  for (size_t i = 0; i < n->count && text.bytes; i++) {
    /* the buffer that does not hold the text */
    text_row *room = &n->rooms[text.at == n->rooms[0].items];
    room->count = 0;
    text = n->steps[i].run(&n->steps[i], text, stop, room);
  }
  return text;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static size_t count_ascii(span text) {
  size_t n = 0;
  while (n < text.bytes && !(text.at[n] & 0x80)) n++;
  return n;
}

static span replace(const step *p, span text, const atomic_bool *stop, text_row *room) {
  (void)stop;
  size_t n = strlen(p->from);
  while (text.bytes) {
    const char *found = memmem(text.at, text.bytes, p->from, n);
    size_t before = found ? (size_t)(found - text.at) : text.bytes;
    sli_text_add(room, text.at, before);
    if (found) sli_text_add(room, p->to, strlen(p->to)), before += n;
    text.at += before;
    text.bytes -= before;
  }
  return (span){room->items, room->count};
}

static span prepend(const step *p, span text, const atomic_bool *stop, text_row *room) {
  (void)stop;
  sli_text_add(room, p->to, strlen(p->to));
  sli_text_add(room, text.at, text.bytes);
  return (span){room->items, room->count};
}

/* ---- Unicode's forms ------------------------------------------------------------------------
 *
 * utf8proc decomposes and composes characters. Combining marks are sorted here, since utf8proc
 * takes quadratic time in the length of a run of marks. */

enum { MOST_PARTS = 32, BLOCK = 4096 }; /* no character has more than 18 parts */

/* Characters, decomposed, with their combining classes. */
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

/* Makes room for a character's parts; false: there is none. */
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

/* Adds a character; false: there is no memory. */
static bool add_parts(characters *c, utf8proc_int32_t character, utf8proc_option_t form) {
  int bound = 0;
  if (!make_room(c)) return false;
  utf8proc_ssize_t n =
      utf8proc_decompose_char(character, c->items + c->count, MOST_PARTS, form, &bound);
  if (n < 0) { /* beyond Unicode: bytes that are no UTF-8 */
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

/* Applies NFC, NFD, NFKC or NFKD. ASCII characters are unchanged in all forms, and everything
 * before one can be composed when it comes. */
static span compose(const step *p, span text, const atomic_bool *stop, text_row *room) {
  /* the last one may compose with what follows */
  size_t at = count_ascii(text), plain = at ? at - 1 : 0;
  if (at == text.bytes) return text;
  sli_text_add(room, text.at, plain);
  characters c = {.allowance = room->allowance};
  bool good = true;
  for (at = plain; at < text.bytes && good && !sli_is_stopped(stop);) {
    utf8proc_int32_t character;
    for (size_t end = SLI_MIN(text.bytes, at + BLOCK); at < end && good;
         at += sli_character(text.at + at)) {
      if (c.count > BLOCK && !(text.at[at] & 0x80)) add_ordered(&c, p->form, room);
      utf8proc_iterate((const utf8proc_uint8_t *)text.at + at, (utf8proc_ssize_t)(text.bytes - at),
                       &character);
      good = add_parts(&c, character, p->form);
    }
  }
  add_ordered(&c, p->form, room);
  characters_fini(&c);
  return (span){room->items, room->count};
}

/* ---- shortening -----------------------------------------------------------------------------
 *
 * A character of a normal form has at least a quarter of the bytes that it is made of. */

static size_t shortens(const step *p) {
  enum { FORM = 4 };
  if (p->form) return FORM;
  size_t from = p->from ? strlen(p->from) : 1, to = strlen(p->to);
  return !p->from || from <= to ? 1 : to ? (from + to - 1) / to : 0;
}

size_t sli_normalizer_shortens(const normalizer *n) {
  enum { MOST = 1 << 16 };
  size_t times = 1;
  for (size_t i = 0; i < n->count && times; i++) {
    times *= shortens(&n->steps[i]);
    if (times > MOST) times = 0;
  }
  return times;
}

/* ---- reading --------------------------------------------------------------------------------- */

static step *add_step(normalizer *n,
                      span (*run)(const step *, span, const atomic_bool *, text_row *)) {
  SLI_GROW(n->steps, n->count, n->capacity);
  step *p = &n->steps[n->count++];
  *p = (step){.run = run};
  return p;
}

static sl_status read_replace(normalizer *n, const cJSON *item) {
  const char *from = sli_json_text(cJSON_GetObjectItemCaseSensitive(item, "pattern"), "String");
  const char *to = sli_json_text(item, "content");
  if (!from || !*from || !to)
    return sl_fail(SL_E_INPUT, "normalizer Replace: pattern and content must be texts");
  step *p = add_step(n, replace);
  p->from = sli_strdup(from);
  p->to = sli_strdup(to);
  return SL_OK;
}

static sl_status read_prepend(normalizer *n, const cJSON *item) {
  const char *to = sli_json_text(item, "prepend");
  if (!to) return sl_fail(SL_E_INPUT, "normalizer Prepend has no prepend");
  add_step(n, prepend)->to = sli_strdup(to);
  return SL_OK;
}

static sl_status read_sequence(normalizer *n, const cJSON *item) {
  const cJSON *each;
  sl_status status = SL_OK;
  cJSON_ArrayForEach(each, cJSON_GetObjectItemCaseSensitive(item, "normalizers")) if (!status)
      status = sli_normalizer_read(n, each);
  return status;
}

static const struct {
  const char *type;
  utf8proc_option_t form;
} forms[] = {{"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
             {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
             {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
             {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};

static const struct {
  const char *type;
  sl_status (*read)(normalizer *n, const cJSON *item);
} kinds[] = {{"Replace", read_replace}, {"Prepend", read_prepend}, {"Sequence", read_sequence}};

sl_status sli_normalizer_read(normalizer *n, const cJSON *item) {
  if (!item || cJSON_IsNull(item)) return SL_OK;
  const char *type = sli_json_text(item, "type");
  for (size_t i = 0; type && i < SLI_COUNT(forms); i++)
    if (!strcmp(type, forms[i].type)) {
      add_step(n, compose)->form = forms[i].form;
      return SL_OK;
    }
  for (size_t i = 0; type && i < SLI_COUNT(kinds); i++)
    if (!strcmp(type, kinds[i].type)) return kinds[i].read(n, item);
  return sl_fail(SL_E_INPUT, "normalizer \"%.40s\" is not known", type ? type : "");
}
