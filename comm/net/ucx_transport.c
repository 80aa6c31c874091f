/* SPDX-License-Identifier: Apache-2.0 */
/* Transports over UCX: one context, one worker, one endpoint per peer. One table uses shared memory
 * only and does not listen; the other uses every transport that UCX's environment variables allow.
 *
 * A message is one UCX active message: the head (below) as its header, the data as its payload. A
 * short message has no UCX header, and has head and data as its payload, which takes fewer steps.
 * UCX decides how to send a message. It copies a short one into its buffers and delivers it whole
 * ("eager"); this file copies it to its destination. Of a long one only the head arrives first
 * ("rendezvous"); this file names the destination, and UCX places the data there directly.
 *
 * UCX knows endpoints, not process numbers, and lets anybody connect. A head therefore names its
 * sender and repeats a random word from the receiver's address; messages without that word are
 * dropped. The word protects against mistakes, not attackers, because UCX has already parsed the
 * message by then.
 *
 * UCX sets up the route between two processes with their first message, and UCX 1.13 aborts if one
 * of them exits during this. Each process therefore greets the other when they connect, and a
 * connection is established once both greetings have arrived. A closing net accepts no more
 * messages.
 *
 * A killed peer is detected in two ways. Its sockets close; for shared memory, UCX periodically
 * checks that the process exists (keepalive). A zombie still exists, so its parent must reap it. In
 * both cases UCX calls on_error. It may report transfers to a lost peer as complete before that,
 * later, or, for a long message cut in the middle, never. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/tempdir.h"
#include "comm/net/this_host.h"
#include "comm/net/transport.h"
#include "comm/net/ucx.h"

enum { MESSAGE_ID = 1 };
enum { MESSAGE, GREETING, KINDS };

typedef struct head {
  uint8_t header[SLI_NET_HEADER_BYTES]; /* the caller's header */
  uint64_t word;                        /* the receiver's word */
  int32_t sender;
  uint32_t kind;
} head;
_Static_assert(sizeof(head) == SLI_NET_HEAD_BYTES, "a head is the same everywhere");

/* Address of a process: its word and host, then UCX's own address. */
typedef struct address {
  uint64_t word;
  uint64_t host; /* host identity, for shared memory; 0: any host */
  uint8_t ucx[];
} address;

typedef struct line {
  ucp_ep_h endpoint;
  uint64_t word; /* the peer's word */
} line;

typedef struct ucx_way {
  sli_net_core *net;
  sli_tempdir shm; /* UCX unlinks its files there immediately, unless the process is killed */
  ucp_context_h context;
  ucp_worker_h worker;
  int fd;
  address *address;
  size_t address_bytes;
  sli_net_peer **peers; /* [npeers] peers of this transport */
  int npeers;
  bool *has_greeted; /* [the net's npeers] a peer may greet before this process connects to it */
  bool stranger_logged;
} ucx_way;

static const char *say(ucs_status_t status) { return sli_ucx.ucs_status_string(status); }

/* ---- receiving --------------------------------------------------------------------- */

static void on_fetched(void *request, ucs_status_t status, size_t bytes, void *arg) {
  sli_transfer *t = arg;
  if (request) sli_ucx.ucp_request_free(request);
  if (status) sli_net_fail(t->peer, "a message of %zu bytes broke off: %s", t->bytes, say(status));
  else sli_net_arrive(t->peer, t->head, bytes);
  sli_transfer_give(t);
}

/* Fetches data that is still at the sender; `what` is UCX's descriptor of it. */
static ucs_status_t fetch(ucx_way *w, sli_net_peer *p, const head *h, void *what, size_t bytes,
                          void *place) {
  sli_transfer *t = sli_transfer_take(p, bytes);
  memcpy(t->head, h, sizeof *h);
  ucp_request_param_t param = {
      .op_attr_mask =
          UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
      .cb.recv_am = on_fetched,
      .user_data = t,
      .memory_type = UCS_MEMORY_TYPE_HOST,
  };
  ucs_status_ptr_t request = sli_ucx.ucp_am_recv_data_nbx(w->worker, what, place, bytes, &param);
  if (!UCS_PTR_IS_PTR(request)) on_fetched(NULL, UCS_PTR_STATUS(request), bytes, t);
  return UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : UCS_INPROGRESS;
}

/* Finds the sender of a head. Returns NULL if it is not a process of the job. */
static sli_net_peer *find_sender(ucx_way *w, const head *h) {
  bool known = h->word == w->address->word && h->kind < KINDS;
  sli_net_peer *p = known ? sli_net_peer_of(w->net, h->sender) : NULL;
  if (!p && !w->stranger_logged) {
    sli_log("dropped a message to the data plane from an unknown sender");
    w->stranger_logged = true;
  }
  return p;
}

static ucs_status_t on_message(void *arg, const void *header, size_t head_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param) {
  ucx_way *w = arg;
  bool is_fetched = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
  if (!head_bytes && !is_fetched && bytes >= sizeof(head)) {
    header = data;
    head_bytes = sizeof(head);
    data = (uint8_t *)data + sizeof(head);
    bytes -= sizeof(head);
  }
  head h = {.sender = -1};
  if (head_bytes == sizeof h) memcpy(&h, header, sizeof h);
  sli_net_peer *p = find_sender(w, &h);
  if (!p || sli_net_is_deaf(p)) return UCS_OK;
  if (h.kind == GREETING) {
    w->has_greeted[p->number] = true;
    return UCS_OK;
  }
  if (!bytes) {
    sli_net_arrive(p, h.header, 0);
    return UCS_OK;
  }
  void *place = sli_net_place(p, h.header, bytes);
  if (!place) return UCS_OK;
  if (is_fetched) return fetch(w, p, &h, data, bytes, place);
  memcpy(place, data, bytes);
  sli_net_arrive(p, h.header, bytes);
  return UCS_OK;
}

/* ---- sending ----------------------------------------------------------------------- */

static void on_sent(void *request, ucs_status_t status, void *arg) {
  sli_transfer *t = arg;
  if (status && status != UCS_ERR_CANCELED)
    sli_net_fail(t->peer, "sending to it failed: %s", say(status));
  sli_ucx.ucp_request_free(request);
  sli_transfer_finish(t);
}

static ucs_status_ptr_t start(sli_transfer *t, const line *l) {
  ucp_request_param_t param = {
      .op_attr_mask =
          UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
      .cb.send = on_sent,
      .user_data = t,
      .memory_type = UCS_MEMORY_TYPE_HOST,
  };
  if (t->bytes > SLI_NET_SHORT_BYTES)
    return sli_ucx.ucp_am_send_nbx(l->endpoint, MESSAGE_ID, t->head, sizeof t->head, t->from,
                                   t->bytes, &param);
  return sli_ucx.ucp_am_send_nbx(l->endpoint, MESSAGE_ID, NULL, 0, t, sizeof t->head + t->bytes,
                                 &param);
}

static bool send_as(uint32_t kind, sli_transfer *t) {
  const line *l = t->peer->line;
  head *h = (head *)t->head;
  h->word = l->word;
  h->sender = t->peer->net->self;
  h->kind = kind;
  ucs_status_ptr_t request = start(t, l);
  if (UCS_PTR_IS_ERR(request))
    sli_net_fail(t->peer, "sending to it failed: %s", say(UCS_PTR_STATUS(request)));
  if (!UCS_PTR_IS_PTR(request)) {
    sli_transfer_give(t);
    return true;
  }
  /* The data of a short message was copied, so its owner need not wait. */
  return t->dropped = t->bytes <= SLI_NET_SHORT_BYTES;
}

static bool ucx_send(sli_transfer *t) { return send_as(MESSAGE, t); }

static void greet(sli_net_peer *p) {
  sli_transfer *t = sli_transfer_take(p, 0);
  memset(t->head, 0, sizeof t->head);
  send_as(GREETING, t);
}

/* ---- opening ----------------------------------------------------------------------- */

static ucs_status_t open_worker(ucx_way *w) {
  ucs_status_t status = sli_ucx.ucp_worker_create(
      w->context,
      /* One thread at a time, but not always the same one. */
      &(ucp_worker_params_t){.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                             .thread_mode = UCS_THREAD_MODE_SERIALIZED},
      &w->worker);
  if (status) return status;
  status = sli_ucx.ucp_worker_get_efd(w->worker, &w->fd);
  if (status) return status;
  return sli_ucx.ucp_worker_set_am_recv_handler(
      w->worker, &(ucp_am_handler_param_t){.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                         UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                         UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                           .id = MESSAGE_ID,
                                           .cb = on_message,
                                           .arg = w});
}

static ucs_status_t make_address(ucx_way *w, uint64_t host) {
  ucp_address_t *ucx;
  size_t bytes;
  ucs_status_t status = sli_ucx.ucp_worker_get_address(w->worker, &ucx, &bytes);
  if (status) return status;
  w->address_bytes = sizeof *w->address + bytes;
  w->address = sli_calloc(1, w->address_bytes);
  memcpy(w->address->ucx, ucx, bytes);
  w->address->host = host;
  sli_ucx.ucp_worker_release_address(w->worker, ucx);
  ssize_t got = getrandom(&w->address->word, sizeof w->address->word, 0);
  return got == sizeof w->address->word ? UCS_OK : UCS_ERR_IO_ERROR;
}

static void ucx_close(void *state);

static sl_status ucx_open(sli_net_core *net, const sli_net_options *options, int kind, void **out) {
  ucx_way *w = sli_calloc(1, sizeof *w);
  w->net = net;
  w->peers = sli_calloc((size_t)options->npeers, sizeof(void *));
  w->has_greeted = sli_calloc((size_t)options->npeers, sizeof(bool));
  sl_status status = sli_tempdir_open("/dev/shm", &w->shm);
  if (!status) status = sli_ucx_open(options->npeers, kind, w->shm.folder, &w->context);
  if (!status) {
    ucs_status_t ucs = open_worker(w);
    if (!ucs) ucs = make_address(w, kind == SLI_UCX_MEMORY ? sli_this_host() : 0);
    if (ucs) status = sli_ucx_fail("cannot open an address for this process", ucs);
  }
  if (status) ucx_close(w);
  else *out = w;
  return status;
}

static const void *ucx_address(const void *state, size_t *bytes) {
  const ucx_way *w = state;
  *bytes = w->address_bytes;
  return w->address;
}

static bool ucx_reaches(const void *state, const void *theirs, size_t bytes) {
  const ucx_way *w = state;
  return bytes > sizeof(address) && ((const address *)theirs)->host == w->address->host;
}

static void on_error(void *arg, ucp_ep_h endpoint, ucs_status_t status) {
  (void)endpoint;
  sli_net_fail(arg, "the connection to it broke: %s", say(status));
}

static sl_status ucx_connect(void *state, sli_net_peer *p, const char *host, const void *theirs,
                             size_t bytes) {
  ucx_way *w = state;
  const address *a = theirs;
  line *l = sli_calloc(1, sizeof *l);
  (void)host, (void)bytes;
  ucs_status_t status =
      sli_ucx.ucp_ep_create(w->worker,
                            &(ucp_ep_params_t){.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                             UCP_EP_PARAM_FIELD_ERR_HANDLER |
                                                             UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                                               .address = (const ucp_address_t *)a->ucx,
                                               .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                               .err_handler = {on_error, p}},
                            &l->endpoint);
  l->word = a->word;
  p->line = l;
  w->peers[w->npeers++] = p;
  if (status) return sl_fail(SL_E_IO, "cannot reach process %d: UCX: %s", p->number, say(status));
  greet(p);
  return SL_OK;
}

static bool ucx_ready(void *state) {
  const ucx_way *w = state;
  for (int i = 0; i < w->npeers; i++)
    if (!w->has_greeted[w->peers[i]->number]) return false;
  return true;
}

/* ---- closing ----------------------------------------------------------------------- */

static void ucx_drop(sli_net_peer *p) {
  line *l = p->line;
  ucs_status_ptr_t request = NULL;
  ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                               .flags = UCP_EP_CLOSE_FLAG_FORCE};
  if (l && l->endpoint) request = sli_ucx.ucp_ep_close_nbx(l->endpoint, &param);
  if (UCS_PTR_IS_PTR(request)) sli_ucx.ucp_request_free(request);
  free(l);
  p->line = NULL;
}

static void ucx_close(void *state) {
  ucx_way *w = state;
  for (int i = 0; i < w->npeers; i++) ucx_drop(w->peers[i]);
  if (w->worker) sli_ucx.ucp_worker_destroy(w->worker);
  if (w->context) sli_ucx.ucp_cleanup(w->context);
  if (w->shm.folder) sli_tempdir_close(&w->shm);
  free(w->address);
  free(w->peers);
  free(w->has_greeted);
  free(w);
}

/* ---- progress ---------------------------------------------------------------------- */

static bool ucx_progress(void *state) {
  return sli_ucx.ucp_worker_progress(((ucx_way *)state)->worker);
}

/* Arms the worker: its descriptor becomes readable with the next event. UCS_ERR_BUSY means that
 * there are unhandled events. */
static bool ucx_arm(void *state) {
  ucs_status_t status = sli_ucx.ucp_worker_arm(((ucx_way *)state)->worker);
  SLI_CHECK(!status || status == UCS_ERR_BUSY, "UCX cannot sleep: %s", say(status));
  return !status;
}

static int ucx_fd(const void *state) { return ((const ucx_way *)state)->fd; }

static uint64_t ucx_patience(const void *state) {
  (void)state;
  return UINT64_MAX;
}

#define UCX_FUNCTIONS                                                                   \
  .find = sli_ucx_load, .open = ucx_open, .close = ucx_close, .address = ucx_address,   \
  .reaches = ucx_reaches, .connect = ucx_connect, .ready = ucx_ready, .send = ucx_send, \
  .progress = ucx_progress, .arm = ucx_arm, .fd = ucx_fd, .patience_ns = ucx_patience,  \
  .drop = ucx_drop

const sli_transport sli_transport_memory = {
    .name = "memory", .kind = SLI_UCX_MEMORY, UCX_FUNCTIONS};
const sli_transport sli_transport_fabric = {
    .name = "fabric", .kind = SLI_UCX_FABRIC, UCX_FUNCTIONS};
