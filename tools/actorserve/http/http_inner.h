/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of the files of http/. */
#ifndef SLUICE_TOOLS_ACTORSERVE_HTTP_HTTP_INNER_H
#define SLUICE_TOOLS_ACTORSERVE_HTTP_HTTP_INNER_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>

#include "tools/actorserve/http/http.h"
#include "tools/actorserve/http/parse.h"

struct http {
  http_options options;
  struct event_base *base;
  struct evconnlistener *listener;
  struct event *again;         /* resumes listening after descriptors ran out */
  struct http_exchange *first; /* list of all connections */
  /* list of connections that wait for their client, in the order in which their waits began */
  struct http_exchange *oldest, *newest;
  http_counts counts;
  bool draining;
};

/* Creates a connection (connection.c). */
void http_connect(http *h, evutil_socket_t fd);
void http_close(http_exchange *x);
/* Closes a connection that waits for a request. */
void http_close_idle(http_exchange *x);

/* Closes the connection that has waited longest for its client. Returns false if only the newest is
 * left. */
bool http_close_oldest(http *h);
/* Makes room for `bytes` bytes by closing the connections that have waited longest. Returns false
 * if that fails. */
bool http_make_room(http *h, const http_exchange *for_whom, size_t bytes);

/* Memory of an idle connection, including libevent's part. */
enum { HTTP_CONNECTION_BYTES = 4096 };

/* room.c: adds a connection that waits for its client to the waiting list. */
void http_stand(http_exchange *x); /* at the end */
void http_step_out(http_exchange *x);
/* Counts the bytes of a buffer of the exchange. */
void http_watch_buffer(http_exchange *x, struct evbuffer *buffer);
void http_count(http_exchange *x, size_t more, size_t less);

/* Serializes an answer (answer.c). Drains `body`. */
void http_write_answer(http_exchange *x, int status, const char *type, struct evbuffer *body);
void http_write_piece(http_exchange *x, const char *piece, size_t bytes);
void http_write_end(http_exchange *x);
/* Writes data without meaning. A client that is gone responds with a reset. */
void http_write_probe(http_exchange *x);

struct http_exchange {
  http *server;
  http_exchange *next, **link;  /* links of the list of all connections */
  http_exchange *older, *newer; /* links of the waiting list */
  bool stands;                  /* true while in the waiting list */
  struct bufferevent *stream;
  struct event *deadline; /* deadline of the current wait */
  /* State. In HTTP_SENDING and HTTP_LAST the answer is being sent; afterwards comes the next
   * request, or the end. */
  enum { HTTP_IDLE, HTTP_HEAD, HTTP_BODY, HTTP_ANSWER, HTTP_SENDING, HTTP_LAST, HTTP_LINGER } state;
  void *user;
  size_t held; /* bytes held besides the exchange itself */
  bool ended;  /* the client sends no more, but may still read */
  bool broken; /* memory for output ran out */
  /* The request. */
  char *head_bytes;
  size_t head_count; /* bytes of the head */
  size_t seen;       /* bytes of an incomplete head */
  http_head head;
  http_body body;
  char *data; /* the body */
  size_t count, capacity;
  /* For http_options.on_done. begin_ns is 0 without a request. */
  uint64_t begin_ns;
  char method[16], target[200];
  /* The answer. */
  int status; /* 0 if it has not begun */
  struct evbuffer *fields;
  /* begun: the head is written; pieces: the answer is sent as chunks */
  bool begun, pieces, keep;
  bool bare; /* an answer to HEAD: without a body */
  bool probed;
  const char *probe; /* a piece without meaning; NULL if none */
};

#endif
