/* SPDX-License-Identifier: Apache-2.0 */
/* Connects a job over TCP. Of two processes, the one with the lower number connects, so process 0
 * never listens. Every other process listens at its address on the route to process 0, until all
 * peers have connected. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "comm/net/tcp.h"

#define CONNECT_NS UINT64_C(20000000000) /* time limit of connecting */
#define AWAIT_NS UINT64_C(25000000000)   /* longer: the connecting side can say why it failed */

enum { AGAIN_NS = 50 * 1000 * 1000 };

void sli_tcp_watch(sli_tcp_line *l, bool out) {
  struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = l};
  if (epoll_ctl(l->tcp->epoll, EPOLL_CTL_MOD, l->fd, &event) && errno == ENOENT)
    SLI_CHECK(!epoll_ctl(l->tcp->epoll, EPOLL_CTL_ADD, l->fd, &event),
              "cannot watch a connection: %s", strerror(errno));
}

static void stand(sli_tcp_line *l, const sli_handshake *h, bool connected) {
  int yes = 1;
  setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(l->fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  l->stage = SLI_TCP_STANDS;
  l->tcp->nstanding++;
  l->tcp->wire->open(l, h, connected);
  if (l->handshake) sli_handshake_fini(l->handshake);
  free(l->handshake);
  l->handshake = NULL;
  l->full = true; /* queued transfers are sent when the socket has room */
  sli_tcp_watch(l, true);
}

/* ---- connecting side --------------------------------------------------------------- */

static void set_apart(sli_tcp_line *l, int reason) {
  if (l->fd >= 0) close(l->fd);
  l->fd = -1;
  l->reason = reason;
  l->stage = SLI_TCP_APART;
  l->again_ns = sli_now_ns() + AGAIN_NS;
}

static void try_to_connect(sli_tcp_line *l) {
  l->fd = socket(l->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (l->fd < 0 ||
      (connect(l->fd, (struct sockaddr *)&l->to, l->to_bytes) && errno != EINPROGRESS)) {
    set_apart(l, errno);
    return;
  }
  l->stage = SLI_TCP_CONNECTING;
  sli_tcp_watch(l, true);
}

sl_status sli_tcp_begin(sli_tcp *tcp, sli_tcp_line *l, const char *host, int port) {
  int peer = l->peer->number;
  struct addrinfo *at,
      hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
  char service[16];
  l->until_ns = sli_now_ns() + (tcp->self < peer ? CONNECT_NS : AWAIT_NS);
  if (tcp->self > peer) return SL_OK;
  snprintf(service, sizeof service, "%d", port);
  if (!port || !host || getaddrinfo(host, service, &hints, &at))
    return sl_fail(SL_E_INPUT, "process %d gives an invalid address for data, \"%s\", port %d",
                   peer, host ? host : "", port);
  memcpy(&l->to, at->ai_addr, at->ai_addrlen);
  l->to_bytes = at->ai_addrlen;
  freeaddrinfo(at);
  try_to_connect(l);
  return SL_OK;
}

/* Sends the opening once connect() has finished, or retries. Both messages of this side fit into
 * an empty socket buffer. */
static void say_opening(sli_tcp_line *l) {
  int reason = 0;
  socklen_t size = sizeof reason;
  if (!l->handshake) l->handshake = sli_calloc(1, sizeof *l->handshake);
  sli_handshake *h = l->handshake;
  getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &reason, &size);
  sli_handshake_open(h, l->tcp->key, (uint32_t)l->tcp->self, (uint32_t)l->peer->number, l->word);
  if (reason || send(l->fd, h->opening, sizeof h->opening, MSG_NOSIGNAL) != sizeof h->opening) {
    set_apart(l, reason ? reason : errno);
    return;
  }
  l->got = 0;
  l->stage = SLI_TCP_OPENED;
  sli_tcp_watch(l, false);
}

static void take_answer(sli_tcp_line *l) {
  sli_handshake *h = l->handshake;
  uint8_t proof[SLI_PROOF_BYTES];
  ssize_t got = recv(l->fd, h->answer + l->got, sizeof h->answer - l->got, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    set_apart(l, got < 0 ? errno : ECONNRESET);
    return;
  }
  l->got += (size_t)got;
  if (l->got < sizeof h->answer) return;
  if (!sli_handshake_prove(h, proof) ||
      send(l->fd, proof, sizeof proof, MSG_NOSIGNAL) != sizeof proof)
    set_apart(l, EACCES);
  else stand(l, h, true);
}

void sli_tcp_shake(sli_tcp_line *l) {
  if (l->stage == SLI_TCP_CONNECTING) say_opening(l);
  else if (l->stage == SLI_TCP_OPENED) take_answer(l);
}

/* ---- listening side ---------------------------------------------------------------- */

static void take_member(void *ctx, uint32_t from, int fd, const sli_handshake *h) {
  sli_tcp *tcp = ctx;
  sli_tcp_line *l = from < (uint32_t)tcp->npeers ? tcp->lines[from] : NULL;
  if (!l || l->stage != SLI_TCP_AWAITED || l->peer->failed) {
    close(fd);
    return;
  }
  l->fd = fd;
  stand(l, h, false);
}

void sli_tcp_admit(sli_tcp *tcp) { sli_admission_progress(tcp->admission, take_member, tcp); }

/* ---- timeouts ---------------------------------------------------------------------- */

static void give_up(sli_tcp_line *l) {
  char host[64] = "?", port[16] = "?";
  getnameinfo((struct sockaddr *)&l->to, l->to_bytes, host, sizeof host, port, sizeof port,
              NI_NUMERICHOST | NI_NUMERICSERV);
  if (l->stage == SLI_TCP_AWAITED)
    sli_net_fail(l->peer, "it did not connect to this process, at port %d, within %.0f s",
                 l->tcp->address.port, AWAIT_NS * 1e-9);
  else
    sli_net_fail(l->peer, "it could not be reached at %s, port %s, within %.0f s: %s", host, port,
                 CONNECT_NS * 1e-9, l->reason ? strerror(l->reason) : "no answer (a firewall?)");
}

void sli_tcp_tend(sli_tcp *tcp, uint64_t now_ns) {
  for (int i = 0; i < tcp->npeers; i++) {
    sli_tcp_line *l = tcp->lines[i];
    if (!l || l->stage == SLI_TCP_STANDS || l->peer->failed) continue;
    if (l->stage == SLI_TCP_APART && now_ns >= l->again_ns) try_to_connect(l);
    if (now_ns >= l->until_ns) give_up(l);
  }
}
