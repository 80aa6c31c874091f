/* What the files of http/ share. */
#ifndef SLUICE_TOOLS_ACTORSERVE_HTTP_INNER_H
#define SLUICE_TOOLS_ACTORSERVE_HTTP_INNER_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>

#include "tools/actorserve/http/http.h"
#include "tools/actorserve/http/parse.h"

struct http {
  http_options options;
  struct event_base *base;
  struct evconnlistener *listener;
  struct event *again;       /* listens again after descriptors were short */
  struct http_exchange *first; /* of all connections */
  struct http_exchange *oldest, *newest; /* of those that wait for their client, by when that began */
  http_counts counts;
  bool draining;
};

/* A new connection (connection.c). */
void http_connect(http *h, evutil_socket_t fd);
void http_close(http_exchange *x);
/* Ends it if it waits for a request. */
void http_close_idle(http_exchange *x);

/* Closes the connection that has waited for its client for longest; false: there is none but the newest. */
bool http_close_oldest(http *h);
/* Whether so many bytes more can be held; those that have waited for longest give theirs up. */
bool http_make_room(http *h, const http_exchange *for_whom, size_t bytes);

/* room.c: a connection that waits for its client stands in a row. */
void http_stand(http_exchange *x); /* at its end */
void http_step_out(http_exchange *x);
/* Counts what buffers of the exchange hold, and what else it does. */
void http_watch_buffer(http_exchange *x, struct evbuffer *buffer);
void http_count(http_exchange *x, size_t more, size_t less);

/* Answers as bytes (answer.c). Takes what `body` holds. */
void http_write_answer(http_exchange *x, int status, const char *type, struct evbuffer *body);
void http_write_piece(http_exchange *x, const char *piece, size_t bytes);
void http_write_end(http_exchange *x);
/* Something that says nothing, which a client that has gone answers with a reset. */
void http_write_probe(http_exchange *x);

struct http_exchange {
  http *server;
  http_exchange *next, **link;   /* among all connections */
  http_exchange *older, *newer;  /* in the row of those that wait */
  bool stands;                   /* in that */
  struct bufferevent *stream;
  struct event *deadline;        /* of what it waits for */
  /* HTTP_SENDING, HTTP_LAST: until the answer is sent; behind that comes the next request, or the end. */
  enum { HTTP_IDLE, HTTP_HEAD, HTTP_BODY, HTTP_ANSWER, HTTP_SENDING, HTTP_LAST, HTTP_LINGER } state;
  void *user;
  size_t held;                   /* bytes of it in memory */
  bool ended;                    /* the client sends no more, but may read */
  bool broken;                   /* there was no memory for what was written */
  /* The request. */
  char *head_bytes;
  size_t seen;                   /* bytes of a head that is not whole */
  http_head head;
  http_body body;
  char *data;                    /* of the body */
  size_t count, capacity;
  /* The answer. */
  struct evbuffer *fields;
  bool begun, pieces, keep;      /* begun: its head is written; pieces: it is sent as chunks */
  bool bare;                     /* of HEAD: without a body */
  bool probed;
  const char *probe;             /* a piece that says nothing; NULL: there is none */
};

#endif
