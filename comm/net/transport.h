/* What the net and the ways it has for messages (transports) know of each other. A
 * transport is a const table of functions; the rows stand in net.c, and which one takes
 * a peer's messages is decided there, once for each peer. */
#ifndef SLUICE_COMM_NET_TRANSPORT_H
#define SLUICE_COMM_NET_TRANSPORT_H

#include <stdatomic.h>

#include "comm/net/net.h"

enum {
  SLI_NET_HEAD_BYTES = 48,  /* what a transport sends in front of the data: the caller's header
                               and 16 bytes of its own */
  SLI_NET_SHORT_BYTES = 64, /* data up to this is copied, and travels in one piece with its head */
  SLI_NET_WHY_CHARS = 160,
};

typedef struct sli_transport sli_transport;

typedef struct sli_net_core sli_net_core;

typedef struct sli_net_peer {
  sli_net_core *net;
  int number;
  const sli_transport *transport; /* NULL: not connected */
  void *state;                    /* the transport's, of this net */
  void *line;                     /* the transport's connection; NULL: gone */
  bool failed, told;              /* `told`: the owner knows */
  char why[SLI_NET_WHY_CHARS];
  _Atomic uint64_t sent, received, sent_bytes, received_bytes; /* owner writes, any reads */
} sli_net_peer;

/* A message under way, in or out. The net keeps them for the next ones. */
typedef struct sli_transfer {
  _Alignas(8) uint8_t head[SLI_NET_HEAD_BYTES];
  uint8_t data[SLI_NET_SHORT_BYTES]; /* right behind the head */
  sli_net_peer *peer;
  const void *from; /* where long data is */
  size_t bytes;
  bool used, done;
  bool dropped; /* done for the owner, and maybe not for the transport */
  struct sli_transfer *next_free, *next, *queued;
} sli_transfer;
_Static_assert(offsetof(sli_transfer, data) == SLI_NET_HEAD_BYTES, "head and data are one piece");

/* What transports see of their net. */
struct sli_net_core {
  int self, npeers;
  sli_net_events events;
  bool any_failed, closing;
  sli_transfer *transfers, *free;
  sli_net_peer *peers; /* [npeers] */
};

/* A net's own state of a transport is what `open` makes. All is called by the owner of the
 * net; only open, connect and close may block, and not for a peer. */
struct sli_transport {
  const char *name;
  int kind; /* for `open`, which several rows may share */
  sl_status (*open)(sli_net_core *net, const sli_net_options *options, int kind, void **state);
  void (*close)(void *state);
  sl_status (*listen)(void *state, const char *host); /* NULL: need not */
  /* What a peer must know to come this way. */
  const void *(*address)(const void *state, size_t *bytes);
  /* Is there a way to who has this address? Both sides find the same. */
  bool (*reaches)(const void *state, const void *address, size_t bytes);
  /* Sets peer->line; it may take until `ready` for the connection to stand. */
  sl_status (*connect)(void *state, sli_net_peer *peer, const char *host, const void *address,
                       size_t bytes);
  bool (*ready)(void *state); /* do all connections stand? */
  /* Starts a message of which header, peer and bytes are set, and `from` or, if short, data.
   * True: its owner need not wait, and the transport gives the transfer back. */
  bool (*send)(sli_transfer *transfer);
  bool (*progress)(void *state);
  /* Before sleeping: true, and `fd` becomes readable with the next event; false: look again. */
  bool (*arm)(void *state);
  int (*fd)(const void *state);
  /* How long a sleep may be. */
  uint64_t (*patience_ns)(const void *state);
  void (*drop)(sli_net_peer *peer); /* it is lost: nothing is read or sent any more */
};

extern const sli_transport sli_transport_memory, sli_transport_fabric, sli_transport_tcp,
    sli_transport_encrypted;

/* ---- messages under way -------------------------------------------------------------- */

/* Makes another one. */
sli_transfer *sli_transfer_make(sli_net_core *net);

static inline sli_transfer *sli_transfer_take(sli_net_peer *peer, size_t bytes) {
  sli_net_core *net = peer->net;
  sli_transfer *t = net->free;
  if (t) net->free = t->next_free;
  else t = sli_transfer_make(net);
  t->peer = peer;
  t->bytes = bytes;
  t->used = true;
  t->done = t->dropped = false;
  return t;
}

static inline void sli_transfer_give(sli_transfer *t) {
  sli_net_core *net = t->peer->net;
  t->used = false;
  t->next_free = net->free;
  net->free = t;
}

/* It has left: its owner may see that, or nobody waits for it any more. */
static inline void sli_transfer_finish(sli_transfer *t) {
  if (t->dropped) sli_transfer_give(t);
  else t->done = true;
}

/* ---- peers ----------------------------------------------------------------------------- */

/* Marks it; the rest is done outside of the transport's own calls. The first reason counts. */
void sli_net_fail(sli_net_peer *peer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Is nothing to come from it any more? */
static inline bool sli_net_is_deaf(const sli_net_peer *peer) {
  return peer->failed || peer->net->closing;
}

/* The net's peer of that number; NULL: there is none, or it is this process. */
static inline sli_net_peer *sli_net_peer_of(sli_net_core *net, int64_t number) {
  return number >= 0 && number < net->npeers && number != net->self ? &net->peers[number] : NULL;
}

/* Only the owner of the net writes. */
static inline void sli_net_count(_Atomic uint64_t *counter, uint64_t by) {
  uint64_t now = atomic_load_explicit(counter, memory_order_relaxed) + by;
  atomic_store_explicit(counter, now, memory_order_relaxed);
}

/* Where the data of a message goes; NULL: nowhere, and the peer has failed for it. */
static inline void *sli_net_place(sli_net_peer *p, const void *header, size_t bytes) {
  const sli_net_events *events = &p->net->events;
  void *place = events->place(events->ctx, p->number, header, bytes);
  if (!place) sli_net_fail(p, "it sent a message of %zu bytes that there can not be", bytes);
  return place;
}

static inline void sli_net_arrive(sli_net_peer *p, const void *header, size_t bytes) {
  const sli_net_events *events = &p->net->events;
  if (sli_net_is_deaf(p)) return;
  sli_net_count(&p->received, 1);
  sli_net_count(&p->received_bytes, bytes);
  events->arrived(events->ctx, p->number, header, bytes);
}

#endif
