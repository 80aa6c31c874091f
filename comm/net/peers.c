/* What the net and its transports share: messages under way, and what is told of peers. */
#include <stdio.h>
#include <string.h>

#include "comm/net/transport.h"

/* The owner: nobody else writes. */
static void add(_Atomic uint64_t *counter, uint64_t by) {
  uint64_t now = atomic_load_explicit(counter, memory_order_relaxed) + by;
  atomic_store_explicit(counter, now, memory_order_relaxed);
}

/* ---- messages under way ------------------------------------------------------------ */

sli_transfer *sli_transfer_take(sli_net_peer *peer, size_t bytes) {
  sli_net_core *net = peer->net;
  sli_transfer *t = net->free;
  if (t) {
    net->free = t->next_free;
  } else {
    t = sli_calloc(1, sizeof *t);
    t->next = net->transfers;
    net->transfers = t;
  }
  t->peer = peer;
  t->bytes = bytes;
  t->used = true;
  t->done = t->dropped = false;
  return t;
}

void sli_transfer_give(sli_transfer *t) {
  sli_net_core *net = t->peer->net;
  t->used = false;
  t->next_free = net->free;
  net->free = t;
}

void sli_transfer_finish(sli_transfer *t) {
  if (t->dropped) sli_transfer_give(t);
  else t->done = true;
}

/* ---- peers ------------------------------------------------------------------------- */

sli_net_peer *sli_net_peer_of(sli_net_core *net, int64_t number) {
  return number >= 0 && number < net->npeers && number != net->self ? &net->peers[number] : NULL;
}

void sli_net_fail(sli_net_peer *p, const char *format, ...) {
  if (p->failed) return;
  va_list args;
  va_start(args, format);
  vsnprintf(p->why, sizeof p->why, format, args);
  va_end(args);
  p->failed = p->net->any_failed = true;
}

bool sli_net_is_deaf(const sli_net_peer *p) { return p->failed || p->net->closing; }

void *sli_net_place(sli_net_peer *p, const void *header, size_t bytes) {
  const sli_net_events *events = &p->net->events;
  void *place = events->place(events->ctx, p->number, header, bytes);
  if (!place) sli_net_fail(p, "it sent a message of %zu bytes that there can not be", bytes);
  return place;
}

void sli_net_arrive(sli_net_peer *p, const void *header, size_t bytes) {
  const sli_net_events *events = &p->net->events;
  if (sli_net_is_deaf(p)) return;
  add(&p->received, 1);
  add(&p->received_bytes, bytes);
  events->arrived(events->ctx, p->number, header, bytes);
}

/* Before it starts. */
void sli_net_count_sent(sli_net_peer *p, size_t bytes) {
  add(&p->sent, 1);
  add(&p->sent_bytes, bytes);
}
