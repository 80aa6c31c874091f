/* SPDX-License-Identifier: Apache-2.0 */
/* Log probabilities of an answer's tokens, as OpenAI's JSON, held until they are sent. */
#ifndef SLUICE_TOOLS_ACTORSERVE_LOGPROBS_H
#define SLUICE_TOOLS_ACTORSERVE_LOGPROBS_H

#include <event2/buffer.h>

#include <sluice/session.h>

#include "tools/actorserve/stream_text.h"

enum { LOGPROB_TEXTS = 3 };

typedef struct logprobs {
  bool chat;               /* chat format, an object per token; otherwise an array per field */
  bool top;                /* include the likeliest tokens */
  size_t base, characters; /* length of the echoed prompt before the answer, in bytes and
                              characters */
  size_t count, capacity;
  struct logprob_word {
    size_t place, character; /* offset in the text at which it begins */
    /* JSON: the object; or token, log probability, and the likeliest tokens */
    char *text[LOGPROB_TEXTS];
  } * items;
} logprobs;

/* Adds the first token of a scored prompt, which has no log probability. */
void logprobs_add_first(logprobs *logprobs, const stream_text *behind, int32_t token,
                        size_t *bytes);
/* Adds the event's token; *bytes is the memory that it takes. */
void logprobs_add(logprobs *logprobs, const stream_text *behind, const sl_session_event *event,
                  size_t *bytes);
/* Prints the tokens that begin before `end`, or null, and frees them; *bytes is the memory freed.
 * Returns false if memory ran out. */
bool logprobs_print(logprobs *logprobs, size_t end, struct evbuffer *out, size_t *bytes);
void logprobs_fini(logprobs *logprobs);

#endif
