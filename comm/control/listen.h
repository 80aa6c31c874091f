/* SPDX-License-Identifier: Apache-2.0 */
/* A listening socket with limits on unauthenticated connections. */
#ifndef SLUICE_COMM_CONTROL_LISTEN_H
#define SLUICE_COMM_CONTROL_LISTEN_H

#include "base/base.h"

enum { SLI_LISTENER_SOCKETS = 2 };

typedef struct sli_listener {
  int fds[SLI_LISTENER_SOCKETS], count;
  bool shut;
  /* Open connections on which no member of the job has spoken yet. */
  int strangers, most_strangers;
  /* rate limit of connections: refill per second, most saved up, left now */
  double per_second, most, left;
  uint64_t filled_ns;
  uint8_t *known; /* by descriptor: a member of the job has spoken on this connection */
  int nknown;
} sli_listener;

/* Binds a ROUTER, which must not be bound to anything else later. `host` is an address; "localhost"
 * binds both loopback addresses, any other name all addresses. `strangers`: most unauthenticated
 * connections at the same time, in addition to one per process. Returns false with errno set on
 * failure. */
bool sli_listener_open(sli_listener *listener, void *socket, const char *host, int *port,
                       int nprocesses, int strangers);
void sli_listener_close(sli_listener *listener);

/* Sets the number of connections accepted per second under steady load. */
void sli_listener_set_rate(sli_listener *listener, double per_second);
/* Counts an accepted connection; shuts the listener if it was one too many. */
void sli_listener_count(sli_listener *listener, uint64_t now_ns);
/* Reopens the listener when it is time. Returns the time of the next call, in ns, or 0 if none is
 * needed. */
uint64_t sli_listener_tend(sli_listener *listener, uint64_t now_ns);

/* Marks a connection as known: a member of the job spoke on it. */
void sli_listener_know(sli_listener *listener, int fd);
/* Forgets a closed connection; returns whether it was known. */
bool sli_listener_forget(sli_listener *listener, int fd);

#endif
