/* What goes over a lane is announced by the net: the message itself, without data. It
 * brings its number on the link, which is its number on the lane too, and names the slot,
 * so the receiver knows where the data goes and which receive it is. */
#include "tools/actorrun/lanes.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

struct lanes {
  lanes_events events;
  sl_runtime *rt;
  sli_net *net;
  sli_nccl *nccl;
  int count;
  sli_nccl_lane *ends;     /* [count] */
  int32_t *of_link;        /* [nqueues] index of a lane, or SL_NONE */
  uint64_t *told;          /* fences of announcements under way */
  size_t ntold, told_capacity;
};

void lanes_prepare(const settings *s) {
  /* Streams that share a queue of the hardware wait for each other; there are 8 by default. */
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (s->processes < 2 || s->devices.links == SL_LINKS_HOST) return;
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("NCCL_NVLS_ENABLE", "0", 0); /* multicast, which lanes of two have no use for */
}

/* ---- finding them in the plan --------------------------------------------------------- */

static bool is_far(const sl_plan *plan, const sl_register *r) {
  const sl_memory_ops *memory = plan->devices[r->device].room[r->space].memory;
  return memory && memory->far;
}

/* The lane that a link's actor writes to, if it has an end here. */
static void add_lane(lanes *l, const sl_plan *plan, const sl_actor *a, int self) {
  const sl_register *r = &plan->regs[a->out[0].reg];
  const sl_device *from = &plan->devices[plan->queues[a->queue].device];
  const sl_device *to = &plan->devices[r->device];
  bool sends = from->process == self;
  if (l->of_link[a->queue] != SL_NONE || !is_far(plan, r)) return;
  if (!sends && to->process != self) return;
  l->of_link[a->queue] = l->count;
  l->ends[l->count++] = (sli_nccl_lane){.id = a->queue, .sends = sends,
                                        .process = sends ? to->process : from->process,
                                        .device = sends ? from->number : to->number,
                                        .other_device = sends ? to->number : from->number};
}

static void find_lanes(lanes *l, const sl_plan *plan, int self) {
  l->of_link = sli_calloc((size_t)plan->nqueues, sizeof *l->of_link);
  l->ends = sli_calloc((size_t)plan->nqueues, sizeof *l->ends);
  for (int32_t q = 0; q < plan->nqueues; q++) {
    l->of_link[q] = SL_NONE;
    for (int32_t a = 0; plan->queues[q].ops == &sl_queue_link && a < plan->nactors; a++)
      if (plan->actors[a].queue == q) add_lane(l, plan, &plan->actors[a], self);
  }
}

/* ---- opening ---------------------------------------------------------------------------- */

static void on_arrived(void *ctx, int lane, const void *message) {
  lanes *l = ctx;
  sl_parcel parcel;
  sl_status status = sl_runtime_parcel(l->rt, message, &parcel);
  if (!status) status = sl_runtime_arrived(l->rt, message, parcel.bytes);
  SLI_CHECK(!status, "lane %d brought what was not announced: %s", lane, sl_detail());
}

static void on_lost(void *ctx, const char *text) {
  lanes *l = ctx;
  l->events.lost(l->events.ctx, text);
}

static void say(void *ctx, int process, const void *data, size_t bytes) {
  lanes *l = ctx;
  l->events.say(l->events.ctx, process, data, bytes);
}

static int silence_ms(void) {
  const char *text = getenv("SLUICE_NCCL_SECONDS");
  double seconds = text ? atof(text) : 0;
  return seconds > 0 && seconds < 1e6 ? (int)(seconds * 1000) : 0;
}

sl_status lanes_open(const sl_plan *plan, sl_runtime *rt, int self, sli_net *net,
                     const lanes_events *events, lanes **out) {
  lanes *l = sli_calloc(1, sizeof *l);
  l->events = *events;
  l->rt = rt;
  l->net = net;
  find_lanes(l, plan, self);
  sli_nccl_options options = {.self = self, .nlanes = l->count, .lanes = l->ends,
                              .silence_ms = silence_ms(), .ctx = l, .say = say,
                              .arrived = on_arrived, .lost = on_lost};
  sl_status status = l->count ? sli_nccl_open(&options, &l->nccl) : SL_OK;
  if (status || !l->count) lanes_close(l);
  else *out = l;
  return status;
}

void lanes_close(lanes *l) {
  if (!l) return;
  sli_nccl_close(l->nccl);
  free(l->of_link);
  free(l->ends);
  free(l->told);
  free(l);
}

sl_status lanes_connect(lanes *l, bool *ready) {
  if (l) return sli_nccl_connect(l->nccl, ready);
  *ready = true;
  return SL_OK;
}

sl_status lanes_hear(lanes *l, int from, const void *data, size_t bytes) {
  return l ? sli_nccl_hear(l->nccl, from, data, bytes)
           : sl_fail(SL_E_INPUT, "it named a lane, and there are none");
}

/* ---- messages ----------------------------------------------------------------------------- */

/* The lane of a message, or SL_NONE. */
static int32_t lane_of(const lanes *l, const void *message, sl_parcel *parcel) {
  if (!l || sl_runtime_parcel(l->rt, message, parcel)) return SL_NONE;
  return l->of_link[parcel->link];
}

static uint64_t make_fence(int32_t lane, uint32_t number) {
  return (uint64_t)number << 32 | (uint64_t)(uint32_t)lane << 1 | 1;
}

bool lanes_send(lanes *l, int process, const void *message, const void *data, uint64_t *fence) {
  sl_parcel parcel;
  int32_t lane = lane_of(l, message, &parcel);
  if (lane == SL_NONE) return false;
  uint32_t number = sli_nccl_send(l->nccl, lane, data, parcel.bytes);
  SLI_CHECK(number == parcel.number, "lane %d has carried %u messages, its link %u", lane, number,
            parcel.number);
  SLI_GROW(l->told, l->ntold, l->told_capacity);
  l->ntold += !sli_net_send(l->net, process, message, NULL, 0, &l->told[l->ntold]);
  *fence = make_fence(lane, number);
  return true;
}

bool lanes_own(uint64_t fence) { return fence & 1; }

bool lanes_done(lanes *l, uint64_t fence) {
  return sli_nccl_done(l->nccl, (int)((uint32_t)fence >> 1), (uint32_t)(fence >> 32));
}

sl_status lanes_hear_of(lanes *l, int from, const void *message, bool *announced) {
  sl_parcel parcel;
  int32_t lane = lane_of(l, message, &parcel);
  if (lane == SL_NONE) return SL_OK;
  const sli_nccl_lane *end = &l->ends[lane];
  if (end->sends || end->process != from)
    return sl_fail(SL_E_INPUT, "it announced data on a lane that is not its own");
  void *place = sl_runtime_place(l->rt, message, parcel.bytes);
  if (!place) return SL_E_INPUT;
  sli_nccl_receive(l->nccl, lane, parcel.number, place, parcel.bytes, message);
  *announced = true;
  return SL_OK;
}

static void reap_announcements(lanes *l) {
  for (size_t i = 0; i < l->ntold; i++)
    if (sli_net_done(l->net, l->told[i])) l->told[i--] = l->told[--l->ntold];
}

bool lanes_progress(lanes *l) {
  if (!l) return false;
  reap_announcements(l);
  return sli_nccl_progress(l->nccl);
}

uint64_t lanes_patience_ns(lanes *l) { return l ? sli_nccl_patience_ns(l->nccl) : UINT64_MAX; }

sli_nccl_traffic lanes_count_traffic(const lanes *l) {
  return l ? sli_nccl_count(l->nccl) : (sli_nccl_traffic){0, 0};
}
