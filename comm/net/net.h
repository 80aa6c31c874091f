/* The data plane between processes: messages with data behind them, from memory
 * to memory.
 *
 * A process has one net. What it sends was granted by the receiver before (a free
 * slot of the register that the header names), so a message always has a place
 * to go, and nothing is buffered beyond that. Messages to one peer may overtake
 * each other (a short one comes with its data, a long one is fetched), so the
 * header says which register and key it is, and the receiver counts on nothing
 * else.
 *
 * The end: a peer that closes its net is lost to the others, and what it sent
 * last may be lost with it. So processes agree that all has arrived before any of
 * them closes (sli_control_meet).
 *
 * Threads: one thread owns a net and calls everything but sli_net_wake and
 * sli_net_traffic; it may hand the net over to another thread. Callbacks come from
 * inside sli_net_progress and sli_net_wait, in no other call; they may send, ask
 * for fences and wake, and call nothing else here. */
#ifndef SLUICE_COMM_NET_H
#define SLUICE_COMM_NET_H

#include "base/base.h"

enum { SLI_NET_HEADER_BYTES = 32 };

typedef struct sli_net_events {
  void *ctx;
  /* Where the data of a message goes, `bytes` of it; NULL if there can be no such
   * message: then the peer is lost. */
  void *(*place)(void *ctx, int peer, const void *header, size_t bytes);
  /* The data is there (bytes 0: there is none, and `place` was not asked). */
  void (*arrived)(void *ctx, int peer, const void *header, size_t bytes);
  /* A peer is gone or does not answer; once for each. Nothing comes from it after
   * that, and what is sent to it goes nowhere. */
  void (*lost)(void *ctx, int peer, const char *why);
} sli_net_events;

typedef struct sli_net sli_net;

typedef struct sli_net_options {
  int self, npeers; /* this process, of so many */
  /* The job's secret: whoever connects proves that he has it before anything else he sends
   * is looked at. */
  const char *key;
  /* Which transports there are, the best first; each pair of processes takes the first that
   * leads from one to the other. All processes have the same. NULL: "memory,tcp".
   *   memory     shared memory of one host
   *   tcp        our own connections, authenticated
   *   encrypted  the same, and nobody on the way reads or changes anything
   *   fabric     UCX as its environment variables say (InfiniBand; by default all but TCP):
   *              authenticates nobody, for networks where all are trusted */
  const char *transports;
  sli_net_events events;
} sli_net_options;

/* May block. Not while other threads read or change the environment: UCX has to be told some
 * things that way. SL_E_USAGE: there is no such transport. */
sl_status sli_net_open(const sli_net_options *options, sli_net **out);
/* Before the address is asked for: listens at `host`, an address in numbers ("*": at all of this
 * host), for processes of lower numbers on other hosts, until all of them have come. Process 0
 * need not. */
sl_status sli_net_listen(sli_net *net, const char *host);
/* Ends what is under way with error, without waiting for peers: what this process
 * sent last may not arrive. close(NULL) is nothing. */
void sli_net_close(sli_net *net);

/* What others need to reach this process: plain bytes, valid while the net is. */
const void *sli_net_address(sli_net *net, size_t *bytes);
/* Does not wait for the peer; once for each peer, before anything is sent to it. `host` is
 * where it is, in numbers. Its messages may come from before that on. */
sl_status sli_net_connect(sli_net *net, int peer, const char *host, const void *address,
                          size_t bytes);
/* Do all connections stand? Until then sli_net_wait brings them about; a peer that cannot be
 * reached is lost. Once they do, this process listens to nobody. */
bool sli_net_ready(sli_net *net);

/* Starts a message; the header is copied, the data must stay until it is done.
 * True if it is already; else *fence names it. Never blocks. To a lost peer it is
 * done at once. */
bool sli_net_send(sli_net *net, int peer, const void *header, const void *data, size_t bytes,
                  uint64_t *fence);
/* Is the message complete on this side: may its data be overwritten? True once
 * for each fence, which is invalid from then on. What was under way to a peer that is lost
 * is done. */
bool sli_net_done(sli_net *net, uint64_t fence);

/* Moves things on a little; returns whether anything happened: then there may be more. */
bool sli_net_progress(sli_net *net);
/* Spins a little, then sleeps, until something happened, sli_net_wake, or the time
 * is over. May return early. What there was to do is done: the caller looks at its
 * fences and calls sli_net_progress as after any other progress. */
void sli_net_wait(sli_net *net, uint64_t timeout_ns);
/* Any thread; async-signal-safe. A wake before a wait makes the wait return. */
void sli_net_wake(sli_net *net);

/* Bytes of data sent to and received from a peer so far. Any thread. A message
 * counts as sent when it starts, as received when it arrived. */
typedef struct sli_net_traffic_counts {
  uint64_t sent_bytes, received_bytes, sent, received; /* the last two: messages */
} sli_net_traffic_counts;
sli_net_traffic_counts sli_net_traffic(const sli_net *net, int peer);

#endif
