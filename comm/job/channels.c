/* SPDX-License-Identifier: Apache-2.0 */
/* The message of a transfer over a channel goes over the net, without data, and announces the
 * transfer. It carries its number on the link, which is also its number on the channel, and names
 * the slot. From it the receiver knows the destination and the matching receive. */
#include "comm/job/channels.h"

#include <stdlib.h>
#include <string.h>

#include "actors/plan/plan.h"
#include "base/base.h"

struct sli_channels {
  sli_channels_events events;
  sl_runtime *rt;
  sli_net *net;
  sli_nccl *nccl;
  int count;
  sli_nccl_channel *ends; /* [count] */
  int32_t *of_link;       /* [nqueues] index of a channel, or SL_NONE */
  uint64_t *announced;    /* fences of announcements in flight */
  size_t nannounced, announced_capacity;
};

/* ---- channels of a plan --------------------------------------------------------------- */

/* Adds the channel of a link's actor, if it has an end here. */
static void add_channel(sli_channels *c, const sl_plan *plan, const sl_actor *a, int self) {
  const sl_register *r = &plan->regs[a->out[0].reg];
  const sl_device *from = &plan->devices[plan->queues[a->queue].device];
  const sl_device *to = &plan->devices[r->device];
  bool sends = from->process == self;
  if (c->of_link[a->queue] != SL_NONE || !sli_register_far(plan, r)) return;
  if (!sends && to->process != self) return;
  c->of_link[a->queue] = c->count;
  c->ends[c->count++] = (sli_nccl_channel){.id = a->queue,
                                           .sends = sends,
                                           .process = sends ? to->process : from->process,
                                           .device = sends ? from->number : to->number,
                                           .other_device = sends ? to->number : from->number};
}

static void find_channels(sli_channels *c, const sl_plan *plan, int self) {
  c->of_link = sli_calloc((size_t)plan->nqueues, sizeof *c->of_link);
  c->ends = sli_calloc((size_t)plan->nqueues, sizeof *c->ends);
  for (int32_t q = 0; q < plan->nqueues; q++) {
    c->of_link[q] = SL_NONE;
    for (int32_t a = 0; plan->queues[q].ops->link && a < plan->nactors; a++)
      if (plan->actors[a].queue == q) add_channel(c, plan, &plan->actors[a], self);
  }
}

/* ---- opening ---------------------------------------------------------------------------- */

static void on_arrived(void *ctx, int channel, const void *message) {
  sli_channels *c = ctx;
  sl_wire_message wire;
  sl_status status = sl_runtime_wire_message(c->rt, message, &wire);
  if (!status) status = sl_runtime_arrived(c->rt, message, wire.bytes);
  SLI_CHECK(!status, "channel %d delivered unannounced data: %s", channel, sl_detail());
}

static void on_lost(void *ctx, const char *text) {
  sli_channels *c = ctx;
  c->events.lost(c->events.ctx, text);
}

static void say(void *ctx, int process, const void *data, size_t bytes) {
  sli_channels *c = ctx;
  c->events.say(c->events.ctx, process, data, bytes);
}

sl_status sli_channels_open(const sl_plan *plan, sl_runtime *rt, int self, sli_net *net,
                            const sli_channels_events *events, sli_channels **out) {
  sli_channels *c = sli_calloc(1, sizeof *c);
  c->events = *events;
  c->rt = rt;
  c->net = net;
  find_channels(c, plan, self);
  sli_nccl_options options = {.self = self,
                              .nchannels = c->count,
                              .channels = c->ends,
                              .silence_ms = sli_nccl_silence_ms(),
                              .ctx = c,
                              .say = say,
                              .arrived = on_arrived,
                              .lost = on_lost};
  sl_status status = c->count ? sli_nccl_open(&options, &c->nccl) : SL_OK;
  if (status || !c->count) sli_channels_close(c);
  else *out = c;
  return status;
}

void sli_channels_close(sli_channels *c) {
  if (!c) return;
  sli_nccl_close(c->nccl);
  free(c->of_link);
  free(c->ends);
  free(c->announced);
  free(c);
}

sl_status sli_channels_connect(sli_channels *c, bool *ready) {
  if (c) return sli_nccl_connect(c->nccl, ready);
  *ready = true;
  return SL_OK;
}

sl_status sli_channels_hear(sli_channels *c, int from, const void *data, size_t bytes) {
  return c ? sli_nccl_hear(c->nccl, from, data, bytes)
           : sl_fail(SL_E_INPUT, "it named a channel, but there are none");
}

/* ---- messages ----------------------------------------------------------------------------- */

/* Returns the channel of a message, or SL_NONE. */
static int32_t channel_of(const sli_channels *c, const void *message, sl_wire_message *wire) {
  if (!c || sl_runtime_wire_message(c->rt, message, wire) || wire->link == SL_NONE) return SL_NONE;
  return c->of_link[wire->link];
}

static uint64_t make_fence(int32_t channel, uint32_t number) {
  return (uint64_t)number << 32 | (uint64_t)(uint32_t)channel << 1 | 1;
}

bool sli_channels_send(sli_channels *c, int process, const void *message, const void *data,
                       uint64_t *fence) {
  sl_wire_message wire;
  int32_t channel = channel_of(c, message, &wire);
  if (channel == SL_NONE) return false;
  uint32_t number = sli_nccl_send(c->nccl, channel, data, wire.bytes);
  SLI_CHECK(number == wire.number, "channel %d has carried %u messages, but its link %u", channel,
            number, wire.number);
  SLI_GROW(c->announced, c->nannounced, c->announced_capacity);
  c->nannounced += !sli_net_send(c->net, process, message, NULL, 0, &c->announced[c->nannounced]);
  *fence = make_fence(channel, number);
  return true;
}

bool sli_channels_own(uint64_t fence) { return fence & 1; }

bool sli_channels_done(sli_channels *c, uint64_t fence) {
  return sli_nccl_done(c->nccl, (int)((uint32_t)fence >> 1), (uint32_t)(fence >> 32));
}

sl_status sli_channels_hear_of(sli_channels *c, int from, const void *message, bool *announced) {
  sl_wire_message wire;
  int32_t channel = channel_of(c, message, &wire);
  if (channel == SL_NONE) return SL_OK;
  const sli_nccl_channel *end = &c->ends[channel];
  if (end->sends || end->process != from)
    return sl_fail(SL_E_INPUT, "it announced data on a channel that it does not own");
  void *place = sl_runtime_place(c->rt, message, wire.bytes);
  if (!place) return SL_E_INPUT;
  sli_nccl_receive(c->nccl, channel, wire.number, place, wire.bytes, message);
  *announced = true;
  return SL_OK;
}

static void reap_announcements(sli_channels *c) {
  for (size_t i = 0; i < c->nannounced; i++)
    if (sli_net_done(c->net, c->announced[i])) c->announced[i--] = c->announced[--c->nannounced];
}

bool sli_channels_progress(sli_channels *c) {
  if (!c) return false;
  reap_announcements(c);
  return sli_nccl_progress(c->nccl);
}

uint64_t sli_channels_patience_ns(sli_channels *c) {
  return c ? sli_nccl_patience_ns(c->nccl) : UINT64_MAX;
}

sli_nccl_traffic sli_channels_count(const sli_channels *c) {
  return c ? sli_nccl_count(c->nccl) : (sli_nccl_traffic){0, 0};
}
