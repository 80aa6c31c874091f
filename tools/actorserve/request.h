/* SPDX-License-Identifier: Apache-2.0 */
/* A completion request, from its body until the last of its tokens. */
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

/* A call of a tool in such an answer. */
typedef struct kept_call {
  char id[CALL_ID];
  kept_text name, arguments;
} kept_call;

/* One answer of a request. */
typedef struct choice {
  struct request *of;
  int index;
  uint64_t id;      /* the engine's number; 0 before it has one */
  bool under_way;   /* true until the engine's END event */
  sli_guide *guide; /* NULL: any text may be its answer */
  stream_text streamed;
  logprobs *words;       /* log probabilities of unsent tokens; NULL: not requested */
  answer_parser *parser; /* parser of the text; NULL: all of it is content */
  size_t parsed;         /* memory of the parser that the request holds */
  size_t ready;          /* offset in the text up to which it may be sent */
  kept_text content, reasoning;
  kept_call *calls; /* [ncalls] */
  size_t ncalls, calls_room;
  int64_t tokens; /* tokens of the answer, and the sum of their logarithms of probability */
  double logprob;
  const char *finish;        /* reason that it ended; NULL: it goes on */
  float *embedding;          /* [width] NULL: none is wanted */
  struct response *response; /* items of an answer to /v1/responses; NULL: it is none */
} choice;

/* A text to be tokenized. */
typedef struct encoding {
  work work; /* its first member; `bytes` is the length of text */
  const codec *codec;
  char *text; /* NULL: there are tokens. Kept for answers that begin with it, else until then */
  bool whole; /* add what the tokenizer puts around a text */
  sli_token_row out;
  sl_status status;
  char *failure; /* text of the error */
} encoding;

typedef struct request {
  serving *serving;
  http_exchange *x; /* NULL: nobody waits for the answer any more */
  work work;        /* work of reading a long body */
  bool reading;     /* true until the body is read */
  char *body;
  char *chat;       /* body of /v1/responses as one of a chat, while it is read */
  sl_status status; /* result of reading it */
  char *failure;
  const char *param;               /* the wrong field; NULL: none */
  char wrong[80];                  /* copy of its name */
  bool unknown_model;              /* the wrong field names an unknown model */
  char adapter_name[ADAPTER_NAME]; /* empty: none */
  int adapter;                     /* the engine's number; 0: none */
  request_params params;           /* its texts exist only while it is read */
  stops stops;
  sli_grammar *grammar; /* of its answers; NULL: any texts */
  char id[40];
  time_t created;
  uint64_t start_ns, token_ns; /* token_ns: time of the last token; 0: none yet */
  encoding *prompts;           /* [nprompts] */
  account account;             /* memory that it has */
  sli_allowance allowance;     /* the same, for what it calls */
  size_t freed;                /* bytes that reply.c has freed of it */
  uint64_t salt;
  uint64_t number;            /* number of the request, from which ids are derived */
  bool within;                /* the prompt ends within reasoning */
  bool calls;                 /* calls of tools are looked for */
  answer_functions functions; /* the tools */
  sl_bias *bias;              /* [nbias] */
  int nbias;
  int32_t *ends; /* [nends] tokens that end an answer */
  int nends;
  sli_bounded lasting;           /* memory of the above */
  int nprompts, encoding;        /* encoding: prompts still at the encoder */
  choice *choices;               /* [nchoices] */
  int nchoices, open, under_way; /* open: answers that go on; under_way: the engine has them */
  int shown;                     /* answers that the client gets */
  int64_t prompt_tokens, cached_tokens, answer_tokens;
  struct request *next, **link; /* links of the server's list of requests */
} request;

/* Begins a request: takes its body. */
void request_begin(serving *s, http_exchange *x, const http_request *from, params_kind kind);
/* Continues after the body is read. */
void request_read(request *r);
/* Continues after a prompt is tokenized. */
void request_encoded(work *w);
/* Handles a token, or the end of an answer; event->user is the choice. */
void request_event(const sl_session_event *event);
/* Handles a client that has left. */
void request_gone(request *r);
/* Ends the answers that have grammars: the engine asks for them until their END events. */
void request_end_guided(serving *s);
/* Frees a request in any state; only after engine and encoder are gone. */
void request_destroy(request *r);

#endif
