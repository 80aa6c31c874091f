/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets of a process: opening, binding and connecting. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/control/control_inner.h"

enum { LINGER_MS = 500 };

static void set(void *socket, int option, int value) {
  SLI_CHECK(!zmq_setsockopt(socket, option, &value, sizeof value),
            "libzmq does not support option %d: %s", option, zmq_strerror(zmq_errno()));
}

static void *open_socket(sli_control *c, int type) {
  void *socket = zmq_socket(c->sockets.context, type);
  SLI_CHECK(socket, "cannot create a socket for the control plane: %s", zmq_strerror(zmq_errno()));
  int64_t most = SLI_FRAME_MAX_BYTES;
  zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof most);
  set(socket, ZMQ_LINGER, LINGER_MS);
  set(socket, ZMQ_IPV6, 1);
  /* Messages that a slow process does not read remain queued at the sender. */
  set(socket, ZMQ_SNDHWM, 0);
  set(socket, ZMQ_RCVHWM, 256);
  set(socket, ZMQ_HANDSHAKE_IVL, 5000);
  if (type == ZMQ_ROUTER) {
    sli_auth_set_server(&c->auth, socket);
    set(socket, ZMQ_ROUTER_MANDATORY, 1);
  } else {
    sli_auth_set_client(&c->auth, socket);
    set(socket, ZMQ_RECONNECT_IVL, 20);
    set(socket, ZMQ_RECONNECT_IVL_MAX, 250);
    set(socket, ZMQ_CONNECT_TIMEOUT, 2000);
  }
  return socket;
}

static void *open_watch(sli_control *c, void *socket, const char *name, int events) {
  int none = 0;
  void *watch = zmq_socket(c->sockets.context, ZMQ_PAIR);
  SLI_CHECK(watch && !zmq_socket_monitor(socket, name, events) && !zmq_connect(watch, name),
            "cannot monitor a socket: %s", zmq_strerror(zmq_errno()));
  zmq_setsockopt(watch, ZMQ_LINGER, &none, sizeof none);
  return watch;
}

/* Binds the endpoint. An address is bound as given. A name may resolve differently elsewhere, so
 * all addresses are bound; localhost is loopback everywhere. */
static sl_status bind_hub(sli_control *c) {
  if (!sli_listener_open(&c->sockets.hub_listener, c->sockets.hub, c->hub.host, &c->hub.port,
                         c->nprocesses, c->options.strangers))
    return sl_fail(SL_E_IO, "process 0 cannot listen at %s: %s", c->hub.endpoint,
                   zmq_strerror(errno));
  sli_endpoint_write(c->hub.endpoint, "", strcmp(c->hub.host, "*") ? c->hub.host : c->host,
                     c->hub.port);
  return SL_OK;
}

sl_status sli_sockets_bind(sli_control *c) {
  c->sockets.context = zmq_ctx_new();
  SLI_CHECK(c->sockets.context, "cannot start libzmq: %s", zmq_strerror(zmq_errno()));
  zmq_ctx_set(c->sockets.context, ZMQ_MAX_SOCKETS, c->nprocesses + 64);
  c->sockets.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  c->sockets.zap = sli_auth_open_zap(c->sockets.context);
  if (c->sockets.wake_fd < 0 || !c->sockets.zap)
    return sl_fail(SL_E_IO, "the control plane cannot start: too many open files?");
  if (!sli_is_hub(c)) return SL_OK;
  c->sockets.hub = open_socket(c, ZMQ_ROUTER);
  c->sockets.hub_watch = open_watch(c, c->sockets.hub, "inproc://watch.hub",
                                    ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED);
  return bind_hub(c);
}

static void connect_to(sli_control *c, sli_line *line, const char *host, int port) {
  char text[SLI_ENDPOINT_CHARS];
  if (zmq_connect(line->socket, sli_endpoint_write(text, "tcp://", host, port)))
    sli_blame(c, SL_E_PEER, c->self, "cannot connect to %s: %s", text, zmq_strerror(zmq_errno()));
}

/* Binds the socket for direct links, at the local address on the route to process 0. A loopback
 * address means that both processes are on one host, which other processes know by the endpoint's
 * name. */
static void bind_direct(sli_control *c, const char *here) {
  bool beside = sli_host_is_loopback(here) && !sli_host_is_loopback(c->hub.host);
  char text[SLI_ENDPOINT_CHARS];
  int port = 0;
  c->sockets.direct = open_socket(c, ZMQ_ROUTER);
  c->sockets.direct_watch = open_watch(c, c->sockets.direct, "inproc://watch.direct",
                                       ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED);
  snprintf(c->sockets.here, sizeof c->sockets.here, "%s", beside ? "*" : here);
  if (!sli_listener_open(&c->sockets.direct_listener, c->sockets.direct, c->sockets.here, &port,
                         c->nprocesses, c->options.strangers)) {
    snprintf(text, sizeof text, "process %d on host %s cannot listen at %s: %s", c->self, c->host,
             here, zmq_strerror(errno));
    sli_end(c, SL_E_IO, c->self, text);
    return;
  }
  sli_endpoint_write(text, "", beside ? "" : here, port);
  snprintf(c->peers[c->self].direct, SLI_FRAME_DIRECT_CHARS, "%.*s", SLI_FRAME_DIRECT_CHARS - 1,
           text);
}

/* Connects to process 0. Its name may resolve only once its host is up; the caller retries. */
void sli_sockets_connect(sli_control *c) {
  char here[SLI_IP_CHARS];
  if (!sli_host_route(c->hub.host, c->hub.port, c->hub.ip, here)) {
    c->hub.ip[0] = 0;
    return;
  }
  bind_direct(c, here);
  c->sockets.hub = c->peers[0].hub.socket = open_socket(c, ZMQ_DEALER);
  c->sockets.hub_watch =
      open_watch(c, c->sockets.hub, "inproc://watch.hub",
                 ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED);
  connect_to(c, &c->peers[0].hub, c->hub.ip, c->hub.port);
}

static void connect_direct(sli_control *c, int process) {
  sli_peer *peer = &c->peers[process];
  const char *colon = strrchr(peer->direct, ':');
  char host[SLI_HOST_CHARS];
  int port;
  peer->out.socket = open_socket(c, ZMQ_DEALER);
  /* The round trip to process 0 indicates how long a connection may take. Quick retries get through
   * when unauthenticated clients keep the listener busy. */
  set(peer->out.socket, ZMQ_CONNECT_TIMEOUT, 200 + (int)(8 * c->peers[0].hub.error_ns / 1000000));
  set(peer->out.socket, ZMQ_RECONNECT_IVL_MAX, 0);
  peer->out.opened_ns = sli_now_ns();
  c->outs[c->nouts++] = process;
  if (colon == peer->direct) connect_to(c, &peer->out, c->hub.ip, atoi(colon + 1));
  else if (sli_endpoint_parse(peer->direct, host, &port) == SL_OK)
    connect_to(c, &peer->out, host, port);
  else sli_blame(c, SL_E_PEER, process, "process %d has no address: \"%s\"", process, peer->direct);
}

/* Opens a direct link, unless process 0 is an end: that line already exists. */
void sli_sockets_watch(sli_control *c, int process) {
  sli_peer *peer = &c->peers[process];
  if (peer->left || peer->out.socket || sli_is_hub(c) || process == 0) return;
  connect_direct(c, process);
  sli_clock_ask(c, &peer->out);
}

static void close_socket(void **socket) {
  if (*socket) zmq_close(*socket);
  *socket = NULL;
}

static void close_watch(void *socket, void **watch) {
  if (socket && *watch) zmq_socket_monitor(socket, NULL, 0);
  close_socket(watch);
}

void sli_sockets_close(sli_control *c) {
  close_watch(c->sockets.hub, &c->sockets.hub_watch);
  close_watch(c->sockets.direct, &c->sockets.direct_watch);
  for (int i = 0; i < c->nouts; i++) close_socket(&c->peers[c->outs[i]].out.socket);
  close_socket(&c->sockets.hub);
  close_socket(&c->sockets.direct);
  close_socket(&c->sockets.zap);
  sli_listener_close(&c->sockets.hub_listener);
  sli_listener_close(&c->sockets.direct_listener);
}
