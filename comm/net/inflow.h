/* SPDX-License-Identifier: Apache-2.0 */
/* Splits a connection's byte stream, which arrives in arbitrary pieces, into heads and data. The
 * code uses no sockets, so tests can feed it any bytes.
 *
 *   0  the caller's header    32  u64 bytes of data    40  u64 number: 0, 1, 2, ...
 *
 * Numbers are in the machine's byte order, because all processes of a job run on machines of one
 * kind. */
#ifndef SLUICE_COMM_NET_INFLOW_H
#define SLUICE_COMM_NET_INFLOW_H

#include "comm/net/transport.h"

typedef struct sli_tcp_head {
  uint8_t header[SLI_NET_HEADER_BYTES];
  uint64_t bytes, number;
} sli_tcp_head;
_Static_assert(sizeof(sli_tcp_head) == SLI_NET_HEAD_BYTES, "a head is the same everywhere");

typedef struct sli_inflow {
  sli_net_peer *peer;
  sli_tcp_head head;
  size_t head_bytes; /* bytes of the head so far */
  uint8_t *place;    /* destination of the next `left` bytes of data */
  size_t left;
  uint64_t number; /* number of the next message */
} sli_inflow;

/* Consumes received bytes. Returns false if they are invalid; the peer is then marked as failed. */
bool sli_inflow_take(sli_inflow *in, const uint8_t *bytes, size_t count);
/* Accounts for `count` bytes that the caller wrote to in->place. */
bool sli_inflow_filled(sli_inflow *in, size_t count);

#endif
