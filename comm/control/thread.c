/* SPDX-License-Identifier: Apache-2.0 */
/* The control thread, the only one that touches sockets. It sleeps in zmq_poll until a frame
 * arrives, another thread writes to the eventfd, or a timer is due. zmq_poll checks ZMQ_EVENTS
 * itself, since ZMQ_FD is edge-triggered. In each iteration it sends pending orders, runs timers,
 * and receives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/control/control_inner.h"

enum {
  HELLO_MS = 250,
  RESOLVE_MS = 500,
  PROBE_MS = 50,      /* between checks for closed connections */
  PROBE_FOR_MS = 200, /* duration of the checks after a close */
  HUB_GRACE_MS = 100, /* time to read what process 0 sent before it closed */
  EVENTS_AT_ONCE = 256,
};

static uint64_t ms(int64_t count) { return (uint64_t)count * 1000000; }

/* ---- monitor events -------------------------------------------------------------- */

/* Handles an event of the connection to process 0. */
static void take_hub_event(sli_control *c, int event) {
  if (event == ZMQ_EVENT_CONNECTED) c->hub.connected = true;
  if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
    c->hub.shaken = true;
    c->due.hello_ns = 0;
  }
  if (event == ZMQ_EVENT_DISCONNECTED) c->hub.shaken = false;
  if (event == ZMQ_EVENT_DISCONNECTED && c->shared.joined && !c->hub.closed_ns)
    c->hub.closed_ns = sli_now_ns();
}

/* Handles an event of a listening socket. */
static void take_event(sli_control *c, sli_listener *listener, int event, int fd,
                       const char *where) {
  if (event == ZMQ_EVENT_ACCEPTED) {
    sli_listener_count(listener, sli_now_ns());
  } else if (event == ZMQ_EVENT_DISCONNECTED && !sli_listener_forget(listener, fd)) {
    sli_refuse(c, SLI_REFUSED_CONNECTION, where, NULL);
  } else if (event == ZMQ_EVENT_DISCONNECTED && listener == &c->sockets.hub_listener) {
    c->due.probe_until_ns = sli_now_ns() + ms(PROBE_FOR_MS);
  }
}

static void take_events(sli_control *c, void *watch) {
  sli_listener *listener = watch == c->sockets.direct_watch ? &c->sockets.direct_listener
                           : sli_is_hub(c)                  ? &c->sockets.hub_listener
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

/* ---- requests of other threads --------------------------------------------------- */

static void carry_out(sli_control *c, sli_order *order) {
  while (order) {
    sli_order *next = order->next;
    sli_order_carry_out(c, order);
    free(order->data);
    free(order);
    order = next;
  }
}

/* Sends pending orders. Returns false when it is time to close. */
static bool serve(sli_control *c) {
  char name[128];
  pthread_mutex_lock(&c->shared.lock);
  uint64_t count;
  if (c->shared.awake) (void)!read(c->sockets.wake_fd, &count, sizeof count);
  c->shared.awake = false;
  bool closing = c->shared.closing, aborting = c->shared.aborting;
  sli_order *orders = c->shared.joined ? c->shared.orders : NULL;
  if (c->shared.joined) {
    c->shared.orders = NULL;
    c->shared.orders_end = &c->shared.orders;
  }
  int nwatched = c->shared.joined ? c->shared.nwatched : 0;
  pthread_mutex_unlock(&c->shared.lock);
  while (c->nwatching < nwatched) sli_sockets_watch(c, c->shared.watched[c->nwatching++]);
  carry_out(c, orders);
  if (aborting && !c->shared.ended)
    sli_blame(c, SL_E_PEER, c->self, "%s: %s", sli_peer_name(c, c->self, name),
              c->shared.abort_text);
  return !closing;
}

/* ---- event loop --------------------------------------------------------------- */

static int watch_sockets(sli_control *c) {
  int count = 0;
  c->sockets.items[count++] = (zmq_pollitem_t){.fd = c->sockets.wake_fd, .events = ZMQ_POLLIN};
  /* Connection events come before frames. */
  const sli_sockets *s = &c->sockets;
  void *sockets[] = {s->zap, s->hub_watch, s->direct_watch, s->hub,
                     c->shared.joined ? s->direct : NULL};
  for (size_t i = 0; i < SLI_COUNT(sockets); i++)
    if (sockets[i])
      c->sockets.items[count++] = (zmq_pollitem_t){.socket = sockets[i], .events = ZMQ_POLLIN};
  for (int i = 0; i < c->nouts; i++)
    c->sockets.items[count++] =
        (zmq_pollitem_t){.socket = c->peers[c->outs[i]].out.socket, .events = ZMQ_POLLIN};
  return count;
}

static void answer_zap(sli_control *c) {
  sli_auth_answer answer;
  while ((answer = sli_auth_answer_zap(&c->auth, c->sockets.zap)) != SLI_AUTH_NONE)
    if (answer == SLI_AUTH_REFUSED) sli_refuse(c, SLI_REFUSED_KEY, NULL, NULL);
}

static void receive(sli_control *c, void *socket) {
  const sli_sockets *s = &c->sockets;
  if (socket == s->zap) answer_zap(c);
  else if (socket == s->hub_watch || socket == s->direct_watch) take_events(c, socket);
  else if (socket == s->hub && sli_is_hub(c)) sli_receive(c, socket, SLI_AT_HUB, 0);
  else if (socket == s->hub) sli_receive(c, socket, SLI_FROM_HUB, 0);
  else if (socket == s->direct) sli_receive(c, socket, SLI_DIRECT_IN, 0);
  for (int i = 0; i < c->nouts; i++)
    if (socket == c->peers[c->outs[i]].out.socket)
      sli_receive(c, socket, SLI_DIRECT_OUT, c->outs[i]);
}

static void seek_hub(sli_control *c, uint64_t now) {
  if (sli_is_hub(c) || c->shared.joined || c->shared.ended) return;
  if (!c->sockets.hub && now >= c->due.resolve_ns) {
    sli_sockets_connect(c);
    c->due.resolve_ns = sli_now_ns() + ms(RESOLVE_MS);
  }
  if (c->hub.shaken && now >= c->due.hello_ns) {
    sli_hello_send(c); /* only once connected: earlier ones would queue in the socket */
    c->due.hello_ns = now + ms(HELLO_MS);
  }
}

static void look_at_clock(sli_control *c, uint64_t now) {
  seek_hub(c, now);
  if (now >= c->due.beat_ns || (now < c->due.probe_until_ns && now >= c->due.probe_ns)) {
    sli_beat(c);
    c->due.probe_ns = now + ms(PROBE_MS);
    c->due.look_ns = SLI_MIN(c->due.look_ns, now);
    if (now >= c->due.beat_ns) c->due.beat_ns = now + ms(c->options.heartbeat_ms);
  }
  if (c->hub.closed_ns && now > c->hub.closed_ns + ms(HUB_GRACE_MS)) c->peers[0].hub.closed = true;
  if (now >= c->due.look_ns || c->peers[0].hub.closed) {
    sli_check_silence(c, now);
    c->due.look_ns = now + ms(SLI_MAX(10, c->options.lost_ms / 8));
  }
  if (!c->shared.joined && !c->shared.ended && !c->hub.waiting_for[0] &&
      now > c->opened_ns + ms(c->options.join_ms))
    sli_join_overdue(c);
  if (c->verdict.until_ns && now > c->verdict.until_ns) sli_verdict_overdue(c);
  uint64_t hub = sli_listener_tend(&c->sockets.hub_listener, now);
  uint64_t direct = sli_listener_tend(&c->sockets.direct_listener, now);
  c->due.tend_ns = hub && direct ? SLI_MIN(hub, direct) : SLI_MAX(hub, direct);
}

static long sleep_ms(const sli_control *c, uint64_t now) {
  uint64_t next = SLI_MIN(c->due.beat_ns, c->due.look_ns);
  if (!sli_is_hub(c) && !c->shared.joined && !c->shared.ended)
    next = SLI_MIN(next, c->hub.shaken    ? c->due.hello_ns
                         : c->sockets.hub ? next
                                          : c->due.resolve_ns);
  if (c->due.tend_ns) next = SLI_MIN(next, c->due.tend_ns);
  if (now < c->due.probe_until_ns) next = SLI_MIN(next, c->due.probe_ns);
  if (c->verdict.until_ns && !c->shared.ended) next = SLI_MIN(next, c->verdict.until_ns + 1);
  if (c->hub.closed_ns && !c->shared.ended)
    next = SLI_MIN(next, c->hub.closed_ns + ms(HUB_GRACE_MS) + 1);
  return next <= now ? 0 : (long)((next - now + 999999) / 1000000);
}

static void say_bye(sli_control *c) {
  for (int k = 0; k < c->nprocesses; k++) {
    sli_peer *peer = &c->peers[k];
    if (k == c->self || !peer->here || peer->left) continue;
    sli_line *lines[] = {&peer->hub, &peer->out, &peer->in};
    for (size_t i = 0; i < SLI_COUNT(lines); i++)
      sli_line_send(c, lines[i], &(sli_frame){.type = SLI_FRAME_BYE});
  }
}

void *sli_control_run(void *control) {
  sli_control *c = control;
  if (c->nprocesses == 1) sli_join_complete(c);
  while (serve(c)) {
    uint64_t now = sli_now_ns();
    look_at_clock(c, now);
    int count = watch_sockets(c);
    if (zmq_poll(c->sockets.items, count, sleep_ms(c, sli_now_ns())) <= 0) continue;
    for (int i = 1; i < count; i++)
      if (c->sockets.items[i].revents) receive(c, c->sockets.items[i].socket);
  }
  say_bye(c);
  sli_sockets_close(c);
  return NULL;
}
