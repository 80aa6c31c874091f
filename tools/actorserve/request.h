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

/* Reading and checking of a body. */
typedef struct reading {
  work work; /* work of reading a long body */
  bool busy; /* true until the body is read */
  char *body;
  char *chat;       /* body of /v1/responses translated to a chat body, while it is read */
  sl_status status; /* result of reading it */
  char *failure;
  const char *param;  /* the wrong field; NULL if none */
  char wrong[80];     /* copy of its name */
  bool unknown_model; /* the wrong field names an unknown model */
} reading;

/* Limits on the answers of a request. */
typedef struct answer_limits {
  stops stops;
  sli_grammar *grammar; /* NULL if unconstrained */
  sl_bias *bias;        /* [nbias] */
  int nbias;
  int32_t *ends; /* [nends] tokens that end an answer */
  int nends;
} answer_limits;

typedef struct request {
  serving *serving;
  http_exchange *x; /* NULL once nobody waits for the answer */
  uint64_t client;  /* number of the client's address */
  reading reading;
  request_params params; /* texts exist only while it is read */
  struct {
    char name[ADAPTER_NAME]; /* empty if none */
    int number;              /* the engine's; 0 if none */
  } adapter;
  char id[40];
  uint64_t number; /* number of the request, from which ids are derived */
  uint64_t salt;
  struct {
    time_t created;
    uint64_t start_ns, token_ns; /* token_ns: time of the last token; 0 if none yet */
  } times;
  struct {
    encoding *items;     /* [count] */
    int count, encoding; /* encoding: prompts still at the encoder */
  } prompts;
  answer_limits limits;
  /* Parts of an answer's text. */
  struct {
    bool within;                /* the prompt ends inside reasoning */
    bool calls;                 /* answers are searched for tool calls */
    answer_functions functions; /* the tools */
  } parts;
  struct {
    choice *items;            /* [count] */
    int count, open, running; /* open: unfinished answers; running: answers in the engine */
    int shown;                /* number of answers that the client receives */
  } answers;
  struct {
    int64_t prompt, cached, answer; /* tokens */
  } used;
  struct {
    account account;         /* memory that the request holds */
    sli_allowance allowance; /* the account, for functions it calls */
    size_t freed;            /* bytes that reply.c has freed */
    sli_bounded lasting;     /* memory of prompts, limits and parts */
  } memory;
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
