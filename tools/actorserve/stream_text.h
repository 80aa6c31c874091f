/* SPDX-License-Identifier: Apache-2.0 */
/* Streamed text of an answer. Text that the next token could change is held back: an
 * incomplete character, or the beginning of a possible stop. */
#ifndef SLUICE_TOOLS_ACTORSERVE_STREAM_TEXT_H
#define SLUICE_TOOLS_ACTORSERVE_STREAM_TEXT_H

#include "tools/actorserve/codec.h"

enum { STOPS_MOST = 16 };

/* Texts that end an answer and are not part of it. */
typedef struct stops {
  int count;
  struct stop {
    char *text;
    size_t bytes;
    int *again; /* [bytes] length of the stop's prefix that its first i + 1 bytes end with */
  } of[STOPS_MOST];
} stops;
void stops_init(stops *s, int count, const char *const *texts); /* copies the texts */
void stops_fini(stops *s);

typedef struct stream_text {
  const codec *codec;
  bool special;            /* the text has special tokens, which may be marks of calls */
  const stops *stops;      /* NULL: none */
  int matched[STOPS_MOST]; /* length of each stop's prefix that the text so far ends with */
  /* tokens that the newest text is decoded from, some earlier ones included */
  int32_t *window;
  size_t count, capacity;
  size_t shown; /* bytes of the window's text that are in `text` */
  char *text;   /* text that was not taken yet */
  size_t bytes, room;
  size_t before; /* bytes that were taken */
  bool stopped;  /* a stop was reached: no text follows */
} stream_text;

/* Appends a token. */
void stream_text_add(stream_text *t, int32_t token);
/* Returns the bytes of `text` that can be taken; at the `end`, all. Sets `stopped`. */
size_t stream_text_ready(stream_text *t, bool end);
/* Removes bytes that were taken. */
void stream_text_take(stream_text *t, size_t bytes);
/* Returns the offset of the next text in the whole answer. */
size_t stream_text_offset(const stream_text *t);
/* Returns the bytes that a token would add if it came next; the caller frees them. */
char *stream_text_bytes_of(const stream_text *t, int32_t token, size_t *bytes);
void stream_text_fini(stream_text *t);

#endif
