/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a job. The process that detects it reports to process 0, which adopts the first report
 * and sends it to everybody, so all name the same culprit. A process that gets no answer from
 * process 0 within VERDICT_MS adopts its own report. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "comm/control/control_inner.h"

enum { VERDICT_MS = 300 };

const char *sli_peer_name(const sli_control *c, int process, char out[128]) {
  const char *host = c->peers[process].host;
  snprintf(out, 128, host[0] ? "process %d on host %s" : "process %d", process, host);
  return out;
}

void sli_end(sli_control *c, sl_status status, int culprit, const char *text) {
  pthread_mutex_lock(&c->shared.lock);
  bool first = !c->shared.ended;
  if (first) {
    c->shared.ended = true;
    c->shared.end_status = status;
    c->shared.culprit = culprit;
    snprintf(c->shared.end_text, sizeof c->shared.end_text, "%s", text);
    pthread_cond_broadcast(&c->shared.changed);
  }
  pthread_mutex_unlock(&c->shared.lock);
  if (first && c->shared.joined && c->options.on_abort)
    c->options.on_abort(c->options.ctx, culprit, c->shared.end_text);
}

static sli_frame abort_frame(sl_status status, int culprit, const char *text) {
  return (sli_frame){.type = SLI_FRAME_ABORT,
                     .abort = {.culprit = (uint32_t)culprit, .status = (uint32_t)status},
                     .tail = text,
                     .tail_bytes = strlen(text)};
}

static void tell_all(sli_control *c, sl_status status, int culprit, const char *text) {
  for (int k = 1; k < c->nprocesses; k++) {
    sli_frame frame = abort_frame(status, culprit, text);
    if (c->peers[k].here && !c->peers[k].left) sli_line_send(c, &c->peers[k].hub, &frame);
  }
}

void sli_blame(sli_control *c, sl_status status, int culprit, const char *format, ...) {
  char text[SLI_FRAME_TEXT_BYTES];
  if (c->shared.ended || c->verdict.until_ns) return;
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  sli_frame frame = abort_frame(status, culprit, text);
  if (sli_is_hub(c)) {
    tell_all(c, status, culprit, text);
    sli_end(c, status, culprit, text);
  } else if (culprit && c->peers[0].here && !c->peers[0].left &&
             sli_line_send(c, &c->peers[0].hub, &frame)) {
    c->verdict.until_ns = sli_now_ns() + VERDICT_MS * UINT64_C(1000000);
    c->verdict.suspect = culprit;
    c->verdict.status = status;
    memcpy(c->verdict.text, text, sizeof text);
  } else {
    sli_end(c, status, culprit, text);
  }
}

void sli_verdict_overdue(sli_control *c) {
  if (!c->shared.ended) sli_end(c, c->verdict.status, c->verdict.suspect, c->verdict.text);
}

void sli_verdict_take(sli_control *c, const sli_frame *frame) {
  char text[SLI_FRAME_TEXT_BYTES + 1];
  uint32_t status = frame->abort.status;
  int culprit = (int)frame->process;
  if (status == SL_OK || status >= SL_STATUS_COUNT) status = SL_E_PEER;
  if (frame->abort.culprit < (uint32_t)c->nprocesses) culprit = (int)frame->abort.culprit;
  sli_frame_text(frame, text);
  if (sli_is_hub(c)) sli_blame(c, (sl_status)status, culprit, "%s", text);
  else sli_end(c, (sl_status)status, culprit, text);
}
