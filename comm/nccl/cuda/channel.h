/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator's end on its device, of a channel or of a group: its stream, and at most one
 * operation in flight. Errors say what failed; the caller adds the name of the channel. */
#ifndef SLUICE_COMM_NCCL_CUDA_CHANNEL_H
#define SLUICE_COMM_NCCL_CUDA_CHANNEL_H

#include "base/base.h"
#include "comm/nccl/cuda/library.h"

typedef struct sli_channel {
  const sli_nccl_library *nccl;
  ncclComm_t comm;
  cudaStream_t stream;
  cudaEvent_t event;
  int device;
  int rank, ranks;
  const char *doing; /* of the operation in flight, for errors */
  enum { SLI_CHANNEL_FREE, SLI_CHANNEL_ISSUING, SLI_CHANNEL_RUNNING } state;
} sli_channel;

/* A call of an operation: NCCL's, without its communicator and stream. */
typedef struct sli_channel_call {
  enum {
    SLI_SEND,
    SLI_RECEIVE,
    SLI_ALL_REDUCE,
    SLI_REDUCE_SCATTER,
    SLI_ALL_GATHER,
    SLI_REDUCE,
    SLI_BROADCAST
  } kind;
  const void *in; /* NULL: receives */
  void *out;      /* NULL: sends. May be `in` for an all-reduce */
  size_t count;   /* of elements; of a part, for reduce-scatter and all-gather */
  ncclDataType_t type;
  int peer; /* other end of a send or receive; rank that gets a reduce, or gives a broadcast */
} sli_channel_call;

/* Starts to connect to the other ends, which have the same id. Uses at most `blocks` of the
 * device's multiprocessors. */
sl_status sli_channel_open(sli_channel *channel, const ncclUniqueId *id, int blocks);
/* Aborts the operation in flight, without the other end. May wait for the device, and thus for
 * other channels on it, so all channels of a device must be aborted concurrently. Any thread. */
void sli_channel_abort(sli_channel *channel);
/* Closes an idle or aborted channel: waits up to a second for the library. */
void sli_channel_close(sli_channel *channel);

/* Sets *met if the other ends are connected. */
sl_status sli_channel_meet(sli_channel *channel, bool *met);
/* Issues the next operation, of `count` calls; the channel must be idle. */
sl_status sli_channel_issue(sli_channel *channel, int count, const sli_channel_call *calls);
/* Sets *complete if the operation is complete. */
sl_status sli_channel_poll(sli_channel *channel, bool *complete);

#endif
