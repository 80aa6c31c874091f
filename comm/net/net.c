/* SPDX-License-Identifier: Apache-2.0 */
/* The net: peers, messages in flight, waiting, and the choice of a transport.
 *
 * A process's address holds the addresses of its transports, in order of preference. Two processes
 * must have the same list of transports; otherwise they refuse to connect. Reachability by a
 * transport is symmetric, so both choose the same one.
 *
 * Code that detects the loss of a peer only marks the peer. sli_net_progress does the rest at its
 * end, outside all callbacks: it closes the connection, so no more data is read, and transfers to
 * the peer count as complete. */
#include "comm/net/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/pause.h"
#include "comm/net/transport.h"
#include "comm/net/waker.h"

enum {
  SPIN_NS = 20000, /* about the cost of falling asleep and waking up */
  MOST_OPEN = 4,
  LIST_CHARS = 64,
};

static const sli_transport *const transports[] = {&sli_transport_memory, &sli_transport_tcp,
                                                  &sli_transport_encrypted, &sli_transport_fabric};
_Static_assert(SLI_COUNT(transports) <= MOST_OPEN, "each may be open");

typedef struct way {
  const sli_transport *transport;
  void *state;
} way;

struct sli_net {
  sli_net_core core;
  char list[LIST_CHARS]; /* transports, as requested */
  way ways[MOST_OPEN];
  int nways;
  way used[MOST_OPEN]; /* transports that reach a peer */
  int nused;
  sli_waker waker;
  uint64_t spin_ns;
  uint8_t *address;
  size_t address_bytes;
};

static sli_net_peer *peer_at(sli_net *net, int peer) {
  SLI_CHECK(peer >= 0 && peer < net->core.npeers, "no peer %d", peer);
  return &net->core.peers[peer];
}

/* ---- messages ---------------------------------------------------------------------- */

bool sli_net_send(sli_net *net, int peer, const void *header, const void *data, size_t bytes,
                  uint64_t *fence) {
  sli_net_peer *p = peer_at(net, peer);
  if (p->failed) return true;
  SLI_CHECK(p->line, "peer %d is not connected", peer);
  sli_transfer *t = sli_transfer_take(p, bytes);
  memcpy(t->head, header, SLI_NET_HEADER_BYTES);
  t->from = data;
  if (bytes && bytes <= SLI_NET_SHORT_BYTES) memcpy(t->data, data, bytes);
  sli_net_count(&p->sent, 1);
  sli_net_count(&p->sent_bytes, bytes);
  *fence = (uintptr_t)t;
  return p->transport->send(t);
}

bool sli_net_done(sli_net *net, uint64_t fence) {
  sli_transfer *t = (sli_transfer *)(uintptr_t)fence;
  SLI_CHECK(t && t->used && !t->dropped && t->peer->net == &net->core,
            "an invalid fence was asked for");
  if (t->done) sli_transfer_give(t);
  else if (t->peer->notified) t->dropped = true;
  else return false;
  return true;
}

/* ---- opening ----------------------------------------------------------------------- */

static const sli_transport *find_transport(const char *name, size_t chars) {
  for (size_t i = 0; i < SLI_COUNT(transports); i++)
    if (strlen(transports[i]->name) == chars && !memcmp(transports[i]->name, name, chars))
      return transports[i];
  return NULL;
}

static sl_status unknown_transport(const char *list) {
  char known[LIST_CHARS] = "";
  for (size_t i = 0, used = 0; i < SLI_COUNT(transports); i++)
    used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                             transports[i]->name);
  return sl_fail(SL_E_USAGE,
                 "SLUICE_TRANSPORTS=%s: must be a comma-separated list of %s, each at most once",
                 list, known);
}

static sl_status open_way(sli_net *net, const sli_net_options *options, const sli_transport *t) {
  for (int i = 0; i < net->nways; i++)
    if (net->ways[i].transport == t) return unknown_transport(net->list);
  way *w = &net->ways[net->nways];
  sl_status status = t->open(&net->core, options, t->kind, &w->state);
  if (status) return status;
  w->transport = t;
  net->nways++;
  return SL_OK;
}

/* Returns the default list: shared memory, if UCX is available, and TCP. */
static const char *default_list(const sli_net_options *options) {
  if (sli_transport_memory.left_out) return "tcp";
  if (!sli_transport_memory.find()) return "memory,tcp";
  if (!options->self) sli_log("note: %s: processes of one host exchange data by TCP", sl_detail());
  return "tcp";
}

static sl_status open_ways(sli_net *net, const sli_net_options *options) {
  const char *list = options->transports ? options->transports : default_list(options);
  if (strlen(list) >= sizeof net->list) return unknown_transport(list);
  strcpy(net->list, list);
  for (const char *at = list;; at++) {
    size_t chars = strcspn(at, ",");
    const sli_transport *t = find_transport(at, chars);
    sl_status status = t ? open_way(net, options, t) : unknown_transport(list);
    if (status || !*(at += chars)) return status;
  }
}

/* Writes the list of transports, followed by the size and the bytes of each transport's address. */
static void make_address(sli_net *net) {
  size_t bytes = LIST_CHARS, part;
  for (int i = 0; i < net->nways; i++) {
    net->ways[i].transport->address(net->ways[i].state, &part);
    bytes += sizeof part + part;
  }
  uint8_t *at = net->address = sli_calloc(bytes, 1);
  net->address_bytes = bytes;
  memcpy(at, net->list, LIST_CHARS);
  at += LIST_CHARS;
  for (int i = 0; i < net->nways; i++) {
    const void *data = net->ways[i].transport->address(net->ways[i].state, &part);
    memcpy(at, &part, sizeof part);
    memcpy(at + sizeof part, data, part);
    at += sizeof part + part;
  }
}

/* Chooses the spin time: 0 on a single core, where spinning only keeps other threads from
 * running. */
static uint64_t choose_spin(void) { return sysconf(_SC_NPROCESSORS_ONLN) > 1 ? SPIN_NS : 0; }

sl_status sli_net_open(const sli_net_options *options, sli_net **out) {
  int n = options->npeers;
  SLI_CHECK(n > 0 && options->self >= 0 && options->self < n, "process %d of %d", options->self, n);
  sli_net *net = sli_calloc(1, sizeof *net);
  net->core.peers = sli_calloc((size_t)n, sizeof *net->core.peers);
  net->core.self = options->self;
  net->core.npeers = n;
  net->core.events = options->events;
  net->spin_ns = choose_spin();
  for (int i = 0; i < n; i++) net->core.peers[i].net = &net->core, net->core.peers[i].number = i;
  net->waker.fd = -1;
  sl_status status = sli_waker_init(&net->waker);
  if (!status) status = open_ways(net, options);
  if (status) {
    sli_net_close(net);
    return status;
  }
  *out = net;
  return SL_OK;
}

void sli_net_close(sli_net *net) {
  if (!net) return;
  net->core.closing = true;
  for (int i = 0; i < net->nways; i++) net->ways[i].transport->close(net->ways[i].state);
  if (net->waker.fd >= 0) sli_waker_fini(&net->waker);
  for (sli_transfer *t = net->core.transfers, *next; t; t = next) {
    next = t->next;
    free(t);
  }
  free(net->core.peers);
  free(net->address);
  free(net);
}

sl_status sli_net_listen(sli_net *net, const char *host) {
  sl_status status = SL_OK;
  for (int i = 0; i < net->nways && !status; i++)
    if (net->ways[i].transport->listen)
      status = net->ways[i].transport->listen(net->ways[i].state, host);
  return status;
}

/* ---- connecting -------------------------------------------------------------------- */

const void *sli_net_address(sli_net *net, size_t *bytes) {
  if (!net->address) make_address(net);
  *bytes = net->address_bytes;
  return net->address;
}

/* Takes the next part of an address, as an aligned copy. */
static void *take_part(const uint8_t **at, size_t *left, size_t *bytes) {
  if (*left < sizeof *bytes) return NULL;
  memcpy(bytes, *at, sizeof *bytes);
  if (*bytes > *left - sizeof *bytes) return NULL;
  void *part = sli_calloc(*bytes + 1, 1);
  memcpy(part, *at + sizeof *bytes, *bytes);
  *at += sizeof *bytes + *bytes;
  *left -= sizeof *bytes + *bytes;
  return part;
}

static void use(sli_net *net, sli_net_peer *p, const way *w) {
  int i = 0;
  while (i < net->nused && net->used[i].transport != w->transport) i++;
  if (i == net->nused) net->used[net->nused++] = *w;
  p->transport = w->transport;
  p->state = w->state;
}

/* Connects over the first transport that reaches the peer. */
static sl_status connect_by(sli_net *net, sli_net_peer *p, const char *host, const uint8_t *at,
                            size_t left) {
  for (int i = 0; i < net->nways; i++) {
    const way *w = &net->ways[i];
    size_t bytes;
    void *part = take_part(&at, &left, &bytes);
    if (!part)
      return sl_fail(SL_E_INPUT, "process %d: its data plane's address is malformed", p->number);
    bool leads = w->transport->reaches(w->state, part, bytes);
    if (leads) use(net, p, w);
    sl_status status = leads ? w->transport->connect(w->state, p, host, part, bytes) : SL_OK;
    free(part);
    if (leads) return status;
  }
  return sl_fail(
      SL_E_INPUT,
      "process %d shares no memory with this one, and none of the transports \"%s\" leads to "
      "another host",
      p->number, net->list);
}

sl_status sli_net_connect(sli_net *net, int peer, const char *host, const void *address,
                          size_t bytes) {
  sli_net_peer *p = peer_at(net, peer);
  char theirs[LIST_CHARS];
  SLI_CHECK(peer != net->core.self && !p->transport, "peer %d is already connected", peer);
  if (bytes < LIST_CHARS)
    return sl_fail(SL_E_INPUT,
                   "process %d: its data plane's address has an invalid size of %zu bytes", peer,
                   bytes);
  memcpy(theirs, address, LIST_CHARS);
  theirs[LIST_CHARS - 1] = 0;
  if (strcmp(theirs, net->list))
    return sl_fail(SL_E_INPUT,
                   "process %d sends data by \"%s\", process %d by \"%s\" "
                   "(SLUICE_TRANSPORTS): they must agree",
                   peer, theirs, net->core.self, net->list);
  return connect_by(net, p, host, (const uint8_t *)address + LIST_CHARS, bytes - LIST_CHARS);
}

bool sli_net_ready(sli_net *net) {
  bool ready = true;
  for (int i = 0; i < net->nways; i++)
    if (!net->ways[i].transport->ready(net->ways[i].state)) ready = false;
  return ready;
}

/* ---- progress ---------------------------------------------------------------------- */

static void tell_failures(sli_net *net) {
  net->core.any_failed = false;
  for (int i = 0; i < net->core.npeers; i++) {
    sli_net_peer *p = &net->core.peers[i];
    if (!p->failed || p->notified) continue;
    p->notified = true;
    if (p->transport) p->transport->drop(p);
    net->core.events.lost(net->core.events.ctx, i, p->why);
  }
}

bool sli_net_progress(sli_net *net) {
  bool happened = false;
  for (int i = 0; i < net->nused; i++)
    happened |= net->used[i].transport->progress(net->used[i].state);
  if (!net->core.any_failed) return happened;
  tell_failures(net);
  return true;
}

/* Spins until an event or `until_ns`; returns whether the wait is over. */
static bool spin(sli_net *net, uint64_t until_ns) {
  for (;;) {
    if (sli_waker_take(&net->waker) || sli_net_progress(net)) return true;
    if (sli_now_ns() >= until_ns) return false;
    sli_pause();
  }
}

static void sleep_for(sli_net *net, uint64_t ns) {
  int fds[MOST_OPEN];
  for (int i = 0; i < net->nused; i++) {
    const way *w = &net->used[i];
    if (!w->transport->arm(w->state)) return;
    fds[i] = w->transport->fd(w->state);
    ns = SLI_MIN(ns, w->transport->patience_ns(w->state));
  }
  sli_waker_sleep(&net->waker, fds, net->nused, ns);
}

void sli_net_wait(sli_net *net, uint64_t timeout_ns) {
  uint64_t start = sli_now_ns();
  if (spin(net, start + SLI_MIN(timeout_ns, net->spin_ns))) return;
  uint64_t spent = sli_now_ns() - start;
  if (spent >= timeout_ns) return;
  sleep_for(net, timeout_ns - spent);
  sli_net_progress(net);
}

void sli_net_wake(sli_net *net) { sli_waker_wake(&net->waker); }

sli_net_traffic_counts sli_net_traffic(const sli_net *net, int peer) {
  SLI_CHECK(peer >= 0 && peer < net->core.npeers, "no peer %d", peer);
  const sli_net_peer *p = &net->core.peers[peer];
  return (sli_net_traffic_counts){
      .sent_bytes = atomic_load_explicit(&p->sent_bytes, memory_order_relaxed),
      .received_bytes = atomic_load_explicit(&p->received_bytes, memory_order_relaxed),
      .sent = atomic_load_explicit(&p->sent, memory_order_relaxed),
      .received = atomic_load_explicit(&p->received, memory_order_relaxed),
  };
}
