/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket, and limits over all connections. */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/actorserve/http/http_inner.h"

enum { BACKLOG = 1024 };

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from,
                      int length, void *ctx) {
  (void)from, (void)length;
  http *h = ctx;
  http_connect(h, fd);
  bool full = h->counts.connections >= h->options.most_connections;
  if (full && !http_close_oldest(h)) evconnlistener_disable(listener); /* until a connection ends */
}

/* Handles errors such as running out of descriptors: closes the connection that has waited longest,
 * or pauses if there is none. */
static void on_accept_error(struct evconnlistener *listener, void *ctx) {
  http *h = ctx;
  const struct timeval soon = {0, 100000};
  if (http_close_oldest(h)) return;
  evconnlistener_disable(listener);
  event_add(h->again, &soon);
}

static void on_again(evutil_socket_t fd, short what, void *ctx) {
  (void)fd, (void)what;
  http *h = ctx;
  if (!h->draining) evconnlistener_enable(h->listener);
}

static sl_status listen_at(http *h, const struct addrinfo *address) {
  unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;
  h->listener = evconnlistener_new_bind(h->base, on_accept, h, flags, BACKLOG, address->ai_addr,
                                        (int)address->ai_addrlen);
  if (!h->listener)
    return sl_fail(SL_E_IO, "--host %s --port %d: cannot listen: %s", h->options.host,
                   h->options.port, strerror(errno));
  evconnlistener_set_error_cb(h->listener, on_accept_error);
  return SL_OK;
}

static sl_status listen_on(http *h) {
  const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM,
                                  .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
  struct addrinfo *found;
  char port[16];
  snprintf(port, sizeof port, "%d", h->options.port);
  int error = getaddrinfo(h->options.host, port, &wanted, &found);
  if (error) return sl_fail(SL_E_USAGE, "--host %s: %s", h->options.host, gai_strerror(error));
  sl_status status = listen_at(h, found);
  freeaddrinfo(found);
  return status;
}

static void make_room(void *h, size_t bytes) { http_make_room(h, NULL, bytes); }

sl_status http_create(struct event_base *base, const http_options *options, http **out) {
  http *h = sli_calloc(1, sizeof *h);
  *h = (http){.options = *options, .base = base};
  h->again = evtimer_new(base, on_again, h);
  budget_set_maker(options->budget, make_room, h);
  sl_status status = listen_on(h);
  if (status) http_destroy(h);
  else *out = h;
  return status;
}

void http_destroy(http *h) {
  if (!h) return;
  while (h->first) {
    h->first->user = NULL;
    http_close(h->first);
  }
  if (h->listener) evconnlistener_free(h->listener);
  event_free(h->again);
  budget_set_maker(h->options.budget, NULL, NULL);
  free(h);
}

int http_port(const http *h) {
  struct sockaddr_storage at;
  socklen_t length = sizeof at;
  getsockname(evconnlistener_get_fd(h->listener), (struct sockaddr *)&at, &length);
  return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                        : ((struct sockaddr_in *)&at)->sin_port);
}

void http_drain(http *h) {
  h->draining = true;
  if (h->listener) evconnlistener_free(h->listener);
  h->listener = NULL;
  for (http_exchange *x = h->first, *next; x; x = next) {
    next = x->next;
    http_close_idle(x);
  }
}

http_counts http_count_all(const http *h) { return h->counts; }
