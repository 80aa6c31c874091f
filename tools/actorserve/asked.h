/* SPDX-License-Identifier: Apache-2.0 */
/* Request parameters (asked): OpenAI's fields of /v1/completions and /v1/chat/completions,
 * validated. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ASKED_H
#define SLUICE_TOOLS_ACTORSERVE_ASKED_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/allowance.h"
#include "io/chat.h"

enum { ASKED_MOST_STOPS = 16, ASKED_LONGEST_STOP = 1024, ASKED_MOST_CHOICES = 128 };

/* A prompt: a text, or tokens. */
typedef struct asked_prompt {
  const char *text; /* NULL: tokens */
  int32_t *tokens;
  size_t count;
} asked_prompt;

typedef struct asked {
  bool chat;
  const char *model;          /* NULL: not given */
  asked_prompt *prompts;      /* prompts of a completion */
  int nprompts;
  sli_chat_message *messages; /* messages of a chat */
  int nmessages;
  bool stream, usage;         /* usage: send token counts at the end of the stream */
  int64_t n, max_tokens, top_k; /* max_tokens 0: not given */
  double temperature, top_p;
  double seed;                /* a whole number; NAN: not given */
  bool wants_logprobs;
  int64_t top_logprobs;
  int nstop;
  const char *stop[ASKED_MOST_STOPS];
  const char *cache_salt;     /* NULL: not given */
  sli_bounded memory;         /* memory of the texts and arrays above */
} asked;

/* Parses a body. SL_E_USAGE, SL_E_INPUT: the body is wrong; *param is then the field's name, or
 * NULL. SL_E_MEMORY: the allowance does not suffice; it must outlive `out`. Call asked_fini() in
 * any case. */
sl_status asked_read(const char *body, size_t bytes, bool chat, const sli_allowance *allowance, asked *out, const char **param);
/* Frees all texts, and keeps the other values. May be called again. */
void asked_fini(asked *a);

#endif
