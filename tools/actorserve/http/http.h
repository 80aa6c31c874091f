/* HTTP/1.1 for the programs of one thread: a server takes connections, hands over requests that have
 * come whole, and sends answers, whole or piece by piece. What is wrong with a request it answers
 * itself. libevent has the sockets; its evhttp is not used (docs/dependencies.md says why). */
#ifndef SLUICE_TOOLS_ACTORSERVE_HTTP_H
#define SLUICE_TOOLS_ACTORSERVE_HTTP_H

#include <event2/buffer.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

typedef struct http http;               /* a server */
typedef struct http_exchange http_exchange; /* a connection, from a request until its answer's end */

typedef struct http_request {
  const char *method, *target; /* target: the path, decoded, without its query */
  const struct http_head *head;
  const char *body; /* with a zero behind it */
  size_t bytes;
} http_request;
/* A field of its head, its name in small letters; NULL: there is none. */
const char *http_request_field(const http_request *request, const char *name);

typedef struct http_options {
  const char *host;
  int port;                    /* 0: any that is free */
  size_t most_connections, most_body_bytes;
  size_t most_unsent_bytes;    /* of an answer that is sent piece by piece: more ends the connection */
  size_t most_held_bytes;      /* of all requests and answers together */
  double head_seconds, body_seconds; /* for a request to come, from its first byte, and for its body */
  double idle_seconds;         /* between requests */
  double stall_seconds;        /* for a client to read anything at all */
  /* The head of a request has come. False: it is answered, and its body is not read. */
  bool (*on_head)(void *ctx, http_exchange *x, const http_request *request);
  /* A request has come. The answer may begin now or later. What the request points to is gone when
   * this returns. */
  void (*on_request)(void *ctx, http_exchange *x, const http_request *request);
  /* The client has hung up before its answer's end: the exchange is no more. */
  void (*on_gone)(void *ctx, void *user);
  /* An answer to a request that is none: JSON, the caller's to free(). */
  char *(*error_body)(void *ctx, int status, const char *text);
  void *ctx;
} http_options;

/* Listens. SL_E_IO names host and port. */
sl_status http_create(struct event_base *base, const http_options *options, http **out);
void http_destroy(http *h); /* ends all connections, without on_gone */
int http_port(const http *h);
/* No connection is taken any more, those that are idle end, others with their answers. */
void http_drain(http *h);

/* Connections are closed, those first that have waited for their client for longest, when more come than there may be; so
 * are those with bodies that do not come, and answers that are not read, when all hold too many bytes. */
typedef struct http_counts {
  size_t connections, held; /* open; bytes of requests and answers */
  uint64_t given_up;        /* closed to make room for others */
} http_counts;
http_counts http_count_all(const http *h);
/* Holds bytes more beside those of connections; false: there is no room. */
bool http_hold(http *h, size_t bytes);
void http_let_go(http *h, size_t bytes);

/* What on_gone gets of this exchange. NULL at first. */
void http_set_user(http_exchange *x, void *user);
/* One more field of the answer's head, before it begins. */
void http_add_field(http_exchange *x, const char *name, const char *value);
/* A whole answer; the exchange is over. Of a request for HEAD its body is not sent. type NULL: there is no body. */
void http_answer(http_exchange *x, int status, const char *type, const char *body, size_t bytes);
/* The same of what a buffer holds, which it takes. */
void http_answer_buffer(http_exchange *x, int status, const char *type, struct evbuffer *body);
/* An answer piece by piece. `probe`: a piece that says nothing, or NULL: a client that has stopped sending gets it, which
 * shows whether it still reads. */
void http_begin(http_exchange *x, int status, const char *type, const char *probe);
/* False: what the client has not read is too much. It is cut off: the exchange is no more, without
 * on_gone. */
bool http_send(http_exchange *x, const char *piece, size_t bytes);
void http_end(http_exchange *x);
/* No end: the connection closes behind what was sent of the answer, if anything. */
void http_break_off(http_exchange *x);

#endif
