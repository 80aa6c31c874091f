/* SPDX-License-Identifier: Apache-2.0 */
/* Interface between the net and its transports. A transport is a const table of functions. net.c
 * lists the tables, and picks each peer's transport once. */
#ifndef SLUICE_COMM_NET_TRANSPORT_H
#define SLUICE_COMM_NET_TRANSPORT_H

#include <stdatomic.h>

#include "comm/net/net.h"

enum {
  /* bytes sent before the data: the caller's header and 16 bytes of the transport */
  SLI_NET_HEAD_BYTES = 48,
  SLI_NET_SHORT_BYTES = 64, /* data up to this size is copied and sent in one piece with its head */
  SLI_NET_WHY_CHARS = 160,
};

typedef struct sli_transport sli_transport;

typedef struct sli_net_core sli_net_core;

typedef struct sli_net_peer {
  sli_net_core *net;
  int number;
  const sli_transport *transport; /* NULL: not connected */
  void *state;                    /* the transport's state for this net */
  void *line;                     /* the transport's connection; NULL: gone */
  bool failed, notified;          /* `notified`: the owner has been notified */
  char why[SLI_NET_WHY_CHARS];
  /* written by the owner, read by any thread */
  _Atomic uint64_t sent, received, sent_bytes, received_bytes;
} sli_net_peer;

/* A message in flight, incoming or outgoing. The net recycles these. */
typedef struct sli_transfer {
  _Alignas(8) uint8_t head[SLI_NET_HEAD_BYTES];
  uint8_t data[SLI_NET_SHORT_BYTES]; /* directly after the head */
  sli_net_peer *peer;
  const void *from; /* address of long data */
  size_t bytes;
  bool used, done;
  bool dropped; /* done for the owner, but perhaps still in use by the transport */
  struct sli_transfer *next_free, *next, *queued;
} sli_transfer;
_Static_assert(offsetof(sli_transfer, data) == SLI_NET_HEAD_BYTES, "head and data are one piece");

/* Part of a net that is visible to its transports. */
struct sli_net_core {
  int self, npeers;
  sli_net_events events;
  bool any_failed, closing;
  sli_transfer *transfers, *free;
  sli_net_peer *peers; /* [npeers] */
};

/* Functions of a transport. `open` creates its state for one net. The owner of the net makes all
 * calls. Only open, connect and close may block, and they never wait for a peer. */
struct sli_transport {
  const char *name;
  int kind;                /* argument of `open`, which several tables may share */
  bool left_out;           /* the build lacks its library: it cannot be opened */
  sl_status (*find)(void); /* fails if the system lacks its library; NULL if it needs none */
  sl_status (*open)(sli_net_core *net, const sli_net_options *options, int kind, void **state);
  void (*close)(void *state);
  sl_status (*listen)(void *state, const char *host); /* NULL: not needed */
  /* Returns the address that peers need to connect. */
  const void *(*address)(const void *state, size_t *bytes);
  /* Returns whether the owner of this address can be reached. Both sides get the same result. */
  bool (*reaches)(const void *state, const void *address, size_t bytes);
  /* Sets peer->line. The connection may be established only when `ready` says so. */
  sl_status (*connect)(void *state, sli_net_peer *peer, const char *host, const void *address,
                       size_t bytes);
  bool (*ready)(void *state); /* true: all connections are established */
  /* Starts a message. Header, peer, bytes, and either `from` or (if short) data are set. Returns
   * true if the owner need not wait; the transport then releases the transfer. */
  bool (*send)(sli_transfer *transfer);
  bool (*progress)(void *state);
  /* Prepares for sleep. Returns true if `fd` will become readable with the next event, or false if
   * `progress` must be called first. */
  bool (*arm)(void *state);
  int (*fd)(const void *state);
  /* Returns the longest time to sleep. */
  uint64_t (*patience_ns)(const void *state);
  void (*drop)(sli_net_peer *peer); /* drops a lost peer: stops all reading and sending */
};

extern const sli_transport sli_transport_memory, sli_transport_fabric, sli_transport_tcp,
    sli_transport_encrypted;

/* ---- transfers ----------------------------------------------------------------------- */

/* Allocates another transfer. */
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

/* Marks a transfer as sent; frees it if its owner no longer waits for it. */
static inline void sli_transfer_finish(sli_transfer *t) {
  if (t->dropped) sli_transfer_give(t);
  else t->done = true;
}

/* ---- peers ----------------------------------------------------------------------------- */

/* Marks a peer as failed; cleanup happens outside the transport's own calls. The first reason is
 * kept. */
void sli_net_fail(sli_net_peer *peer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns whether messages from the peer are to be ignored. */
static inline bool sli_net_is_deaf(const sli_net_peer *peer) {
  return peer->failed || peer->net->closing;
}

/* Returns the peer of this number, or NULL if it does not exist or is this process. */
static inline sli_net_peer *sli_net_peer_of(sli_net_core *net, int64_t number) {
  return number >= 0 && number < net->npeers && number != net->self ? &net->peers[number] : NULL;
}

/* Adds to a counter that only the owner of the net writes (relaxed). */
static inline void sli_net_count(_Atomic uint64_t *counter, uint64_t by) {
  uint64_t now = atomic_load_explicit(counter, memory_order_relaxed) + by;
  atomic_store_explicit(counter, now, memory_order_relaxed);
}

/* Returns the destination of a message's data. If there is none, marks the peer as failed and
 * returns NULL. */
static inline void *sli_net_place(sli_net_peer *p, const void *header, size_t bytes) {
  const sli_net_events *events = &p->net->events;
  void *place = events->place(events->ctx, p->number, header, bytes);
  if (!place) sli_net_fail(p, "it sent a message of an invalid size, %zu bytes", bytes);
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
