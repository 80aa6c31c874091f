/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 server for single-threaded programs. It accepts connections, delivers complete
 * requests, and sends answers, whole or piece by piece. It answers invalid requests itself.
 * libevent handles the sockets; its evhttp is not used (docs/dependencies.md says why). */
#ifndef SLUICE_TOOLS_ACTORSERVE_HTTP_HTTP_H
#define SLUICE_TOOLS_ACTORSERVE_HTTP_HTTP_H

#include <event2/buffer.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

#include "tools/actorserve/budget.h"

typedef struct http http; /* a server */
/* a connection, from a request until the end of its answer */
typedef struct http_exchange http_exchange;

typedef struct http_request {
  const char *method, *target; /* target: the decoded path, without its query */
  const struct http_head *head;
  const char *body; /* zero-terminated */
  size_t bytes;
} http_request;
/* Returns a header field by its lowercase name, or NULL if it is absent. */
const char *http_request_field(const http_request *request, const char *name);

/* A finished request. */
typedef struct http_done {
  const char *client;          /* the client's address */
  const char *method, *target; /* "-" if they could not be parsed */
  int status;                  /* 0: the client left before an answer began */
  double seconds;              /* from its head to the end of the answer */
} http_done;

typedef struct http_options {
  const char *host;
  int port; /* 0: any free port */
  size_t most_connections, most_body_bytes;
  /* limit of unsent data of an answer in pieces: beyond it the connection ends */
  size_t most_unsent_bytes;
  budget *budget; /* the memory of all requests and answers */
  /* time for a request's head, from its first byte, and for its body */
  double head_seconds, body_seconds;
  double idle_seconds;  /* time between requests */
  double stall_seconds; /* time for a client to read anything at all */
  /* Called when a request's head has arrived. Returns false if the callback has answered; the body
   * is then not read. */
  bool (*on_head)(void *ctx, http_exchange *x, const http_request *request);
  /* Called when a request is complete. The answer may begin now or later. The request's pointers
   * are valid only until this returns. */
  void (*on_request)(void *ctx, http_exchange *x, const http_request *request);
  /* Called when the client hangs up before the end of its answer. The exchange no longer exists. */
  void (*on_gone)(void *ctx, void *user);
  /* Called when a request is answered, refused, or abandoned by its client; may be NULL. */
  void (*on_done)(void *ctx, const http_done *done);
  /* Returns the body of an answer to an invalid request: JSON, which the server frees. */
  char *(*error_body)(void *ctx, int status, const char *text);
  void *ctx;
} http_options;

/* Creates a listening server. SL_E_IO names host and port. */
sl_status http_create(struct event_base *base, const http_options *options, http **out);
void http_destroy(http *h); /* ends all connections without calling on_gone */
int http_port(const http *h);
/* Stops accepting connections. Idle connections end at once, others after their answers. */
void http_drain(http *h);

/* Counters. If there are too many connections, those that have waited longest for their client are
 * closed. If the budget is used up, connections with unfinished bodies or unread answers are closed
 * too. */
typedef struct http_counts {
  size_t connections; /* open connections */
  uint64_t given_up;  /* closed to make room for others */
} http_counts;
http_counts http_count_all(const http *h);

/* Returns a number for the client's address; IPv6 clients have one for their network. */
uint64_t http_client(const http_exchange *x);
/* Sets the argument that on_gone gets for this exchange; initially NULL. */
void http_set_user(http_exchange *x, void *user);
/* Adds a header field to the answer, before it begins. */
void http_add_field(http_exchange *x, const char *name, const char *value);
/* Sends a whole answer, which ends the exchange. An answer to HEAD is sent without its body. A NULL
 * type means no body. */
void http_answer(http_exchange *x, int status, const char *type, const char *body, size_t bytes);
/* Sends the contents of a buffer, which it drains. */
void http_answer_buffer(http_exchange *x, int status, const char *type, struct evbuffer *body);
/* Begins an answer piece by piece. `probe` is a piece without meaning, or NULL. It is sent to a
 * client that has stopped sending, to find out whether it still reads. */
void http_begin(http_exchange *x, int status, const char *type, const char *probe);
/* Sends a piece. Returns false if the client has too much unread data and is cut off. The exchange
 * then no longer exists, and on_gone is not called. */
bool http_send(http_exchange *x, const char *piece, size_t bytes);
void http_end(http_exchange *x);
/* Closes the connection after the data sent so far, without ending the answer. */
void http_break_off(http_exchange *x);

#endif
