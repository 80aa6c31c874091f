/* SPDX-License-Identifier: Apache-2.0 */
/* Request parameters: OpenAI's fields of /v1/completions and /v1/chat/completions,
 * validated. */
#ifndef SLUICE_TOOLS_ACTORSERVE_REQUEST_PARAMS_H
#define SLUICE_TOOLS_ACTORSERVE_REQUEST_PARAMS_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/allowance.h"
#include "text/chat.h"

enum {
  PARAMS_MOST_STOPS = 16,
  PARAMS_LONGEST_STOP = 1024,
  PARAMS_MOST_CHOICES = 128,
  PARAMS_MOST_STOP_TOKENS = 64,
  PARAMS_MOST_BIASES = 512
};

/* Kinds of bodies: for /v1/completions, /v1/chat/completions, /v1/responses, /v1/embeddings,
 * /v1/rerank and /v1/score; and for requests that do not use the model. */
typedef enum params_kind {
  PARAMS_TEXTS,
  PARAMS_CHAT,
  PARAMS_RESPONSES,
  PARAMS_MESSAGES,
  PARAMS_EMBED,
  PARAMS_RERANK,
  PARAMS_SCORE,
  PARAMS_TOKENIZE,
  PARAMS_DETOKENIZE,
  PARAMS_COUNT, /* counts the tokens of a body of /v1/messages */
  PARAMS_LOAD,
  PARAMS_UNLOAD
} params_kind;

/* Returns whether a body asks for embeddings. */
static inline bool params_embeds(params_kind kind) {
  return kind == PARAMS_EMBED || kind == PARAMS_RERANK || kind == PARAMS_SCORE;
}

/* A prompt: text or tokens. */
typedef struct params_prompt {
  const char *text; /* NULL for tokens */
  int32_t *tokens;
  size_t count;
} params_prompt;

/* Constraint on an answer. */
typedef enum params_guided {
  GUIDED_BY_NOTHING,
  GUIDED_BY_REGEX,   /* a text that the regular expression matches as a whole */
  GUIDED_BY_CHOICE,  /* one of several texts */
  GUIDED_BY_OBJECT,  /* any JSON object */
  GUIDED_BY_GRAMMAR, /* a text of a grammar in llama.cpp's notation */
  GUIDED_BY_SCHEMA   /* JSON that a schema accepts */
} params_guided;

/* How tokens are drawn. */
typedef struct params_sampling {
  int64_t top_k;
  double temperature, top_p, min_p;
  double presence_penalty, frequency_penalty, repetition_penalty; /* repetition_penalty 1: none */
  const cJSON *logit_bias; /* an object of numbers, with tokens as names; NULL if none */
  double seed;             /* a whole number; NAN if not given */
} params_sampling;

/* Where an answer ends. */
typedef struct params_end {
  int64_t max_tokens; /* 0 if not given */
  int64_t min_tokens;
  bool ignore_eos; /* the model's end tokens do not end an answer */
  int ntokens;
  int32_t tokens[PARAMS_MOST_STOP_TOKENS]; /* additional tokens that end an answer */
  int nstop;
  const char *stop[PARAMS_MOST_STOPS];
} params_end;

typedef struct request_params {
  params_kind kind;
  bool chat;              /* the body has messages instead of prompts */
  const char *model;      /* NULL if not given */
  const char *cache_salt; /* NULL if not given */
  params_prompt *prompts; /* prompts of a completion */
  int nprompts;
  int nmessages;            /* messages of a chat */
  sli_chat_json chat_texts; /* the chat as input of its template: parts of the body */
  size_t content_bytes;     /* bytes of the messages' contents */
  struct {
    const cJSON *list; /* the tools, checked; NULL if none */
    bool none;         /* the template gets no tools */
    bool must_call;    /* the answer must consist of tool calls */
    const char *only;  /* the function to call; NULL: any of them */
    bool one_call;     /* an answer has at most one tool call */
  } tools;
  struct {
    int64_t n, best_of; /* best_of: 0 if not given */
    bool none;          /* max_tokens is 0: only the prompt is wanted */
    bool echo;          /* an answer begins with its prompt */
    bool stream, usage; /* usage: send token counts at the end of the stream */
    bool wants_logprobs;
    int64_t top_logprobs;
  } answers;
  params_sampling sampling;
  params_end end;
  struct {
    params_guided kind;
    const char *field;  /* the field that sets the constraint */
    const cJSON *value; /* expression, choices or schema */
  } guided;
  struct {
    const char *name, *path; /* an adapter to load or unload */
  } adapter;
  struct {
    int64_t dimensions; /* 0 if not given */
    bool base64;        /* sent as base64 */
  } embedding;
  struct {
    const cJSON *first, *second; /* texts to compare: one, or an array */
    int nfirst;                  /* number of prompts from the first */
    int64_t top_n;               /* 0 if not given */
    bool returns_documents;
  } compared;
  struct {
    bool no_special, wants_texts; /* add no special tokens; return texts of tokens */
  } tokenize;
  sli_bounded memory; /* memory of the texts and arrays above */
} request_params;

/* Parses a body, which must outlive `out`, as must the allowance. SL_E_USAGE, SL_E_INPUT: the body
 * is wrong; *param is then the field's name, or NULL. SL_E_MEMORY: the allowance does not suffice.
 * Call request_params_fini() in any case. */
sl_status request_params_read(const char *body, size_t bytes, params_kind kind,
                              const sli_allowance *allowance, request_params *out,
                              const char **param);
/* Frees all texts, and keeps the other values. May be called repeatedly. */
void request_params_fini(request_params *params);

#endif
