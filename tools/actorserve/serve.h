/* SPDX-License-Identifier: Apache-2.0 */
/* The server: state that all requests share. It belongs to the event loop's thread; workers and
 * session have their own threads. */
#ifndef SLUICE_TOOLS_ACTORSERVE_SERVE_H
#define SLUICE_TOOLS_ACTORSERVE_SERVE_H

#include <stdio.h>
#include <string.h>

#include "text/chat.h"
#include "tools/actorserve/adapters.h"
#include "tools/actorserve/answer/answer.h"
#include "tools/actorserve/budget.h"
#include "tools/actorserve/codec.h"
#include "tools/actorserve/engine.h"
#include "tools/actorserve/http/http.h"
#include "tools/actorserve/metrics.h"
#include "tools/actorserve/progress.h"
#include "tools/actorserve/rates.h"
#include "tools/actorserve/worker.h"

struct request;

/* The model's name, tokenizer and chat template. */
typedef struct chat_format {
  const char *name;           /* name of the model */
  const char *const *aliases; /* [naliases] additional names */
  int naliases;
  const char *const *adapters; /* [nadapters] names of adapters that the engine has loaded */
  int nadapters;
  codec codec;
  const sli_chat *chat; /* NULL: no_chat says why */
  const char *no_chat;
  const sli_chat_marks *marks;
  const answer_format *answers; /* syntax of tool calls in its answers; NULL if unknown */
  bool thinks;                  /* its answers may have reasoning in <think> */
  const int32_t *ends;          /* [nends] tokens that end an answer */
  int nends;
} chat_format;

/* Returns whether a name is the model's. */
static inline bool chat_format_is(const chat_format *v, const char *name) {
  bool is = !strcmp(v->name, name);
  for (int i = 0; i < v->naliases; i++) is |= !strcmp(v->aliases[i], name);
  return is;
}

typedef struct serve_options {
  const char *host, *key; /* NULL key: anyone may send requests */
  int port;
  /* pages that may send requests: an origin, "*", "loopback" (pages of this machine), or "off" */
  const char *cors;
  size_t most_held_bytes;  /* limit of all requests and answers together */
  double grace_seconds;    /* time for open requests to end after a signal */
  const char *adapter_dir; /* folder below which clients may load adapters; NULL: none */
  /* seconds without a tick, while work waits, after which the server is unhealthy */
  double stuck_seconds;
  /* Time limits of requests and of clients' reads: see http_options. */
  double head_seconds, body_seconds, idle_seconds, stall_seconds;
  rates *rates;               /* rates to update; NULL if none */
  bool quiet;                 /* suppress the line about activity every ten seconds */
  struct sli_journal *access; /* takes a line per request; NULL: none */
} serve_options;
enum {
  SERVE_HEAD_SECONDS = 20,
  SERVE_BODY_SECONDS = 120,
  SERVE_IDLE_SECONDS = 300,
  SERVE_STALL_SECONDS = 120
};

typedef struct serving {
  const serve_options *options;
  const engine *engine;
  const chat_format *chat_format;
  adapters *adapters;
  struct event_base *base;
  budget *budget; /* memory that clients control */
  struct event *of_engine, *of_reader, *of_encoder, *of_budget;
  worker *reader, *encoder; /* threads for long bodies, and for tokenizing texts */
  http *http;
  struct request *first; /* list of all unfinished requests */
  struct evbuffer *out;  /* buffer for the next output */
  uint64_t secret;       /* secret from which salts are derived */
  uint64_t trimmed_ns;   /* time when memory was last returned to the system */
  uint64_t nonfinite_ns; /* time of the last warning about non-finite logits; 0 if never */
  metrics metrics;
  progress progress;
  uint64_t requests; /* requests so far */
  bool draining;
  uint64_t end_ns; /* while draining: when open requests are cut off; 0: never */
  bool line_lost;  /* a line of the access log could not be written */
  bool busy;       /* requests arrived since memory was last returned */
} serving;

/* Creates a listening server; the arguments must outlive it. SL_E_IO or SL_E_USAGE names host and
 * port. */
sl_status serving_create(const serve_options *options, const engine *e, const chat_format *v,
                         serving **out);
void serving_destroy(serving *s);
/* Serves until SIGINT or SIGTERM, and then until all requests are answered. A second signal ends it
 * at once. */
sl_status serving_run(serving *s);

#endif
