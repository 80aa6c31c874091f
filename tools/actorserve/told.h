/* The text of an answer as its tokens come: nothing is given away that the next token could change,
 * half a character or what may become a stop text. */
#ifndef SLUICE_TOOLS_ACTORSERVE_TOLD_H
#define SLUICE_TOOLS_ACTORSERVE_TOLD_H

#include "tools/actorserve/codec.h"

enum { STOPS_MOST = 16 };

/* Texts that end an answer, and are no part of it. */
typedef struct stops {
  int count;
  struct stop {
    char *text;
    size_t bytes;
    int *again; /* [bytes] how much of its begin the end of its first i + 1 bytes is */
  } of[STOPS_MOST];
} stops;
void stops_init(stops *s, int count, const char *const *texts); /* copies them */
void stops_fini(stops *s);

typedef struct told {
  const codec *codec;
  const stops *stops;      /* NULL: none */
  int matched[STOPS_MOST]; /* how much of each the end of the text so far is */
  int32_t *window;         /* tokens of which the newest text is made: from some way back on */
  size_t count, capacity;
  size_t shown;            /* bytes of their text that are in `text` */
  char *text;              /* what was not taken yet */
  size_t bytes, room;
  size_t before;           /* bytes that were */
  bool stopped;            /* at a stop text: nothing comes after that */
} told;

/* Takes in a token. */
void told_token(told *t, int32_t token);
/* Bytes of `text` that can be taken; at the `end`, all. Sets `stopped`. */
size_t told_ready(told *t, bool end);
/* Drops so many bytes, which were taken. */
void told_take(told *t, size_t bytes);
/* Where the next text begins in the whole answer. */
size_t told_place(const told *t);
/* The bytes of a token behind those of the window, as if it came next; the caller's to free. */
char *told_bytes_of(const told *t, int32_t token, size_t *bytes);
void told_fini(told *t);

#endif
