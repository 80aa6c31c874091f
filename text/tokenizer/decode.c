/* SPDX-License-Identifier: Apache-2.0 */
/* Decoders: the texts of tokens become one text. Each step turns a list of texts into a new
 * list. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/number.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer_inner.h"

typedef struct step {
  void (*run)(const struct step *p, const texts *in, texts *out);
  char *from, *to;
  int begin, end;   /* strip: most characters removed at each end */
  bool cleans;      /* word_pieces */
  bool drops_first; /* metaspace: removes the marks of the first token */
} step;

struct decoder {
  step *steps;
  size_t count, capacity;
};

decoder *sli_decoder_create(void) { return sli_calloc(1, sizeof(decoder)); }

void sli_decoder_destroy(decoder *d) {
  for (size_t i = 0; d && i < d->count; i++) {
    free(d->steps[i].from);
    free(d->steps[i].to);
  }
  if (d) free(d->steps);
  free(d);
}

/* ---- lists of texts -------------------------------------------------------------------------- */

void sli_texts_end(texts *t) {
  SLI_GROW(t->ends, t->count, t->room);
  t->ends[t->count++] = t->bytes.count;
}

static void texts_fini(texts *t) {
  free(t->bytes.items);
  free(t->ends);
  *t = (texts){0};
}

static span text_at(const texts *t, size_t i) {
  size_t begin = i ? t->ends[i - 1] : 0;
  return (span){t->bytes.items + begin, t->ends[i] - begin};
}

static void add_text(texts *t, span text) {
  sli_text_add(&t->bytes, text.at, text.bytes);
  sli_texts_end(t);
}

/* Appends the text, with U+FFFD in place of malformed bytes. */
static void add_good(text_row *out, span text) {
  while (text.bytes) {
    bool good;
    size_t n = sli_utf8_next(text.at, text.bytes, &good);
    if (good) sli_text_add(out, text.at, n);
    else sli_text_add(out, "\ufffd", 3);
    text.at += n;
    text.bytes -= n;
  }
}

void sli_decoder_run(const decoder *d, texts *in, text_row *out) {
  for (size_t i = 0; i < d->count; i++) {
    texts next = {.raw = in->raw};
    d->steps[i].run(&d->steps[i], in, &next);
    texts_fini(in);
    *in = next;
  }
  for (size_t i = 0; i < in->count; i++) {
    span text = text_at(in, i);
    if (i && !d->count) sli_text_add(out, " ", 1);
    if (in->raw) sli_text_add(out, text.at, text.bytes);
    else add_good(out, text);
  }
  texts_fini(in);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Byte-level: a token's characters become bytes; a token with other characters is kept. */
static void bytes(const step *step, const texts *in, texts *out) {
  (void)step;
  for (size_t i = 0; i < in->count; i++) {
    span text = text_at(in, i);
    char *room = sli_calloc(1, text.bytes + 1);
    size_t n;
    bool plain = sli_bytes_of_text(text, room, &n);
    sli_text_add(&out->bytes, plain ? room : text.at, plain ? n : text.bytes);
    free(room);
  }
  sli_texts_end(out);
}

/* Parses "<0x0A>". */
static bool is_byte(span text, char *byte) {
  if (text.bytes != 6 || memcmp(text.at, "<0x", 3) || text.at[5] != '>') return false;
  int high = sli_hex_digit(text.at[3]), low = sli_hex_digit(text.at[4]);
  if (high < 0 || low < 0) return false;
  *byte = (char)(high << 4 | low);
  return true;
}

/* Ends a run of byte tokens. If it is not valid UTF-8, each byte becomes U+FFFD, unless raw bytes
 * are wanted. */
static void end_bytes(text_row *held, texts *out) {
  span text = {held->items, held->count};
  if (!held->count) return;
  bool good = out->raw || sli_utf8_good(text.at, text.bytes) == text.bytes;
  for (size_t i = 0; i < text.bytes && !good; i++) sli_text_add(&out->bytes, "\ufffd", 3);
  if (good) sli_text_add(&out->bytes, text.at, text.bytes);
  sli_texts_end(out);
  held->count = 0;
}

static void byte_fallback(const step *step, const texts *in, texts *out) {
  (void)step;
  text_row held = {0};
  for (size_t i = 0; i < in->count; i++) {
    char byte;
    if (is_byte(text_at(in, i), &byte)) {
      sli_text_add(&held, &byte, 1);
      continue;
    }
    end_bytes(&held, out);
    add_text(out, text_at(in, i));
  }
  end_bytes(&held, out);
  free(held.items);
}

static void fuse(const step *step, const texts *in, texts *out) {
  (void)step;
  sli_text_add(&out->bytes, in->bytes.items, in->bytes.count);
  sli_texts_end(out);
}

static void replace_in(const step *step, span text, text_row *out) {
  size_t n = strlen(step->from);
  while (text.bytes) {
    const char *found = memmem(text.at, text.bytes, step->from, n);
    size_t used = found ? (size_t)(found - text.at) : text.bytes;
    sli_text_add(out, text.at, used);
    if (found) sli_text_add(out, step->to, strlen(step->to)), used += n;
    text.at += used;
    text.bytes -= used;
  }
}

static void replace(const step *step, const texts *in, texts *out) {
  for (size_t i = 0; i < in->count; i++) {
    replace_in(step, text_at(in, i), &out->bytes);
    sli_texts_end(out);
  }
}

static void metaspace(const step *p, const texts *in, texts *out) {
  const step drop = {.from = p->from, .to = ""};
  for (size_t i = 0; i < in->count; i++) {
    replace_in(i || !p->drops_first ? p : &drop, text_at(in, i), &out->bytes);
    sli_texts_end(out);
  }
}

/* Removes spaces between texts that are written together. Pairs are applied in the order of the
 * list. */
static void add_clean(const step *p, span text, text_row *out) {
  static char pairs[][2][8] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                               {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                               {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                               {" 've", "'ve"}, {" 're", "'re"}};
  text_row rooms[2] = {{0}, {0}};
  for (size_t i = 0; i < SLI_COUNT(pairs) && p->cleans; i++) {
    text_row *room = &rooms[i % 2];
    room->count = 0;
    replace_in(&(step){.from = pairs[i][0], .to = pairs[i][1]}, text, room);
    text = (span){room->items, room->count};
  }
  sli_text_add(out, text.at, text.bytes);
  for (int i = 0; i < 2; i++) free(rooms[i].items);
}

/* WordPiece: a continuation token loses its prefix, and any other token but the first gets a
 * space. */
static void word_pieces(const step *step, const texts *in, texts *out) {
  size_t n = strlen(step->from);
  text_row one = {0};
  for (size_t i = 0; i < in->count; i++) {
    span text = text_at(in, i);
    bool goes_on = text.bytes >= n && !memcmp(text.at, step->from, n);
    one.count = 0;
    if (i && !goes_on) sli_text_add(&one, " ", 1);
    if (i && goes_on) text = (span){text.at + n, text.bytes - n};
    sli_text_add(&one, text.at, text.bytes);
    add_clean(step, (span){one.items, one.count}, &out->bytes);
    sli_texts_end(out);
  }
  free(one.items);
}

static void strip(const step *step, const texts *in, texts *out) {
  size_t n = strlen(step->from);
  for (size_t i = 0; i < in->count; i++) {
    span text = text_at(in, i);
    for (int k = 0; k < step->begin && text.bytes >= n && !memcmp(text.at, step->from, n); k++)
      text.at += n, text.bytes -= n;
    for (int k = 0;
         k < step->end && text.bytes >= n && !memcmp(text.at + text.bytes - n, step->from, n); k++)
      text.bytes -= n;
    add_text(out, text);
  }
}

/* ---- reading --------------------------------------------------------------------------------- */

static step *add_step(decoder *d, void (*run)(const step *, const texts *, texts *)) {
  SLI_GROW(d->steps, d->count, d->capacity);
  step *p = &d->steps[d->count++];
  *p = (step){.run = run};
  return p;
}

static sl_status read_replace(decoder *d, const cJSON *item) {
  const char *from = sli_json_text(cJSON_GetObjectItemCaseSensitive(item, "pattern"), "String");
  const char *to = sli_json_text(item, "content");
  if (!from || !*from || !to)
    return sl_fail(SL_E_INPUT, "decoder Replace: pattern and content must be texts");
  step *p = add_step(d, replace);
  p->from = sli_strdup(from);
  p->to = sli_strdup(to);
  return SL_OK;
}

static sl_status read_metaspace(decoder *d, const cJSON *item) {
  span mark = sli_json_character(item, "replacement");
  if (!mark.at) return sl_fail(SL_E_INPUT, "decoder Metaspace: replacement is not a character");
  const char *scheme = sli_json_text(item, "prepend_scheme");
  bool never = scheme ? !strcmp(scheme, "never") : !sli_json_flag(item, "add_prefix_space", true);
  step *p = add_step(d, metaspace);
  p->drops_first = !never;
  p->from = sli_strdup(mark.at);
  p->to = sli_strdup(" ");
  return SL_OK;
}

static int count_at(const cJSON *item, const char *name) {
  const cJSON *count = cJSON_GetObjectItemCaseSensitive(item, name);
  return cJSON_IsNumber(count) && count->valueint > 0 ? count->valueint : 0;
}

static sl_status read_strip(decoder *d, const cJSON *item) {
  span mark = sli_json_character(item, "content");
  if (!mark.at) return sl_fail(SL_E_INPUT, "decoder Strip: content is not a character");
  step *p = add_step(d, strip);
  p->from = sli_strdup(mark.at);
  p->begin = count_at(item, "start");
  p->end = count_at(item, "stop");
  return SL_OK;
}

static sl_status read_pieces(decoder *d, const cJSON *item) {
  const char *prefix = sli_json_text(item, "prefix");
  step *p = add_step(d, word_pieces);
  p->from = sli_strdup(prefix ? prefix : "##");
  p->cleans = sli_json_flag(item, "cleanup", true);
  return SL_OK;
}

static sl_status read_sequence(decoder *d, const cJSON *item) {
  const cJSON *each;
  sl_status status = SL_OK;
  cJSON_ArrayForEach(each, cJSON_GetObjectItemCaseSensitive(item, "decoders")) if (!status) status =
      sli_decoder_read(d, each);
  return status;
}

static sl_status read_bytes(decoder *d, const cJSON *item) {
  (void)item;
  add_step(d, bytes);
  return SL_OK;
}

static sl_status read_fallback(decoder *d, const cJSON *item) {
  (void)item;
  add_step(d, byte_fallback);
  return SL_OK;
}

static sl_status read_fuse(decoder *d, const cJSON *item) {
  (void)item;
  add_step(d, fuse);
  return SL_OK;
}

sl_status sli_decoder_read(decoder *d, const cJSON *item) {
  static const struct {
    const char *type;
    sl_status (*read)(decoder *d, const cJSON *item);
  } kinds[] = {{"ByteLevel", read_bytes},  {"ByteFallback", read_fallback}, {"Fuse", read_fuse},
               {"Replace", read_replace},  {"Metaspace", read_metaspace},   {"Strip", read_strip},
               {"WordPiece", read_pieces}, {"Sequence", read_sequence}};
  if (!item || cJSON_IsNull(item)) return SL_OK;
  const char *type = sli_json_text(item, "type");
  for (size_t i = 0; type && i < SLI_COUNT(kinds); i++)
    if (!strcmp(type, kinds[i].type)) return kinds[i].read(d, item);
  return sl_fail(SL_E_INPUT, "decoder \"%.40s\" is not known", type ? type : "");
}
