/* A listening socket that strangers cannot keep busy. */
#ifndef SLUICE_COMM_CONTROL_LISTEN_H
#define SLUICE_COMM_CONTROL_LISTEN_H

#include "base/base.h"

enum { SLI_LISTENER_SOCKETS = 2 };

typedef struct sli_listener {
  int fds[SLI_LISTENER_SOCKETS], count;
  bool shut;
  /* Connections that stand and over which nobody of the job has spoken yet. */
  int strangers, most_strangers;
  double per_second, most, left; /* connections: allowed, saved up at most, left now */
  uint64_t filled_ns;
  uint8_t *known; /* per descriptor of a connection: somebody of the job spoke there */
  int nknown;
} sli_listener;

/* Binds `host` (an address; "localhost": both loopbacks; else any) for a ROUTER that
 * is bound afterwards to nothing else. `strangers`: as many as may stand at once, beside those
 * of the job. On failure errno says why. */
bool sli_listener_open(sli_listener *listener, void *socket, const char *host, int *port,
                       int nprocesses, int strangers);
void sli_listener_close(sli_listener *listener);

/* From here on so many connections a second are let through, when all keep coming. */
void sli_listener_set_rate(sli_listener *listener, double per_second);
/* A connection came; shuts the listener if it was one too many. */
void sli_listener_count(sli_listener *listener, uint64_t now_ns);
/* Opens the listener again when it is time; when to ask next, in ns; 0: need not. */
uint64_t sli_listener_tend(sli_listener *listener, uint64_t now_ns);

/* Somebody of the job spoke over this connection. */
void sli_listener_know(sli_listener *listener, int fd);
/* It was closed; whether it was known. */
bool sli_listener_forget(sli_listener *listener, int fd);

#endif
