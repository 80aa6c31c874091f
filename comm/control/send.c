/* SPDX-License-Identifier: Apache-2.0 */
/* Sends frames, each with the next sequence number of its line, and logs refused frames and
 * connections. */
#include <string.h>

#include "comm/control/control_inner.h"

static const char *const refusals[SLI_REFUSALS] = {
    [SLI_REFUSED_CONNECTION] = "a connection without the job's key",
    [SLI_REFUSED_KEY] = "a client with a different key",
    [SLI_REFUSED_MALFORMED] = "a malformed frame",
    [SLI_REFUSED_VERSION] = "a different protocol version",
    [SLI_REFUSED_JOB] = "a process of a different job",
    [SLI_REFUSED_INCARNATION] = "a frame of a different incarnation",
    [SLI_REFUSED_UNKNOWN] = "a frame of a process that has not joined",
    [SLI_REFUSED_REPLAY] = "a repeated frame",
    [SLI_REFUSED_LATE] = "a process that came after the start",
};

void sli_refuse(sli_control *c, sli_refusal kind, const char *sender, const char *why) {
  atomic_fetch_add_explicit(&c->counts.refused, 1, memory_order_relaxed);
  if (c->logged[kind]) return;
  c->logged[kind] = true;
  sli_log("job %s: refused %s%s%s%s%s (further ones are counted, not logged)", c->job,
          refusals[kind], sender && *sender ? " from " : "", sender ? sender : "", why ? ": " : "",
          why ? why : "");
}

static void count_sent(sli_control *c, size_t bytes) {
  atomic_fetch_add_explicit(&c->counts.frames_sent, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&c->counts.bytes_sent, bytes, memory_order_relaxed);
}

/* Sends a frame. Returns false if there is no connection. */
bool sli_line_send(sli_control *c, sli_line *line, sli_frame *frame) {
  if (!line->socket || line->closed) return false;
  if (line->route_bytes &&
      zmq_send(line->socket, line->route, line->route_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
    line->closed = true;
    return false;
  }
  frame->process = (uint32_t)c->self;
  frame->incarnation = (uint32_t)c->incarnation;
  frame->instance = c->instance;
  frame->sequence = line->sent + 1;
  zmq_msg_t message;
  size_t bytes = sli_frame_bytes(frame);
  SLI_CHECK(!zmq_msg_init_size(&message, bytes), "out of memory for a frame of %zu bytes", bytes);
  sli_frame_write(frame, zmq_msg_data(&message));
  if (zmq_msg_send(&message, line->socket, ZMQ_DONTWAIT) < 0) {
    zmq_msg_close(&message);
    return false;
  }
  line->sent++;
  count_sent(c, bytes);
  return true;
}
