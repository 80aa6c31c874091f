/* Normalizers: what happens to a text before it is cut. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/base.h"
#include "io/tokenizer/inner.h"

typedef struct step {
  span (*run)(const struct step *p, span text, text_row *room);
  utf8proc_option_t form;
  char *from, *to; /* replace, prepend: `to` */
} step;

struct normalizer {
  step *steps;
  size_t count, capacity;
  text_row rooms[2];
};

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

span sli_normalize(normalizer *n, span text) {
  for (size_t i = 0; i < n->count && text.bytes; i++) {
    text_row *room = &n->rooms[text.at == n->rooms[0].items]; /* not the one that it lies in */
    room->count = 0;
    text = n->steps[i].run(&n->steps[i], text, room);
  }
  return text;
}

/* ---- the steps -------------------------------------------------------------------------------- */

static bool is_ascii(span text) {
  for (size_t i = 0; i < text.bytes; i++)
    if (text.at[i] & 0x80) return false;
  return true;
}

/* NFC and the like; ASCII is as it is in all of them. */
static span compose(const step *p, span text, text_row *room) {
  if (is_ascii(text)) return text;
  utf8proc_uint8_t *out = NULL;
  utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text.at,
                                    (utf8proc_ssize_t)text.bytes, &out, p->form);
  SLI_CHECK(n >= 0, "a text cannot be normalized: %s", utf8proc_errmsg(n));
  sli_text_add(room, out, (size_t)n);
  free(out);
  return (span){room->items, room->count};
}

static span replace(const step *p, span text, text_row *room) {
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

static span prepend(const step *p, span text, text_row *room) {
  sli_text_add(room, p->to, strlen(p->to));
  sli_text_add(room, text.at, text.bytes);
  return (span){room->items, room->count};
}

/* ---- reading ------------------------------------------------------------------------------------ */

static step *add_step(normalizer *n, span (*run)(const step *, span, text_row *)) {
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
  cJSON_ArrayForEach(each, cJSON_GetObjectItemCaseSensitive(item, "normalizers"))
    if (!status) status = sli_normalizer_read(n, each);
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
