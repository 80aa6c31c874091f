/* SPDX-License-Identifier: Apache-2.0 */
/* Each message arrives in the other process's memory complete, once, and counted. Waiting costs no
 * CPU, a lost peer is reported by name within a second, and nothing hangs.
 * labels: computes more
 * needs: zeromq ucx */
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm/net/net.h"
#include "tests/support/processes.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

static const uint64_t second_ns = 1000000000;

static uint64_t seed;
static const char *transports;

/* ---- messages that verify themselves ------------------------------------------------- */

typedef struct header {
  uint64_t key;
  uint64_t bytes;
  int32_t from, to;
  uint64_t check;
} header;
_Static_assert(sizeof(header) == SLI_NET_HEADER_BYTES, "a header");

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static uint64_t key_of(int from, int to, int number) {
  return mix(seed + (uint64_t)from * 1000003 + (uint64_t)to * 1009 + (uint64_t)number * 8191 + 1);
}

/* Returns a log-uniform size from 0 to 8 MiB, often one at which UCX switches protocols. */
static size_t size_of(uint64_t key) {
  static const size_t edges[] = {0, 1, 8, 4096, 8192, 8256, 1 << 16, 1 << 20, 8 << 20};
  uint64_t r = mix(key ^ 77);
  if (r % 4 == 0) return edges[r / 4 % SLI_COUNT(edges)];
  size_t top = (size_t)1 << (r / 4 % 24);
  return top / 2 + mix(r) % (top / 2 + 1);
}

static uint64_t word_of(uint64_t key, size_t i) { return (key + i) * UINT64_C(0x9e3779b97f4a7c15); }

static void fill(void *data, uint64_t key, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word = word_of(key, i);
    memcpy((char *)data + i, &word, SLI_MIN(bytes - i, 8));
  }
}

static bool is_filled(const void *data, uint64_t key, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word = word_of(key, i);
    if (memcmp((const char *)data + i, &word, SLI_MIN(bytes - i, 8))) return false;
  }
  return true;
}

static header header_of(int from, int to, int number) {
  header h = {.key = key_of(from, to, number), .from = from, .to = to};
  h.bytes = size_of(h.key);
  h.check = mix(h.key ^ h.bytes);
  return h;
}

/* ---- a process and its net ------------------------------------------------------------- */

enum { REFUSED_KEY = 13, UNTOUCHED = 0xee };

typedef struct node {
  process *p;
  sli_net *net;
  process_blob addresses[PROCESSES_MOST];
  int arrived, lost;
  int lost_peer;
  char why[200];
  uint64_t bytes_from[PROCESSES_MOST], messages_from[PROCESSES_MOST], lost_at_ns;
  struct {
    header header;
    void *data;
  } pending[4096]; /* receives posted, not completed */
  int npending;
} node;

static void *place(void *ctx, int peer, const void *header_, size_t bytes) {
  node *n = ctx;
  header h;
  memcpy(&h, header_, sizeof h);
  if (h.key == REFUSED_KEY) return NULL;
  CHECK(h.from == peer && h.to == n->p->self && h.bytes == bytes && h.check == mix(h.key ^ bytes),
        "the header is as it was sent: %d to %d, %zu bytes", h.from, h.to, bytes);
  CHECK(n->npending < (int)SLI_COUNT(n->pending), "room");
  void *data = malloc(bytes);
  memset(data, UNTOUCHED, SLI_MIN(bytes, 64));
  n->pending[n->npending].header = h;
  n->pending[n->npending++].data = data;
  return data;
}

static void check_arrived(node *n, const header *h, size_t bytes) {
  int i = 0;
  while (i < n->npending && memcmp(&n->pending[i].header, h, sizeof *h)) i++;
  CHECK(i < n->npending, "a message arrives once, and after it was placed");
  CHECK(is_filled(n->pending[i].data, h->key, bytes), "%zu bytes from %d are as they were sent",
        bytes, h->from);
  free(n->pending[i].data);
  n->pending[i] = n->pending[--n->npending];
}

static void arrived(void *ctx, int peer, const void *header_, size_t bytes) {
  node *n = ctx;
  header h;
  memcpy(&h, header_, sizeof h);
  CHECK(h.from == peer && h.bytes == bytes, "what arrives is what was sent");
  if (bytes) check_arrived(n, &h, bytes);
  n->arrived++;
  n->messages_from[peer]++;
  n->bytes_from[peer] += bytes;
}

static void lost(void *ctx, int peer, const char *why) {
  node *n = ctx;
  n->lost++;
  n->lost_peer = peer;
  n->lost_at_ns = sli_now_ns();
  snprintf(n->why, sizeof n->why, "%s", why);
}

static node *open_node(process *p) {
  node *n = calloc(1, sizeof *n);
  n->p = p;
  n->lost_peer = -1;
  sli_net_options options = {.self = p->self,
                             .npeers = p->n,
                             .key = "the same for all",
                             .transports = transports,
                             .events = {n, place, arrived, lost}};
  CHECK(!sli_net_open(&options, &n->net), "%s", sl_detail());
  if (p->self) CHECK(!sli_net_listen(n->net, "127.0.0.1"), "%s", sl_detail());
  size_t bytes;
  const void *address = sli_net_address(n->net, &bytes);
  process_exchange(p, address, bytes, n->addresses);
  return n;
}

static void connect_all(node *n) {
  for (int i = 0; i < n->p->n; i++)
    if (i != n->p->self)
      CHECK(!sli_net_connect(n->net, i, "127.0.0.1", n->addresses[i].data, n->addresses[i].bytes),
            "%s", sl_detail());
}

static node *open_connected(process *p) {
  node *n = open_node(p);
  connect_all(n);
  return n;
}

static void await_ready(node *n) {
  uint64_t end = sli_now_ns() + 20 * second_ns;
  while (!sli_net_ready(n->net)) {
    CHECK(sli_now_ns() < end && !n->lost, "process %d: all connections come to stand: %s",
          n->p->self, n->why);
    sli_net_wait(n->net, 10000000);
  }
}

static void go_on(void *net) { sli_net_wait(net, 1000000); }

static void release_node(node *n) {
  sli_net_close(n->net);
  for (int i = 0; i < n->p->n; i++) free(n->addresses[i].data);
  for (int i = 0; i < n->npending; i++) free(n->pending[i].data);
  free(n);
}

static void close_node(node *n) {
  process_meet(n->p, go_on, n->net);
  release_node(n);
}

static void finish(node *n, uint64_t fence) {
  uint64_t end = sli_now_ns() + 20 * second_ns;
  while (!sli_net_done(n->net, fence)) {
    CHECK(sli_now_ns() < end, "a send completes");
    sli_net_wait(n->net, second_ns);
  }
}

/* Waits until that many messages have arrived or that many peers were lost. */
static void wait_for(node *n, int arrived_, int lost_) {
  uint64_t end = sli_now_ns() + 20 * second_ns;
  while (n->arrived < arrived_ || n->lost < lost_) {
    CHECK(sli_now_ns() < end, "process %d: %d of %d messages arrive, %d of %d are lost in time",
          n->p->self, n->arrived, arrived_, n->lost, lost_);
    sli_net_wait(n->net, second_ns);
  }
}

static void send_filled(node *n, int to, size_t bytes, uint64_t key) {
  header h = {key, bytes, n->p->self, to, mix(key ^ bytes)};
  void *data = malloc(bytes + 1);
  fill(data, key, bytes);
  uint64_t fence;
  if (!sli_net_send(n->net, to, &h, data, bytes, &fence)) finish(n, fence);
  free(data);
}

/* ---- random traffic ---------------------------------------------------------------------- */

typedef struct sending {
  void *data;
  uint64_t fence;
  size_t bytes;
} sending;

static int messages_to_each;

/* Overwrites the buffer: from now on the sender may reuse it. */
static void release(sending *s) {
  memset(s->data, 0, s->bytes);
  free(s->data);
  s->data = NULL;
}

static void release_done(node *n, sending *flying, int nflying) {
  for (int i = 0; i < nflying; i++)
    if (flying[i].data && sli_net_done(n->net, flying[i].fence)) release(&flying[i]);
}

static sending *find_free(node *n, sending *flying, int nflying) {
  for (;;) {
    release_done(n, flying, nflying);
    for (int i = 0; i < nflying; i++)
      if (!flying[i].data) return &flying[i];
    sli_net_wait(n->net, second_ns);
  }
}

static void send_random(node *n) {
  process *p = n->p;
  sending flying[24] = {0};
  for (int k = 0; k < messages_to_each; k++) {
    for (int to = 0; to < p->n; to++) {
      if (to == p->self) continue;
      sending *s = find_free(n, flying, SLI_COUNT(flying));
      header h = header_of(p->self, to, k);
      s->bytes = h.bytes;
      s->data = malloc(h.bytes + 1);
      fill(s->data, h.key, h.bytes);
      if (sli_net_send(n->net, to, &h, s->data, h.bytes, &s->fence)) release(s);
      memset(&h, 0, sizeof h); /* the header was copied */
    }
  }
  for (size_t i = 0; i < SLI_COUNT(flying); i++)
    if (flying[i].data) finish(n, flying[i].fence), release(&flying[i]);
}

static uint64_t bytes_between(int from, int to) {
  uint64_t sum = 0;
  for (int k = 0; k < messages_to_each; k++) sum += header_of(from, to, k).bytes;
  return sum;
}

static void check_traffic(node *n, int peer) {
  int self = n->p->self;
  sli_net_traffic_counts c = sli_net_traffic(n->net, peer);
  uint64_t out = bytes_between(self, peer), in = bytes_between(peer, self);
  CHECK(n->bytes_from[peer] == in && n->messages_from[peer] == (uint64_t)messages_to_each,
        "all that %d sent to %d has arrived", peer, self);
  CHECK(c.sent_bytes == out && c.received_bytes == in && c.sent == (uint64_t)messages_to_each &&
            c.received == (uint64_t)messages_to_each,
        "traffic is counted to the byte");
}

static void random_traffic(process *p) {
  node *n = open_connected(p);
  if (messages_to_each % 8) await_ready(n); /* it may also skip this */
  send_random(n);
  wait_for(n, messages_to_each * (p->n - 1), 0);
  CHECK(n->npending == 0 && n->lost == 0, "nothing is left over and nobody was lost");
  for (int i = 0; i < p->n; i++)
    if (i != p->self) check_traffic(n, i);
  close_node(n);
}

/* ---- waiting and waking ------------------------------------------------------------------ */

static sli_net *woken;
static atomic_int wakes;

static void *wake_later(void *arg) {
  (void)arg;
  usleep(50000);
  atomic_fetch_add(&wakes, 1);
  sli_net_wake(woken);
  return NULL;
}

static void on_alarm(int signal_) {
  (void)signal_;
  atomic_fetch_add(&wakes, 1);
  sli_net_wake(woken);
}

/* The signal handler runs in this thread; the waiting thread blocks the signal. */
static void *raise_later(void *arg) {
  (void)arg;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  usleep(50000);
  raise(SIGALRM);
  return NULL;
}

static void check_woken_by(sli_net *net, void *(*how)(void *)) {
  pthread_t thread;
  int before = atomic_load(&wakes);
  uint64_t start = sli_now_ns();
  CHECK(!pthread_create(&thread, NULL, how, NULL), "a thread");
  while (atomic_load(&wakes) == before) sli_net_wait(net, 10 * second_ns);
  CHECK(sli_now_ns() - start < 2 * second_ns, "a wake ends the wait");
  pthread_join(thread, NULL);
}

static void waking(process *p) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  signal(SIGALRM, on_alarm);
  node *n = open_connected(p);
  woken = n->net;
  check_woken_by(n->net, wake_later);
  check_woken_by(n->net, raise_later);
  for (int i = 0; i < 1000; i++) {
    uint64_t start = sli_now_ns();
    sli_net_wake(n->net);
    sli_net_wait(n->net, 10 * second_ns);
    CHECK(sli_now_ns() - start < second_ns, "a wake before a wait ends it");
  }
  close_node(n);
}

static uint64_t cpu_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * second_ns + (uint64_t)now.tv_nsec;
}

/* Waits half a second without traffic. Returns whether that cost little CPU and ended in time. */
static bool idle(node *n, bool last) {
  uint64_t end = sli_now_ns() + second_ns / 2, before = cpu_ns();
  int waits = 0;
  for (uint64_t now; (now = sli_now_ns()) < end; waits++) sli_net_wait(n->net, end - now);
  uint64_t spent = cpu_ns() - before, late = sli_now_ns() - end;
  bool good = spent < second_ns / 40 && late < second_ns / 5;
  CHECK(good || !last, "half a second of waiting costs %.1f ms of CPU and ends %.1f ms late",
        (double)spent * 1e-6, (double)late * 1e-6);
  printf("idle: %.2f ms of CPU in half a second, %d waits\n", (double)spent * 1e-6, waits);
  return good;
}

/* A busy machine may be late, but not five times in a row. */
static void idling(process *p) {
  node *n = open_connected(p);
  await_ready(n);
  send_filled(n, 1 - p->self, 1 << 20, 5);
  wait_for(n, 1, 0);
  for (int i = 1; !idle(n, i == 5);) i++;
  close_node(n);
}

/* ---- lost peers --------------------------------------------------------------------------- */

/* Process 1 dies; all others, busy or idle, notice. */
static void dying(process *p) {
  node *n = open_connected(p);
  _Atomic uint64_t *died = p->shared;
  for (int i = 0; i < p->n; i++)
    if (i != p->self) send_filled(n, i, i % 2 ? 100 : 1 << 20, 100 + (uint64_t)i);
  wait_for(n, p->n - 1, 0);
  process_meet(p, go_on, n->net);
  if (p->self == 1) {
    usleep(10000);
    atomic_store(died, sli_now_ns());
    kill(getpid(), SIGKILL);
  }
  size_t bytes = 8 << 20;
  void *data = malloc(bytes);
  fill(data, 1, bytes);
  uint64_t fences[4];
  bool done[4];
  header h = {.key = 1, .bytes = bytes, .from = p->self, .to = 1, .check = mix(1 ^ bytes)};
  for (int i = 0; i < 4 && p->self == 0; i++)
    done[i] = sli_net_send(n->net, 1, &h, data, bytes, &fences[i]);
  wait_for(n, 0, 1);
  uint64_t took = n->lost_at_ns - atomic_load(died);
  CHECK(n->lost_peer == 1, "the one who died is named, not %d", n->lost_peer);
  CHECK(took < second_ns, "it is noticed within a second, not %.0f ms", (double)took * 1e-6);
  printf("killed: %d heard after %.0f ms: %s\n", p->self, (double)took * 1e-6, n->why);
  for (int i = 0; i < 4 && p->self == 0; i++)
    CHECK(done[i] || sli_net_done(n->net, fences[i]), "what was under way to the dead is done");
  free(data);
  uint64_t fence;
  CHECK(sli_net_send(n->net, 1, &h, &h, 8, &fence), "what is sent to the dead is done at once");
  int before = n->arrived;
  process_meet(p, go_on, n->net);
  for (int i = 0; i < p->n; i++)
    if (i != p->self && i != 1) send_filled(n, i, 70000, 200 + (uint64_t)p->self);
  wait_for(n, before + p->n - 2, 0);
  CHECK(n->lost == 1, "it is told once, and nobody else is lost");
  close_node(n);
}

/* Process 1 is stopped while process 0 sends to it; process 0 must still close. */
static void stopped(process *p) {
  node *n = open_connected(p);
  _Atomic pid_t *pid = p->shared;
  if (p->self == 1) {
    atomic_store(pid, getpid());
    process_meet(p, go_on, n->net);
    raise(SIGSTOP);
  }
  process_meet(p, go_on, n->net);
  usleep(50000);
  size_t bytes = 8 << 20;
  void *data = calloc(1, bytes);
  header h = {.key = 1, .bytes = bytes, .from = 0, .to = 1, .check = mix(1 ^ bytes)};
  uint64_t fence;
  for (int i = 0; i < 20; i++) sli_net_send(n->net, 1, &h, data, i % 2 ? bytes : 5000, &fence);
  for (int i = 0; i < 10; i++) sli_net_wait(n->net, 1000000);
  uint64_t start = sli_now_ns();
  sli_net_close(n->net);
  CHECK(sli_now_ns() - start < 2 * second_ns, "closing does not wait for the peer");
  kill(atomic_load(pid), SIGKILL);
  free(data);
  for (int i = 0; i < p->n; i++) free(n->addresses[i].data);
  free(n);
}

/* ---- parting ----------------------------------------------------------------------------- */

#define PARTINGS test_many(40, 10, 40)
static int parting_number;

static uint64_t parting_key(int from, int to) { return key_of(from, to, 1000 + parting_number); }

/* All connections are up, a third of them carry a message, and each process leaves at any time. */
static void parting(process *p) {
  node *n = open_connected(p);
  char data[PROCESSES_MOST][104];
  await_ready(n);
  process_meet(p, go_on, n->net);
  for (int to = 0; to < p->n; to++) {
    header h = {.key = parting_key(p->self, to), .bytes = 100, .from = p->self, .to = to};
    h.check = mix(h.key ^ h.bytes);
    fill(data[to], h.key, sizeof data[to]);
    uint64_t fence;
    if (to != p->self && h.key % 3 == 0) sli_net_send(n->net, to, &h, data[to], h.bytes, &fence);
  }
  uint64_t end = sli_now_ns() + parting_key(p->self, p->self) % 2000000;
  while (sli_now_ns() < end) sli_net_wait(n->net, 10000);
  release_node(n);
}

static void part(void) {
  for (parting_number = 0; parting_number < PARTINGS; parting_number++)
    CHECK(processes_run(4, parting), "going harms nobody");
}

/* ---- invalid messages ---------------------------------------------------------------------- */

static void refusing(process *p) {
  static const size_t sizes[] = {100, 4 << 20};
  for (size_t i = 0; i < SLI_COUNT(sizes); i++) {
    node *n = open_connected(p);
    if (p->self == 0) {
      send_filled(n, 1, sizes[i], REFUSED_KEY);
      send_filled(n, 1, 100, 1);
    } else {
      wait_for(n, 0, 1);
      CHECK(n->lost_peer == 0 && strstr(n->why, "invalid size"), "the sender is lost: %s", n->why);
      for (int k = 0; k < 20; k++) sli_net_wait(n->net, 1000000);
      CHECK(n->arrived == 0 && n->lost == 1, "nothing comes from it any more");
    }
    close_node(n);
  }
}

/* The address of a process's first transport: behind the list and a length follow the word that
 * connecting peers repeat, and the port if there is one. */
enum { LIST_BYTES = 64, WORD_BYTES = 16 };
static uint8_t *part_of(node *n, int process) {
  return (uint8_t *)n->addresses[process].data + LIST_BYTES + sizeof(size_t);
}

/* Process 0 has a wrong address for process 1. */
static void strange(process *p) {
  node *n = open_node(p);
  if (p->self == 0) part_of(n, 1)[0] ^= 1;
  connect_all(n);
  if (p->self == 1) dup2(STDOUT_FILENO, STDERR_FILENO); /* it reports that */
  header h = {.key = 1, .bytes = 100, .to = 1, .check = mix(1 ^ 100)};
  char data[100] = {0};
  uint64_t fence;
  if (p->self == 0) sli_net_send(n->net, 1, &h, data, sizeof data, &fence);
  if (p->self == 2) send_filled(n, 1, 200, 3);
  if (p->self == 1) wait_for(n, 1, 0);
  process_meet(p, go_on, n->net);
  CHECK(n->arrived == (p->self == 1) && n->lost == 0, "a stranger is not heard and harms nobody");
  close_node(n);
}

/* ---- strangers on the port --------------------------------------------------------------- */

enum { IDLE_CONNECTIONS = 1200, DESCRIPTORS = 256 };

static int knock(int port, const void *bytes, size_t count) {
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&at, sizeof at), "a stranger gets through");
  if (count) send(fd, bytes, count, MSG_NOSIGNAL); /* the peer may have closed already */
  return fd;
}

/* Sends what once ended jobs: nothing, random bytes, half an opening, an invented opening. */
static void bother(int port) {
  static const uint8_t ucx[13] = {0x78, 0x56, 0x34, 0x12, 0xbe, 0xba, 0xfe, 0xca, 0, 0, 0, 0, 0x80};
  uint8_t bytes[4096];
  knock(port, ucx, sizeof ucx);
  for (int i = 0; i < 40; i++) {
    for (size_t k = 0; k < sizeof bytes; k++)
      bytes[k] = (uint8_t)mix(seed + (uint64_t)i * 4096 + k);
    if (i % 2) memcpy(bytes, "SLUICE\1", 8);
    knock(port, bytes, i % 4 == 3 ? 96 : mix(seed + (uint64_t)i) % sizeof bytes);
  }
  for (int i = 0; i < IDLE_CONNECTIONS; i++) knock(port, bytes, 0);
}

/* A stranger holds 1,200 connections to process 1, which may have 256 descriptors, and keeps
 * sending while process 0 connects. Process 2 plays the stranger before it joins. */
static void bothered(process *p) {
  struct rlimit many = {p->self == 1 ? DESCRIPTORS : 4096, 4096};
  CHECK(!setrlimit(RLIMIT_NOFILE, &many), "descriptors");
  node *n = open_node(p);
  uint16_t port;
  memcpy(&port, part_of(n, 1) + WORD_BYTES, sizeof port);
  if (p->self == 1) dup2(STDOUT_FILENO, STDERR_FILENO); /* it reports that */
  if (p->self == 1) connect_all(n);
  if (p->self == 2) bother(port);
  process_meet(p, p->self == 1 ? go_on : NULL, n->net);
  if (p->self != 1) connect_all(n);
  if (p->self == 2) bother(port);
  await_ready(n);
  if (p->self != 1) send_filled(n, 1, 1 << 20, 7);
  if (p->self == 1) wait_for(n, 2, 0);
  CHECK(n->lost == 0, "nobody is lost");
  if (p->self == 2) {
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    process_meet(p, go_on, n->net);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&at, sizeof at), "nobody listens any more");
  } else {
    process_meet(p, go_on, n->net);
  }
  close_node(n);
}

/* ---- disagreement ------------------------------------------------------------------------ */

static void disagreeing(process *p) {
  transports = p->self ? "tcp" : "encrypted";
  node *n = open_node(p);
  int peer = 1 - p->self;
  CHECK(sli_net_connect(n->net, peer, "127.0.0.1", n->addresses[peer].data,
                        n->addresses[peer].bytes) == SL_E_INPUT &&
            strstr(sl_detail(), "\"tcp\"") && strstr(sl_detail(), "\"encrypted\""),
        "it is said who sends how: %s", sl_detail());
  close_node(n);
}

static void check_lists(void) {
  static const char *const wrong[] = {"", "tcp,", "tcp,tcp", "udp", "memory, tcp", "tcp,memory,x"};
  for (size_t i = 0; i < SLI_COUNT(wrong); i++) {
    sli_net *net;
    sli_net_options options = {.npeers = 2, .key = "", .transports = wrong[i]};
    CHECK(sli_net_open(&options, &net) == SL_E_USAGE && strstr(sl_detail(), "encrypted"),
          "\"%s\" is no list of transports", wrong[i]);
  }
}

/* -------------------------------------------------------------------------------------------- */

static void check_all(const char *list) {
  transports = list;
  printf("%s\n", list);
  messages_to_each = 60;
  CHECK(processes_run(2, random_traffic), "two processes send each other anything");
  messages_to_each = 12;
  CHECK(processes_run(4, random_traffic), "four processes send each other anything");
  CHECK(processes_run(2, waking), "a wait is ended from outside");
  CHECK(processes_run(2, idling), "waiting costs nothing");
  CHECK(processes_run(4, dying), "the killed are named");
  part();
  CHECK(processes_run(2, refusing), "what there can not be is refused");
  CHECK(processes_run(3, strange), "strangers are not heard");
  CHECK(processes_run(2, stopped), "closing does not hang");
}

static void strangers_keep_nobody_out(void) {
  CHECK(processes_run(3, bothered), "a process was kept out");
}

static void who_disagrees_is_told(void) {
  CHECK(processes_run(2, disagreeing), "a process was not told");
}

int main(int argc, char **argv) {
  seed = seed_of(argc, argv, 1);
  setenv("UCX_TLS", "tcp", 1); /* only affects the fabric */
  RUN(check_lists);
  RUN_AS("memory,tcp", check_all("memory,tcp"));
  RUN_AS("tcp", check_all("tcp"));
  RUN_AS("encrypted", check_all("encrypted"));
  RUN_AS("fabric", check_all("fabric"));
  transports = "tcp";
  RUN(strangers_keep_nobody_out);
  RUN(who_disagrees_is_told);
  return 0;
}
