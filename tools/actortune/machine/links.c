/* SPDX-License-Identifier: Apache-2.0 */
/* Latency and rate between two processes. They exchange messages, half of the time with computing
 * threads beside them, as in a run with devices. The result is the first quartile of the trips: a
 * message waits for a busy core, which in runs belongs to a device and not to an unrelated
 * program. */
#include "tools/actortune/machine/links.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "comm/net/net.h"

const double link_sizes[LINK_SIZES] = {4096, 65536, 1 << 20, 8 << 20};
enum {
  MOST_BYTES = 8 << 20,
  FEWEST_TRIPS = 5,
  MOST_TRIPS = 64,
  MOST_ADDRESS = 1 << 16,
  MOST_BUSY = 1024
};
/* timeout of a message; time for all messages of a size */
static const uint64_t patience_ns = 20000000000, size_ns = 100000000;

/* One of the two processes. */
typedef struct end {
  int self, socket; /* the process's number; its socket to the other until they are connected */
  const char *key;
  sli_net *net;
  char *data, *place;
  int trips, arrived; /* trips begun; messages received */
  bool was_last;      /* the latest message was the last of its size */
  bool lost;
} end;

/* ---- messages -------------------------------------------------------------------------------- */

static void *on_place(void *ctx, int peer, const void *header, size_t bytes) {
  (void)peer, (void)header;
  return bytes <= MOST_BYTES ? ((end *)ctx)->place : NULL;
}

static void on_arrived(void *ctx, int peer, const void *header, size_t bytes) {
  (void)peer, (void)bytes;
  ((end *)ctx)->arrived++;
  ((end *)ctx)->was_last = *(const char *)header;
}

static void on_lost(void *ctx, int peer, const char *why) {
  (void)peer, (void)why;
  ((end *)ctx)->lost = true;
}

/* Sends this process's address to the other process, and receives the other's. */
static bool connect_ends(end *e) {
  char there[MOST_ADDRESS];
  size_t bytes;
  const void *here = sli_net_address(e->net, &bytes);
  if (send(e->socket, here, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) return false;
  ssize_t got = recv(e->socket, there, sizeof there, 0);
  if (got <= 0 || sli_net_connect(e->net, 1 - e->self, "127.0.0.1", there, (size_t)got))
    return false;
  uint64_t until = sli_now_ns() + patience_ns;
  while (!sli_net_ready(e->net) && !e->lost && sli_now_ns() < until) sli_net_wait(e->net, 1000000);
  return sli_net_ready(e->net) && !e->lost;
}

static bool open_end(end *e) {
  const sli_net_options options = {.self = e->self,
                                   .npeers = 2,
                                   .key = e->key,
                                   .transports = getenv("SLUICE_TRANSPORTS"),
                                   .events = {e, on_place, on_arrived, on_lost}};
  e->data = sli_calloc(MOST_BYTES, 1), e->place = sli_calloc(MOST_BYTES, 1);
  memset(e->data, 1, MOST_BYTES), memset(e->place, 1, MOST_BYTES);
  return !sli_net_open(&options, &e->net) && !sli_net_listen(e->net, "127.0.0.1") &&
         connect_ends(e);
}

/* Waits until both processes have received everything, before either closes. The network runs
 * meanwhile, because a message may still have to be fetched. */
static bool meet(end *e) {
  char word = 1;
  uint64_t until = sli_now_ns() + patience_ns;
  ssize_t got = -1;
  if (send(e->socket, &word, 1, MSG_NOSIGNAL) != 1) return false;
  while ((got = recv(e->socket, &word, 1, MSG_DONTWAIT)) < 0 && sli_now_ns() < until)
    sli_net_wait(e->net, 1000000);
  return got == 1;
}

static void close_end(end *e) {
  sli_net_close(e->net);
  free(e->data), free(e->place);
}

static bool send_message(end *e, size_t bytes, bool last, uint64_t until) {
  char header[SLI_NET_HEADER_BYTES] = {(char)last};
  uint64_t fence;
  bool done = sli_net_send(e->net, 1 - e->self, header, e->data, bytes, &fence);
  while (!done && !e->lost && sli_now_ns() < until) {
    sli_net_wait(e->net, 1000000);
    done = sli_net_done(e->net, fence);
  }
  return done && !e->lost;
}

static bool await_message(end *e, int number, uint64_t until) {
  while (e->arrived < number && !e->lost && sli_now_ns() < until) sli_net_wait(e->net, 1000000);
  return e->arrived >= number;
}

/* Makes a round trip and returns the seconds of one direction. `last` says whether the trip is the
 * last of its size: process 0 decides, and process 1 learns it from the message. A message may
 * arrive before its trip begins here, because process 1 may still wait for the network or for the
 * end of its send. The message therefore carries the trip's number, regardless of how many have
 * arrived. */
static bool make_trip(end *e, size_t bytes, bool *last, double *seconds) {
  uint64_t begun = sli_now_ns(), until = begun + patience_ns;
  int number = ++e->trips;
  bool good = !e->self || await_message(e, number, until);
  if (e->self) *last = e->was_last; /* the next message comes after the reply to this one */
  good = good && send_message(e, bytes, *last, until);
  good = good && (e->self || await_message(e, number, until));
  *seconds = (double)(sli_now_ns() - begun) * 0.5e-9;
  return good;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Makes all trips of a size. */
static bool make_trips(end *e, size_t bytes, double *one) {
  double seconds[MOST_TRIPS];
  uint64_t until = sli_now_ns() + size_ns;
  bool good = true, last = false;
  int count = 0;
  for (; good && !last; count++) {
    last = count == MOST_TRIPS - 1 || (count >= FEWEST_TRIPS - 1 && sli_now_ns() > until);
    good = make_trip(e, bytes, &last, &seconds[count]);
  }
  if (good) qsort(seconds, (size_t)count, sizeof *seconds, by_size), *one = seconds[count / 4];
  return good;
}

/* ---- computing threads ----------------------------------------------------------------------- */

typedef struct load {
  pthread_t threads[MOST_BUSY];
  int count;
  atomic_bool ends;
} load;

/* Computes in slices of about a millisecond, like firings, so that other threads can have the core
 * in between. */
static void *compute(void *arg) {
  load *l = arg;
  volatile double sum = 0;
  while (!atomic_load_explicit(&l->ends, memory_order_relaxed)) {
    for (int i = 0; i < 200000; i++) sum = sum + i;
    sched_yield();
  }
  return NULL;
}

static void begin_load(load *l, int count) {
  l->count = 0;
  atomic_init(&l->ends, false);
  while (l->count < SLI_MIN(count, MOST_BUSY) &&
         !pthread_create(&l->threads[l->count], NULL, compute, l))
    l->count++;
}

static void end_load(load *l) {
  atomic_store_explicit(&l->ends, true, memory_order_relaxed);
  for (int i = 0; i < l->count; i++) pthread_join(l->threads[i], NULL);
}

/* ---- both processes -------------------------------------------------------------------------- */

/* Measures in one process. Process 0 has the larger half of the devices. */
static bool measure_end(end *e, int devices, double seconds[LINK_SIZES][2]) {
  bool good = open_end(e);
  for (int busy = 0; busy < 2 && good; busy++) {
    load l = {.count = 0};
    begin_load(&l, busy ? (devices + 1 - e->self) / 2 : 0);
    for (int s = 0; s < LINK_SIZES && good; s++)
      good = make_trips(e, (size_t)link_sizes[s], &seconds[s][busy]);
    end_load(&l);
  }
  good = good && meet(e);
  close_end(e);
  return good;
}

/* Starts one process. Separate processes leave no library threads behind. */
static pid_t start_end(int self, const char *key, const int *sockets, int devices, int results) {
  pid_t pid = fork();
  if (pid) return pid;
  end e = {.self = self, .socket = sockets[self], .key = key};
  double seconds[LINK_SIZES][2];
  close(sockets[1 - self]);
  bool good = measure_end(&e, devices, seconds);
  if (good && !self) good = write(results, seconds, sizeof seconds) == sizeof seconds;
  _exit(!good);
}

static bool await_end(pid_t pid) {
  int how = 0;
  return pid > 0 && waitpid(pid, &how, 0) == pid && WIFEXITED(how) && !WEXITSTATUS(how);
}

/* Makes a random key, so that no other process can join. */
static bool make_key(char key[2 * sizeof(uint64_t) + 1]) {
  uint64_t word;
  bool good = getrandom(&word, sizeof word, 0) == sizeof word;
  if (good) snprintf(key, 2 * sizeof word + 1, "%016llx", (unsigned long long)word);
  return good;
}

sl_status links_measure(int devices, double seconds[LINK_SIZES][2]) {
  int sockets[2], results[2];
  char key[2 * sizeof(uint64_t) + 1];
  if (!make_key(key)) return sl_fail(SL_E_IO, "cannot measure links: no random numbers");
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets))
    return sl_fail(SL_E_IO, "cannot measure links: no sockets");
  if (pipe(results)) {
    close(sockets[0]), close(sockets[1]);
    return sl_fail(SL_E_IO, "cannot measure links: no pipe");
  }
  pid_t pids[2];
  for (int self = 0; self < 2; self++)
    pids[self] = start_end(self, key, sockets, devices, results[1]);
  close(sockets[0]), close(sockets[1]), close(results[1]);
  bool good = await_end(pids[0]);
  good = await_end(pids[1]) && good;
  good = good && read(results[0], seconds, LINK_SIZES * sizeof *seconds) ==
                     (ssize_t)(LINK_SIZES * sizeof *seconds);
  close(results[0]);
  return good ? SL_OK
              : sl_fail(SL_E_IO,
                        "links between processes could not be measured: no message came through");
}
