/* SPDX-License-Identifier: Apache-2.0 */
/* Transports over TCP: a table of lines, one per peer of this transport, and one epoll instance for
 * all of them. A message is a head followed by its data. Messages to a peer stay in order. */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "comm/net/tcp.h"

enum { EVENTS = 32, PATIENCE_NS = 20 * 1000 * 1000 };
enum { PLAIN, SEALED };

static const sli_tcp_wire *const wires[] = {[PLAIN] = &sli_tcp_plain, [SEALED] = &sli_tcp_sealed};

/* ---- sending ----------------------------------------------------------------------- */

static void flush(sli_tcp_line *l) {
  bool full = !l->tcp->wire->flush(l);
  if (full != l->full && !l->peer->failed) sli_tcp_watch(l, full);
  l->full = full;
}

static bool tcp_send(sli_transfer *t) {
  sli_tcp_line *l = t->peer->line;
  sli_tcp_head *head = (sli_tcp_head *)t->head;
  head->bytes = t->bytes;
  head->number = l->number++;
  t->queued = NULL;
  *l->last = t;
  l->last = &t->queued;
  if (l->stage == SLI_TCP_STANDS && !l->full) flush(l);
  if (t->done) {
    sli_transfer_give(t);
    return true;
  }
  /* The data of a short message was copied, so its owner need not wait. */
  return t->dropped = t->bytes <= SLI_NET_SHORT_BYTES;
}

/* ---- opening and closing ----------------------------------------------------------- */

static void destroy_line(sli_tcp_line *l) {
  l->tcp->nlines--;
  l->tcp->nstanding -= l->stage == SLI_TCP_STANDS;
  l->tcp->lines[l->peer->number] = NULL;
  l->peer->line = NULL;
  sli_tcp_drain(l);
  l->tcp->wire->close(l);
  if (l->fd >= 0) close(l->fd);
  if (l->handshake) sli_handshake_fini(l->handshake);
  free(l->handshake);
  free(l);
}

static void tcp_drop(sli_net_peer *p) {
  if (p->line) destroy_line(p->line);
}

static void tcp_close(void *state) {
  sli_tcp *tcp = state;
  for (int i = 0; i < tcp->npeers; i++)
    if (tcp->lines[i]) destroy_line(tcp->lines[i]);
  sli_admission_close(tcp->admission);
  if (tcp->epoll >= 0) close(tcp->epoll);
  explicit_bzero(tcp->key, sizeof tcp->key);
  free(tcp->lines);
  free(tcp->buffer);
  free(tcp);
}

static sl_status tcp_listen(void *state, const char *host) {
  sli_tcp *tcp = state;
  sl_status status =
      sli_admission_open(host, (uint32_t)tcp->self, tcp->key, tcp->address.word, &tcp->admission);
  if (status) return status;
  tcp->address.port = (uint16_t)sli_admission_port(tcp->admission);
  struct epoll_event event = {.events = EPOLLIN};
  if (!epoll_ctl(tcp->epoll, EPOLL_CTL_ADD, sli_admission_fd(tcp->admission), &event)) return SL_OK;
  return sl_fail(SL_E_IO, "epoll: %s", strerror(errno));
}

static sl_status tcp_open(sli_net_core *net, const sli_net_options *options, int kind, void **out) {
  sli_tcp *tcp = sli_calloc(1, sizeof *tcp);
  (void)net;
  tcp->self = options->self;
  tcp->npeers = options->npeers;
  tcp->wire = wires[kind];
  tcp->lines = sli_calloc((size_t)options->npeers, sizeof(void *));
  tcp->buffer = sli_calloc(SLI_TCP_BUFFER_BYTES, 1);
  sli_handshake_key(options->key, tcp->key);
  randombytes_buf(tcp->address.word, sizeof tcp->address.word);
  tcp->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (tcp->epoll < 0) {
    tcp_close(tcp);
    return sl_fail(SL_E_IO, "epoll: %s", strerror(errno));
  }
  *out = tcp;
  return SL_OK;
}

static const void *tcp_address(const void *state, size_t *bytes) {
  const sli_tcp *tcp = state;
  *bytes = sizeof tcp->address;
  return &tcp->address;
}

static bool tcp_reaches(const void *state, const void *address, size_t bytes) {
  (void)address;
  return bytes == sizeof((const sli_tcp *)state)->address;
}

static sl_status tcp_connect(void *state, sli_net_peer *p, const char *host, const void *address,
                             size_t bytes) {
  sli_tcp *tcp = state;
  __typeof__(tcp->address) theirs;
  memcpy(&theirs, address, bytes);
  sli_tcp_line *l = tcp->lines[p->number] = p->line = sli_calloc(1, sizeof *l);
  *l = (sli_tcp_line){.tcp = tcp, .peer = p, .fd = -1, .last = &l->first, .in.peer = p};
  memcpy(l->word, theirs.word, sizeof l->word);
  tcp->nlines++;
  return sli_tcp_begin(tcp, l, host, theirs.port);
}

static bool tcp_ready(void *state) {
  sli_tcp *tcp = state;
  if (tcp->nstanding < tcp->nlines) return false;
  sli_admission_close(tcp->admission);
  tcp->admission = NULL;
  return true;
}

/* ---- progress ---------------------------------------------------------------------- */

static void look_at(sli_tcp_line *l, uint32_t events) {
  if (sli_net_is_deaf(l->peer)) return;
  if (l->stage != SLI_TCP_STANDS) {
    sli_tcp_shake(l);
    return;
  }
  if (events & EPOLLOUT) flush(l);
  if (events & ~(uint32_t)EPOLLOUT) l->tcp->wire->receive(l);
}

static bool tcp_progress(void *state) {
  sli_tcp *tcp = state;
  struct epoll_event events[EVENTS];
  if (tcp->nstanding < tcp->nlines) sli_tcp_tend(tcp, sli_now_ns());
  int count = epoll_wait(tcp->epoll, events, EVENTS, 0);
  for (int i = 0; i < count; i++)
    if (events[i].data.ptr) look_at(events[i].data.ptr, events[i].events);
    else if (tcp->admission) sli_tcp_admit(tcp);
  return count > 0;
}

static bool tcp_arm(void *state) {
  (void)state;
  return true;
}

static int tcp_fd(const void *state) { return ((const sli_tcp *)state)->epoll; }

static uint64_t tcp_patience(const void *state) {
  const sli_tcp *tcp = state;
  return tcp->nstanding < tcp->nlines ? PATIENCE_NS : UINT64_MAX;
}

#define TCP_FUNCTIONS                                                                   \
  .open = tcp_open, .close = tcp_close, .listen = tcp_listen, .address = tcp_address,   \
  .reaches = tcp_reaches, .connect = tcp_connect, .ready = tcp_ready, .send = tcp_send, \
  .progress = tcp_progress, .arm = tcp_arm, .fd = tcp_fd, .patience_ns = tcp_patience,  \
  .drop = tcp_drop

const sli_transport sli_transport_tcp = {.name = "tcp", .kind = PLAIN, TCP_FUNCTIONS};
const sli_transport sli_transport_encrypted = {.name = "encrypted", .kind = SEALED, TCP_FUNCTIONS};
