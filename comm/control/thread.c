/* The control thread: the only one that touches sockets. It sleeps in zmq_poll,
 * which looks at ZMQ_EVENTS itself before it believes a quiet ZMQ_FD (those are
 * edge-triggered), until a frame comes, another thread writes to the eventfd, or
 * a timer is due. Each turn: take what came, send what waits, look at the clock. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/control/inner.h"

enum {
  LINGER_MS = 500,
  HELLO_MS = 250,
  RESOLVE_MS = 500,
  PROBE_MS = 50,       /* between looks for closed connections */
  PROBE_FOR_MS = 200,  /* after one was closed */
  HUB_GRACE_MS = 100,  /* for what process 0 said before it closed */
  EVENTS_AT_ONCE = 256,
};

static uint64_t ms(int64_t count) { return (uint64_t)count * 1000000; }

/* ---- sockets ------------------------------------------------------------------ */

static void set(void *socket, int option, int value) {
  SLI_CHECK(!zmq_setsockopt(socket, option, &value, sizeof value), "libzmq has no option %d: %s",
            option, zmq_strerror(zmq_errno()));
}

static void *open_socket(sli_control *c, int type) {
  void *socket = zmq_socket(c->context, type);
  SLI_CHECK(socket, "no socket for the control plane: %s", zmq_strerror(zmq_errno()));
  int64_t most = SLI_FRAME_MAX_BYTES;
  zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof most);
  set(socket, ZMQ_LINGER, LINGER_MS);
  set(socket, ZMQ_IPV6, 1);
  /* The quotas of registers bound what is under way, so nothing waits for long;
   * what a slow process does not read stays with the sender. */
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
  void *watch = zmq_socket(c->context, ZMQ_PAIR);
  SLI_CHECK(watch && !zmq_socket_monitor(socket, name, events) && !zmq_connect(watch, name),
            "a socket cannot be watched: %s", zmq_strerror(zmq_errno()));
  zmq_setsockopt(watch, ZMQ_LINGER, &none, sizeof none);
  return watch;
}

/* An address is bound as it is. A name may mean one address here and another
 * elsewhere, so it binds all; localhost means here everywhere. */
static sl_status bind_hub(sli_control *c) {
  if (!sli_listener_open(&c->hub_listener, c->hub, c->hub_host, &c->hub_port, c->nprocesses,
                         c->strangers))
    return sl_fail(SL_E_IO, "process 0 cannot listen at %s: %s", c->endpoint,
                   zmq_strerror(errno));
  sli_endpoint_write(c->endpoint, "", strcmp(c->hub_host, "*") ? c->hub_host : c->host,
                     c->hub_port);
  return SL_OK;
}

sl_status sli_control_bind(sli_control *c) {
  c->context = zmq_ctx_new();
  SLI_CHECK(c->context, "libzmq does not start: %s", zmq_strerror(zmq_errno()));
  zmq_ctx_set(c->context, ZMQ_MAX_SOCKETS, c->nprocesses + 64);
  c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  c->door = sli_auth_open_door(c->context);
  if (c->wake_fd < 0 || !c->door)
    return sl_fail(SL_E_IO, "the control plane cannot start: too many open files?");
  if (!sli_is_hub(c)) return SL_OK;
  c->hub = open_socket(c, ZMQ_ROUTER);
  c->hub_watch = open_watch(c, c->hub, "inproc://watch.hub",
                            ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED);
  return bind_hub(c);
}

static void connect_to(sli_control *c, sli_way *way, const char *host, int port) {
  char text[SLI_ENDPOINT_CHARS];
  if (zmq_connect(way->socket, sli_endpoint_write(text, "tcp://", host, port)))
    sli_blame(c, SL_E_PEER, c->self, "cannot connect to %s: %s", text, zmq_strerror(zmq_errno()));
}

/* Where others reach us directly: the address by which we reach process 0. If it
 * is a loopback address, we are on its host; others know that one by its name. */
static void bind_direct(sli_control *c, const char *here) {
  bool beside = sli_host_is_loopback(here) && !sli_host_is_loopback(c->hub_host);
  char text[SLI_ENDPOINT_CHARS];
  int port = 0;
  c->direct = open_socket(c, ZMQ_ROUTER);
  c->direct_watch = open_watch(c, c->direct, "inproc://watch.direct",
                               ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED);
  snprintf(c->here, sizeof c->here, "%s", beside ? "*" : here);
  if (!sli_listener_open(&c->direct_listener, c->direct, c->here, &port, c->nprocesses,
                         c->strangers)) {
    snprintf(text, sizeof text, "process %d on host %s cannot listen at %s: %s", c->self, c->host,
             here, zmq_strerror(errno));
    sli_end(c, SL_E_IO, c->self, text);
    return;
  }
  sli_endpoint_write(text, "", beside ? "" : here, port);
  snprintf(c->peers[c->self].direct, SLI_FRAME_DIRECT_CHARS, "%.*s", SLI_FRAME_DIRECT_CHARS - 1,
           text);
}

/* The name of process 0 may be known only when its host is up. */
static void connect_hub(sli_control *c) {
  char here[SLI_IP_CHARS];
  if (!sli_host_route(c->hub_host, c->hub_port, c->hub_ip, here)) {
    c->hub_ip[0] = 0;
    return;
  }
  bind_direct(c, here);
  c->hub = c->peers[0].hub.socket = open_socket(c, ZMQ_DEALER);
  c->hub_watch = open_watch(c, c->hub, "inproc://watch.hub",
                            ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                                ZMQ_EVENT_DISCONNECTED);
  connect_to(c, &c->peers[0].hub, c->hub_ip, c->hub_port);
}

static void connect_direct(sli_control *c, int process) {
  sli_peer *peer = &c->peers[process];
  const char *colon = strrchr(peer->direct, ':');
  char host[SLI_HOST_CHARS];
  int port;
  peer->out.socket = open_socket(c, ZMQ_DEALER);
  /* The way to process 0 tells how long a connection may take, and to try again
   * soon gets through a door that strangers keep busy. */
  set(peer->out.socket, ZMQ_CONNECT_TIMEOUT,
      200 + (int)(8 * c->peers[0].hub.error_ns / 1000000));
  set(peer->out.socket, ZMQ_RECONNECT_IVL_MAX, 0);
  peer->out.opened_ns = sli_now_ns();
  c->outs[c->nouts++] = process;
  if (colon == peer->direct) connect_to(c, &peer->out, c->hub_ip, atoi(colon + 1));
  else if (sli_endpoint_parse(peer->direct, host, &port) == SL_OK)
    connect_to(c, &peer->out, host, port);
  else
    sli_blame(c, SL_E_PEER, process, "process %d has no address: \"%s\"", process, peer->direct);
}

sli_way *sli_way_to(sli_control *c, int process) {
  sli_peer *peer = &c->peers[process];
  if (peer->left) return NULL;
  if (sli_is_hub(c) || process == 0) return &peer->hub;
  if (!peer->out.socket) connect_direct(c, process);
  return &peer->out;
}

static void close_socket(void **socket) {
  if (*socket) zmq_close(*socket);
  *socket = NULL;
}

static void close_watch(void *socket, void **watch) {
  if (socket && *watch) zmq_socket_monitor(socket, NULL, 0);
  close_socket(watch);
}

void sli_control_close_sockets(sli_control *c) {
  close_watch(c->hub, &c->hub_watch);
  close_watch(c->direct, &c->direct_watch);
  for (int i = 0; i < c->nouts; i++) close_socket(&c->peers[c->outs[i]].out.socket);
  close_socket(&c->hub);
  close_socket(&c->direct);
  close_socket(&c->door);
  sli_listener_close(&c->hub_listener);
  sli_listener_close(&c->direct_listener);
}

/* ---- what the monitors say ------------------------------------------------------- */

/* Of the connection to process 0. */
static void take_hub_event(sli_control *c, int event) {
  if (event == ZMQ_EVENT_CONNECTED) c->connected = true;
  if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
    c->shaken = true;
    c->hello_ns = 0;
  }
  if (event == ZMQ_EVENT_DISCONNECTED) c->shaken = false;
  if (event == ZMQ_EVENT_DISCONNECTED && c->joined && !c->hub_closed_ns)
    c->hub_closed_ns = sli_now_ns();
}

/* Of one of ours that listens. */
static void take_event(sli_control *c, sli_listener *listener, int event, int fd,
                       const char *where) {
  if (event == ZMQ_EVENT_ACCEPTED) {
    sli_listener_count(listener, sli_now_ns());
  } else if (event == ZMQ_EVENT_DISCONNECTED && !sli_listener_forget(listener, fd)) {
    sli_refuse(c, SLI_REFUSED_CONNECTION, where, NULL);
  } else if (event == ZMQ_EVENT_DISCONNECTED && listener == &c->hub_listener) {
    c->probe_until_ns = sli_now_ns() + ms(PROBE_FOR_MS);
  }
}

static void take_events(sli_control *c, void *watch) {
  sli_listener *listener = watch == c->direct_watch ? &c->direct_listener
                           : sli_is_hub(c)          ? &c->hub_listener
                                                    : NULL;
  for (int i = 0; i < EVENTS_AT_ONCE; i++) {
    uint8_t event[6];
    uint16_t number;
    int32_t fd;
    char where[SLI_ENDPOINT_CHARS];
    if (zmq_recv(watch, event, sizeof event, ZMQ_DONTWAIT) < 0) return;
    int count = zmq_recv(watch, where, sizeof where - 1, ZMQ_DONTWAIT);
    where[SLI_MAX(0, SLI_MIN(count, (int)sizeof where - 1))] = 0;
    memcpy(&number, event, sizeof number);
    memcpy(&fd, event + sizeof number, sizeof fd);
    if (listener) take_event(c, listener, number, fd, where);
    else take_hub_event(c, number);
  }
}

/* ---- what other threads want ----------------------------------------------------- */

static void send_batch(sli_control *c, int process) {
  sli_batch *batch = &c->sending[process];
  size_t each = SLI_FRAME_TAIL_BYTES / SLI_CONTROL_MESSAGE_BYTES, count;
  sli_way *way = sli_way_to(c, process);
  for (size_t done = 0; way && done < batch->count; done += count) {
    count = SLI_MIN(batch->count - done, each);
    sli_way_send(c, way, &(sli_frame){.type = SLI_FRAME_MESSAGES,
                                      .tail = batch->data + done * SLI_CONTROL_MESSAGE_BYTES,
                                      .tail_bytes = count * SLI_CONTROL_MESSAGE_BYTES});
  }
  batch->count = 0;
}

static void carry_out(sli_control *c, sli_order *order) {
  while (order) {
    sli_order *next = order->next;
    sli_order_carry_out(c, order);
    free(order->data);
    free(order);
    order = next;
  }
}

/* Takes what waits and sends it; false when it is time to close. */
static bool serve(sli_control *c, int *dirty) {
  char name[128];
  pthread_mutex_lock(&c->lock);
  uint64_t count;
  if (c->awake) (void)!read(c->wake_fd, &count, sizeof count);
  c->awake = false;
  bool closing = c->closing, aborting = c->aborting;
  int ndirty = c->joined ? c->ndirty : 0;
  sli_order *orders = c->joined ? c->orders : NULL;
  if (c->joined) {
    c->orders = NULL;
    c->orders_end = &c->orders;
    c->ndirty = 0;
  }
  for (int i = 0; i < ndirty; i++) {
    int k = dirty[i] = c->dirty[i];
    sli_batch batch = c->waiting[k];
    c->waiting[k] = c->sending[k];
    c->sending[k] = batch;
  }
  pthread_mutex_unlock(&c->lock);
  for (int i = 0; i < ndirty; i++) send_batch(c, dirty[i]);
  carry_out(c, orders);
  if (aborting && !c->ended)
    sli_blame(c, SL_E_PEER, c->self, "%s: %s", sli_peer_name(c, c->self, name), c->abort_text);
  return !closing;
}

/* ---- turns -------------------------------------------------------------------- */

static int watch_sockets(sli_control *c) {
  int count = 0;
  c->items[count++] = (zmq_pollitem_t){.fd = c->wake_fd, .events = ZMQ_POLLIN};
  /* What happened to connections first, then what they said. */
  void *sockets[] = {c->door, c->hub_watch, c->direct_watch, c->hub, c->joined ? c->direct : NULL};
  for (size_t i = 0; i < SLI_COUNT(sockets); i++)
    if (sockets[i]) c->items[count++] = (zmq_pollitem_t){.socket = sockets[i],
                                                         .events = ZMQ_POLLIN};
  for (int i = 0; i < c->nouts; i++)
    c->items[count++] = (zmq_pollitem_t){.socket = c->peers[c->outs[i]].out.socket,
                                         .events = ZMQ_POLLIN};
  return count;
}

static void keep_door(sli_control *c) {
  sli_auth_answer answer;
  while ((answer = sli_auth_keep_door(&c->auth, c->door)) != SLI_AUTH_NONE)
    if (answer == SLI_AUTH_REFUSED) sli_refuse(c, SLI_REFUSED_KEY, NULL, NULL);
}

static void receive(sli_control *c, void *socket) {
  if (socket == c->door) keep_door(c);
  else if (socket == c->hub_watch || socket == c->direct_watch) take_events(c, socket);
  else if (socket == c->hub && sli_is_hub(c)) sli_gate_receive(c, socket, SLI_AT_HUB, 0);
  else if (socket == c->hub) sli_gate_receive(c, socket, SLI_FROM_HUB, 0);
  else if (socket == c->direct) sli_gate_receive(c, socket, SLI_DIRECT_IN, 0);
  for (int i = 0; i < c->nouts; i++)
    if (socket == c->peers[c->outs[i]].out.socket)
      sli_gate_receive(c, socket, SLI_DIRECT_OUT, c->outs[i]);
}

static void seek_hub(sli_control *c, uint64_t now) {
  if (sli_is_hub(c) || c->joined || c->ended) return;
  if (!c->hub && now >= c->resolve_ns) {
    connect_hub(c);
    c->resolve_ns = sli_now_ns() + ms(RESOLVE_MS);
  }
  if (c->shaken && now >= c->hello_ns) {
    sli_hello_send(c); /* not before: it would wait in the socket, and others behind it */
    c->hello_ns = now + ms(HELLO_MS);
  }
}

static void look_at_clock(sli_control *c, uint64_t now) {
  seek_hub(c, now);
  if (now >= c->beat_ns || (now < c->probe_until_ns && now >= c->probe_ns)) {
    sli_beat(c, now);
    c->probe_ns = now + ms(PROBE_MS);
    c->look_ns = SLI_MIN(c->look_ns, now);
    if (now >= c->beat_ns) c->beat_ns = now + ms(c->options.heartbeat_ms);
  }
  if (c->hub_closed_ns && now > c->hub_closed_ns + ms(HUB_GRACE_MS)) c->peers[0].hub.closed = true;
  if (now >= c->look_ns || c->peers[0].hub.closed) {
    sli_look(c, now);
    c->look_ns = now + ms(SLI_MAX(10, c->options.lost_ms / 8));
  }
  if (!c->joined && !c->ended && !c->waiting_for[0] &&
      now > c->opened_ns + ms(c->options.join_ms))
    sli_join_overdue(c);
  if (c->verdict_ns && now > c->verdict_ns) sli_verdict_overdue(c);
  uint64_t hub = sli_listener_tend(&c->hub_listener, now);
  uint64_t direct = sli_listener_tend(&c->direct_listener, now);
  c->tend_ns = hub && direct ? SLI_MIN(hub, direct) : SLI_MAX(hub, direct);
}

static long sleep_ms(const sli_control *c, uint64_t now) {
  uint64_t next = SLI_MIN(c->beat_ns, c->look_ns);
  if (!sli_is_hub(c) && !c->joined && !c->ended)
    next = SLI_MIN(next, c->shaken ? c->hello_ns : c->hub ? next : c->resolve_ns);
  if (c->tend_ns) next = SLI_MIN(next, c->tend_ns);
  if (now < c->probe_until_ns) next = SLI_MIN(next, c->probe_ns);
  if (c->verdict_ns && !c->ended) next = SLI_MIN(next, c->verdict_ns + 1);
  if (c->hub_closed_ns && !c->ended) next = SLI_MIN(next, c->hub_closed_ns + ms(HUB_GRACE_MS) + 1);
  return next <= now ? 0 : (long)((next - now + 999999) / 1000000);
}

static void say_bye(sli_control *c) {
  for (int k = 0; k < c->nprocesses; k++) {
    sli_peer *peer = &c->peers[k];
    if (k == c->self || !peer->here || peer->left) continue;
    sli_way *ways[] = {&peer->hub, &peer->out, &peer->in};
    for (size_t i = 0; i < SLI_COUNT(ways); i++)
      sli_way_send(c, ways[i], &(sli_frame){.type = SLI_FRAME_BYE});
  }
}

void *sli_control_run(void *control) {
  sli_control *c = control;
  int *dirty = sli_calloc((size_t)c->nprocesses, sizeof *dirty);
  if (c->nprocesses == 1) sli_join_complete(c);
  while (serve(c, dirty)) {
    uint64_t now = sli_now_ns();
    look_at_clock(c, now);
    int count = watch_sockets(c);
    if (zmq_poll(c->items, count, sleep_ms(c, sli_now_ns())) <= 0) continue;
    for (int i = 1; i < count; i++)
      if (c->items[i].revents) receive(c, c->items[i].socket);
  }
  say_bye(c);
  sli_control_close_sockets(c);
  free(dirty);
  return NULL;
}
