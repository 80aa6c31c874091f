/* SPDX-License-Identifier: Apache-2.0 */
/* Channels for the links between GPUs of different processes: the channels that a plan needs, and
 * the dispatch of their messages. Every function accepts NULL, for a process without channels. */
#ifndef SLUICE_COMM_JOB_CHANNELS_H
#define SLUICE_COMM_JOB_CHANNELS_H

#include <sluice/runtime.h>

#include "comm/nccl/nccl.h"
#include "comm/net/net.h"

typedef struct sli_channels sli_channels;

typedef struct sli_channels_events {
  void *ctx;
  /* Sends data to another process, which passes it to sli_channels_hear. */
  void (*say)(void *ctx, int process, const void *data, size_t bytes);
  void (*lost)(void *ctx, const char *text); /* the job cannot continue */
} sli_channels_events;

/* Opens the channels; *out is NULL if no link of the plan connects two GPUs. */
sl_status sli_channels_open(const sl_plan *plan, sl_runtime *rt, int self, sli_net *net,
                            const sli_channels_events *events, sli_channels **out);
void sli_channels_close(sli_channels *c);
/* Connects, once all processes have opened their channels. Call repeatedly until *ready. */
sl_status sli_channels_connect(sli_channels *c, bool *ready);
/* Receives data that `say` sent. Any thread. */
sl_status sli_channels_hear(sli_channels *c, int from, const void *data, size_t bytes);

/* Sends a message with its data if its link is a channel; otherwise returns false. */
bool sli_channels_send(sli_channels *c, int process, const void *message, const void *data,
                       uint64_t *fence);
/* Returns whether the fence belongs to a channel. Fences of channels are odd; those of the net are
 * aligned addresses. */
bool sli_channels_own(uint64_t fence);
bool sli_channels_done(sli_channels *c, uint64_t fence);
/* Handles a message without data from the net. Sets *announced if the data comes over a channel;
 * the runtime is then notified once it has arrived. SL_E_INPUT: the message is invalid. */
sl_status sli_channels_hear_of(sli_channels *c, int from, const void *message, bool *announced);

bool sli_channels_progress(sli_channels *c);
uint64_t sli_channels_patience_ns(sli_channels *c);
sli_nccl_traffic sli_channels_count(const sli_channels *c);

#endif
