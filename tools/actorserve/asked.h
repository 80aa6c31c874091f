/* What a request asks for: OpenAI's fields of /v1/completions and /v1/chat/completions, checked. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ASKED_H
#define SLUICE_TOOLS_ACTORSERVE_ASKED_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/chat.h"

enum { ASKED_MOST_STOPS = 16, ASKED_LONGEST_STOP = 1024, ASKED_MOST_CHOICES = 128 };

/* Something to go on with: a text, or tokens. */
typedef struct asked_prompt {
  const char *text; /* NULL: tokens */
  int32_t *tokens;
  size_t count;
} asked_prompt;

typedef struct asked {
  bool chat;
  const char *model;          /* NULL: not said */
  asked_prompt *prompts;      /* of a completion */
  int nprompts;
  sli_chat_message *messages; /* of a chat */
  int nmessages;
  char **joined;              /* [nmessages] texts of messages that came in parts, or NULL */
  bool stream, usage;         /* usage: at the end of the stream */
  int64_t n, max_tokens, top_k; /* max_tokens 0: not said */
  double temperature, top_p;
  double seed;                /* a whole number; NAN: not said */
  bool wants_logprobs;
  int64_t top_logprobs;
  int nstop;
  const char *stop[ASKED_MOST_STOPS];
  const char *cache_salt;     /* NULL: not said */
  cJSON *root;                /* whose texts the others are */
} asked;

/* Reads a body. SL_E_USAGE, SL_E_INPUT: what is wrong; *param is the field's name then, or NULL. asked_fini
 * is needed either way. */
sl_status asked_read(const char *body, size_t bytes, bool chat, asked *out, const char **param);
/* Drops all texts, and keeps the rest; may be called again. */
void asked_fini(asked *a);

#endif
