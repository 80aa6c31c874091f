/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/stream_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum {
  LONG_WINDOW = 16,   /* tokens after which a new window may begin, at a suitable place */
  LONGEST_WINDOW = 64 /* tokens after which it begins in any case */
};

/* ---- stops ----------------------------------------------------------------------------------- */

/* Returns the length of the longest prefix of the stop that the text ends with after one more byte
 * (Knuth, Morris, Pratt). */
static int go_on(const struct stop *s, int matched, char byte) {
  while (matched && (matched == (int)s->bytes || s->text[matched] != byte))
    matched = s->again[matched - 1];
  return matched + (s->text[matched] == byte);
}

void stops_init(stops *s, int count, const char *const *texts) {
  *s = (stops){.count = count};
  for (int i = 0; i < count; i++) {
    struct stop *x = &s->items[i];
    *x = (struct stop){sli_strdup(texts[i]), strlen(texts[i]),
                       sli_calloc(strlen(texts[i]), sizeof *x->again)};
    for (size_t k = 1; k < x->bytes; k++) x->again[k] = go_on(x, x->again[k - 1], x->text[k]);
  }
}

void stops_fini(stops *s) {
  for (int i = 0; i < s->count; i++) {
    free(s->items[i].text);
    free(s->items[i].again);
  }
}

/* Matches the next byte. Returns the length of the longest stop that ends here, or 0. */
static size_t match(stream_text *t, char byte) {
  size_t ends = 0;
  for (int i = 0; t->stops && i < t->stops->count; i++) {
    const struct stop *s = &t->stops->items[i];
    t->matched[i] = go_on(s, t->matched[i], byte);
    if (t->matched[i] != (int)s->bytes || s->bytes <= ends) continue;
    ends = s->bytes;
    t->stop = s->text;
  }
  return ends;
}

/* Returns the length of the end of the text that may become a stop. */
static size_t held(const stream_text *t) {
  int most = 0;
  for (int i = 0; t->stops && i < t->stops->count; i++) most = SLI_MAX(most, t->matched[i]);
  return (size_t)most;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Appends text, up to a stop. */
static void add_text(stream_text *t, const char *text, size_t bytes) {
  size_t stop = 0, end = 0;
  if (t->stopped) return;
  while (end < bytes && !stop) stop = match(t, text[end++]);
  bytes = end;
  if (t->bytes + bytes > t->room) {
    t->room = SLI_MAX(t->bytes + bytes, 2 * t->room);
    t->text = sli_realloc(t->text, t->room, 1);
  }
  memcpy(t->text + t->bytes, text, bytes);
  t->bytes += bytes - stop;
  for (size_t i = 0; i < bytes - SLI_MIN(stop, bytes); i++)
    t->characters += ((unsigned char)text[i] & 0xc0) != 0x80;
  t->stopped = stop;
}

/* Returns the length of the text without an incomplete character at its end. */
static size_t settled(const char *text, size_t bytes) {
  while (bytes >= 3 && !memcmp(text + bytes - 3, "\ufffd", 3)) bytes -= 3;
  return bytes;
}

/* Appends the part of the window's text that was not appended before. */
static void show(stream_text *t, bool end) {
  size_t bytes;
  char *text = codec_decode(t->codec, t->window, t->count, t->special, &bytes);
  size_t ready = end ? bytes : settled(text, bytes);
  if (ready > t->shown) {
    add_text(t, text + t->shown, ready - t->shown);
    t->shown = ready;
  }
  free(text);
}

/* Begins a window. It keeps one earlier token, because tokenizers may decode a token differently at
 * the start of a text. */
static void begin_window(stream_text *t) {
  size_t bytes;
  t->window[0] = t->window[t->count - 1];
  t->count = 1;
  free(codec_decode(t->codec, t->window, 1, t->special, &bytes));
  t->shown = bytes;
}

static bool is_settled(const stream_text *t) {
  size_t bytes, ready;
  char *text = codec_decode(t->codec, t->window + t->count - 1, 1, t->special, &bytes);
  ready = settled(text, bytes);
  free(text);
  return bytes && ready == bytes;
}

void stream_text_add(stream_text *t, int32_t token) {
  if (t->count >= LONGEST_WINDOW) {
    show(t, true);
    begin_window(t);
  } else if (t->count >= LONG_WINDOW && is_settled(t)) begin_window(t);
  SLI_GROW(t->window, t->count, t->capacity);
  t->window[t->count++] = token;
  show(t, false);
}

char *stream_text_bytes_of(const stream_text *t, int32_t token, size_t *bytes) {
  int32_t both[2] = {t->count ? t->window[t->count - 1] : token, token};
  size_t before = 0;
  if (!t->count) return codec_decode_raw(t->codec, &token, 1, bytes);
  char *first = codec_decode_raw(t->codec, both, 1, &before),
       *text = codec_decode_raw(t->codec, both, 2, bytes);
  bool follows = *bytes >= before && !memcmp(first, text, before);
  if (!follows) free(text), text = codec_decode_raw(t->codec, &token, 1, bytes);
  else memmove(text, text + before, *bytes - before + 1), *bytes -= before;
  free(first);
  return text;
}

size_t stream_text_ready(stream_text *t, bool end) {
  if (end && !t->stopped && t->count) show(t, true);
  return t->bytes - (end || t->stopped ? 0 : SLI_MIN(held(t), t->bytes));
}

void stream_text_take(stream_text *t, size_t bytes) {
  if (!bytes) return;
  memmove(t->text, t->text + bytes, t->bytes - bytes);
  t->bytes -= bytes;
  t->before += bytes;
}

size_t stream_text_offset(const stream_text *t) { return t->before + t->bytes; }

void stream_text_fini(stream_text *t) {
  free(t->window);
  free(t->text);
}
