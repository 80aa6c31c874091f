/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizers: changes to a text before it is split. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer_inner.h"

typedef struct step {
  span (*run)(const struct step *p, span text, const atomic_bool *stop, text_row *room);
  int form;        /* Unicode normal form */
  char *from, *to; /* replace, prepend: `to` */
  bool drops;      /* drops whole characters */
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

static span replace(const step *step, span text, const atomic_bool *stop, text_row *room) {
  (void)stop;
  size_t n = strlen(step->from);
  while (text.bytes) {
    const char *found = memmem(text.at, text.bytes, step->from, n);
    size_t before = found ? (size_t)(found - text.at) : text.bytes;
    sli_text_add(room, text.at, before);
    if (found) sli_text_add(room, step->to, strlen(step->to)), before += n;
    text.at += before;
    text.bytes -= before;
  }
  return (span){room->items, room->count};
}

static span prepend(const step *step, span text, const atomic_bool *stop, text_row *room) {
  (void)stop;
  sli_text_add(room, step->to, strlen(step->to));
  sli_text_add(room, text.at, text.bytes);
  return (span){room->items, room->count};
}

static span compose(const step *step, span text, const atomic_bool *stop, text_row *room) {
  return sli_form_apply(step->form, text, stop, room);
}

/* ---- BERT's ---------------------------------------------------------------------------------- */

static void add_character(text_row *room, int32_t c) {
  char bytes[4];
  sli_text_add(room, bytes, sli_character_write(c, bytes));
}

/* Drops characters without a shape, and turns all white space into spaces. */
static void clean_one(int32_t c, text_row *room) {
  bool plain = c == '\t' || c == '\n' || c == '\r';
  if (!c || c == 0xfffd || (!plain && sli_character_is_other(c))) return;
  add_character(room, sli_character_is_space(c) ? ' ' : c);
}

static bool is_chinese(int32_t c) {
  static const int32_t ranges[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                      {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                      {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
  for (size_t i = 0; i < SLI_COUNT(ranges); i++)
    if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
  return false;
}

static void part_one(int32_t c, text_row *room) {
  bool apart = is_chinese(c);
  if (apart) sli_text_add(room, " ", 1);
  add_character(room, c);
  if (apart) sli_text_add(room, " ", 1);
}

static void bare_one(int32_t c, text_row *room) {
  if (!sli_character_is_mark(c)) add_character(room, c);
}

/* One capital letter has a lowercase form of two letters. */
static void lower_one(int32_t c, text_row *room) {
  if (c == 0x130) sli_text_add(room, "i\u0307", 3);
  else add_character(room, sli_character_lower(c));
}

static span each(span text, const atomic_bool *stop, text_row *room,
                 void (*one)(int32_t c, text_row *room)) {
  enum { LOOKS = 1 << 12 };
  size_t steps = 0;
  for (size_t i = 0; i < text.bytes; i += sli_character(text.at + i)) {
    if (++steps % LOOKS == 0 && sli_is_stopped(stop)) break;
    one(sli_utf8_character(text.at + i), room);
  }
  return (span){room->items, room->count};
}

static span clean(const step *step, span text, const atomic_bool *stop, text_row *room) {
  (void)step;
  return each(text, stop, room, clean_one);
}

static span part(const step *step, span text, const atomic_bool *stop, text_row *room) {
  (void)step;
  return each(text, stop, room, part_one);
}

static span bare(const step *step, span text, const atomic_bool *stop, text_row *room) {
  (void)step;
  return each(text, stop, room, bare_one);
}

static span lower(const step *step, span text, const atomic_bool *stop, text_row *room) {
  (void)step;
  return each(text, stop, room, lower_one);
}

/* ---- shortening -----------------------------------------------------------------------------
 *
 * A character of a normal form has at least a quarter of the bytes of the characters it
 * replaces. */

static size_t shortens(const step *step) {
  enum { FORM = 4 };
  if (step->drops) return 0;
  if (step->form || step->run == lower) return FORM;
  size_t from = step->from ? strlen(step->from) : 1, to = step->to ? strlen(step->to) : 1;
  return !step->from || from <= to ? 1 : to ? (from + to - 1) / to : 0;
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

static sl_status read_bert(normalizer *n, const cJSON *item) {
  bool lowers = sli_json_flag(item, "lowercase", true);
  int form = 0;
  sl_status status = sli_characters_check("a tokenizer with BertNormalizer");
  if (sli_json_flag(item, "clean_text", true)) add_step(n, clean)->drops = true;
  if (sli_json_flag(item, "handle_chinese_chars", true)) add_step(n, part);
  if (!status && sli_json_flag(item, "strip_accents", lowers)) {
    status = sli_form_find("NFD", &form);
    add_step(n, compose)->form = form;
    add_step(n, bare)->drops = true;
  }
  if (lowers) add_step(n, lower);
  return status;
}

static sl_status read_lowercase(normalizer *n, const cJSON *item) {
  (void)item;
  add_step(n, lower);
  return sli_characters_check("a tokenizer with Lowercase");
}

static const struct {
  const char *type;
  sl_status (*read)(normalizer *n, const cJSON *item);
} kinds[] = {{"Replace", read_replace},
             {"Prepend", read_prepend},
             {"Sequence", read_sequence},
             {"BertNormalizer", read_bert},
             {"Lowercase", read_lowercase}};

sl_status sli_normalizer_read(normalizer *n, const cJSON *item) {
  if (!item || cJSON_IsNull(item)) return SL_OK;
  const char *type = sli_json_text(item, "type");
  int form = 0;
  sl_status status = type ? sli_form_find(type, &form) : SL_OK;
  if (form) add_step(n, compose)->form = form;
  if (status || form) return status;
  for (size_t i = 0; type && i < SLI_COUNT(kinds); i++)
    if (!strcmp(type, kinds[i].type)) return kinds[i].read(n, item);
  return sl_fail(SL_E_INPUT, "normalizer \"%.40s\" is not known", type ? type : "");
}
