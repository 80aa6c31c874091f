/* SPDX-License-Identifier: Apache-2.0 */
/* Unencrypted bytes, without copies: heads and data are sent from their place in memory, and data
 * is received directly at its destination. */
#include <errno.h>
#include <sys/uio.h>

#include "comm/net/tcp.h"

enum { PIECES = 32, TURNS = 8 };

static void plain_open(sli_tcp_line *l, const sli_handshake *h, bool connected) {
  (void)l, (void)h, (void)connected;
}

static void plain_close(sli_tcp_line *l) { (void)l; }

/* Lists the unsent bytes of a message, in up to two pieces. */
static int add_pieces(const sli_transfer *t, size_t moved, struct iovec *pieces) {
  bool is_short = t->bytes <= SLI_NET_SHORT_BYTES; /* its data directly follows its head */
  size_t first = is_short ? sizeof t->head + t->bytes : sizeof t->head;
  int n = 0;
  if (moved < first) pieces[n++] = (struct iovec){(uint8_t *)t->head + moved, first - moved};
  if (is_short) return n;
  size_t done = moved < first ? 0 : moved - first;
  pieces[n++] = (struct iovec){(uint8_t *)t->from + done, t->bytes - done};
  return n;
}

static bool plain_flush(sli_tcp_line *l) {
  while (l->first) {
    struct iovec pieces[PIECES];
    struct msghdr message = {.msg_iov = pieces};
    for (const sli_transfer *t = l->first; t && message.msg_iovlen + 2 <= PIECES; t = t->queued)
      message.msg_iovlen +=
          (size_t)add_pieces(t, t == l->first ? l->moved : 0, pieces + message.msg_iovlen);
    ssize_t sent = sendmsg(l->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (!sli_tcp_check(l, sent, true)) return false;
    sli_tcp_advance(l, (size_t)sent);
  }
  return true;
}

static void plain_receive(sli_tcp_line *l) {
  uint8_t *buffer = l->tcp->buffer;
  for (int i = 0; i < TURNS; i++) {
    size_t direct = l->in.left;
    struct iovec pieces[] = {{l->in.place, direct}, {buffer, SLI_TCP_BUFFER_BYTES / 4}};
    ssize_t got = direct ? readv(l->fd, pieces, 2)
                         : recv(l->fd, buffer, SLI_TCP_BUFFER_BYTES / 4, MSG_DONTWAIT);
    if (!sli_tcp_check(l, got, false)) return;
    size_t there = SLI_MIN((size_t)got, direct), rest = (size_t)got - there;
    if (there && !sli_inflow_filled(&l->in, there)) return;
    if (rest && !sli_inflow_take(&l->in, buffer, rest)) return;
    if (rest < SLI_TCP_BUFFER_BYTES / 4 && !l->in.left) return; /* the socket is empty */
  }
}

const sli_tcp_wire sli_tcp_plain = {plain_open, plain_close, plain_flush, plain_receive};
