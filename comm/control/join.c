/* SPDX-License-Identifier: Apache-2.0 */
/* Joining of a job. Every process sends HELLO to process 0 until it gets a reply; process 0 may be
 * the last to start. It keeps the HELLOs until it has one from each process, then sends all of them
 * to everybody, which starts the job.
 *
 * Two kinds of HELLO are refused. A HELLO of another job or incarnation has reached the wrong
 * endpoint: its sender is told so, and the job goes on without it. A HELLO of this job that
 * disagrees (version, number of processes, a process number already taken) would break the run. The
 * job then ends everywhere before the start, with an error that names the sender. After the start
 * no HELLO can do harm: a late one is refused, and nothing else happens. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/control/control_inner.h"

/* ---- every other process --------------------------------------------------------- */

void sli_hello_send(sli_control *c) {
  const sli_peer *self = &c->peers[c->self];
  sli_frame hello = {.type = SLI_FRAME_HELLO, .hello.nprocesses = (uint32_t)c->nprocesses};
  memcpy(hello.hello.job, c->job, sizeof hello.hello.job);
  memcpy(hello.hello.host, c->host, sizeof hello.hello.host);
  memcpy(hello.hello.direct, self->direct, sizeof hello.hello.direct);
  sli_line_send(c, &c->peers[0].hub, &hello);
}

void sli_join_answer(sli_control *c, const sli_frame *frame) {
  char text[SLI_FRAME_TEXT_BYTES + 1];
  sli_frame_text(frame, text);
  if (c->shared.joined) return;
  if (frame->type == SLI_FRAME_WAIT) {
    memcpy(c->hub.waiting_for, text, sizeof text);
  } else {
    c->peers[0].left = true; /* there is no peer to say goodbye to */
    sli_end(c, SL_E_INPUT, c->self, text);
  }
}

/* ---- process 0 ------------------------------------------------------------------- */

static void answer(sli_control *c, sli_frame_type type, sli_line *line, const char *text) {
  size_t bytes = SLI_MIN(strlen(text), (size_t)SLI_FRAME_TEXT_BYTES);
  sli_line_send(c, line, &(sli_frame){.type = type, .tail = text, .tail_bytes = bytes});
}

static sli_line line_of(sli_control *c, const uint8_t *route, size_t route_bytes) {
  sli_line line = {.socket = c->sockets.hub, .route_bytes = route_bytes};
  memcpy(line.route, route, route_bytes);
  return line;
}

/* "processes 3, 5, 6 and 20 more have not joined" */
static void list_missing(const sli_control *c, char *out, size_t bytes) {
  int missing = c->nprocesses - 1 - c->nhere, named = 0;
  size_t used = (size_t)snprintf(out, bytes, missing == 1 ? "process " : "processes ");
  for (int k = 1; k < c->nprocesses && named < 8; k++)
    if (!c->peers[k].here)
      used += (size_t)snprintf(out + used, bytes - used, "%s%d", named++ ? ", " : "", k);
  if (missing > named)
    used += (size_t)snprintf(out + used, bytes - used, " and %d more", missing - named);
  snprintf(out + used, bytes - used, missing == 1 ? " has not joined" : " have not joined");
}

/* Refuses a HELLO that reached the wrong endpoint; the job continues. */
static void send_away(sli_control *c, sli_refusal kind, const char *sender, sli_line *line,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));
static void send_away(sli_control *c, sli_refusal kind, const char *sender, sli_line *line,
                      const char *format, ...) {
  char text[SLI_FRAME_TEXT_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  sli_refuse(c, kind, sender, text);
  answer(c, SLI_FRAME_REFUSE, line, text);
}

/* Ends the job because a process disagrees. */
static void fail_with(sli_control *c, int process, sli_line *line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void fail_with(sli_control *c, int process, sli_line *line, const char *format, ...) {
  char text[SLI_FRAME_TEXT_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  answer(c, SLI_FRAME_REFUSE, line, text);
  sli_blame(c, SL_E_INPUT, process, "%s", text);
}

static bool is_astray(sli_control *c, const sli_frame *f, sli_line *line, const char *sender) {
  if (f->version != SLI_FRAME_VERSION && c->shared.joined) {
    send_away(c, SLI_REFUSED_VERSION, sender, line,
              "this job is already running, and speaks protocol version %d", SLI_FRAME_VERSION);
  } else if (f->version != SLI_FRAME_VERSION) {
    return false;
  } else if (strcmp(f->hello.job, c->job)) {
    send_away(c, SLI_REFUSED_JOB, sender, line,
              "process %u on host %s belongs to job %s, but this is %s", f->process, f->hello.host,
              f->hello.job, c->job);
  } else if (f->incarnation != (uint32_t)c->incarnation) {
    send_away(c, SLI_REFUSED_INCARNATION, sender, line,
              "process %u on host %s has incarnation %u, but job %s has %d", f->process,
              f->hello.host, f->incarnation, c->job, c->incarnation);
  } else if (c->shared.ended) {
    send_away(c, SLI_REFUSED_LATE, sender, line, "job %s has ended: %s", c->job,
              c->shared.end_text);
  } else if (c->shared.joined) {
    send_away(c, SLI_REFUSED_LATE, sender, line,
              "process %u on host %s comes too late: job %s is already running", f->process,
              f->hello.host, c->job);
  } else {
    return false;
  }
  return true;
}

static bool disagrees(sli_control *c, const sli_frame *f, sli_line *line) {
  int culprit = f->process < (uint32_t)c->nprocesses ? (int)f->process : 0;
  const sli_peer *peer = &c->peers[culprit];
  if (f->version != SLI_FRAME_VERSION)
    fail_with(c, culprit, line,
              "process %u speaks version %u of the control protocol, but process 0 speaks %d",
              f->process, f->version, SLI_FRAME_VERSION);
  else if (f->hello.nprocesses != (uint32_t)c->nprocesses)
    fail_with(c, culprit, line,
              "process %u on host %s expects %u processes, but process 0 on host %s expects %d",
              f->process, f->hello.host, f->hello.nprocesses, c->host, c->nprocesses);
  else if (f->process >= (uint32_t)c->nprocesses)
    fail_with(c, 0, line, "a process on host %s calls itself %u, but there are %d processes",
              f->hello.host, f->process, c->nprocesses);
  else if (f->process == 0 || (peer->here && peer->instance != f->instance))
    fail_with(c, culprit, line, "two processes call themselves %u: on host %s and on host %s",
              f->process, f->process ? peer->host : c->host, f->hello.host);
  else return false;
  return true;
}

static void keep_hello(sli_control *c, const sli_frame *f, const sli_line *line) {
  sli_peer *peer = &c->peers[f->process];
  if (!peer->here) c->nhere++;
  uint64_t sent = peer->hub.sent;
  peer->here = true;
  peer->instance = f->instance;
  memcpy(peer->host, f->hello.host, sizeof peer->host);
  memcpy(peer->direct, f->hello.direct, sizeof peer->direct);
  peer->hub = *line;
  peer->hub.sent = sent;
  peer->hub.seen = f->sequence;
  peer->hub.heard_ns = sli_now_ns();
}

void sli_hello_take(sli_control *c, const sli_frame *frame, const uint8_t *route,
                    size_t route_bytes, const char *sender) {
  char text[SLI_FRAME_TEXT_BYTES];
  sli_line line = line_of(c, route, route_bytes);
  bool exists = frame->process < (uint32_t)c->nprocesses;
  sli_peer *known = &c->peers[exists ? frame->process : 0];
  if (c->shared.joined && exists && known->instance == frame->instance) {
    /* Sent before process 0's reply arrived, unless it is a replay. */
    if (frame->sequence <= known->hub.seen) sli_refuse(c, SLI_REFUSED_REPLAY, sender, "HELLO");
    else known->hub.seen = frame->sequence;
    return;
  }
  if (is_astray(c, frame, &line, sender) || disagrees(c, frame, &line)) return;
  keep_hello(c, frame, &line);
  if (c->nhere == c->nprocesses - 1) {
    sli_join_complete(c);
  } else {
    list_missing(c, text, sizeof text);
    answer(c, SLI_FRAME_WAIT, &c->peers[frame->process].hub, text);
  }
}

/* ---- table ----------------------------------------------------------------------- */

/* One entry per process: instance (8 bytes, little-endian), host, direct. */
enum { ROW_BYTES = 8 + SLI_FRAME_NAME_CHARS + SLI_FRAME_DIRECT_CHARS };

static uint8_t *write_table(const sli_control *c, size_t *bytes) {
  *bytes = (size_t)c->nprocesses * ROW_BYTES;
  uint8_t *table = sli_calloc(*bytes, 1), *at = table;
  for (int k = 0; k < c->nprocesses; k++, at += ROW_BYTES) {
    const sli_peer *peer = &c->peers[k];
    sli_frame_put64(at, peer->instance);
    memcpy(at + 8, peer->host, sizeof peer->host);
    memcpy(at + 8 + sizeof peer->host, peer->direct, sizeof peer->direct);
  }
  return table;
}

static void set_joined(sli_control *c) {
  sli_listener_set_rate(&c->sockets.hub_listener, SLI_LATE_PER_SECOND);
  pthread_mutex_lock(&c->shared.lock);
  c->shared.joined = true;
  pthread_cond_broadcast(&c->shared.changed);
  pthread_mutex_unlock(&c->shared.lock);
}

void sli_join_complete(sli_control *c) {
  size_t bytes;
  uint8_t *table = write_table(c, &bytes);
  for (int k = 1; k < c->nprocesses; k++)
    sli_data_send(c, &c->peers[k].hub, SLI_DATA_TABLE, 0, k, "", table, bytes);
  free(table);
  set_joined(c);
}

static void read_row(sli_peer *peer, const uint8_t *at) {
  peer->instance = sli_frame_take64(at);
  memcpy(peer->host, at + 8, sizeof peer->host);
  memcpy(peer->direct, at + 8 + sizeof peer->host, sizeof peer->direct);
  peer->host[sizeof peer->host - 1] = peer->direct[sizeof peer->direct - 1] = 0;
  peer->here = true;
}

void sli_table_take(sli_control *c, const uint8_t *data, size_t bytes) {
  if (c->shared.joined) return;
  if (bytes != (size_t)c->nprocesses * ROW_BYTES) {
    sli_blame(c, SL_E_INPUT, 0, "process 0 sent a malformed table of processes");
    return;
  }
  for (int k = 0; k < c->nprocesses; k++)
    if (k != c->self) read_row(&c->peers[k], data + (size_t)k * ROW_BYTES);
  set_joined(c);
}

/* ---- timeout --------------------------------------------------------------------- */

void sli_join_overdue(sli_control *c) {
  char text[SLI_FRAME_TEXT_BYTES / 2], strangers[64] = "";
  double seconds = c->options.join_ms * 1e-3;
  unsigned long long refused = atomic_load_explicit(&c->counts.refused, memory_order_relaxed);
  if (sli_is_hub(c)) {
    int first = 1;
    while (first < c->nprocesses - 1 && c->peers[first].here) first++;
    list_missing(c, text, sizeof text);
    if (refused) snprintf(strangers, sizeof strangers, " (%llu refused)", refused);
    sli_blame(c, SL_E_PEER, first, "after %g s %s%s", seconds, text, strangers);
  } else if (c->hub.waiting_for[0]) {
    sli_blame(c, SL_E_PEER, 0, "after %g s %.500s", seconds, c->hub.waiting_for);
  } else {
    sli_blame(c, SL_E_PEER, 0, "process 0 at %s has not answered for %g s: %s", c->hub.endpoint,
              seconds,
              !c->hub.ip[0]      ? "the host name cannot be resolved"
              : c->hub.shaken    ? "it accepts the key, but sends nothing"
              : c->hub.connected ? "it rejects this job's key"
                                 : "nobody listens there");
  }
}
