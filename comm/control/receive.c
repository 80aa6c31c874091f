/* SPDX-License-Identifier: Apache-2.0 */
/* Receives frames. A frame is accepted only if it is well-formed, of this incarnation, from a
 * process that has joined with the same instance of its control plane, and next in sequence. Any
 * other frame is counted, logged once per kind of error, and dropped. */
#include <stdlib.h>
#include <string.h>

#include "comm/control/control_inner.h"

enum { RECEIVE_AT_ONCE = 256, RECEIVE_NS = 5000000 };

static void take_bye(sli_control *c, int process, sli_origin origin) {
  sli_peer *peer = &c->peers[process];
  if (origin == SLI_DIRECT_IN) {
    peer->in.socket = NULL;
    return;
  }
  peer->left = true;
  if (sli_is_hub(c) && !c->shared.joined) {
    char name[128];
    sli_blame(c, SL_E_PEER, process, "%s left before all processes had joined",
              sli_peer_name(c, process, name));
  }
  sli_meetings_check(c);
}

/* Dispatches complete data. */
static void take_whole(sli_control *c, const sli_frame *frame, uint8_t *data, size_t bytes) {
  int from = (int)frame->data.from;
  const char *word = frame->data.word;
  switch (frame->data.kind) {
  case SLI_DATA_TABLE: sli_table_take(c, data, bytes); break;
  case SLI_DATA_WORD:
    if (!sli_is_hub(c) || frame->data.target <= 0) sli_word_take(c, from, word, data, bytes);
    break;
  case SLI_DATA_MEET: sli_meeting_come(c, from, frame->data.target, word, data, bytes); return;
  case SLI_DATA_RELEASE: sli_meeting_release(c, word, data, bytes); break;
  }
  free(data);
}

static void take_data(sli_control *c, int process, const sli_frame *frame) {
  uint8_t *data;
  size_t bytes;
  sli_part part = sli_part_take(c, process, frame, &data, &bytes);
  if (part != SLI_PART_REFUSED && sli_is_hub(c) && frame->data.kind == SLI_DATA_WORD)
    sli_word_pass_on(c, frame);
  if (part == SLI_PART_LAST) take_whole(c, frame, data, bytes);
}

static void take_frame(sli_control *c, int process, sli_line *line, sli_origin origin,
                       const sli_frame *frame) {
  switch (frame->type) {
  case SLI_FRAME_WAIT:
  case SLI_FRAME_REFUSE:
    if (origin == SLI_FROM_HUB) sli_join_answer(c, frame);
    break;
  case SLI_FRAME_DATA:
    if (origin == SLI_FROM_HUB || origin == SLI_AT_HUB) take_data(c, process, frame);
    break;
  case SLI_FRAME_PING: sli_clock_answer(c, line, frame); break;
  case SLI_FRAME_PONG: sli_clock_take(c, process, line, frame); break;
  case SLI_FRAME_CLOCKS:
    if (origin == SLI_FROM_HUB) sli_clocks_take(c, frame);
    break;
  case SLI_FRAME_ABORT:
    if (origin == SLI_FROM_HUB || origin == SLI_AT_HUB) sli_verdict_take(c, frame);
    break;
  case SLI_FRAME_BYE: take_bye(c, process, origin); break;
  }
}

/* Finds the line on which a frame arrived, if its sender may use that line. */
static sli_line *find_line(sli_control *c, sli_origin origin, int process, const uint8_t *route,
                           size_t route_bytes, int fd, const sli_frame *frame) {
  if (frame->process >= (uint32_t)c->nprocesses || frame->process == (uint32_t)c->self) return NULL;
  sli_peer *peer = &c->peers[frame->process];
  sli_line *line = origin == SLI_DIRECT_IN    ? &peer->in
                   : origin == SLI_DIRECT_OUT ? &peer->out
                                              : &peer->hub;
  if (origin == SLI_FROM_HUB && frame->process) return NULL;
  if (origin == SLI_DIRECT_OUT && frame->process != (uint32_t)process) return NULL;
  if (origin == SLI_FROM_HUB && !c->shared.joined && peer->instance != frame->instance) {
    peer->instance = frame->instance; /* process 0 has started, or restarted */
    peer->here = true;
    line->seen = 0;
  }
  if (!peer->here || peer->left || peer->instance != frame->instance) return NULL;
  if (origin == SLI_AT_HUB &&
      (line->route_bytes != route_bytes || memcmp(line->route, route, route_bytes)))
    return NULL;
  if (origin == SLI_DIRECT_IN) {
    line->socket = c->sockets.direct;
    line->route_bytes = route_bytes;
    memcpy(line->route, route, route_bytes);
    line->closed = false;
    sli_listener_know(&c->sockets.direct_listener, fd);
  }
  return line;
}

static void check_frame(sli_control *c, sli_origin origin, int process, const uint8_t *route,
                        size_t route_bytes, int fd, const sli_frame *frame, const char *sender) {
  sli_line *line = find_line(c, origin, process, route, route_bytes, fd, frame);
  char name[128];
  if (!line) {
    sli_refuse(c, SLI_REFUSED_UNKNOWN, sender, sli_frame_name(frame->type));
  } else if (frame->sequence <= line->seen) {
    sli_refuse(c, SLI_REFUSED_REPLAY, sender, sli_frame_name(frame->type));
  } else {
    bool gap = frame->sequence != line->seen + 1 && c->shared.joined;
    line->seen = frame->sequence;
    line->heard_ns = sli_now_ns();
    if (gap)
      sli_blame(c, SL_E_PEER, (int)frame->process, "%s is lost: some of its frames are missing",
                sli_peer_name(c, (int)frame->process, name));
    else take_frame(c, (int)frame->process, line, origin, frame);
  }
}

static void take_message(sli_control *c, sli_origin origin, int process, const uint8_t *route,
                         size_t route_bytes, zmq_msg_t *message) {
  sli_frame frame = {0};
  const char *sender = zmq_msg_gets(message, "Peer-Address");
  const char *wrong = sli_frame_parse(zmq_msg_data(message), zmq_msg_size(message), &frame);
  atomic_fetch_add_explicit(&c->counts.frames_received, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&c->counts.bytes_received, zmq_msg_size(message), memory_order_relaxed);
  bool hello = origin == SLI_AT_HUB && frame.type == SLI_FRAME_HELLO;
  int fd = hello || origin == SLI_DIRECT_IN ? zmq_msg_get(message, ZMQ_SRCFD) : -1;
  if (hello) sli_listener_know(&c->sockets.hub_listener, fd);
  if (hello && (!wrong || frame.version != SLI_FRAME_VERSION))
    sli_hello_take(c, &frame, route, route_bytes, sender);
  else if (wrong && frame.version && frame.version != SLI_FRAME_VERSION)
    sli_refuse(c, SLI_REFUSED_VERSION, sender, NULL);
  else if (wrong) sli_refuse(c, SLI_REFUSED_MALFORMED, sender, wrong);
  else if (frame.incarnation != (uint32_t)c->incarnation && frame.type != SLI_FRAME_REFUSE)
    sli_refuse(c, SLI_REFUSED_INCARNATION, sender, NULL);
  else check_frame(c, origin, process, route, route_bytes, fd, &frame, sender);
}

/* Receives one frame with all its parts. Returns false if there is none. */
static bool receive_one(sli_control *c, void *socket, sli_origin origin, int process) {
  uint8_t route[SLI_ROUTE_BYTES];
  int route_bytes = 0, extra = 0;
  if (origin == SLI_AT_HUB || origin == SLI_DIRECT_IN) {
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
    sli_refuse(c, SLI_REFUSED_MALFORMED, zmq_msg_gets(&message, "Peer-Address"), "not one frame");
  else take_message(c, origin, process, route, (size_t)route_bytes, &message);
  zmq_msg_close(&message);
  return true;
}

bool sli_receive(sli_control *c, void *socket, sli_origin origin, int process) {
  uint64_t until_ns = sli_now_ns() + RECEIVE_NS;
  for (int i = 0; i < RECEIVE_AT_ONCE; i++) {
    if (!receive_one(c, socket, origin, process)) return false;
    if (sli_now_ns() > until_ns) return true;
  }
  return true;
}
