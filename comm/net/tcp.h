/* SPDX-License-Identifier: Apache-2.0 */
/* TCP connections of the data plane between hosts: definitions shared by the files that open them,
 * read from them and write to them. */
#ifndef SLUICE_COMM_NET_TCP_H
#define SLUICE_COMM_NET_TCP_H

#include <sys/socket.h>

#include "comm/net/admission.h"
#include "comm/net/handshake.h"
#include "comm/net/inflow.h"
#include "comm/net/seal.h"

typedef struct sli_tcp sli_tcp;
typedef struct sli_tcp_line sli_tcp_line;

/* Encoding of the bytes on a connection after both sides have authenticated. */
typedef struct sli_tcp_wire {
  void (*open)(sli_tcp_line *line, const sli_handshake *h, bool connected);
  void (*close)(sli_tcp_line *line);
  /* Sends as much of the queue as the socket takes. Returns true if it took everything. */
  bool (*flush)(sli_tcp_line *line);
  void (*receive)(sli_tcp_line *line);
} sli_tcp_wire;

extern const sli_tcp_wire sli_tcp_plain, sli_tcp_sealed;

typedef enum sli_tcp_stage {
  SLI_TCP_AWAITED,    /* the peer connects to this process */
  SLI_TCP_APART,      /* disconnected; waiting for the next attempt */
  SLI_TCP_CONNECTING, /* connect() is in progress */
  SLI_TCP_OPENED,     /* opening sent, answer awaited */
  SLI_TCP_STANDS,
} sli_tcp_stage;

struct sli_tcp_line {
  sli_tcp *tcp;
  sli_net_peer *peer;
  int fd; /* -1: none */
  sli_tcp_stage stage;
  /* Fields used until the connection is established: */
  struct sockaddr_storage to;
  socklen_t to_bytes;
  uint8_t word[SLI_WORD_BYTES]; /* word from the peer's address */
  uint64_t again_ns, until_ns;  /* time of the next attempt, and of giving up */
  int reason;                   /* errno of the last attempt */
  sli_handshake *handshake;
  size_t got; /* bytes of the answer received */
  /* Fields used from then on: */
  sli_inflow in;
  sli_transfer *first, **last; /* send queue */
  size_t moved;                /* bytes of the first transfer already sent */
  uint64_t number;             /* number of the next message */
  bool full;                   /* waiting for room in the socket */
  void *wire;                  /* state of the wire (sli_tcp_wire) */
};

struct sli_tcp {
  int self, npeers, epoll;
  const sli_tcp_wire *wire;
  uint8_t key[SLI_KEY_BYTES];
  struct {
    uint8_t word[SLI_WORD_BYTES];
    uint16_t port;
  } address;
  sli_admission *admission; /* NULL: no incoming connection is expected */
  sli_tcp_line **lines;     /* [npeers], NULL: no connection */
  int nlines, nstanding;
  uint8_t *buffer; /* SLI_TCP_BUFFER_BYTES of scratch space */
};

enum { SLI_TCP_BUFFER_BYTES = 64 << 10 };

/* ---- connecting -------------------------------------------------------------------- */

sl_status sli_tcp_begin(sli_tcp *tcp, sli_tcp_line *line, const char *host, int port);
void sli_tcp_tend(sli_tcp *tcp, uint64_t now_ns); /* retries, or gives up */
void sli_tcp_shake(sli_tcp_line *line); /* continues the handshake when the socket is ready */
void sli_tcp_admit(sli_tcp *tcp);
void sli_tcp_watch(sli_tcp_line *line, bool out); /* sets the epoll events; out: writable too */

/* ---- helpers for wires ------------------------------------------------------------- */

void sli_tcp_drain(sli_tcp_line *line); /* discards the send queue */
/* Removes `bytes` sent bytes from the queue. */
void sli_tcp_advance(sli_tcp_line *line, size_t bytes);
/* Checks the result of a system call on the socket. Returns true if the caller should continue. */
bool sli_tcp_check(sli_tcp_line *line, ssize_t result, bool sending);

#endif
