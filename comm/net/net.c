/* The data plane over UCX: one context, one worker, one endpoint to each peer.
 *
 * A message is one UCX active message: our head (below) as its header, the data as
 * its payload; or, as that takes fewer steps, no header and the head with the few
 * bytes of data as payload. UCX decides how it travels. A short one is copied into the
 * transport's buffers and arrives whole ("eager"); we copy it to its place. Of a
 * long one only the head arrives ("rendezvous"); we name the place, and the data
 * comes right there, piece by piece, however the transport moves it.
 *
 * UCX knows endpoints, not process numbers, and lets anybody connect who can reach
 * a port. So a head says who sends, and repeats a random word of the receiver's
 * address. Whoever does not know that word is nobody: such messages are dropped.
 *
 * A killed peer is seen in two ways: its sockets close, and for shared memory UCX
 * looks from time to time whether the process still is (its keepalive; a zombie
 * still is, so somebody must reap it). Both end in on_error. A peer that is lost
 * is only marked there: the rest is done at the end of sli_net_progress, outside
 * of UCX's callbacks: its endpoint is closed, so nothing is read any more of what was
 * under way to it, and that counts as complete. UCX may say so before, later, or, where the
 * way broke in the middle of a long message, never. */
#include "comm/net/net.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "comm/net/ucx.h"
#include "comm/net/waker.h"

enum {
  MESSAGE_ID = 1,
  SHORT_BYTES = 64,             /* data up to this travels in one piece with its head */
  SPIN_NS = 20000,              /* about what falling asleep and waking up costs */
  CLOSE_NS = 500 * 1000 * 1000, /* how long endpoints may take to go */
};

typedef struct head {
  uint8_t header[SLI_NET_HEADER_BYTES]; /* the caller's */
  uint64_t word;                        /* of the receiver */
  int32_t sender;
  uint32_t zero;
} head;
_Static_assert(sizeof(head) == 48, "a head is the same everywhere");

/* What a net's address is: the word, then UCX's. */
typedef struct address {
  uint64_t word;
  uint8_t ucx[];
} address;

typedef struct peer {
  sli_net *net;
  ucp_ep_h endpoint; /* NULL: not connected, or gone */
  uint64_t word;
  bool failed, told; /* `told`: the owner knows */
  char why[120];
  _Atomic uint64_t sent, received, sent_bytes, received_bytes; /* owner writes, any reads */
} peer;

/* A message under way, in or out. They are kept for the next ones. */
typedef struct transfer {
  head head;
  uint8_t data[SHORT_BYTES]; /* right behind the head */
  peer *peer;
  size_t bytes;
  bool used, done;
  bool dropped; /* done for the owner, and maybe not for UCX */
  struct transfer *next_free, *next;
} transfer;

struct sli_net {
  int self, npeers;
  sli_net_events events;
  ucp_context_h context;
  ucp_worker_h worker;
  int worker_fd;
  sli_waker waker;
  uint64_t spin_ns;
  bool any_failed, closing, is_stranger_logged;
  address *address;
  size_t address_bytes;
  transfer *transfers, *free;
  peer peers[];
};

/* The owner: nobody else writes. */
static void add(_Atomic uint64_t *counter, uint64_t by) {
  uint64_t now = atomic_load_explicit(counter, memory_order_relaxed) + by;
  atomic_store_explicit(counter, now, memory_order_relaxed);
}

static const char *say(ucs_status_t status) { return sli_ucx.ucs_status_string(status); }

static int number_of(const peer *p) { return (int)(p - p->net->peers); }

static transfer *take_transfer(sli_net *net, peer *p, size_t bytes) {
  transfer *t = net->free;
  if (t) {
    net->free = t->next_free;
  } else {
    t = sli_calloc(1, sizeof *t);
    t->next = net->transfers;
    net->transfers = t;
  }
  t->peer = p;
  t->bytes = bytes;
  t->used = true;
  t->done = t->dropped = false;
  return t;
}

static void give_transfer(sli_net *net, transfer *t) {
  t->used = false;
  t->next_free = net->free;
  net->free = t;
}

static __attribute__((format(printf, 2, 3))) void fail_peer(peer *p, const char *format, ...) {
  if (p->failed) return;
  va_list args;
  va_start(args, format);
  vsnprintf(p->why, sizeof p->why, format, args);
  va_end(args);
  p->failed = p->net->any_failed = true;
}

_Static_assert(offsetof(transfer, data) == sizeof(head), "head and data are one piece");

/* ---- receiving --------------------------------------------------------------------- */

static void arrive(peer *p, const head *h, size_t bytes) {
  if (p->failed || p->net->closing) return;
  add(&p->received, 1);
  add(&p->received_bytes, bytes);
  p->net->events.arrived(p->net->events.ctx, number_of(p), h->header, bytes);
}

static void on_fetched(void *request, ucs_status_t status, size_t bytes, void *arg) {
  transfer *t = arg;
  if (request) sli_ucx.ucp_request_free(request);
  if (status)
    fail_peer(t->peer, "a message of %zu bytes broke off: %s", t->bytes, say(status));
  else
    arrive(t->peer, &t->head, bytes);
  give_transfer(t->peer->net, t);
}

/* The data is still with the sender, as `what` describes. */
static ucs_status_t fetch(peer *p, const head *h, void *what, size_t bytes, void *place) {
  transfer *t = take_transfer(p->net, p, bytes);
  t->head = *h;
  ucp_request_param_t param = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                      UCP_OP_ATTR_FIELD_MEMORY_TYPE,
      .cb.recv_am = on_fetched,
      .user_data = t,
      .memory_type = UCS_MEMORY_TYPE_HOST,
  };
  ucs_status_ptr_t request =
      sli_ucx.ucp_am_recv_data_nbx(p->net->worker, what, place, bytes, &param);
  if (!UCS_PTR_IS_PTR(request)) on_fetched(NULL, UCS_PTR_STATUS(request), bytes, t);
  return UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : UCS_INPROGRESS;
}

/* NULL if it does not come from one of us. */
static peer *find_sender(sli_net *net, const head *h) {
  if (h->word == net->address->word && h->sender >= 0 && h->sender < net->npeers &&
      h->sender != net->self && !h->zero)
    return &net->peers[h->sender];
  if (!net->is_stranger_logged) sli_log("a stranger's message to the data plane was dropped");
  net->is_stranger_logged = true;
  return NULL;
}

static ucs_status_t on_message(void *arg, const void *header, size_t head_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param) {
  sli_net *net = arg;
  bool is_fetched = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
  if (!head_bytes && !is_fetched && bytes >= sizeof(head)) {
    header = data;
    head_bytes = sizeof(head);
    data = (uint8_t *)data + sizeof(head);
    bytes -= sizeof(head);
  }
  head h = {.sender = -1};
  if (head_bytes == sizeof h) memcpy(&h, header, sizeof h);
  peer *p = find_sender(net, &h);
  if (!p || p->failed || net->closing) return UCS_OK;
  if (!bytes) {
    arrive(p, &h, 0);
    return UCS_OK;
  }
  void *place = net->events.place(net->events.ctx, number_of(p), h.header, bytes);
  if (!place) {
    fail_peer(p, "it sent a message of %zu bytes that there can not be", bytes);
    return UCS_OK;
  }
  if (is_fetched) return fetch(p, &h, data, bytes, place);
  memcpy(place, data, bytes);
  arrive(p, &h, bytes);
  return UCS_OK;
}

/* ---- sending ----------------------------------------------------------------------- */

static void on_sent(void *request, ucs_status_t status, void *arg) {
  transfer *t = arg;
  if (status && status != UCS_ERR_CANCELED)
    fail_peer(t->peer, "sending to it failed: %s", say(status));
  sli_ucx.ucp_request_free(request);
  if (t->dropped) give_transfer(t->peer->net, t);
  else t->done = true;
}

static ucs_status_ptr_t start(transfer *t, const void *data) {
  ucp_request_param_t param = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                      UCP_OP_ATTR_FIELD_MEMORY_TYPE,
      .cb.send = on_sent,
      .user_data = t,
      .memory_type = UCS_MEMORY_TYPE_HOST,
  };
  ucp_ep_h endpoint = t->peer->endpoint;
  if (t->bytes > SHORT_BYTES)
    return sli_ucx.ucp_am_send_nbx(endpoint, MESSAGE_ID, &t->head, sizeof t->head, data, t->bytes,
                                   &param);
  if (t->bytes) memcpy(t->data, data, t->bytes);
  return sli_ucx.ucp_am_send_nbx(endpoint, MESSAGE_ID, NULL, 0, t, sizeof t->head + t->bytes,
                                 &param);
}

bool sli_net_send(sli_net *net, int peer_, const void *header, const void *data, size_t bytes,
                  uint64_t *fence) {
  SLI_CHECK(peer_ >= 0 && peer_ < net->npeers, "there is no peer %d", peer_);
  peer *p = &net->peers[peer_];
  if (p->failed) return true;
  SLI_CHECK(p->endpoint, "peer %d is not connected", peer_);
  transfer *t = take_transfer(net, p, bytes);
  t->head = (head){.word = p->word, .sender = net->self};
  memcpy(t->head.header, header, sizeof t->head.header);
  ucs_status_ptr_t request = start(t, data);
  if (UCS_PTR_IS_ERR(request)) {
    fail_peer(p, "sending to it failed: %s", say(UCS_PTR_STATUS(request)));
  } else {
    add(&p->sent, 1);
    add(&p->sent_bytes, bytes);
  }
  if (!UCS_PTR_IS_PTR(request)) {
    give_transfer(net, t);
    return true;
  }
  *fence = (uintptr_t)t;
  return false;
}

bool sli_net_done(sli_net *net, uint64_t fence) {
  transfer *t = (transfer *)(uintptr_t)fence;
  SLI_CHECK(t && t->used && !t->dropped && t->peer->net == net,
            "a fence was asked for that there is not");
  if (t->done) give_transfer(net, t);
  else if (t->peer->told) t->dropped = true;
  else return false;
  return true;
}

/* ---- opening ----------------------------------------------------------------------- */

static ucs_status_t open_worker(sli_net *net) {
  ucs_status_t status = sli_ucx.ucp_worker_create(
      net->context,
      /* One thread at a time, but not always the same one. */
      &(ucp_worker_params_t){.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                             .thread_mode = UCS_THREAD_MODE_SERIALIZED},
      &net->worker);
  if (status) return status;
  status = sli_ucx.ucp_worker_get_efd(net->worker, &net->worker_fd);
  if (status) return status;
  return sli_ucx.ucp_worker_set_am_recv_handler(
      net->worker,
      &(ucp_am_handler_param_t){.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                              UCP_AM_HANDLER_PARAM_FIELD_CB |
                                              UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                .id = MESSAGE_ID,
                                .cb = on_message,
                                .arg = net});
}

static ucs_status_t make_address(sli_net *net) {
  ucp_address_t *ucx;
  size_t bytes;
  ucs_status_t status = sli_ucx.ucp_worker_get_address(net->worker, &ucx, &bytes);
  if (status) return status;
  net->address_bytes = sizeof *net->address + bytes;
  net->address = sli_calloc(1, net->address_bytes);
  memcpy(net->address->ucx, ucx, bytes);
  sli_ucx.ucp_worker_release_address(net->worker, ucx);
  ssize_t got = getrandom(&net->address->word, sizeof net->address->word, 0);
  return got == sizeof net->address->word ? UCS_OK : UCS_ERR_IO_ERROR;
}

/* Where there is but one core, spinning only keeps the others from it. */
static uint64_t choose_spin(void) { return sysconf(_SC_NPROCESSORS_ONLN) > 1 ? SPIN_NS : 0; }

sl_status sli_net_open(int self, int npeers, const sli_net_events *events, sli_net **out) {
  SLI_CHECK(npeers > 0 && self >= 0 && self < npeers, "process %d of %d", self, npeers);
  sli_net *net = sli_calloc(1, sizeof *net + (size_t)npeers * sizeof *net->peers);
  net->self = self;
  net->npeers = npeers;
  net->events = *events;
  net->spin_ns = choose_spin();
  for (int i = 0; i < npeers; i++) net->peers[i].net = net;
  net->waker.fd = -1;
  sl_status status = sli_waker_init(&net->waker);
  if (!status) status = sli_ucx_open(npeers, &net->context);
  if (!status) {
    ucs_status_t ucs = open_worker(net);
    if (!ucs) ucs = make_address(net);
    if (ucs) status = sl_fail(SL_E_IO, "UCX opens no way to this process: %s", say(ucs));
  }
  if (status) {
    sli_net_close(net);
    return status;
  }
  *out = net;
  return SL_OK;
}

const void *sli_net_address(const sli_net *net, size_t *bytes) {
  *bytes = net->address_bytes;
  return net->address;
}

static void on_error(void *arg, ucp_ep_h endpoint, ucs_status_t status) {
  (void)endpoint;
  fail_peer(arg, "the connection to it broke: %s", say(status));
}

sl_status sli_net_connect(sli_net *net, int peer_, const void *address_, size_t bytes) {
  SLI_CHECK(peer_ >= 0 && peer_ < net->npeers && peer_ != net->self, "there is no peer %d", peer_);
  peer *p = &net->peers[peer_];
  SLI_CHECK(!p->endpoint, "peer %d is connected already", peer_);
  if (bytes <= sizeof(address))
    return sl_fail(SL_E_INPUT, "process %d: its data plane's address has %zu bytes", peer_, bytes);
  /* A copy: where the caller's lies may not be aligned. */
  address *a = sli_calloc(1, bytes);
  memcpy(a, address_, bytes);
  ucs_status_t status = sli_ucx.ucp_ep_create(
      net->worker,
      &(ucp_ep_params_t){.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                       UCP_EP_PARAM_FIELD_ERR_HANDLER |
                                       UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                         .address = (const ucp_address_t *)a->ucx,
                         .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                         .err_handler = {on_error, p}},
      &p->endpoint);
  p->word = a->word;
  free(a);
  if (status)
    return sl_fail(SL_E_IO, "process %d cannot be reached: UCX: %s", peer_,
                   say(status));
  return SL_OK;
}

/* ---- closing ----------------------------------------------------------------------- */

/* Starts it; NULL if it is done. */
static ucs_status_ptr_t close_endpoint(peer *p) {
  if (!p->endpoint) return NULL;
  ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                               .flags = UCP_EP_CLOSE_FLAG_FORCE};
  ucs_status_ptr_t request = sli_ucx.ucp_ep_close_nbx(p->endpoint, &param);
  p->endpoint = NULL;
  return UCS_PTR_IS_PTR(request) ? request : NULL;
}

static void close_endpoints(sli_net *net) {
  void **requests = sli_calloc((size_t)net->npeers, sizeof *requests);
  for (int i = 0; i < net->npeers; i++) requests[i] = close_endpoint(&net->peers[i]);
  uint64_t end = sli_now_ns() + CLOSE_NS;
  for (int i = 0; i < net->npeers; i++) {
    if (!requests[i]) continue;
    while (sli_ucx.ucp_request_check_status(requests[i]) == UCS_INPROGRESS && sli_now_ns() < end)
      sli_ucx.ucp_worker_progress(net->worker);
    sli_ucx.ucp_request_free(requests[i]);
  }
  while (sli_ucx.ucp_worker_progress(net->worker) && sli_now_ns() < end) continue;
  free(requests);
}

void sli_net_close(sli_net *net) {
  if (!net) return;
  net->closing = true;
  if (net->worker) {
    close_endpoints(net);
    sli_ucx.ucp_worker_destroy(net->worker);
  }
  if (net->context) sli_ucx.ucp_cleanup(net->context);
  if (net->waker.fd >= 0) sli_waker_fini(&net->waker);
  for (transfer *t = net->transfers, *next; t; t = next) {
    next = t->next;
    free(t);
  }
  free(net->address);
  free(net);
}

/* ---- going on ---------------------------------------------------------------------- */

static void tell_failures(sli_net *net) {
  net->any_failed = false;
  for (int i = 0; i < net->npeers; i++) {
    peer *p = &net->peers[i];
    if (!p->failed || p->told) continue;
    p->told = true;
    ucs_status_ptr_t request = close_endpoint(p);
    if (request) sli_ucx.ucp_request_free(request);
    net->events.lost(net->events.ctx, i, p->why);
  }
}

bool sli_net_progress(sli_net *net) {
  bool happened = sli_ucx.ucp_worker_progress(net->worker);
  if (!net->any_failed) return happened;
  tell_failures(net);
  return true;
}

static inline void relax(void) {
#if defined __x86_64__
  __builtin_ia32_pause();
#endif
}

/* Whether the wait is over. */
static bool spin(sli_net *net, uint64_t until_ns) {
  for (;;) {
    if (sli_waker_take(&net->waker) || sli_net_progress(net)) return true;
    if (sli_now_ns() >= until_ns) return false;
    relax();
  }
}

void sli_net_wait(sli_net *net, uint64_t timeout_ns) {
  uint64_t start = sli_now_ns();
  if (spin(net, start + SLI_MIN(timeout_ns, net->spin_ns))) return;
  uint64_t spent = sli_now_ns() - start;
  if (spent >= timeout_ns) return;
  /* Armed, the worker's fd becomes readable with the next event; busy, there is one
   * that nobody has looked at. */
  ucs_status_t status = sli_ucx.ucp_worker_arm(net->worker);
  if (status == UCS_ERR_BUSY) {
    sli_net_progress(net);
    return;
  }
  SLI_CHECK(!status, "UCX cannot sleep: %s", say(status));
  sli_waker_sleep(&net->waker, net->worker_fd, timeout_ns - spent);
  sli_net_progress(net);
}

void sli_net_wake(sli_net *net) { sli_waker_wake(&net->waker); }

sli_net_traffic_counts sli_net_traffic(const sli_net *net, int peer_) {
  SLI_CHECK(peer_ >= 0 && peer_ < net->npeers, "there is no peer %d", peer_);
  const peer *p = &net->peers[peer_];
  return (sli_net_traffic_counts){
      .sent_bytes = atomic_load_explicit(&p->sent_bytes, memory_order_relaxed),
      .received_bytes = atomic_load_explicit(&p->received_bytes, memory_order_relaxed),
      .sent = atomic_load_explicit(&p->sent, memory_order_relaxed),
      .received = atomic_load_explicit(&p->received, memory_order_relaxed),
  };
}
