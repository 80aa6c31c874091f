/* What the files of http/ share. */
#ifndef SLUICE_TOOLS_ACTORSERVE_HTTP_INNER_H
#define SLUICE_TOOLS_ACTORSERVE_HTTP_INNER_H

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
  size_t count;              /* of them */
  bool draining;
};

/* A new connection (connection.c). */
void http_connect(http *h, evutil_socket_t fd);
void http_close(http_exchange *x);
/* Ends it if it waits for a request. */
void http_close_idle(http_exchange *x);

/* Answers as bytes (answer.c). */
void http_write_answer(http_exchange *x, int status, const char *type, const char *body, size_t bytes);
void http_write_piece(http_exchange *x, const char *piece, size_t bytes);
void http_write_end(http_exchange *x);

struct http_exchange {
  http *server;
  http_exchange *next, **link; /* among all connections */
  struct bufferevent *stream;
  struct event *deadline;      /* of what it waits for */
  enum { HTTP_IDLE, HTTP_HEAD, HTTP_BODY, HTTP_ANSWER, HTTP_LAST, HTTP_LINGER } state;
  void *user;
  /* The request. */
  char *head_bytes;
  http_head head;
  http_body body;
  char *data;                  /* of the body */
  size_t count, capacity;
  /* The answer. */
  struct evbuffer *fields;
  bool pieces, keep;           /* pieces: they are sent as chunks */
};

#endif
