/* SPDX-License-Identifier: Apache-2.0 */
/* Compares sli_net with plain UCX between two processes on this machine: the round trip time of 8
 * bytes, and the bandwidth of 16 MiB messages with two in flight.
 *
 *   net        sli_net over shared memory, in a loop around sli_net_progress
 *   waiting    sli_net over shared memory, in a loop around sli_net_wait
 *   ucx        UCX in its own loop, configured like sli_net to detect peers that die
 *   ucx_bare   UCX with its defaults, which do not detect them
 *   tcp        sli_net over its own TCP connections, on loopback
 *   encrypted  sli_net over its own TCP connections, encrypted
 *   ucx_tcp    UCX's TCP transport, on loopback
 *
 * Kinds that are compared take turns. At the end each prints the median of its rounds, the best
 * round, which a busy machine affects least, and the median of the ratios by round. Each process
 * is bound to its own core. A busy machine runs fewer rounds; SIGALRM ends the benchmark after a
 * minute.
 *
 * needs: zeromq ucx */
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "comm/net/net.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"

enum {
  ROUNDS = 15,
  TRIPS = 2000,
  TRIPS_BETWEEN_LOOKS = 64, /* round trips between reads of the clock */
  STREAM = 12,
  UNDER_WAY = 2,
  LONG_BYTES = 16 << 20,
  TRIPS_NS = 100 * 1000 * 1000, /* time limit of TRIPS */
  END_SECONDS = 60,
};
static const uint64_t rounds_ns = 4000000000; /* time limit of ROUNDS */

typedef struct line line; /* connection to the other process */
typedef struct line_kind {
  const char *name;
  void (*open)(line *l, process *p);
  void (*send)(line *l, const void *data, size_t bytes); /* called while outstanding < UNDER_WAY */
  void (*progress)(line *l);                             /* decrements outstanding */
} line_kind;

struct line {
  const line_kind *kind;
  int self, outstanding;
  uint64_t received, awaited;
  char *data[UNDER_WAY], *places[UNDER_WAY];
  sli_net *net;
  uint64_t fences[UNDER_WAY];
  ucp_context_h context;
  ucp_worker_h worker;
  ucp_ep_h endpoint;
};

static void *next_place(line *l) { return l->places[l->received % UNDER_WAY]; }

static char *map_touched(size_t bytes) {
  char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(data != MAP_FAILED, "%zu bytes", bytes);
  memset(data, 1, bytes);
  return data;
}

/* ---- sli_net ---------------------------------------------------------------------------- */

static void *net_place(void *ctx, int peer, const void *header, size_t bytes) {
  (void)peer, (void)header, (void)bytes;
  return next_place(ctx);
}

static void net_arrived(void *ctx, int peer, const void *header, size_t bytes) {
  (void)peer, (void)header, (void)bytes;
  ((line *)ctx)->received++;
}

static void net_lost(void *ctx, int peer, const char *why) {
  (void)ctx;
  CHECK(false, "process %d was lost: %s", peer, why);
}

static void open_over(line *l, process *p, const char *transport) {
  sli_net_options options = {.self = p->self,
                             .npeers = p->n,
                             .key = "key",
                             .transports = transport,
                             .events = {l, net_place, net_arrived, net_lost}};
  CHECK(!sli_net_open(&options, &l->net), "%s", sl_detail());
  CHECK(!sli_net_listen(l->net, "127.0.0.1"), "%s", sl_detail());
  process_blob all[PROCESSES_MOST];
  size_t bytes;
  const void *address = sli_net_address(l->net, &bytes);
  process_exchange(p, address, bytes, all);
  int peer = 1 - p->self;
  CHECK(!sli_net_connect(l->net, peer, "127.0.0.1", all[peer].data, all[peer].bytes), "%s",
        sl_detail());
  while (!sli_net_ready(l->net)) sli_net_wait(l->net, 1000000);
}

static void net_open(line *l, process *p) { open_over(l, p, "memory"); }
static void tcp_open(line *l, process *p) { open_over(l, p, "tcp"); }
static void encrypted_open(line *l, process *p) { open_over(l, p, "encrypted"); }

static void net_send(line *l, const void *data, size_t bytes) {
  char header[SLI_NET_HEADER_BYTES] = {0};
  uint64_t fence;
  if (!sli_net_send(l->net, 1 - l->self, header, data, bytes, &fence))
    l->fences[l->outstanding++] = fence;
}

static void net_look(line *l) {
  for (int i = 0; i < l->outstanding; i++)
    if (sli_net_done(l->net, l->fences[i])) l->fences[i--] = l->fences[--l->outstanding];
}

static void net_progress(line *l) {
  sli_net_progress(l->net);
  net_look(l);
}

static void net_wait(line *l) {
  sli_net_wait(l->net, 1000000000);
  net_look(l);
}

/* ---- UCX alone ---------------------------------------------------------------------------- */

static void ucx_received(void *request, ucs_status_t status, size_t bytes, void *arg) {
  (void)bytes;
  CHECK(!status, "%s", ucs_status_string(status));
  ((line *)arg)->received++;
  ucp_request_free(request);
}

static ucs_status_t ucx_message(void *arg, const void *header, size_t header_bytes, void *data,
                                size_t bytes, const ucp_am_recv_param_t *param) {
  (void)header, (void)header_bytes;
  line *l = arg;
  if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
    memcpy(next_place(l), data, bytes);
    l->received++;
    return UCS_OK;
  }
  ucp_request_param_t how = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
      .cb.recv_am = ucx_received,
      .user_data = l,
  };
  CHECK(UCS_PTR_IS_PTR(ucp_am_recv_data_nbx(l->worker, data, next_place(l), bytes, &how)), "recv");
  return UCS_INPROGRESS;
}

static void ucx_failed(void *arg, ucp_ep_h endpoint, ucs_status_t status) {
  (void)arg, (void)endpoint;
  CHECK(false, "%s", ucs_status_string(status));
}

static void ucx_open_worker(line *l, bool may_die, const char *transports) {
  ucp_config_t *config;
  CHECK(!ucp_config_read(NULL, NULL, &config), "config");
  if (transports) ucp_config_modify(config, "TLS", transports);
  if (may_die) ucp_config_modify(config, "MM_ERROR_HANDLING", "y");
  ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
  CHECK(!ucp_init(&params, config, &l->context), "ucp_init");
  ucp_config_release(config);
  ucp_worker_params_t worker = {0};
  CHECK(!ucp_worker_create(l->context, &worker, &l->worker), "worker");
  ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                  UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                  UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                    .cb = ucx_message,
                                    .arg = l};
  CHECK(!ucp_worker_set_am_recv_handler(l->worker, &handler), "handler");
}

static void ucx_connect(line *l, process *p, bool may_die) {
  ucp_address_t *address;
  size_t bytes;
  CHECK(!ucp_worker_get_address(l->worker, &address, &bytes), "address");
  process_blob all[PROCESSES_MOST];
  process_exchange(p, address, bytes, all);
  ucp_worker_release_address(l->worker, address);
  ucp_ep_params_t params = {
      .field_mask =
          UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
          (may_die ? UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER : 0),
      .address = all[1 - p->self].data,
      .err_mode = UCP_ERR_HANDLING_MODE_PEER,
      .err_handler = {ucx_failed, NULL},
  };
  CHECK(!ucp_ep_create(l->worker, &params, &l->endpoint), "endpoint");
}

static void ucx_open(line *l, process *p) {
  ucx_open_worker(l, true, NULL);
  ucx_connect(l, p, true);
}

static void ucx_open_bare(line *l, process *p) {
  ucx_open_worker(l, false, NULL);
  ucx_connect(l, p, false);
}

static void ucx_open_tcp(line *l, process *p) {
  ucx_open_worker(l, false, "tcp,self");
  ucx_connect(l, p, true);
}

static void ucx_sent(void *request, ucs_status_t status, void *arg) {
  CHECK(!status, "%s", ucs_status_string(status));
  ((line *)arg)->outstanding--;
  ucp_request_free(request);
}

static void ucx_send(line *l, const void *data, size_t bytes) {
  ucp_request_param_t how = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
      .cb.send = ucx_sent,
      .user_data = l,
  };
  l->outstanding++;
  ucs_status_ptr_t request = ucp_am_send_nbx(l->endpoint, 0, NULL, 0, data, bytes, &how);
  CHECK(!UCS_PTR_IS_ERR(request), "send");
  if (!request) l->outstanding--;
}

static void ucx_progress(line *l) { ucp_worker_progress(l->worker); }

/* ---- measurements ------------------------------------------------------------------------ */

static void await(line *l) {
  l->awaited++;
  while (l->received < l->awaited || l->outstanding) l->kind->progress(l);
}

static char word_received(const line *l) { return *l->places[(l->received - 1) % UNDER_WAY]; }

static void send_word(line *l, bool last) {
  char data[8] = {last};
  l->kind->send(l, data, sizeof data);
}

/* Returns the nanoseconds of a round trip. */
static double ask(line *l) {
  uint64_t start = sli_now_ns(), end = start + TRIPS_NS;
  int trips = 0;
  for (bool last = false; !last; trips++) {
    last = trips + 1 == TRIPS || (trips % TRIPS_BETWEEN_LOOKS == 0 && sli_now_ns() > end);
    send_word(l, last);
    await(l);
  }
  return (double)(sli_now_ns() - start) / trips;
}

static void answer(line *l) {
  for (bool last = false; !last;) {
    await(l);
    last = word_received(l);
    send_word(l, last);
  }
  while (l->outstanding) l->kind->progress(l);
}

static double round_trip(line *l) {
  if (l->self == 0) return ask(l);
  answer(l);
  return 0;
}

/* Returns the bandwidth in GB/s; the other process acknowledges the last message. */
static double push(line *l) {
  uint64_t start = sli_now_ns();
  for (int i = 0; i < STREAM; i++) {
    while (l->outstanding >= UNDER_WAY) l->kind->progress(l);
    l->kind->send(l, l->data[i % UNDER_WAY], LONG_BYTES);
  }
  await(l);
  return (double)STREAM * LONG_BYTES / (double)(sli_now_ns() - start);
}

static void pull(line *l) {
  for (int i = 0; i < STREAM; i++) await(l);
  send_word(l, true);
  while (l->outstanding) l->kind->progress(l);
}

static double bandwidth(line *l) {
  if (l->self == 0) return push(l);
  pull(l);
  return 0;
}

/* Measures a plain memory copy in this process, for comparison. */
static double copy(line *l) {
  uint64_t start = sli_now_ns();
  for (int i = 0; i < STREAM && l->self == 0; i++)
    memcpy(l->places[i % UNDER_WAY], l->data[i % UNDER_WAY], LONG_BYTES);
  return (double)STREAM * LONG_BYTES / (double)(sli_now_ns() - start);
}

/* ---- kinds, in turns ---------------------------------------------------------------------- */

static const line_kind in_memory[] = {{"net", net_open, net_send, net_progress},
                                      {"waiting", net_open, net_send, net_wait},
                                      {"ucx", ucx_open, ucx_send, ucx_progress},
                                      {"ucx_bare", ucx_open_bare, ucx_send, ucx_progress},
                                      {0}};
static const line_kind by_tcp[] = {{"tcp", tcp_open, net_send, net_progress},
                                   {"encrypted", encrypted_open, net_send, net_progress},
                                   {"ucx_tcp", ucx_open_tcp, ucx_send, ucx_progress},
                                   {0}};
enum { KINDS_MOST = 4 };

typedef struct figure {
  const char *name, *unit;
  double (*take)(line *l);
  bool less_is_better;
} figure;

static const figure figures[] = {{"round_trip_8", "ns", round_trip, true},
                                 {"bandwidth_16M", "GB/s", bandwidth, false}};

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void sort(double *values, int n) { qsort(values, (size_t)n, sizeof *values, compare); }

static void print_ratio(const figure *f, const char *ours, const char *theirs, const double *a,
                        const double *b, int rounds) {
  double ratios[ROUNDS];
  for (int r = 0; r < rounds; r++) ratios[r] = a[r] / b[r];
  sort(ratios, rounds);
  printf("%s_%s_over_%s\t%.2f\tratio\n", ours, f->name, theirs, ratios[rounds / 2]);
}

/* Sorts the values and prints their statistics. */
static void print_values(const figure *f, const char *name, double *values, int rounds) {
  sort(values, rounds);
  printf("%s_%s\t%.4g\t%s\n", name, f->name, values[rounds / 2], f->unit);
  printf("%s_%s_best\t%.4g\t%s\n", name, f->name, values[f->less_is_better ? 0 : rounds - 1],
         f->unit);
}

static void print(const figure *f, const line *lines, int n, double values[][ROUNDS], int rounds) {
  for (int k = 1; k < n; k++)
    print_ratio(f, lines[0].kind->name, lines[k].kind->name, values[0], values[k], rounds);
  for (int k = 0; k < n; k++) print_values(f, lines[k].kind->name, values[k], rounds);
}

/* Returns whether to run another round; process 0 decides for both. */
static bool another_round(process *p, uint64_t end) {
  bool more = sli_now_ns() < end;
  process_blob all[PROCESSES_MOST];
  process_exchange(p, &more, sizeof more, all);
  CHECK(all[0].bytes == sizeof more, "process 0 has ended");
  more = *(bool *)all[0].data;
  for (int i = 0; i < p->n; i++) free(all[i].data);
  return more;
}

static void take(process *p, const figure *f, line *lines, int n) {
  double values[KINDS_MOST][ROUNDS];
  uint64_t end = sli_now_ns() + rounds_ns;
  int rounds = 0;
  while (rounds < ROUNDS && (another_round(p, end) || !rounds)) {
    for (int i = 0; i < n; i++) {
      int k = (rounds + i) % n; /* each kind comes first equally often */
      values[k][rounds] = f->take(&lines[k]);
    }
    rounds++;
  }
  if (p->self == 0) print(f, lines, n, values, rounds);
}

static int open_lines(process *p, const line_kind *kinds, line *lines, const line *memory) {
  int n = 0;
  for (; kinds[n].name; n++) {
    lines[n] = *memory;
    lines[n].kind = &kinds[n];
    kinds[n].open(&lines[n], p);
    round_trip(&lines[n]);
    bandwidth(&lines[n]);
  }
  return n;
}

static void compare_kinds(process *p, const line_kind *kinds, const line *memory) {
  line lines[KINDS_MOST] = {0};
  int n = open_lines(p, kinds, lines, memory);
  for (size_t f = 0; f < SLI_COUNT(figures); f++) take(p, &figures[f], lines, n);
}

/* Binds the process to its own core, as mpirun does. */
static void take_core(int self) {
  cpu_set_t all, one;
  CHECK(!sched_getaffinity(0, sizeof all, &all), "cores");
  int nth = self % CPU_COUNT(&all), cpu = 0;
  while (!CPU_ISSET(cpu, &all) || nth--) cpu++;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  CHECK(!sched_setaffinity(0, sizeof one, &one), "core %d", cpu);
}

static void run(process *p) {
  static const line_kind alone = {.name = "memcpy"};
  static const figure copied = {"16M", "GB/s", copy, false};
  alarm(END_SECONDS);
  take_core(p->self);
  line memory = {.kind = &alone, .self = p->self};
  for (int i = 0; i < UNDER_WAY; i++) memory.data[i] = map_touched(LONG_BYTES);
  for (int i = 0; i < UNDER_WAY; i++) memory.places[i] = map_touched(LONG_BYTES);
  take(p, &copied, &memory, 1);
  compare_kinds(p, in_memory, &memory);
  compare_kinds(p, by_tcp, &memory);
  process_meet(p, NULL, NULL);
  fflush(NULL);
  _exit(0); /* the bare connection cannot be closed while the peer runs */
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  return !processes_run(2, run);
}
