/* SPDX-License-Identifier: Apache-2.0 */
/* Streamed text of an answer. Text that the next token could change is held back: an
 * incomplete character, or the beginning of a possible stop. */
#ifndef SLUICE_TOOLS_ACTORSERVE_STREAM_TEXT_H
#define SLUICE_TOOLS_ACTORSERVE_STREAM_TEXT_H

#include "tools/actorserve/codec.h"

enum { STOPS_MOST = 16 };

/* Texts that end an answer and are excluded from it. */
typedef struct stops {
  int count;
  struct stop {
    char *text;
    size_t bytes;
    int *again; /* [bytes] length of the longest proper prefix that ends at byte i */
  } items[STOPS_MOST];
} stops;
void stops_init(stops *s, int count, const char *const *texts); /* copies the texts */
void stops_fini(stops *s);

typedef struct stream_text {
  const codec *codec;
  bool special;            /* keep special tokens in the text, because they may mark calls */
  const stops *stops;      /* NULL if none */
  int matched[STOPS_MOST]; /* length of each stop's prefix that the text currently ends with */
  /* tokens that the newest text is decoded from, including some earlier ones */
  int32_t *window;
  size_t count, capacity;
  size_t shown; /* bytes of the window's text already in `text` */
  char *text;   /* text not taken yet */
  size_t bytes, room;
  size_t before;     /* bytes taken before */
  size_t characters; /* characters of the whole text so far */
  bool stopped;      /* a stop was reached: no text follows */
  const char *stop;  /* that stop; NULL if none */
} stream_text;

/* Appends a token. */
void stream_text_add(stream_text *t, int32_t token);
/* Returns how many bytes of `text` can be taken; at the `end`, all of them. Sets `stopped`. */
size_t stream_text_ready(stream_text *t, bool end);
/* Removes bytes that were taken. */
void stream_text_take(stream_text *t, size_t bytes);
/* Returns the offset in bytes of the next text in the whole answer. */
size_t stream_text_offset(const stream_text *t);
/* Returns the bytes that a token would add at this point; the caller frees them. */
char *stream_text_bytes_of(const stream_text *t, int32_t token, size_t *bytes);
void stream_text_fini(stream_text *t);

#endif
