/* The server: what all requests share. Everything here is of one thread, that of the event loop; the
 * its workers and the session have theirs. */
#ifndef SLUICE_TOOLS_ACTORSERVE_SERVE_H
#define SLUICE_TOOLS_ACTORSERVE_SERVE_H

#include "io/chat.h"
#include "tools/actorserve/codec.h"
#include "tools/actorserve/engine.h"
#include "tools/actorserve/http/http.h"
#include "tools/actorserve/metrics.h"
#include "tools/actorserve/rates.h"
#include "tools/actorserve/worker.h"

struct request;

/* What the model is called, and how it talks. */
typedef struct voice {
  const char *name;       /* of the model */
  codec codec;
  const sli_chat *chat;   /* NULL: no_chat says why */
  const char *no_chat;
  sli_chat_marks marks;
  const int32_t *ends;    /* [nends] tokens that end an answer */
  int nends;
} voice;

typedef struct serve_options {
  const char *host, *key; /* key NULL: anybody may ask */
  int port;
  const char *cors;       /* whose pages may ask: an origin, "*", "loopback": those of this machine, or "off" */
  size_t most_held_bytes; /* of all requests and answers together */
  double stuck_seconds;   /* without a tick, while work waits: the server is not healthy */
  /* For requests to come, and for clients to read: see http_options. */
  double head_seconds, body_seconds, idle_seconds, stall_seconds;
  rates *rates;           /* that get samples; NULL: none do */
} serve_options;
enum { SERVE_HEAD_SECONDS = 20, SERVE_BODY_SECONDS = 120, SERVE_IDLE_SECONDS = 300, SERVE_STALL_SECONDS = 120 };

typedef struct serving {
  const serve_options *options;
  const engine *engine;
  const voice *voice;
  struct event_base *base;
  struct event *of_engine, *of_reader, *of_encoder;
  worker *reader, *encoder; /* of long bodies; of texts, which become tokens */
  http *http;
  struct request *first;  /* of all requests that are not over */
  struct evbuffer *out;   /* for what is sent next */
  uint64_t secret;        /* of salts */
  size_t held_most;       /* since memory was last given back, */
  uint64_t trimmed_ns;    /* and when that was */
  uint64_t nonfinite_ns;  /* when it was last said that logits are not finite; 0: never */
  metrics metrics;
  uint64_t requests;      /* so far */
  bool draining;
  bool busy;              /* has had requests since memory was last given back */
} serving;

/* Listens; the arguments outlive it. SL_E_IO, SL_E_USAGE name host and port. */
sl_status serving_create(const serve_options *options, const engine *e, const voice *v, serving **out);
void serving_destroy(serving *s);
/* Answers until it is told to end by SIGINT or SIGTERM, and all requests are answered; a second signal
 * does not wait for them. */
sl_status serving_run(serving *s);

#endif
