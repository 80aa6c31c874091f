/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in encrypted records, which an attacker on the network cannot read or change. */
#include <stdlib.h>
#include <string.h>

#include "comm/net/tcp.h"

enum { TURNS = 8, IN_BYTES = 4 * SLI_SEAL_BYTES };

typedef struct sealed {
  sli_seal out_seal, in_seal;
  size_t out_bytes, out_sent, in_bytes;
  uint8_t out[SLI_SEAL_BYTES]; /* a record; `out_sent` bytes of it have been sent */
  uint8_t in[IN_BYTES];
} sealed;

static void sealed_open(sli_tcp_line *l, const sli_handshake *h, bool connected) {
  sealed *s = l->wire = sli_calloc(1, sizeof *s);
  sli_handshake_session(h, connected, s->out_seal.key);
  sli_handshake_session(h, !connected, s->in_seal.key);
}

static void sealed_close(sli_tcp_line *l) {
  if (l->wire) explicit_bzero(l->wire, sizeof(sealed));
  free(l->wire);
  l->wire = NULL;
}

/* ---- sending ----------------------------------------------------------------------- */

/* Copies the unsent bytes of a message, up to `room`. */
static size_t gather_one(const sli_transfer *t, size_t moved, uint8_t *out, size_t room) {
  size_t head = moved < sizeof t->head ? SLI_MIN(sizeof t->head - moved, room) : 0;
  memcpy(out, t->head + SLI_MIN(moved, sizeof t->head), head);
  size_t done = moved + head - SLI_MIN(moved + head, sizeof t->head);
  if (moved + head < sizeof t->head || !t->bytes) return head;
  const uint8_t *data = t->bytes <= SLI_NET_SHORT_BYTES ? t->data : t->from;
  size_t rest = SLI_MIN(t->bytes - done, room - head);
  memcpy(out + head, data + done, rest);
  return head + rest;
}

static size_t gather(sli_tcp_line *l, uint8_t *out) {
  size_t bytes = 0;
  while (l->first && bytes < SLI_SEAL_INSIDE_BYTES) {
    size_t one = gather_one(l->first, l->moved, out + bytes, SLI_SEAL_INSIDE_BYTES - bytes);
    bytes += one;
    sli_tcp_advance(l, one); /* the data was copied */
  }
  return bytes;
}

static bool sealed_flush(sli_tcp_line *l) {
  sealed *s = l->wire;
  while (l->first || s->out_sent < s->out_bytes) {
    if (s->out_sent == s->out_bytes) {
      size_t bytes = gather(l, l->tcp->buffer);
      s->out_bytes = sli_seal_close(&s->out_seal, l->tcp->buffer, bytes, s->out);
      s->out_sent = 0;
    }
    ssize_t sent =
        send(l->fd, s->out + s->out_sent, s->out_bytes - s->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (!sli_tcp_check(l, sent, true)) return false;
    s->out_sent += (size_t)sent;
  }
  return true;
}

/* ---- receiving --------------------------------------------------------------------- */

/* Decrypts all complete records. Returns false if one was changed or its content is invalid. */
static bool open_records(sli_tcp_line *l, sealed *s) {
  uint8_t *at = s->in, *inside;
  size_t left = s->in_bytes, length, bytes;
  bool good = true;
  for (; good && left >= SLI_SEAL_EXTRA_BYTES; at += length, left -= length) {
    length = sli_seal_length(at);
    if (length > left) break;
    good = length && sli_seal_open(&s->in_seal, at, &inside, &bytes);
    if (!good) sli_net_fail(l->peer, "its data was modified on the way");
    else good = sli_inflow_take(&l->in, inside, bytes);
  }
  if (!good) return false;
  memmove(s->in, at, left);
  s->in_bytes = left;
  return true;
}

static void sealed_receive(sli_tcp_line *l) {
  sealed *s = l->wire;
  for (int i = 0; i < TURNS; i++) {
    size_t room = sizeof s->in - s->in_bytes;
    ssize_t got = recv(l->fd, s->in + s->in_bytes, room, MSG_DONTWAIT);
    if (!sli_tcp_check(l, got, false)) return;
    s->in_bytes += (size_t)got;
    if (!open_records(l, s) || (size_t)got < room) return;
  }
}

const sli_tcp_wire sli_tcp_sealed = {sealed_open, sealed_close, sealed_flush, sealed_receive};
