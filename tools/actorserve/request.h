/* SPDX-License-Identifier: Apache-2.0 */
/* A completion request, from its body to its last token. */
#ifndef SLUICE_TOOLS_ACTORSERVE_REQUEST_H
#define SLUICE_TOOLS_ACTORSERVE_REQUEST_H

#include <cjson/cJSON.h>
#include <time.h>

#include "tools/actorserve/answer/answer.h"
#include "tools/actorserve/request_params.h"
#include "tools/actorserve/serve.h"
#include "tools/actorserve/stream_text.h"
#include "tools/actorserve/logprobs.h"

/* Text of an answer that is not streamed. */
typedef struct kept_text {
  char *text;
  size_t bytes, room;
} kept_text;

enum { CALL_ID = 32 };

/* A tool call in an answer that is not streamed. */
typedef struct kept_call {
  char id[CALL_ID];
  kept_text name, arguments;
} kept_call;

/* One answer of a request. The prompt is scored if it is echoed with log probabilities. */
typedef struct choice {
  struct request *request;
  int index;
  uint64_t id;      /* the engine's number; 0 before there is one */
  bool under_way;   /* true until the engine's END event */
  sli_guide *guide; /* NULL if the answer is unconstrained */
  stream_text streamed;
  stream_text prompt;    /* text of a scored prompt so far */
  bool waits;            /* the scored prompt is not echoed yet */
  logprobs *words;       /* log probabilities of unsent tokens; NULL if not requested */
  answer_parser *parser; /* parser of the text; NULL if all of it is content */
  size_t parsed;         /* memory of the parser, as counted for the request */
  size_t ready;          /* offset in the text up to which it may be sent */
  kept_text content, reasoning;
  kept_call *calls; /* [ncalls] */
  size_t ncalls, calls_room;
  int64_t tokens; /* tokens of the answer, and the sum of their log probabilities */
  double logprob;
  const char *finish;        /* reason for its end; NULL while it continues */
  float *embedding;          /* [width]; NULL if not wanted */
  struct response *response; /* items of an answer to /v1/responses; NULL for other requests */
} choice;

/* A text to be tokenized. */
typedef struct encoding {
  work work; /* first member; `bytes` is the length of text */
  const codec *codec;
  char *text; /* NULL once tokenized, unless answers begin with it */
  bool whole; /* add the special tokens that the tokenizer puts around a text */
  sli_token_row out;
  sl_status status;
  char *failure; /* text of the error */
} encoding;

typedef struct request {
  serving *serving;
  http_exchange *x; /* NULL once nobody waits for the answer */
  uint64_t client;  /* number of the client's address */
  work work;        /* work of reading a long body */
  bool reading;     /* true until the body is read */
  char *body;
  char *chat;       /* body of /v1/responses translated to a chat body, while it is read */
  sl_status status; /* result of reading it */
  char *failure;
  const char *param;               /* the wrong field; NULL if none */
  char wrong[80];                  /* copy of its name */
  bool unknown_model;              /* the wrong field names an unknown model */
  char adapter_name[ADAPTER_NAME]; /* empty if none */
  int adapter;                     /* the engine's number; 0 if none */
  request_params params;           /* texts exist only while it is read */
  stops stops;
  sli_grammar *grammar; /* grammar of its answers; NULL if unconstrained */
  char id[40];
  time_t created;
  uint64_t start_ns, token_ns; /* token_ns: time of the last token; 0 if none yet */
  encoding *prompts;           /* [nprompts] */
  account account;             /* memory that the request holds */
  sli_allowance allowance;     /* the account, for functions it calls */
  size_t freed;                /* bytes that reply.c has freed */
  uint64_t salt;
  uint64_t number;            /* number of the request, from which ids are derived */
  bool within;                /* the prompt ends inside reasoning */
  bool calls;                 /* answers are searched for tool calls */
  answer_functions functions; /* the tools */
  sl_bias *bias;              /* [nbias] */
  int nbias;
  int32_t *ends; /* [nends] tokens that end an answer */
  int nends;
  sli_bounded lasting;           /* memory of the above */
  int nprompts, encoding;        /* encoding: prompts still at the encoder */
  choice *choices;               /* [nchoices] */
  int nchoices, open, under_way; /* open: unfinished answers; under_way: answers in the engine */
  int shown;                     /* number of answers that the client receives */
  int64_t prompt_tokens, cached_tokens, answer_tokens;
  struct request *next, **link; /* links of the server's list of requests */
} request;

/* Begins a request with its body. */
void request_begin(serving *s, http_exchange *x, const http_request *from, params_kind kind);
/* Continues after the body is read. */
void request_read(request *r);
/* Continues after a prompt is tokenized. */
void request_encoded(work *w);
/* Handles a token, or the end of an answer; event->user is the choice. */
void request_event(const sl_session_event *event);
/* Handles the client's disconnection. */
void request_gone(request *r);
/* Ends the answers that have grammars. The engine uses the grammars until the answers' END
 * events. */
void request_end_guided(serving *s);
/* Frees a request in any state. Call it only after engine and encoder are gone. */
void request_destroy(request *r);

#endif
