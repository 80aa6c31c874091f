#include "tools/actorserve/told.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum {
  LONG_WINDOW = 16,    /* tokens after which a window begins anew, at a good place */
  LONGEST_WINDOW = 64  /* and after which at any */
};

/* ---- tokens ------------------------------------------------------------------------------------------- */

static void add_text(told *t, const char *text, size_t bytes) {
  if (t->bytes + bytes > t->room) {
    t->room = SLI_MAX(t->bytes + bytes, 2 * t->room);
    t->text = sli_realloc(t->text, t->room, 1);
  }
  memcpy(t->text + t->bytes, text, bytes);
  t->bytes += bytes;
}

/* Without what may be a character that is not whole. */
static size_t settled(const char *text, size_t bytes) {
  while (bytes >= 3 && !memcmp(text + bytes - 3, "\ufffd", 3)) bytes -= 3;
  return bytes;
}

/* Adds what the window's text has that was not shown. */
static void show(told *t, bool end) {
  size_t bytes;
  char *text = codec_decode(t->codec, t->window, t->count, &bytes);
  size_t ready = end ? bytes : settled(text, bytes);
  if (ready > t->shown) {
    add_text(t, text + t->shown, ready - t->shown);
    t->shown = ready;
  }
  free(text);
}

/* Tokenizers may spell a token otherwise where a text begins, so a window keeps one token of before. */
static void begin_window(told *t) {
  size_t bytes;
  t->window[0] = t->window[t->count - 1];
  t->count = 1;
  free(codec_decode(t->codec, t->window, 1, &bytes));
  t->shown = bytes;
}

static bool is_settled(const told *t) {
  size_t bytes, ready;
  char *text = codec_decode(t->codec, t->window + t->count - 1, 1, &bytes);
  ready = settled(text, bytes);
  free(text);
  return bytes && ready == bytes;
}

void told_token(told *t, int32_t token) {
  if (t->count >= LONGEST_WINDOW) {
    show(t, true);
    begin_window(t);
  } else if (t->count >= LONG_WINDOW && is_settled(t))
    begin_window(t);
  SLI_GROW(t->window, t->count, t->capacity);
  t->window[t->count++] = token;
  show(t, false);
}

char *told_text_of(const told *t, int32_t token, size_t *bytes) {
  int32_t both[2] = {t->count ? t->window[t->count - 1] : token, token};
  size_t before = 0;
  if (!t->count) return codec_decode(t->codec, &token, 1, bytes);
  char *first = codec_decode(t->codec, both, 1, &before), *text = codec_decode(t->codec, both, 2, bytes);
  bool follows = *bytes >= before && !memcmp(first, text, before);
  if (!follows) free(text), text = codec_decode(t->codec, &token, 1, bytes);
  else memmove(text, text + before, *bytes - before + 1), *bytes -= before;
  free(first);
  return text;
}

/* ---- stops --------------------------------------------------------------------------------------------- */

/* The place of the first stop text; the end, if there is none. */
static size_t find_stop(const told *t) {
  size_t first = t->bytes;
  for (int i = 0; i < t->nstop && t->bytes; i++) {
    const char *at = memmem(t->text, t->bytes, t->stop[i], strlen(t->stop[i]));
    if (at && (size_t)(at - t->text) < first) first = (size_t)(at - t->text);
  }
  return first;
}

/* How much of the end could be the begin of this text. */
static size_t overlap(const told *t, const char *stop) {
  size_t n = SLI_MIN(strlen(stop) - 1, t->bytes);
  while (n && memcmp(t->text + t->bytes - n, stop, n)) n--;
  return n;
}

size_t told_ready(told *t, bool end) {
  if (end && !t->stopped && t->count) show(t, true);
  size_t stop = find_stop(t), held = 0;
  if (stop < t->bytes) {
    t->stopped = true;
    t->bytes = stop;
    t->nstop = 0;
  }
  for (int i = 0; i < t->nstop && !end; i++) held = SLI_MAX(held, overlap(t, t->stop[i]));
  return t->bytes - held;
}

void told_take(told *t, size_t bytes) {
  if (!bytes) return;
  memmove(t->text, t->text + bytes, t->bytes - bytes);
  t->bytes -= bytes;
  t->before += bytes;
}

size_t told_place(const told *t) { return t->before + t->bytes; }

void told_fini(told *t) {
  free(t->window);
  free(t->text);
}
