/* Connections of the data plane between hosts: what the files that make, fill and empty them
 * share. */
#ifndef SLUICE_COMM_NET_TCP_H
#define SLUICE_COMM_NET_TCP_H

#include <sys/socket.h>

#include "comm/net/admission.h"
#include "comm/net/handshake.h"
#include "comm/net/inflow.h"
#include "comm/net/seal.h"

typedef struct sli_tcp sli_tcp;
typedef struct sli_tcp_line sli_tcp_line;

/* How bytes travel once both sides have proved who they are. */
typedef struct sli_tcp_wire {
  void (*open)(sli_tcp_line *line, const sli_handshake *h, bool connected);
  void (*close)(sli_tcp_line *line);
  /* Sends as much of the queue as goes; true: all. */
  bool (*flush)(sli_tcp_line *line);
  void (*receive)(sli_tcp_line *line);
} sli_tcp_wire;

extern const sli_tcp_wire sli_tcp_plain, sli_tcp_sealed;

typedef enum sli_tcp_stage {
  SLI_TCP_AWAITED,    /* the other connects to us */
  SLI_TCP_APART,      /* we try again later */
  SLI_TCP_CONNECTING, /* the kernel does */
  SLI_TCP_OPENED,     /* our opening is on its way: the answer is awaited */
  SLI_TCP_STANDS,
} sli_tcp_stage;

struct sli_tcp_line {
  sli_tcp *tcp;
  sli_net_peer *peer;
  int fd; /* -1: none */
  sli_tcp_stage stage;
  /* Until it stands: */
  struct sockaddr_storage to;
  socklen_t to_bytes;
  uint8_t word[SLI_WORD_BYTES]; /* of the peer */
  uint64_t again_ns, until_ns;  /* when to try again, and how long */
  int reason;                   /* errno of the last try */
  sli_handshake *handshake;
  size_t got; /* of the answer */
  /* From then on: */
  sli_inflow in;
  sli_transfer *first, **last; /* queue of what is to be sent */
  size_t moved;                /* bytes of the first of them that were */
  uint64_t number;             /* of the next message */
  bool full;                   /* we wait for room in the socket */
  void *wire;                  /* the wire's own */
};

struct sli_tcp {
  int self, npeers, epoll;
  const sli_tcp_wire *wire;
  uint8_t key[SLI_KEY_BYTES];
  struct { uint8_t word[SLI_WORD_BYTES]; uint16_t port; } address;
  sli_admission *admission; /* NULL: nobody is awaited */
  sli_tcp_line **lines;     /* [npeers], NULL: there is none */
  int nlines, nstanding;
  uint8_t *buffer; /* SLI_TCP_BUFFER_BYTES, for the moment */
};

enum { SLI_TCP_BUFFER_BYTES = 64 << 10 };

/* ---- making connections ------------------------------------------------------------ */

sl_status sli_tcp_begin(sli_tcp *tcp, sli_tcp_line *line, const char *host, int port);
void sli_tcp_tend(sli_tcp *tcp, uint64_t now_ns); /* tries again; gives up */
void sli_tcp_shake(sli_tcp_line *line);           /* its socket has something to say */
void sli_tcp_admit(sli_tcp *tcp);
void sli_tcp_watch(sli_tcp_line *line, bool out); /* what its socket is asked about */

/* ---- for wires --------------------------------------------------------------------- */

void sli_tcp_drain(sli_tcp_line *line); /* nothing of the queue will be sent */
/* So many bytes of the queue have gone. */
void sli_tcp_advance(sli_tcp_line *line, size_t bytes);
/* Looks at what a system call on the socket returned; true: go on. */
bool sli_tcp_check(sli_tcp_line *line, ssize_t result, bool sending);

#endif
