/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/nccl/nccl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sluice/cuda.h>

#include "comm/nccl/cuda/channel.h"

enum {
  BLOCKS_MOST = 8, /* per operation: about 100 GB/s between neighbours */
  GREETING_BYTES = 256,
  SILENCE_MS = 20000,
  /* a longer gap between two calls means that this process was asleep */
  GAP_NS = 100 * 1000 * 1000,
  PATIENCE_LEAST_NS = 1000,
  PATIENCE_MOST_NS = 50000,
  ABORT_SECONDS = 3,
};

/* A send or receive in the queue of its channel, ordered by number. */
typedef struct wire_message {
  struct wire_message *next;
  void *data;
  size_t bytes;
  uint32_t number;
  _Alignas(8) uint8_t tag[SLI_NCCL_TAG_BYTES];
} wire_message;

/* NCCL id that the sender made for a channel. */
typedef struct introduction {
  int32_t channel, zero;
  ncclUniqueId id;
} introduction;

typedef struct way {
  sli_nccl_channel plan;
  sli_channel channel;
  enum { NAMELESS, MEETING, MET, GREETING, OPEN } state;
  bool named; /* `id` has arrived; under the lock */
  ncclUniqueId id;
  void *greeting;        /* device memory */
  wire_message *waiting; /* ordered by number; the first is in flight if the channel is not free */
  uint32_t handed, complete;
  uint64_t silent_ns; /* since the last progress */
} way;

struct sli_nccl {
  sli_nccl_options options;
  bool failed;
  pthread_mutex_t lock;
  wire_message *spare;
  int under_way; /* channels with queued operations */
  uint64_t looked_ns, patience_ns;
  _Atomic uint64_t sent_bytes, received_bytes; /* one thread writes, any thread reads */
  int nways;
  way ways[];
};

sl_status sli_nccl_find(void) {
  const sli_nccl_library *library;
  return sli_nccl_load(&library);
}

/* ---- errors ----------------------------------------------------------------------------- */

static sl_status blame(const sli_nccl *n, const way *w, sl_status status, const char *why) {
  char *text = sli_strdup(why);
  const sli_nccl_channel *p = &w->plan;
  int here = n->options.self;
  int from = p->sends ? here : p->process, to = p->sends ? p->process : here;
  sl_fail(status, "NCCL from process %d (GPU %d) to process %d (GPU %d): %s", from,
          p->sends ? p->device : p->other_device, to, p->sends ? p->other_device : p->device, text);
  free(text);
  return status;
}

static sl_status blame_silence(const sli_nccl *n, const way *w, const char *what) {
  char why[120];
  snprintf(why, sizeof why, "process %d %s for %g s", w->plan.process, what,
           n->options.silence_ms * 1e-3);
  return blame(n, w, SL_E_PEER, why);
}

/* Returns the time since the last call, to be added to the silence of channels. A longer gap counts
 * only up to GAP_NS, because this process was then not running. */
static uint64_t look(sli_nccl *n) {
  uint64_t now = sli_now_ns(), gap = SLI_MIN(now - n->looked_ns, (uint64_t)GAP_NS);
  n->looked_ns = now;
  return gap;
}

static bool is_silent(const sli_nccl *n, way *w, uint64_t gap_ns) {
  w->silent_ns += gap_ns;
  return w->silent_ns > (uint64_t)n->options.silence_ms * 1000000;
}

static void lose(sli_nccl *n) {
  n->failed = true;
  n->options.lost(n->options.ctx, sl_detail());
}

/* ---- opening ---------------------------------------------------------------------------- */

static sl_status open_way(way *w, const sli_nccl_channel *plan) {
  void *greeting;
  w->plan = *plan;
  w->channel.rank = plan->sends ? 0 : 1;
  w->channel.ranks = 2;
  w->channel.device = plan->device;
  sl_status status = sli_nccl_load(&w->channel.nccl);
  if (!status) status = sl_cuda_memory_create(plan->device, GREETING_BYTES, &greeting);
  if (status) return status;
  w->greeting = greeting;
  return SL_OK;
}

sl_status sli_nccl_open(const sli_nccl_options *options, sli_nccl **out) {
  size_t ways = (size_t)options->nchannels;
  sli_nccl *n = sli_calloc(1, sizeof *n + ways * sizeof *n->ways);
  n->options = *options;
  if (!n->options.silence_ms) n->options.silence_ms = SILENCE_MS;
  n->looked_ns = sli_now_ns();
  n->nways = options->nchannels;
  pthread_mutex_init(&n->lock, NULL);
  sl_status status = SL_OK;
  for (int i = 0; i < n->nways && !status; i++)
    status = open_way(&n->ways[i], &options->channels[i]);
  if (status) sli_nccl_close(n);
  else *out = n;
  return status;
}

static void free_messages(wire_message *p) {
  while (p) {
    wire_message *next = p->next;
    free(p);
    p = next;
  }
}

static void *abort_way(void *way_) {
  way *w = way_;
  sli_channel_abort(&w->channel);
  return NULL;
}

/* Aborts all channels concurrently, because aborting an operation frees device memory, which may
 * wait for operations of other channels on the device. Returns false if some do not end. */
static bool abort_all(sli_nccl *n) {
  pthread_t *threads = sli_calloc((size_t)n->nways + 1, sizeof *threads);
  bool *runs = sli_calloc((size_t)n->nways + 1, sizeof *runs), all = true;
  struct timespec until;
  for (int i = 0; i < n->nways; i++) {
    way *w = &n->ways[i];
    bool at_rest = w->state == OPEN && w->channel.state == SLI_CHANNEL_FREE;
    runs[i] = w->channel.comm && !at_rest && !pthread_create(&threads[i], NULL, abort_way, w);
  }
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += ABORT_SECONDS;
  for (int i = 0; i < n->nways; i++) {
    if (!runs[i] || !pthread_timedjoin_np(threads[i], NULL, &until)) continue;
    pthread_detach(threads[i]);
    all = false;
  }
  free(threads);
  free(runs);
  return all;
}

/* Closes the channels. If some do not end, nothing is freed, because freeing would wait for
 * them. */
void sli_nccl_close(sli_nccl *n) {
  if (!n || !abort_all(n)) return;
  for (int i = 0; i < n->nways; i++) {
    sli_channel_close(&n->ways[i].channel);
    free_messages(n->ways[i].waiting);
  }
  for (int i = 0; i < n->nways; i++) sl_cuda_memory_destroy(n->ways[i].greeting);
  free_messages(n->spare);
  pthread_mutex_destroy(&n->lock);
  free(n);
}

sl_status sli_nccl_hear(sli_nccl *n, int from, const void *data, size_t bytes) {
  introduction i;
  if (bytes != sizeof i)
    return sl_fail(SL_E_INPUT, "a channel's name has an invalid size of %zu bytes", bytes);
  memcpy(&i, data, sizeof i);
  for (int k = 0; k < n->nways; k++) {
    way *w = &n->ways[k];
    if (w->plan.id != i.channel || w->plan.process != from || w->plan.sends) continue;
    pthread_mutex_lock(&n->lock);
    w->id = i.id;
    w->named = true;
    pthread_mutex_unlock(&n->lock);
    return SL_OK;
  }
  return sl_fail(SL_E_INPUT, "a name for channel %d, which does not lead here", i.channel);
}

/* ---- connecting ------------------------------------------------------------------------- */

/* Chooses the blocks per channel so that all channels of the device together leave half of it
 * free, or one block each. */
static sl_status share_of_blocks(const sli_nccl *n, const way *w, int *blocks) {
  sl_cuda_device device;
  sl_status status = sl_cuda_describe(w->plan.device, &device);
  if (status) return status;
  int channels = 0;
  for (int i = 0; i < n->nways; i++) channels += n->ways[i].plan.device == w->plan.device;
  if (channels >= device.multiprocessors)
    return sl_fail(SL_E_UNSUPPORTED, "%d channels are too many for GPU %d", channels,
                   w->plan.device);
  *blocks = SLI_MIN(SLI_MAX(device.multiprocessors / 2 / channels, 1), (int)BLOCKS_MOST);
  return SL_OK;
}

/* Sender: makes the NCCL id with which the two ends connect, and sends it. */
static sl_status introduce(sli_nccl *n, way *w) {
  introduction i = {.channel = w->plan.id};
  ncclResult_t result = w->channel.nccl->ncclGetUniqueId(&i.id);
  if (result)
    return sl_fail(SL_E_DEVICE, "cannot create a channel's name: %s",
                   w->channel.nccl->ncclGetLastError(NULL));
  w->id = i.id;
  w->named = true;
  n->options.say(n->options.ctx, w->plan.process, &i, sizeof i);
  return SL_OK;
}

static sl_status transfer(way *w, void *data, size_t bytes) {
  bool sends = w->plan.sends;
  const sli_channel_call call = {.kind = sends ? SLI_SEND : SLI_RECEIVE,
                                 .peer = 1 - w->channel.rank,
                                 .in = sends ? data : NULL,
                                 .out = sends ? NULL : data,
                                 .count = bytes,
                                 .type = ncclUint8};
  return sli_channel_issue(&w->channel, 1, &call);
}

static sl_status begin_to_meet(sli_nccl *n, way *w) {
  int blocks = 1;
  if (w->plan.sends && introduce(n, w)) return SL_E_DEVICE;
  pthread_mutex_lock(&n->lock);
  bool named = w->named;
  pthread_mutex_unlock(&n->lock);
  if (!named) return SL_OK;
  sl_status status = share_of_blocks(n, w, &blocks);
  if (!status) status = sli_channel_open(&w->channel, &w->id, blocks);
  w->state = MEETING;
  return status;
}

static sl_status nccl_continue(sli_nccl *n, way *w, bool may_greet) {
  bool done = false;
  sl_status status = SL_OK;
  switch (w->state) {
  case NAMELESS: return begin_to_meet(n, w);
  case MEETING:
    status = sli_channel_meet(&w->channel, &done);
    if (done) w->state = MET;
    return status;
  case MET:
    if (!may_greet) return SL_OK;
    w->state = GREETING;
    return transfer(w, w->greeting, GREETING_BYTES);
  case GREETING:
    status = sli_channel_poll(&w->channel, &done);
    if (done) w->state = OPEN;
    return status;
  default: return SL_OK;
  }
}

/* Advances a connecting channel. A channel that waits for its turn to greet does not count as
 * silent. */
static sl_status move_on(sli_nccl *n, way *w, bool may_greet, uint64_t gap_ns) {
  int before = (int)w->state;
  sl_status status = nccl_continue(n, w, may_greet);
  if (status) return blame(n, w, status, sl_detail());
  if (before != (int)w->state || (w->state == MET && !may_greet)) w->silent_ns = 0;
  if (w->state == OPEN || !is_silent(n, w, gap_ns)) return SL_OK;
  return blame_silence(n, w, w->state == NAMELESS ? "has not named it" : "has not met it");
}

sl_status sli_nccl_connect(sli_nccl *n, bool *ready) {
  bool all_met = true, all_open = true;
  uint64_t gap_ns = look(n);
  sl_status status = SL_OK;
  for (int i = 0; i < n->nways; i++) all_met &= n->ways[i].state >= MET;
  for (int i = 0; i < n->nways && !status; i++) {
    status = move_on(n, &n->ways[i], all_met && all_open, gap_ns);
    all_open &= n->ways[i].state == OPEN;
  }
  if (!status) *ready = all_open;
  return status;
}

/* ---- operations --------------------------------------------------------------------------- */

static bool is_before(uint32_t a, uint32_t b) { return (int32_t)(a - b) < 0; }

static wire_message *take_message(sli_nccl *n) {
  wire_message *p = n->spare;
  if (!p) return sli_calloc(1, sizeof *p);
  n->spare = p->next;
  return p;
}

static void add_message(sli_nccl *n, way *w, wire_message *p) {
  if (!w->waiting) n->under_way++;
  n->patience_ns = 0;
  wire_message **at = &w->waiting;
  while (*at && is_before((*at)->number, p->number)) at = &(*at)->next;
  p->next = *at;
  *at = p;
}

static void drop_first(sli_nccl *n, way *w) {
  wire_message *p = w->waiting;
  w->waiting = p->next;
  p->next = n->spare;
  n->spare = p;
  if (!w->waiting) n->under_way--;
}

static void count(_Atomic uint64_t *counter, size_t bytes) {
  uint64_t now = atomic_load_explicit(counter, memory_order_relaxed) + bytes;
  atomic_store_explicit(counter, now, memory_order_relaxed);
}

static void finish(sli_nccl *n, way *w) {
  wire_message p = *w->waiting;
  drop_first(n, w);
  w->complete = p.number;
  if (w->plan.sends) {
    count(&n->sent_bytes, p.bytes);
    return;
  }
  count(&n->received_bytes, p.bytes);
  n->options.arrived(n->options.ctx, (int)(w - n->ways), p.tag);
}

/* Returns whether the first queued operation is the next in sequence. */
static bool is_due(const way *w) { return w->waiting && w->waiting->number == w->complete + 1; }

/* Advances a channel by one operation, if possible. An empty transfer issues nothing. */
static sl_status step(sli_nccl *n, way *w, bool *moved) {
  bool complete = false;
  if (w->channel.state == SLI_CHANNEL_FREE) {
    *moved = is_due(w);
    if (!*moved) return SL_OK;
    if (w->waiting->bytes) return transfer(w, w->waiting->data, w->waiting->bytes);
    complete = true;
  }
  sl_status status = complete ? SL_OK : sli_channel_poll(&w->channel, &complete);
  *moved = complete;
  if (complete) finish(n, w);
  return status;
}

static sl_status step_and_watch(sli_nccl *n, way *w, uint64_t gap_ns, bool *moved) {
  sl_status status = step(n, w, moved);
  if (status) return blame(n, w, status, sl_detail());
  if (*moved) w->silent_ns = 0;
  if (*moved || !is_silent(n, w, gap_ns)) return SL_OK;
  return blame_silence(n, w, w->plan.sends ? "has taken nothing" : "has sent nothing");
}

bool sli_nccl_progress(sli_nccl *n) {
  bool any = false;
  if (n->failed) return false;
  uint64_t gap_ns = look(n);
  for (int i = 0; i < n->nways && n->under_way; i++) {
    bool moved = false;
    if (!n->ways[i].waiting) continue;
    if (step_and_watch(n, &n->ways[i], gap_ns, &moved)) {
      lose(n);
      return true;
    }
    any |= moved;
  }
  if (any) n->patience_ns = 0;
  return any;
}

uint64_t sli_nccl_patience_ns(sli_nccl *n) {
  if (!n->under_way || n->failed) return UINT64_MAX;
  n->patience_ns =
      n->patience_ns ? SLI_MIN(2 * n->patience_ns, (uint64_t)PATIENCE_MOST_NS) : PATIENCE_LEAST_NS;
  return n->patience_ns;
}

uint32_t sli_nccl_send(sli_nccl *n, int channel, const void *data, size_t bytes) {
  way *w = &n->ways[channel];
  SLI_CHECK(w->plan.sends && w->state == OPEN, "channel %d does not lead from here", w->plan.id);
  wire_message *p = take_message(n);
  *p = (wire_message){.data = (void *)(uintptr_t)data, .bytes = bytes, .number = ++w->handed};
  add_message(n, w, p);
  return p->number;
}

bool sli_nccl_done(const sli_nccl *n, int channel, uint32_t number) {
  return !is_before(n->ways[channel].complete, number);
}

void sli_nccl_receive(sli_nccl *n, int channel, uint32_t number, void *place, size_t bytes,
                      const void *tag) {
  way *w = &n->ways[channel];
  SLI_CHECK(!w->plan.sends && w->state == OPEN, "channel %d does not lead here", w->plan.id);
  wire_message *p = take_message(n);
  *p = (wire_message){.data = place, .bytes = bytes, .number = number};
  memcpy(p->tag, tag, sizeof p->tag);
  add_message(n, w, p);
}

sli_nccl_traffic sli_nccl_count(const sli_nccl *n) {
  return (sli_nccl_traffic){atomic_load_explicit(&n->sent_bytes, memory_order_relaxed),
                            atomic_load_explicit(&n->received_bytes, memory_order_relaxed)};
}
