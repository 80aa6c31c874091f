/* SPDX-License-Identifier: Apache-2.0 */
/* Anybody who can reach a port can connect to it at any rate. For each connection libzmq builds a
 * session before it finds that the client has no key; 10,000 a second cost a third of a core. A
 * listener therefore has an allowance of connections, which refills with time. Once it is used up,
 * the kernel drops new connections (a one-instruction filter on the listening socket). That costs
 * almost nothing and does not affect established connections. Members of the job retry until they
 * get through.
 *
 * The listener also shuts when too many connections are open on which no member has spoken yet:
 * each holds a descriptor until libzmq closes it some seconds later. */
#include "comm/control/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "comm/control/address.h"

enum { BACKLOG = 1024, PER_SECOND = 1000, SAVED_UP = 100, LOOK_NS = 50 * 1000 * 1000 };

/* ---- sockets ------------------------------------------------------------------ */

static int listen_at(const struct addrinfo *at) {
  int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1, no = 0;
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (at->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (!bind(fd, at->ai_addr, at->ai_addrlen) && !listen(fd, BACKLOG)) return fd;
  int reason = errno;
  close(fd);
  errno = reason;
  return -1;
}

static int port_of(int fd) {
  struct sockaddr_storage own;
  socklen_t size = sizeof own;
  if (getsockname(fd, (struct sockaddr *)&own, &size)) return 0;
  return ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                         : ((struct sockaddr_in *)&own)->sin_port);
}

/* Gives libzmq a copy of the descriptor, because libzmq closes the one it gets. */
static bool hand_over(void *socket, int fd) {
  int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), none = -1;
  char text[32];
  if (copy < 0) return false;
  snprintf(text, sizeof text, "tcp://127.0.0.1:%d", port_of(fd)); /* parsed, but not used */
  bool bound = !zmq_setsockopt(socket, ZMQ_USE_FD, &copy, sizeof copy) && !zmq_bind(socket, text);
  zmq_setsockopt(socket, ZMQ_USE_FD, &none, sizeof none);
  if (!bound) close(copy);
  return bound;
}

static bool listen_add(sli_listener *listener, void *socket, const char *address, int *port) {
  struct addrinfo *at, hints = {.ai_family = AF_UNSPEC,
                                .ai_socktype = SOCK_STREAM,
                                .ai_flags = AI_PASSIVE | AI_NUMERICHOST};
  char service[16];
  snprintf(service, sizeof service, "%d", *port);
  if (getaddrinfo(address, service, &hints, &at)) {
    errno = EADDRNOTAVAIL;
    return false;
  }
  int fd = listen_at(at);
  freeaddrinfo(at);
  if (fd < 0) return false;
  listener->fds[listener->count++] = fd;
  *port = port_of(fd);
  return hand_over(socket, fd);
}

bool sli_listener_open(sli_listener *listener, void *socket, const char *host, int *port,
                       int nprocesses, int strangers) {
  *listener = (sli_listener){.per_second = PER_SECOND,
                             .most = SAVED_UP + nprocesses,
                             .left = SAVED_UP + nprocesses,
                             .most_strangers = strangers + nprocesses};
  if (!strcmp(host, "localhost")) {
    if (!listen_add(listener, socket, "127.0.0.1", port)) return false;
    listen_add(listener, socket, "::1", port); /* may fail: without IPv6 no client connects there */
    return true;
  }
  if (sli_host_is_address(host)) return listen_add(listener, socket, host, port);
  /* "::" accepts both IPv4 and IPv6 if the host has IPv6. */
  return listen_add(listener, socket, "::", port) || listen_add(listener, socket, "0.0.0.0", port);
}

void sli_listener_close(sli_listener *listener) {
  for (int i = 0; i < listener->count; i++) close(listener->fds[i]);
  free(listener->known);
  *listener = (sli_listener){0};
}

/* ---- allowance ------------------------------------------------------------------ */

void sli_listener_set_rate(sli_listener *listener, double per_second) {
  listener->per_second = per_second;
}

static void refill(sli_listener *listener, uint64_t now_ns) {
  if (listener->filled_ns)
    listener->left += (double)(now_ns - listener->filled_ns) * 1e-9 * listener->per_second;
  listener->left = SLI_MIN(listener->left, listener->most);
  listener->filled_ns = now_ns;
}

static void set_shut(sli_listener *listener, bool shut) {
  struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  struct sock_fprog program = {.len = 1, .filter = &drop};
  for (int i = 0; i < listener->count; i++)
    setsockopt(listener->fds[i], SOL_SOCKET, shut ? SO_ATTACH_FILTER : SO_DETACH_FILTER, &program,
               sizeof program);
  listener->shut = shut;
}

void sli_listener_count(sli_listener *listener, uint64_t now_ns) {
  refill(listener, now_ns);
  listener->left -= 1;
  listener->strangers++;
  bool enough = listener->left < 0 || listener->strangers >= listener->most_strangers;
  if (enough && !listener->shut) set_shut(listener, true);
}

uint64_t sli_listener_tend(sli_listener *listener, uint64_t now_ns) {
  if (!listener->shut) return 0;
  refill(listener, now_ns);
  if (listener->strangers > listener->most_strangers / 2) return now_ns + LOOK_NS;
  if (listener->left < SAVED_UP / 2)
    return now_ns + (uint64_t)((SAVED_UP / 2 - listener->left) / listener->per_second * 1e9) + 1;
  set_shut(listener, false);
  return 0;
}

/* ---- known connections ----------------------------------------------------------- */

void sli_listener_know(sli_listener *listener, int fd) {
  if (fd < 0) return;
  if (fd >= listener->nknown) {
    int count = SLI_MAX(256, 2 * fd);
    listener->known = sli_realloc(listener->known, (size_t)count, 1);
    memset(listener->known + listener->nknown, 0, (size_t)(count - listener->nknown));
    listener->nknown = count;
  }
  listener->strangers -= !listener->known[fd];
  listener->known[fd] = 1;
}

bool sli_listener_forget(sli_listener *listener, int fd) {
  bool known = fd >= 0 && fd < listener->nknown && listener->known[fd];
  if (known) listener->known[fd] = 0;
  else listener->strangers -= listener->strangers > 0;
  return known;
}
