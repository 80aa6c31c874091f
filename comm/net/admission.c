/* SPDX-License-Identifier: Apache-2.0 */
/* There is room for a fixed number of unauthenticated peers (guests). When another one connects,
 * the guest that has waited longest is dropped. A member sends its opening as soon as it is
 * connected, and retries if it was dropped. An attacker who holds many connections therefore keeps
 * no member out for long. */
#include "comm/net/admission.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 1024, GUESTS = 64, AT_ONCE = 64 };

typedef struct guest {
  int fd; /* -1: free */
  uint64_t came_ns;
  bool answered; /* the proof is next */
  uint32_t from;
  size_t got; /* bytes received of the current message */
  uint8_t proof[SLI_PROOF_BYTES];
  sli_handshake handshake;
} guest;

struct sli_admission {
  int listener, epoll, port;
  uint32_t self;
  uint8_t key[SLI_KEY_BYTES], word[SLI_WORD_BYTES];
  bool stranger_logged;
  guest guests[GUESTS];
};

/* ---- listening --------------------------------------------------------------------- */

static int listen_at(const char *host) {
  struct addrinfo *at, hints = {.ai_family = AF_UNSPEC,
                                .ai_socktype = SOCK_STREAM,
                                .ai_flags = AI_PASSIVE | AI_NUMERICHOST};
  int no = 0;
  if (getaddrinfo(host, "0", &hints, &at)) {
    errno = EADDRNOTAVAIL;
    return -1;
  }
  int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && at->ai_family == AF_INET6)
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  bool good = fd >= 0 && !bind(fd, at->ai_addr, at->ai_addrlen) && !listen(fd, BACKLOG);
  int reason = errno;
  freeaddrinfo(at);
  if (good) return fd;
  if (fd >= 0) close(fd);
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

static bool watch(const sli_admission *a, int fd, guest *g) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = g};
  return !epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &event);
}

sl_status sli_admission_open(const char *host, uint32_t self, const uint8_t key[SLI_KEY_BYTES],
                             const uint8_t word[SLI_WORD_BYTES], sli_admission **out) {
  sli_admission *a = sli_calloc(1, sizeof *a);
  bool any = !strcmp(host, "*");
  a->self = self;
  memcpy(a->key, key, sizeof a->key);
  memcpy(a->word, word, sizeof a->word);
  for (int i = 0; i < GUESTS; i++) a->guests[i].fd = -1;
  a->listener = listen_at(any ? "::" : host);
  if (a->listener < 0 && any) a->listener = listen_at("0.0.0.0");
  a->epoll = a->listener < 0 ? -1 : epoll_create1(EPOLL_CLOEXEC);
  if (a->epoll < 0 || !watch(a, a->listener, NULL)) {
    sl_status status = sl_fail(SL_E_IO, "process %u cannot listen for data at %s: %s", self, host,
                               strerror(errno));
    sli_admission_close(a);
    return status;
  }
  a->port = port_of(a->listener);
  *out = a;
  return SL_OK;
}

static void dismiss(guest *g) {
  if (g->fd >= 0) close(g->fd);
  g->fd = -1;
  sli_handshake_fini(&g->handshake);
}

void sli_admission_close(sli_admission *a) {
  if (!a) return;
  for (int i = 0; i < GUESTS; i++) dismiss(&a->guests[i]);
  if (a->listener >= 0) close(a->listener);
  if (a->epoll >= 0) close(a->epoll);
  explicit_bzero(a->key, sizeof a->key);
  free(a);
}

int sli_admission_port(const sli_admission *a) { return a->port; }

int sli_admission_fd(const sli_admission *a) { return a->epoll; }

/* ---- incoming connections ---------------------------------------------------------- */

/* Finds the guest that has waited longest, preferring guests without an opening. Returns NULL if
 * there are no guests. */
static guest *find_oldest(sli_admission *a) {
  guest *oldest[2] = {NULL, NULL};
  for (int i = 0; i < GUESTS; i++) {
    guest *g = &a->guests[i], **best = &oldest[g->answered];
    if (g->fd >= 0 && (!*best || g->came_ns < (*best)->came_ns)) *best = g;
  }
  return oldest[0] ? oldest[0] : oldest[1];
}

static guest *find_place(sli_admission *a) {
  for (int i = 0; i < GUESTS; i++)
    if (a->guests[i].fd < 0) return &a->guests[i];
  return find_oldest(a);
}

static bool accept_one(sli_admission *a) {
  int fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  guest *g = fd < 0 ? find_oldest(a) : find_place(a);
  if (fd < 0 && g && (errno == EMFILE || errno == ENFILE)) dismiss(g);
  if (fd < 0) return false;
  dismiss(g);
  *g = (guest){.fd = fd, .came_ns = sli_now_ns()};
  if (!watch(a, fd, g)) dismiss(g);
  return true;
}

/* ---- handshake messages ------------------------------------------------------------ */

/* Reads the next handshake message. Returns true if it is complete. A guest that disconnects is
 * dropped. */
static bool receive(guest *g) {
  uint8_t *to = g->answered ? g->proof : g->handshake.opening;
  size_t want = g->answered ? sizeof g->proof : sizeof g->handshake.opening;
  ssize_t got = recv(g->fd, to + g->got, want - g->got, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) dismiss(g);
  else g->got += (size_t)got;
  return g->fd >= 0 && g->got == want;
}

static void admission_refuse(sli_admission *a, guest *g) {
  if (!a->stranger_logged) sli_log("refused an unknown connection to the data plane");
  a->stranger_logged = true;
  dismiss(g);
}

/* Sends the answer. It fits into the socket buffer, because nothing has been sent on the connection
 * before. */
static void answer(sli_admission *a, guest *g) {
  sli_handshake *h = &g->handshake;
  if (!sli_handshake_answer(h, a->key, a->self, a->word, &g->from)) admission_refuse(a, g);
  else if (send(g->fd, h->answer, sizeof h->answer, MSG_NOSIGNAL) != sizeof h->answer) dismiss(g);
  g->answered = true;
  g->got = 0;
}

static void admit(sli_admission *a, guest *g, sli_admission_member *member, void *ctx) {
  if (!sli_handshake_check(&g->handshake, g->proof)) {
    admission_refuse(a, g);
    return;
  }
  epoll_ctl(a->epoll, EPOLL_CTL_DEL, g->fd, NULL);
  member(ctx, g->from, g->fd, &g->handshake);
  g->fd = -1;
  dismiss(g);
}

void sli_admission_progress(sli_admission *a, sli_admission_member *member, void *ctx) {
  struct epoll_event events[AT_ONCE];
  int count = epoll_wait(a->epoll, events, AT_ONCE, 0);
  for (int i = 0; i < count; i++) {
    guest *g = events[i].data.ptr;
    if (!g || g->fd < 0 || !receive(g)) continue;
    if (g->answered) admit(a, g, member, ctx);
    else answer(a, g);
  }
  /* Accept last: a new guest may take the place of one just handled. */
  for (int i = 0; i < count; i++)
    for (int k = 0; !events[i].data.ptr && k < AT_ONCE && accept_one(a); k++) continue;
}
