/* One frame: out with a number, in past the checks. A frame is heard only if it is
 * well-formed, of this incarnation, from a process that has joined, from the same
 * opening of its control plane that joined, and next in order. All else is
 * counted, said once and dropped.
 *
 * Heartbeats are PING and PONG; the times they carry also give the clock of the
 * other side. The estimate is the exchange whose error is smallest, where an old
 * one grows worse by the drift that clocks may have (RFC 5905: 15 ppm). */
#include <stdlib.h>
#include <string.h>

#include "comm/control/inner.h"

#define CONNECT_NS UINT64_C(30000000000) /* for a direct link to come up */

enum { RECEIVE_AT_ONCE = 256, RECEIVE_NS = 5000000, DRIFT_PPM = 15, QUICK_EXCHANGES = 8 };

static const char *const refusals[SLI_REFUSALS] = {
    [SLI_REFUSED_CONNECTION] = "a connection that does not hold the job's key",
    [SLI_REFUSED_KEY] = "a client with another key",
    [SLI_REFUSED_MALFORMED] = "a malformed frame",
    [SLI_REFUSED_VERSION] = "another version of the protocol",
    [SLI_REFUSED_JOB] = "a process of another job",
    [SLI_REFUSED_INCARNATION] = "a frame of another incarnation",
    [SLI_REFUSED_UNKNOWN] = "a frame of a process that has not joined",
    [SLI_REFUSED_REPLAY] = "a frame that was there before",
    [SLI_REFUSED_LATE] = "a process that came after the start",
};

void sli_refuse(sli_control *c, sli_refusal kind, const char *who, const char *why) {
  atomic_fetch_add_explicit(&c->refused, 1, memory_order_relaxed);
  if (c->logged[kind]) return;
  c->logged[kind] = true;
  sli_log("job %s: refused %s%s%s%s%s (counted from now on, not said)", c->job, refusals[kind],
          who && *who ? " from " : "", who ? who : "", why ? ": " : "", why ? why : "");
}

/* ---- out ---------------------------------------------------------------------- */

static void count_sent(sli_control *c, size_t bytes) {
  atomic_fetch_add_explicit(&c->frames_sent, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&c->bytes_sent, bytes, memory_order_relaxed);
}

/* False if the connection is not there. */
bool sli_way_send(sli_control *c, sli_way *way, sli_frame *frame) {
  if (!way->socket || way->closed) return false;
  if (way->route_bytes && zmq_send(way->socket, way->route, way->route_bytes,
                                   ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
    way->closed = true;
    return false;
  }
  frame->process = (uint32_t)c->self;
  frame->incarnation = (uint32_t)c->incarnation;
  frame->instance = c->instance;
  frame->sequence = way->sent + 1;
  zmq_msg_t message;
  size_t bytes = sli_frame_bytes(frame);
  SLI_CHECK(!zmq_msg_init_size(&message, bytes), "out of memory for a frame of %zu bytes", bytes);
  sli_frame_write(frame, zmq_msg_data(&message));
  if (zmq_msg_send(&message, way->socket, ZMQ_DONTWAIT) < 0) {
    zmq_msg_close(&message);
    return false;
  }
  way->sent++;
  count_sent(c, bytes);
  return true;
}

/* ---- clocks ------------------------------------------------------------------- */

static void publish_offset(sli_control *c, int process, int64_t offset_ns) {
  pthread_mutex_lock(&c->lock);
  c->offsets[process] = offset_ns;
  pthread_mutex_unlock(&c->lock);
}

static void ping(sli_control *c, sli_way *way) {
  sli_way_send(c, way, &(sli_frame){.type = SLI_FRAME_PING, .clock.asked_ns = sli_now_ns()});
}

static void take_pong(sli_control *c, int process, sli_way *way, const sli_frame *frame) {
  uint64_t now = sli_now_ns(), t1 = frame->clock.asked_ns;
  int64_t there = (int64_t)(frame->clock.answered_ns - frame->clock.received_ns);
  int64_t delay = (int64_t)(now - t1) - there;
  if (t1 > now || there < 0 || delay < 0) return;
  uint64_t error = (uint64_t)delay / 2;
  uint64_t drift = (now - way->measured_ns) / 1000000 * DRIFT_PPM;
  if (!way->exchanges || error <= way->error_ns + drift) {
    way->offset_ns = ((int64_t)(frame->clock.received_ns - t1) +
                      (int64_t)(frame->clock.answered_ns - now)) / 2;
    way->error_ns = error;
    way->measured_ns = now;
    publish_offset(c, process, way->offset_ns);
  }
  if (++way->exchanges < QUICK_EXCHANGES) ping(c, way);
}

static void answer_ping(sli_control *c, sli_way *way, const sli_frame *frame) {
  uint64_t now = sli_now_ns();
  sli_way_send(c, way, &(sli_frame){.type = SLI_FRAME_PONG,
                                    .clock = {frame->clock.asked_ns, now, sli_now_ns()}});
}

/* What process 0 knows reaches those whom we never asked: through its clock. */
static void take_clocks(sli_control *c, const sli_frame *frame) {
  const uint8_t *at = frame->tail;
  if (frame->tail_bytes != (size_t)c->nprocesses * 8) return;
  pthread_mutex_lock(&c->lock);
  for (int k = 0; k < c->nprocesses; k++) {
    if (k && k != c->self && !c->peers[k].out.exchanges)
      c->offsets[k] = c->peers[0].hub.offset_ns + (int64_t)sli_frame_take64(at + 8 * k);
  }
  pthread_mutex_unlock(&c->lock);
}

static void send_clocks(sli_control *c) {
  size_t bytes = (size_t)c->nprocesses * 8;
  uint8_t *tail = sli_calloc(bytes, 1);
  for (int k = 1; k < c->nprocesses; k++)
    sli_frame_put64(tail + 8 * k, (uint64_t)c->peers[k].hub.offset_ns);
  for (int k = 1; k < c->nprocesses; k++)
    sli_way_send(c, &c->peers[k].hub,
                 &(sli_frame){.type = SLI_FRAME_CLOCKS, .tail = tail, .tail_bytes = bytes});
  free(tail);
}

/* ---- heartbeats --------------------------------------------------------------- */

void sli_beat(sli_control *c, uint64_t now_ns) {
  (void)now_ns;
  for (int k = 0; k < c->nprocesses; k++) {
    sli_peer *peer = &c->peers[k];
    if (k == c->self || !peer->here || peer->left) continue;
    if (sli_is_hub(c) || k == 0) ping(c, &peer->hub);
    if (peer->out.socket) ping(c, &peer->out);
  }
  if (sli_is_hub(c) && c->joined && c->nprocesses > 2 && c->beats++ % 10 == 2) send_clocks(c);
}

/* A connection may be known to be closed before all that came over it is read. */
static void drain(sli_control *c, int k, const sli_way *way) {
  sli_gate gate = way == &c->peers[k].out ? SLI_DIRECT_OUT
                  : way == &c->peers[k].in ? SLI_DIRECT_IN
                  : sli_is_hub(c)          ? SLI_AT_HUB
                                           : SLI_FROM_HUB;
  for (int i = 0; i < 100 && sli_gate_receive(c, way->socket, gate, k); i++) continue;
}

static void look_at(sli_control *c, int k, const sli_way *way, const char *how, uint64_t now_ns) {
  char name[128];
  uint64_t lost_ns = (uint64_t)c->options.lost_ms * 1000000;
  if (!way->socket) return;
  if (!way->heard_ns && way->opened_ns && now_ns > way->opened_ns + CONNECT_NS)
    sli_blame(c, SL_E_PEER, k, "%s cannot be reached directly, at %s, for %.0f s",
              sli_peer_name(c, k, name), c->peers[k].direct, CONNECT_NS * 1e-9);
  if (!way->heard_ns) return;
  if (way->closed) drain(c, k, way);
  if (c->peers[k].left || !way->socket) return;
  if (way->closed)
    sli_blame(c, SL_E_PEER, k, "%s is gone: its connection%s is closed",
              sli_peer_name(c, k, name), how);
  else if (now_ns > way->heard_ns + lost_ns)
    sli_blame(c, SL_E_PEER, k, "%s is lost: not heard%s for %.1f s", sli_peer_name(c, k, name), how,
              (double)(now_ns - way->heard_ns) * 1e-9);
}

/* While we do not get to run ourselves, silence says nothing about others: the time by
 * which we are late to look does not count. */
static void forgive(sli_control *c, uint64_t late_ns, uint64_t now_ns) {
  for (int k = 0; k < c->nprocesses; k++) {
    sli_way *ways[] = {&c->peers[k].hub, &c->peers[k].out, &c->peers[k].in};
    for (size_t i = 0; i < SLI_COUNT(ways); i++)
      if (ways[i]->heard_ns) ways[i]->heard_ns = SLI_MIN(ways[i]->heard_ns + late_ns, now_ns);
  }
}

void sli_look(sli_control *c, uint64_t now_ns) {
  if (c->look_ns && now_ns > c->look_ns) forgive(c, now_ns - c->look_ns, now_ns);
  for (int k = 0; k < c->nprocesses; k++) {
    sli_peer *peer = &c->peers[k];
    if (k == c->self || !peer->here || peer->left) continue;
    look_at(c, k, &peer->hub, "", now_ns);
    look_at(c, k, &peer->out, " on the direct link", now_ns);
    look_at(c, k, &peer->in, " on its direct link", now_ns);
  }
}

/* ---- in ----------------------------------------------------------------------- */

static void take_messages(sli_control *c, int process, const sli_frame *frame) {
  size_t count = frame->tail_bytes / SLI_CONTROL_MESSAGE_BYTES;
  if (c->ended || !c->joined) return;
  atomic_fetch_add_explicit(&c->received, count, memory_order_relaxed);
  for (size_t i = 0; i < count; i++) {
    _Alignas(32) uint8_t message[SLI_CONTROL_MESSAGE_BYTES];
    memcpy(message, (const uint8_t *)frame->tail + i * sizeof message, sizeof message);
    if (c->options.on_message) c->options.on_message(c->options.ctx, process, message);
  }
}

static void take_bye(sli_control *c, int process, sli_gate gate) {
  sli_peer *peer = &c->peers[process];
  if (gate == SLI_DIRECT_IN) {
    peer->in.socket = NULL;
    return;
  }
  peer->left = true;
  if (sli_is_hub(c) && !c->joined) {
    char name[128];
    sli_blame(c, SL_E_PEER, process, "%s has left before all had joined",
              sli_peer_name(c, process, name));
  }
  sli_meetings_check(c);
}

static void take_frame(sli_control *c, int process, sli_way *way, sli_gate gate,
                       const sli_frame *frame) {
  switch (frame->type) {
  case SLI_FRAME_WAIT:
  case SLI_FRAME_REFUSE:
    if (gate == SLI_FROM_HUB) sli_join_answer(c, frame);
    break;
  case SLI_FRAME_DATA:
    if (gate == SLI_FROM_HUB || gate == SLI_AT_HUB) sli_data_take(c, process, frame);
    break;
  case SLI_FRAME_MESSAGES:
    take_messages(c, process, frame);
    break;
  case SLI_FRAME_PING:
    answer_ping(c, way, frame);
    break;
  case SLI_FRAME_PONG:
    take_pong(c, process, way, frame);
    break;
  case SLI_FRAME_CLOCKS:
    if (gate == SLI_FROM_HUB) take_clocks(c, frame);
    break;
  case SLI_FRAME_ABORT:
    if (gate == SLI_FROM_HUB || gate == SLI_AT_HUB) sli_verdict_take(c, frame);
    break;
  case SLI_FRAME_BYE:
    take_bye(c, process, gate);
    break;
  }
}

/* The way that a frame came, if its sender may use it. */
static sli_way *find_way(sli_control *c, sli_gate gate, int process, const uint8_t *route,
                         size_t route_bytes, int fd, const sli_frame *frame) {
  if (frame->process >= (uint32_t)c->nprocesses || frame->process == (uint32_t)c->self) return NULL;
  sli_peer *peer = &c->peers[frame->process];
  sli_way *way = gate == SLI_DIRECT_IN    ? &peer->in
                 : gate == SLI_DIRECT_OUT ? &peer->out
                                          : &peer->hub;
  if (gate == SLI_FROM_HUB && frame->process) return NULL;
  if (gate == SLI_DIRECT_OUT && frame->process != (uint32_t)process) return NULL;
  if (gate == SLI_FROM_HUB && !c->joined && peer->instance != frame->instance) {
    peer->instance = frame->instance; /* process 0 was started, or started again */
    peer->here = true;
    way->seen = 0;
  }
  if (!peer->here || peer->left || peer->instance != frame->instance) return NULL;
  if (gate == SLI_AT_HUB &&
      (way->route_bytes != route_bytes || memcmp(way->route, route, route_bytes)))
    return NULL;
  if (gate == SLI_DIRECT_IN) {
    way->socket = c->direct;
    way->route_bytes = route_bytes;
    memcpy(way->route, route, route_bytes);
    way->closed = false;
    sli_listener_know(&c->direct_listener, fd);
  }
  return way;
}

static void check_frame(sli_control *c, sli_gate gate, int process, const uint8_t *route,
                        size_t route_bytes, int fd, const sli_frame *frame, const char *who) {
  sli_way *way = find_way(c, gate, process, route, route_bytes, fd, frame);
  char name[128];
  if (!way) {
    sli_refuse(c, SLI_REFUSED_UNKNOWN, who, sli_frame_name(frame->type));
  } else if (frame->sequence <= way->seen) {
    sli_refuse(c, SLI_REFUSED_REPLAY, who, sli_frame_name(frame->type));
  } else {
    bool gap = frame->sequence != way->seen + 1 && c->joined;
    way->seen = frame->sequence;
    way->heard_ns = sli_now_ns();
    if (gap)
      sli_blame(c, SL_E_PEER, (int)frame->process, "%s is lost: frames of it are missing",
                sli_peer_name(c, (int)frame->process, name));
    else
      take_frame(c, (int)frame->process, way, gate, frame);
  }
}

static void take_message(sli_control *c, sli_gate gate, int process, const uint8_t *route,
                         size_t route_bytes, zmq_msg_t *message) {
  sli_frame frame = {0};
  const char *who = zmq_msg_gets(message, "Peer-Address");
  const char *wrong = sli_frame_parse(zmq_msg_data(message), zmq_msg_size(message), &frame);
  atomic_fetch_add_explicit(&c->frames_received, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&c->bytes_received, zmq_msg_size(message), memory_order_relaxed);
  bool hello = gate == SLI_AT_HUB && frame.type == SLI_FRAME_HELLO;
  int fd = hello || gate == SLI_DIRECT_IN ? zmq_msg_get(message, ZMQ_SRCFD) : -1;
  if (hello) sli_listener_know(&c->hub_listener, fd);
  if (hello && (!wrong || frame.version != SLI_FRAME_VERSION))
    sli_hello_take(c, &frame, route, route_bytes, who);
  else if (wrong && frame.version && frame.version != SLI_FRAME_VERSION)
    sli_refuse(c, SLI_REFUSED_VERSION, who, NULL);
  else if (wrong)
    sli_refuse(c, SLI_REFUSED_MALFORMED, who, wrong);
  else if (frame.incarnation != (uint32_t)c->incarnation && frame.type != SLI_FRAME_REFUSE)
    sli_refuse(c, SLI_REFUSED_INCARNATION, who, NULL);
  else
    check_frame(c, gate, process, route, route_bytes, fd, &frame, who);
}

/* Receives one frame with all its parts; false if there is none. */
static bool receive_one(sli_control *c, void *socket, sli_gate gate, int process) {
  uint8_t route[SLI_ROUTE_BYTES];
  int route_bytes = 0, extra = 0;
  if (gate == SLI_AT_HUB || gate == SLI_DIRECT_IN) {
    route_bytes = zmq_recv(socket, route, sizeof route, ZMQ_DONTWAIT);
    if (route_bytes < 0) return false;
  }
  zmq_msg_t message, more;
  zmq_msg_init(&message);
  if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
    zmq_msg_close(&message);
    return false;
  }
  for (bool rest = zmq_msg_more(&message); rest; extra++) {
    zmq_msg_init(&more);
    rest = zmq_msg_recv(&more, socket, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&more);
    zmq_msg_close(&more);
  }
  if (extra || route_bytes > SLI_ROUTE_BYTES)
    sli_refuse(c, SLI_REFUSED_MALFORMED, zmq_msg_gets(&message, "Peer-Address"),
               "not one frame");
  else
    take_message(c, gate, process, route, (size_t)route_bytes, &message);
  zmq_msg_close(&message);
  return true;
}

bool sli_gate_receive(sli_control *c, void *socket, sli_gate gate, int process) {
  uint64_t until_ns = sli_now_ns() + RECEIVE_NS;
  for (int i = 0; i < RECEIVE_AT_ONCE; i++) {
    if (!receive_one(c, socket, gate, process)) return false;
    if (sli_now_ns() > until_ns) return true;
  }
  return true;
}
