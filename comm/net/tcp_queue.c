/* SPDX-License-Identifier: Apache-2.0 */
/* The send queue of a connection, and checks of system call results. */
#include <errno.h>
#include <string.h>

#include "comm/net/tcp.h"

static size_t length_of(const sli_transfer *t) { return sizeof t->head + t->bytes; }

static void pop(sli_tcp_line *l) {
  sli_transfer *t = l->first;
  l->first = t->queued;
  if (!l->first) l->last = &l->first;
  l->moved = 0;
  sli_transfer_finish(t);
}

void sli_tcp_advance(sli_tcp_line *l, size_t bytes) {
  l->moved += bytes;
  while (l->first && l->moved >= length_of(l->first)) {
    size_t rest = l->moved - length_of(l->first);
    pop(l);
    l->moved = rest;
  }
}

void sli_tcp_drain(sli_tcp_line *l) {
  while (l->first) pop(l);
}

bool sli_tcp_check(sli_tcp_line *l, ssize_t result, bool sending) {
  if (result > 0) return true;
  if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  if (!result && !sending) sli_net_fail(l->peer, "it closed the connection");
  else sli_net_fail(l->peer, "the connection to it broke: %s", strerror(errno));
  return false;
}
