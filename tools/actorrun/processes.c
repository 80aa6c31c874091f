/* One process of a job among the others.
 *
 * Three threads meet here. The runtime's carrier owns the data plane while a run
 * goes on; before and after it, `mover` does, so that what others still fetch is
 * brought to them. The control plane's thread passes on messages and words. And
 * `watcher` looks, some times a second, whether this process wants to stop.
 *
 * A stop takes three words, as no process knows how far the others are. "stop":
 * somebody wishes it, and tells process 0. "hold", from process 0 to all: begin no
 * further step, and answer with "begun": how many there are. "end", from process 0:
 * all finish the latest of those, and end. */
#include "tools/actorrun/processes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "comm/net/net.h"
#include "tools/actorrun/lanes.h"

struct processes {
  int self, count;
  sli_control *control;
  sli_net *net;
  sl_peers peers;
  const sl_plan *plan;
  lanes *lanes;               /* NULL: no link leads from GPU to GPU, or not attached yet */
  _Atomic(sl_runtime *) rt;   /* release by attach, acquire by callbacks */
  pthread_t watcher, mover;
  bool watches, moves;
  pthread_mutex_t listening;  /* over the next two */
  processes_listener *listener;
  void *listener_ctx;
  atomic_bool run_over, closing, closed;
  /* Process 0, on the control plane's thread. */
  bool holding;
  int told;                   /* how many have said how many steps they have begun */
  int64_t begun;              /* the most */
  atomic_int gone;            /* process 0: others that know of the common end */
  /* Of the first loss; set by whoever sees it, read after the run. */
  atomic_bool losing; /* somebody writes `why`: the first to know */
  atomic_bool lost;   /* and it is written */
  char why[512];
};

/* ---- the end of everything ------------------------------------------------------------ */

/* The job is over. Any thread; the first word counts. */
static void give_up(processes *p, const char *text) {
  if (!atomic_exchange(&p->losing, true)) {
    snprintf(p->why, sizeof p->why, "%s", text);
    atomic_store(&p->lost, true);
  }
  sl_runtime *rt = atomic_load_explicit(&p->rt, memory_order_acquire);
  if (rt) sl_runtime_abort(rt, SL_E_PEER, text);
}

static void on_abort(void *ctx, int culprit, const char *text) {
  (void)culprit;
  give_up(ctx, text);
}

/* ---- messages and data ------------------------------------------------------------------ */

static void tell(void *ctx, int process, const void *message) {
  sli_control_send(((processes *)ctx)->control, process, message);
}

static bool send_data(void *ctx, int process, const void *message, const void *data, size_t bytes,
                      uint64_t *fence) {
  processes *p = ctx;
  if (lanes_send(p->lanes, process, message, data, fence)) return false;
  return sli_net_send(p->net, process, message, data, bytes, fence);
}

static bool is_done(void *ctx, uint64_t fence) {
  processes *p = ctx;
  return lanes_own(fence) ? lanes_done(p->lanes, fence) : sli_net_done(p->net, fence);
}

static bool progress(void *ctx) {
  processes *p = ctx;
  bool moved = sli_net_progress(p->net);
  return lanes_progress(p->lanes) || moved;
}

static void wait(void *ctx, uint64_t ns) {
  processes *p = ctx;
  uint64_t patience = lanes_patience_ns(p->lanes);
  sli_net_wait(p->net, SLI_MIN(ns, patience));
}

static void wake(void *ctx) { sli_net_wake(((processes *)ctx)->net); }

static uint64_t sent(void *ctx) { return processes_count_traffic(ctx).sent_bytes; }

/* What no process of this job would send. */
static void refuse(processes *p, int from) {
  char *text = sli_format("process %d sent nonsense: %s", from, sl_detail());
  sli_control_abort(p->control, text);
  free(text);
}

static void on_message(void *ctx, int from, const void *message) {
  processes *p = ctx;
  sl_runtime *rt = atomic_load_explicit(&p->rt, memory_order_acquire);
  if (rt && sl_runtime_deliver(rt, message)) refuse(p, from);
}

static void *on_place(void *ctx, int from, const void *message, size_t bytes) {
  processes *p = ctx;
  (void)from;
  sl_runtime *rt = atomic_load_explicit(&p->rt, memory_order_acquire);
  return rt ? sl_runtime_place(rt, message, bytes) : NULL;
}

static void on_arrived(void *ctx, int from, const void *message, size_t bytes) {
  processes *p = ctx;
  sl_runtime *rt = atomic_load_explicit(&p->rt, memory_order_acquire);
  bool announced = false;
  sl_status status = bytes ? SL_OK : lanes_hear_of(p->lanes, from, message, &announced);
  if (announced) return;
  if (!rt || status || sl_runtime_arrived(rt, message, bytes)) refuse(p, from);
}

/* What a lane says, or what it brought. */
static void on_lane_lost(void *ctx, const char *text) {
  processes *p = ctx;
  give_up(p, text);
  sli_control_abort(p->control, text);
}

static void say_for_lanes(void *ctx, int process, const void *data, size_t bytes) {
  sli_control_say(((processes *)ctx)->control, process, "lane", data, bytes);
}

static void on_lost(void *ctx, int peer, const char *why) {
  processes *p = ctx;
  if (atomic_load(&p->closing) || atomic_load(&p->lost)) return;
  char *text = sli_format("process %d is gone: %s", peer, why);
  give_up(p, text);
  sli_control_abort(p->control, text);
  free(text);
}

/* ---- words ---------------------------------------------------------------------------- */

static void begin_hold(processes *p) {
  if (p->holding) return;
  p->holding = true;
  sli_control_say(p->control, -1, "hold", NULL, 0);
}

static void take_begun(processes *p, const void *data, size_t bytes) {
  int64_t begun;
  if (bytes != sizeof begun) return;
  memcpy(&begun, data, sizeof begun);
  p->begun = SLI_MAX(p->begun, begun);
  if (++p->told == p->count) sli_control_say(p->control, -1, "end", &p->begun, sizeof p->begun);
}

static void answer_hold(processes *p, sl_runtime *rt) {
  int64_t begun = sl_runtime_hold(rt);
  sli_control_say(p->control, 0, "begun", &begun, sizeof begun);
}

/* Is it a word of whoever listens? */
static bool hear(processes *p, int from, const char *word, const void *data, size_t bytes) {
  pthread_mutex_lock(&p->listening);
  bool heard = p->listener && p->listener(p->listener_ctx, from, word, data, bytes);
  pthread_mutex_unlock(&p->listening);
  return heard;
}

static void on_word(void *ctx, int from, const char *word, const void *data, size_t bytes) {
  processes *p = ctx;
  sl_runtime *rt = atomic_load_explicit(&p->rt, memory_order_acquire);
  int64_t steps;
  if (hear(p, from, word, data, bytes) || !rt) return;
  if (!strcmp(word, "lane") && lanes_hear(p->lanes, from, data, bytes)) refuse(p, from);
  if (!strcmp(word, "gone")) atomic_fetch_add(&p->gone, 1);
  else if (!strcmp(word, "stop")) begin_hold(p);
  else if (!strcmp(word, "hold")) answer_hold(p, rt);
  else if (!strcmp(word, "begun")) take_begun(p, data, bytes);
  else if (!strcmp(word, "end") && bytes == sizeof steps)
    memcpy(&steps, data, bytes), sl_runtime_end_at(rt, steps);
}

void processes_listen(processes *p, processes_listener *listener, void *ctx) {
  pthread_mutex_lock(&p->listening);
  p->listener = listener;
  p->listener_ctx = ctx;
  pthread_mutex_unlock(&p->listening);
}

void processes_say(processes *p, int process, const char *word, const void *data, size_t bytes) {
  sli_control_say(p->control, process, word, data, bytes);
}

processes_traffic processes_count_traffic(const processes *p) {
  sli_control_counts control = sli_control_count(p->control);
  processes_traffic all = {.control_sent = control.sent, .control_received = control.received};
  for (int i = 0; i < p->count; i++) {
    if (i == p->self) continue;
    sli_net_traffic_counts one = sli_net_traffic(p->net, i);
    all.sent_bytes += one.sent_bytes;
    all.received_bytes += one.received_bytes;
  }
  sli_nccl_traffic lanes = lanes_count_traffic(p->lanes);
  all.sent_bytes += lanes.sent_bytes;
  all.received_bytes += lanes.received_bytes;
  return all;
}

/* ---- opening -------------------------------------------------------------------------- */

static sl_status open_planes(processes *p, const sli_cluster *c, const sl_plan *plan,
                             int lost_ms) {
  sli_net_events events = {p, on_place, on_arrived, on_lost};
  sl_status status = sli_net_open(p->self, p->count, &events, &p->net);
  if (status) return status;
  sli_control_options options = {.process = p->self, .nprocesses = p->count,
                                 .endpoint = c->endpoint, .job = c->job, .key = c->key,
                                 .incarnation = c->incarnation, .plan_hash = plan->hash,
                                 .lost_ms = lost_ms, .ctx = p, .on_message = on_message,
                                 .on_abort = on_abort, .on_word = on_word};
  options.address = sli_net_address(p->net, &options.address_bytes);
  status = sli_control_open(&options, &p->control);
  if (!status) status = sli_control_join(p->control);
  for (int i = 0; i < p->count && !status; i++) {
    size_t bytes;
    if (i == p->self) continue;
    const void *address = sli_control_address(p->control, i, &bytes);
    status = sli_net_connect(p->net, i, address, bytes);
  }
  return status;
}

sl_status processes_open(const sli_cluster *cluster, const sl_plan *plan, int lost_ms,
                         processes **out) {
  processes *p = sli_calloc(1, sizeof *p);
  p->self = cluster->process;
  p->count = cluster->nprocesses;
  p->plan = plan;
  pthread_mutex_init(&p->listening, NULL);
  p->peers = (sl_peers){p, tell, send_data, is_done, progress, wait, wake, sent};
  sl_status status = open_planes(p, cluster, plan, lost_ms);
  if (status) processes_close(p);
  else *out = p;
  return status;
}

void processes_close(processes *p) {
  if (!p) return;
  atomic_store(&p->closing, true);
  atomic_store(&p->closed, true);
  if (p->moves) {
    sli_net_wake(p->net);
    pthread_join(p->mover, NULL);
  }
  sli_control_close(p->control);
  lanes_close(p->lanes);
  sli_net_close(p->net);
  pthread_mutex_destroy(&p->listening);
  free(p);
}

int processes_self(const processes *p) { return p->self; }

int processes_count(const processes *p) { return p->count; }

const sl_peers *processes_peers(processes *p) { return &p->peers; }

static sl_status check_first_steps(const processes *p, const sli_control_blob *blobs) {
  for (int i = 1; i < p->count; i++)
    if (blobs[i].bytes != blobs[0].bytes || memcmp(blobs[i].data, blobs[0].data, blobs[0].bytes))
      return sl_fail(SL_E_INPUT, "process %d would go on from another step than process 0: do all "
                     "see the same checkpoints?", i);
  return SL_OK;
}

/* Until all ways between GPUs are open. */
static sl_status connect_lanes(const processes *p) {
  bool ready = false;
  sl_status status = SL_OK;
  while (!status && !ready) {
    if (atomic_load(&p->lost)) return sl_fail(SL_E_PEER, "%s", p->why);
    status = lanes_connect(p->lanes, &ready);
    if (!ready) usleep(200);
  }
  return status;
}

static void free_blobs(const processes *p, sli_control_blob *blobs) {
  for (int i = 0; blobs && i < p->count; i++) free(blobs[i].data);
  free(blobs);
}

sl_status processes_attach(processes *p, sl_runtime *rt, int64_t first_step) {
  sli_control_blob *blobs = NULL;
  lanes_events events = {p, say_for_lanes, on_lane_lost};
  sl_status status = lanes_open(p->plan, rt, p->self, p->net, &events, &p->lanes);
  if (status) return status;
  atomic_store_explicit(&p->rt, rt, memory_order_release);
  status = processes_meet(p, "steps", &first_step, sizeof first_step, &blobs);
  if (!status && blobs) status = check_first_steps(p, blobs);
  free_blobs(p, blobs);
  if (!status) status = connect_lanes(p);
  return status ? status : processes_meet(p, "ready", NULL, 0, NULL);
}

/* ---- running -------------------------------------------------------------------------- */

static void *watch(void *arg) {
  processes *p = arg;
  bool told = false;
  while (!atomic_load(&p->run_over)) {
    if (!told && sl_runtime_wants_stop(p->rt)) {
      sli_control_say(p->control, 0, "stop", NULL, 0);
      told = true;
    }
    usleep(20000);
  }
  return NULL;
}

static void *move(void *arg) {
  processes *p = arg;
  while (!atomic_load(&p->closed)) sli_net_wait(p->net, 100000000);
  return NULL;
}

sl_status processes_run(processes *p, int64_t steps) {
  p->watches = !pthread_create(&p->watcher, NULL, watch, p);
  sl_status status = sl_runtime_run(p->rt, steps);
  atomic_store(&p->run_over, true);
  if (p->watches) pthread_join(p->watcher, NULL);
  p->moves = !pthread_create(&p->mover, NULL, move, p);
  return status;
}

/* ---- together ------------------------------------------------------------------------- */

sl_status processes_meet(processes *p, const char *word, const void *data, size_t bytes,
                         sli_control_blob **blobs) {
  sl_status status = sli_control_meet(p->control, word, data, bytes, blobs);
  return status && atomic_load(&p->lost) ? sl_fail(status, "%s", p->why) : status;
}

sl_status processes_gather(processes *p) {
  void *bytes;
  size_t size = sl_runtime_export(p->rt, &bytes);
  sli_control_blob *blobs = NULL;
  sl_status status = processes_meet(p, "figures", bytes, size, &blobs);
  free(bytes);
  for (int i = 1; blobs && i < p->count && !status; i++)
    status = sl_runtime_import(p->rt, blobs[i].data, blobs[i].bytes,
                               sli_control_clock_offset(p->control, i));
  free_blobs(p, blobs);
  return status;
}

/* Process 0, through which all words go, is the last. */
static void leave(processes *p) {
  if (p->self) sli_control_say(p->control, 0, "gone", NULL, 0);
  for (int ms = 0; !p->self && atomic_load(&p->gone) < p->count - 1 && ms < 1000; ms++) usleep(1000);
}

/* A meeting that is broken off ends before the reason is known. */
static void await_reason(const processes *p) {
  enum { PATIENCE_MS = 2000 };
  for (int ms = 0; ms < PATIENCE_MS && !atomic_load(&p->lost); ms++) usleep(1000);
}

sl_status processes_end(processes *p, sl_status status) {
  if (status == SL_E_STOPPED) await_reason(p);
  if (atomic_load(&p->lost)) return sl_fail(SL_E_PEER, "%s", p->why);
  if (status) {
    sli_control_abort(p->control, sl_detail());
    return status;
  }
  atomic_store(&p->closing, true); /* from now on it is no loss if one goes */
  status = sli_control_meet(p->control, "end", NULL, 0, NULL);
  if (!status) leave(p);
  return status;
}
