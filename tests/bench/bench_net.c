/* What sli_net costs beside UCX itself, between two processes on this machine:
 * the round trip of 8 bytes and the bandwidth of messages of 16 MiB, two under way.
 *
 *   net        sli_net over shared memory by a loop around sli_net_progress; `waiting`: around
 *              sli_net_wait
 *   ucx        UCX by a loop of its own, for peers that may die, like sli_net
 *   ucx_bare   UCX as it comes, for peers that do not
 *   tcp        sli_net over connections of its own, by loopback
 *   encrypted  the same, sealed
 *   ucx_tcp    UCX's TCP, by loopback
 *
 * All in one run, in turns; medians over the rounds, and the best of them, which a busy machine
 * leaves standing; each process has a core. */
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
  SLEEPY_TRIPS = 200,
  STREAM = 12,
  UNDER_WAY = 2,
  LONG_BYTES = 16 << 20,
};

typedef struct line line; /* to the other process */
typedef struct line_kind {
  const char *name;
  void (*open)(line *l, process *p);
  void (*send)(line *l, const void *data, size_t bytes); /* while outstanding < UNDER_WAY */
  void (*progress)(line *l);                             /* counts outstanding down */
  void (*wait)(line *l);                                 /* the same, may sleep */
} line_kind;

struct line {
  const line_kind *kind;
  int self, outstanding;
  uint64_t received;
  char *places[UNDER_WAY];
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
  sli_net_options options = {.self = p->self, .npeers = p->n, .key = "key",
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

/* ---- UCX by itself ------------------------------------------------------------------------ */

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
      .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                    (may_die ? UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER
                             : 0),
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

/* ---- the cases ---------------------------------------------------------------------------- */

static const line_kind kinds[] = {
    {"net", net_open, net_send, net_progress, net_wait},
    {"ucx", ucx_open, ucx_send, ucx_progress, NULL},
    {"ucx_bare", ucx_open_bare, ucx_send, ucx_progress, NULL},
    {"tcp", tcp_open, net_send, net_progress, net_wait},
    {"encrypted", encrypted_open, net_send, net_progress, net_wait},
    {"ucx_tcp", ucx_open_tcp, ucx_send, ucx_progress, NULL},
};
enum { KINDS = SLI_COUNT(kinds) };

/* ns of a round trip */
static double ping(line *l, int trips, void (*go_on)(line *l)) {
  uint64_t start = sli_now_ns(), want = l->received;
  char data[8] = {0};
  for (int i = 0; i < trips; i++) {
    if (l->self == 0) l->kind->send(l, data, sizeof data);
    want++;
    while (l->received < want || l->outstanding) go_on(l);
    if (l->self == 1) l->kind->send(l, data, sizeof data);
  }
  while (l->outstanding) go_on(l);
  return (double)(sli_now_ns() - start) / trips;
}

/* bytes per second */
static double stream(line *l, char *const *data) {
  uint64_t start = sli_now_ns(), want = l->received;
  if (l->self == 0) {
    for (int i = 0; i < STREAM; i++) {
      while (l->outstanding >= UNDER_WAY) l->kind->progress(l);
      l->kind->send(l, data[i % UNDER_WAY], LONG_BYTES);
    }
    while (l->received < want + 1 || l->outstanding) l->kind->progress(l);
  } else {
    while (l->received < want + STREAM) l->kind->progress(l);
    l->kind->send(l, data[0], 8);
    while (l->outstanding) l->kind->progress(l);
  }
  return (double)STREAM * LONG_BYTES / ((double)(sli_now_ns() - start) * 1e-9);
}

static double copy(char *const *to, char *const *from) {
  uint64_t start = sli_now_ns();
  for (int i = 0; i < STREAM; i++) memcpy(to[i % UNDER_WAY], from[i % UNDER_WAY], LONG_BYTES);
  return (double)STREAM * LONG_BYTES / ((double)(sli_now_ns() - start) * 1e-9);
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values) {
  qsort(values, ROUNDS, sizeof *values, compare);
  return values[ROUNDS / 2];
}

static void print(double trips[KINDS][ROUNDS], double streams[KINDS][ROUNDS], double *sleepy,
                  double *copies) {
  double trip[KINDS], rate[KINDS];
  for (int k = 0; k < KINDS; k++) {
    trip[k] = median(trips[k]);
    rate[k] = median(streams[k]);
    printf("%s_round_trip_8\t%.0f\tns\n", kinds[k].name, trip[k]);
    printf("%s_bandwidth_16M\t%.2f\tGB/s\n", kinds[k].name, rate[k] * 1e-9);
    printf("%s_round_trip_8_best\t%.0f\tns\n", kinds[k].name, trips[k][0]);
    printf("%s_bandwidth_16M_best\t%.2f\tGB/s\n", kinds[k].name, streams[k][ROUNDS - 1] * 1e-9);
  }
  enum { UCX_KINDS = 3 };
  for (int k = 1; k < UCX_KINDS; k++) {
    printf("round_trip_over_%s\t%.2f\tratio\n", kinds[k].name, trip[0] / trip[k]);
    printf("bandwidth_over_%s\t%.2f\tratio\n", kinds[k].name, rate[0] / rate[k]);
  }
  printf("tcp_round_trip_over_ucx_tcp\t%.2f\tratio\n", trip[UCX_KINDS] / trip[KINDS - 1]);
  printf("tcp_bandwidth_over_ucx_tcp\t%.2f\tratio\n", rate[UCX_KINDS] / rate[KINDS - 1]);
  printf("net_round_trip_8_waiting\t%.0f\tns\n", median(sleepy));
  printf("round_trip_waiting_over_ucx\t%.2f\tratio\n", sleepy[ROUNDS / 2] / trip[1]);
  printf("memcpy_16M\t%.2f\tGB/s\n", median(copies) * 1e-9);
}

/* To a core of its own, as mpirun does. */
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
  take_core(p->self);
  line lines[KINDS] = {0};
  double trips[KINDS][ROUNDS], streams[KINDS][ROUNDS], sleepy[ROUNDS], copies[ROUNDS];
  char *data[UNDER_WAY], *places[UNDER_WAY];
  for (int i = 0; i < UNDER_WAY; i++) data[i] = map_touched(LONG_BYTES);
  for (int i = 0; i < UNDER_WAY; i++) places[i] = map_touched(LONG_BYTES);
  for (int k = 0; k < KINDS; k++) {
    lines[k].kind = &kinds[k];
    lines[k].self = p->self;
    memcpy(lines[k].places, places, sizeof places);
    kinds[k].open(&lines[k], p);
    ping(&lines[k], 100, kinds[k].progress);
    stream(&lines[k], data);
  }
  for (int r = 0; r < ROUNDS; r++) {
    for (int i = 0; i < KINDS; i++) {
      int k = (r + i) % KINDS; /* each comes first as often as the others */
      trips[k][r] = ping(&lines[k], TRIPS, kinds[k].progress);
      streams[k][r] = stream(&lines[k], data);
    }
    sleepy[r] = ping(&lines[0], SLEEPY_TRIPS, kinds[0].wait);
    copies[r] = p->self == 0 ? copy(places, data) : 0;
  }
  if (p->self == 0) print(trips, streams, sleepy, copies);
  fflush(NULL);
  process_meet(p, NULL, NULL);
  _exit(0); /* the bare one cannot be closed while the other goes */
}

int main(void) { return !processes_run(2, run); }
