/* What comes over a connection, put together: heads and data, one after the other, cut anywhere.
 * No sockets, so that it can be tried with any bytes.
 *
 *   0  the caller's header    32  u64 bytes of data    40  u64 number: 0, 1, 2, ...
 *
 * in the byte order of the machine: processes of a job run on machines alike. */
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
  size_t head_bytes; /* of the head, so far */
  uint8_t *place;    /* where the rest of the data goes, `left` bytes of it */
  size_t left;
  uint64_t number; /* of the next message */
} sli_inflow;

/* Takes what came; false if it is nonsense, and the peer has failed. */
bool sli_inflow_take(sli_inflow *in, const uint8_t *bytes, size_t count);
/* So much of the data has been put to its place by somebody else. */
bool sli_inflow_filled(sli_inflow *in, size_t count);

#endif
