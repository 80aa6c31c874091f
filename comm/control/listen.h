/* SPDX-License-Identifier: Apache-2.0 */
/* A listening socket that strangers cannot keep busy. */
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
  uint8_t *known; /* per descriptor: a member of the job has spoken on this connection */
  int nknown;
} sli_listener;

/* Binds `host` (an address; "localhost": both loopbacks; else any) for a ROUTER that is bound to
 * nothing else afterwards. `strangers`: most unauthenticated connections at once, beside the
 * job's. On failure errno says why. */
bool sli_listener_open(sli_listener *listener, void *socket, const char *host, int *port,
                       int nprocesses, int strangers);
void sli_listener_close(sli_listener *listener);

/* Sets the number of connections accepted per second under steady load. */
void sli_listener_set_rate(sli_listener *listener, double per_second);
/* Counts an accepted connection; shuts the listener if it was one too many. */
void sli_listener_count(sli_listener *listener, uint64_t now_ns);
/* Opens the listener again when it is time. Returns when to call next, in ns; 0: not needed. */
uint64_t sli_listener_tend(sli_listener *listener, uint64_t now_ns);

/* Marks a connection as known: a member of the job spoke on it. */
void sli_listener_know(sli_listener *listener, int fd);
/* Forgets a closed connection; returns whether it was known. */
bool sli_listener_forget(sli_listener *listener, int fd);

#endif
