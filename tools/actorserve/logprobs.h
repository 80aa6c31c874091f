/* Tokens of an answer with their probabilities, as OpenAI's JSON, until they are given. */
#ifndef SLUICE_TOOLS_ACTORSERVE_LOGPROBS_H
#define SLUICE_TOOLS_ACTORSERVE_LOGPROBS_H

#include <event2/buffer.h>

#include <sluice/session.h>

#include "tools/actorserve/told.h"

enum { LOGPROB_TEXTS = 3 };

typedef struct logprobs {
  bool chat;          /* as chats have them: an object for each token; else a row for each field */
  bool top;           /* the likeliest are told */
  size_t count, capacity;
  struct logprob_word {
    size_t place;     /* where in the text it begins */
    char *text[LOGPROB_TEXTS]; /* JSON: the object; or token, logarithm of its probability, and the likeliest */
  } *of;
} logprobs;

/* Adds the event's token, which comes next; *bytes is what it takes. */
void logprobs_add(logprobs *w, const told *behind, const sl_session_event *event, size_t *bytes);
/* Prints those that begin before `end` as a value, or null, and drops them; returns the bytes that they took. False: there
 * was no memory for it. */
bool logprobs_print(logprobs *w, size_t end, struct evbuffer *out, size_t *bytes);
void logprobs_fini(logprobs *w);

#endif
