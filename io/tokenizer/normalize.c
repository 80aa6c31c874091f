/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizers: changes to a text before it is split. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/tokenizer/inner.h"

typedef struct step {
  span (*run)(const struct step *p, span text, const atomic_bool *stop, text_row *room);
  int form;        /* of Unicode */
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

static span compose(const step *p, span text, const atomic_bool *stop, text_row *room) {
  return sli_form_apply(p->form, text, stop, room);
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
  sl_status (*read)(normalizer *n, const cJSON *item);
} kinds[] = {{"Replace", read_replace}, {"Prepend", read_prepend}, {"Sequence", read_sequence}};

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
