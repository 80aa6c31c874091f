/* SPDX-License-Identifier: Apache-2.0 */
/* The data plane between processes: messages with data, sent from memory to memory.
 *
 * A process has one net. The receiver grants every message in advance, by a free slot of the
 * register that the header names. A message therefore always has a destination, and nothing is
 * buffered beyond that. Messages to one peer may overtake each other, since a short one carries its
 * data and a long one is fetched. The header names the register and key; the receiver relies on
 * nothing else.
 *
 * Closing: a peer that closes its net is lost to its peers, and its last messages may be lost, too.
 * Processes therefore agree that everything has arrived before any of them closes
 * (sli_control_meet).
 *
 * Threads: one thread owns a net and calls everything but sli_net_wake and sli_net_traffic; it may
 * hand the net over to another thread. Callbacks are made inside sli_net_progress and sli_net_wait
 * only. They may call sli_net_send, sli_net_done and sli_net_wake, and no other function of this
 * file. */
#ifndef SLUICE_COMM_NET_NET_H
#define SLUICE_COMM_NET_NET_H

#include "base/base.h"

enum { SLI_NET_HEADER_BYTES = 32 };

typedef struct sli_net_events {
  void *ctx;
  /* Returns the destination of a message's data, `bytes` long, or NULL if the message is invalid;
   * the peer is then lost. */
  void *(*place)(void *ctx, int peer, const void *header, size_t bytes);
  /* Reports that a message has arrived with its data. bytes 0: the message has no data, and `place`
   * was not called. */
  void (*arrived)(void *ctx, int peer, const void *header, size_t bytes);
  /* Reports, once per peer, that the peer has disconnected or does not respond. Nothing arrives
   * from it afterwards, and messages to it are dropped. */
  void (*lost)(void *ctx, int peer, const char *why);
} sli_net_events;

typedef struct sli_net sli_net;

typedef struct sli_net_options {
  int self, npeers; /* this process's number, and the number of processes */
  /* The job's secret. A connecting process must prove that it has the secret before any other bytes
   * from it are parsed. */
  const char *key;
  /* Transports in order of preference. Each pair of processes uses the first that connects them.
   * The list is the same in all processes. NULL: "memory,tcp", or "tcp" without UCX.
   *   memory     shared memory of one host
   *   tcp        TCP connections, authenticated
   *   encrypted  TCP connections, authenticated and encrypted
   *   fabric     UCX as its environment variables say (InfiniBand; by default all but TCP):
   *              no authentication, for trusted networks */
  const char *transports;
  sli_net_events events;
} sli_net_options;

/* Opens a net. May block. Other threads must not use the environment during the call, because UCX
 * takes some options from it. SL_E_USAGE: unknown transport. */
sl_status sli_net_open(const sli_net_options *options, sli_net **out);
/* Listens at `host`, a numeric address ("*": all addresses of this host). Call it before
 * sli_net_address. Peers with lower numbers connect here if they use TCP. Listening ends when all
 * of them have connected. Process 0 need not listen. */
sl_status sli_net_listen(sli_net *net, const char *host);
/* Closes a net; NULL is allowed. Ends all transfers with an error, without waiting for peers, so
 * this process's last messages may not arrive. */
void sli_net_close(sli_net *net);

/* Returns the address that other processes need to reach this one: plain bytes, valid as long as
 * the net. */
const void *sli_net_address(sli_net *net, size_t *bytes);
/* Starts to connect, without waiting for the peer. Must be called once per peer, before anything is
 * sent to it. `host` is its numeric address. Its messages may arrive before this call. */
sl_status sli_net_connect(sli_net *net, int peer, const char *host, const void *address,
                          size_t bytes);
/* Returns whether all connections are established. Until then sli_net_wait makes progress with
 * them; an unreachable peer is lost. Once they are established, this process no longer listens. */
bool sli_net_ready(sli_net *net);

/* Starts a message. The header is copied; the data must stay valid until the message is done.
 * Returns true if it is already done; otherwise *fence identifies it. Never blocks. A message to a
 * lost peer is done immediately. */
bool sli_net_send(sli_net *net, int peer, const void *header, const void *data, size_t bytes,
                  uint64_t *fence);
/* Returns whether the message is complete on this side, so that its data may be overwritten.
 * Returns true once per fence, which is invalid from then on. Messages to a lost peer are done. */
bool sli_net_done(sli_net *net, uint64_t fence);

/* Makes progress. Returns whether anything happened; if so, there may be more to do. */
bool sli_net_progress(sli_net *net);
/* Spins briefly, then sleeps until an event, sli_net_wake, or the timeout. May return early.
 * Work that was ready has been done: the caller checks its fences and calls sli_net_progress as
 * after any other progress. */
void sli_net_wait(sli_net *net, uint64_t timeout_ns);
/* Wakes the owner. Any thread; async-signal-safe. A wake before a wait makes the wait return. */
void sli_net_wake(sli_net *net);

/* Traffic with a peer so far. Any thread. A message counts as sent when it starts and as
 * received when it has arrived. */
typedef struct sli_net_traffic_counts {
  uint64_t sent_bytes, received_bytes, sent, received; /* sent, received: messages */
} sli_net_traffic_counts;
sli_net_traffic_counts sli_net_traffic(const sli_net *net, int peer);

#endif
