/* SPDX-License-Identifier: Apache-2.0 */
/* Heartbeats are PING and PONG; their timestamps also give the clock offset of the other side. The
 * estimate is taken from the exchange with the smallest error, where the error of an old exchange
 * grows with the drift that clocks may have (RFC 5905: 15 ppm). */
#include <stdlib.h>

#include "comm/control/control_inner.h"

enum { DRIFT_PPM = 15, QUICK_EXCHANGES = 8 };

static void publish_offset(sli_control *c, int process, int64_t offset_ns) {
  pthread_mutex_lock(&c->shared.lock);
  c->shared.offsets[process] = offset_ns;
  pthread_mutex_unlock(&c->shared.lock);
}

void sli_clock_ask(sli_control *c, sli_line *line) {
  sli_line_send(c, line, &(sli_frame){.type = SLI_FRAME_PING, .clock.asked_ns = sli_now_ns()});
}

void sli_clock_take(sli_control *c, int process, sli_line *line, const sli_frame *frame) {
  uint64_t now = sli_now_ns(), t1 = frame->clock.asked_ns;
  int64_t there = (int64_t)(frame->clock.answered_ns - frame->clock.received_ns);
  int64_t delay = (int64_t)(now - t1) - there;
  if (t1 > now || there < 0 || delay < 0) return;
  uint64_t error = (uint64_t)delay / 2;
  uint64_t drift = (now - line->measured_ns) / 1000000 * DRIFT_PPM;
  if (!line->exchanges || error <= line->error_ns + drift) {
    line->offset_ns =
        ((int64_t)(frame->clock.received_ns - t1) + (int64_t)(frame->clock.answered_ns - now)) / 2;
    line->error_ns = error;
    line->measured_ns = now;
    publish_offset(c, process, line->offset_ns);
  }
  if (++line->exchanges < QUICK_EXCHANGES) sli_clock_ask(c, line);
}

void sli_clock_answer(sli_control *c, sli_line *line, const sli_frame *frame) {
  uint64_t now = sli_now_ns();
  sli_line_send(
      c, line,
      &(sli_frame){.type = SLI_FRAME_PONG, .clock = {frame->clock.asked_ns, now, sli_now_ns()}});
}

/* Takes the offsets known to process 0, for peers without a direct exchange, and adds them to the
 * offset of process 0. */
void sli_clocks_take(sli_control *c, const sli_frame *frame) {
  const uint8_t *at = frame->tail;
  if (frame->tail_bytes != (size_t)c->nprocesses * 8) return;
  pthread_mutex_lock(&c->shared.lock);
  for (int k = 0; k < c->nprocesses; k++) {
    if (k && k != c->self && !c->peers[k].out.exchanges)
      c->shared.offsets[k] = c->peers[0].hub.offset_ns + (int64_t)sli_frame_take64(at + 8 * k);
  }
  pthread_mutex_unlock(&c->shared.lock);
}

void sli_clocks_send(sli_control *c) {
  size_t bytes = (size_t)c->nprocesses * 8;
  uint8_t *tail = sli_calloc(bytes, 1);
  for (int k = 1; k < c->nprocesses; k++)
    sli_frame_put64(tail + 8 * k, (uint64_t)c->peers[k].hub.offset_ns);
  for (int k = 1; k < c->nprocesses; k++)
    sli_line_send(c, &c->peers[k].hub,
                  &(sli_frame){.type = SLI_FRAME_CLOCKS, .tail = tail, .tail_bytes = bytes});
  free(tail);
}
