/* A request for an answer of the model, from its body until the last of its tokens. */
#ifndef SLUICE_TOOLS_ACTORSERVE_REQUEST_H
#define SLUICE_TOOLS_ACTORSERVE_REQUEST_H

#include <cjson/cJSON.h>
#include <time.h>

#include "tools/actorserve/asked.h"
#include "tools/actorserve/serve.h"
#include "tools/actorserve/told.h"
#include "tools/actorserve/logprobs.h"

/* One of the answers. */
typedef struct choice {
  struct request *of;
  int index;
  uint64_t id;           /* of the engine; 0 before it knows of it */
  bool under_way;        /* until the engine's END */
  told told;
  logprobs *words;          /* the tokens that were not given yet; NULL: not asked for */
  char *text;            /* of an answer that is not streamed */
  size_t bytes, room;
  int64_t tokens;
  const char *finish;    /* why it has ended; NULL: it goes on */
} choice;

/* A text that is to become tokens. */
typedef struct encoding {
  work work;             /* the first of it; its bytes are those of text */
  const codec *codec;
  char *text;            /* NULL: there are tokens */
  bool whole;            /* with what the tokenizer puts around a text */
  sli_token_row out;
  sl_status status;
  char *failure;         /* its text */
} encoding;

typedef struct request {
  serving *serving;
  http_exchange *x;      /* NULL: nobody waits for the answer any more */
  work work;             /* of its body, if that is long; */
  bool reading;          /* until that is read */
  char *body;
  sl_status status;      /* of reading it, with a text; */
  char *failure;
  const char *param;     /* and the field that is wrong; NULL: none */
  char wrong[80];        /* its name */
  bool unknown_model;    /* that is */
  asked asked;           /* its texts are there while it is read */
  stops stops;
  char id[40];
  time_t created;
  uint64_t start_ns, token_ns; /* token_ns: of the last one; 0: none yet */
  encoding *prompts;     /* [nprompts] */
  size_t held, freed;    /* bytes of it in memory, of those that all may hold; that reply.c has freed of them */
  uint64_t salt;
  int nprompts, encoding; /* how many are still at the encoder */
  choice *choices;       /* [nchoices] */
  int nchoices, open, under_way; /* that go on; that the engine has */
  int64_t prompt_tokens, cached_tokens, answer_tokens;
  struct request *next, **link; /* among all of the server */
} request;

/* Takes a body. */
void request_begin(serving *s, http_exchange *x, const http_request *from, bool chat);
/* Its body is read. */
void request_read(request *r);
/* A prompt is tokens now. */
void request_encoded(work *w);
/* A token, or the end of an answer; event->user is the choice. */
void request_event(const sl_session_event *event);
/* The client has left. */
void request_gone(request *r);
/* Ends it, whatever is under way; only where engine and encoder are no more. */
void request_destroy(request *r);

#endif
