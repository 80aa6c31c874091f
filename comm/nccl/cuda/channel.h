/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a channel on its device: the communicator, its stream, and at most one operation in
 * flight. Errors say what failed; the caller adds the name of the channel. */
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
  bool sends;
  enum { SLI_CHANNEL_FREE, SLI_CHANNEL_ISSUING, SLI_CHANNEL_RUNNING } state;
} sli_channel;

/* Starts to connect to the other end, which has the same id. The sender is rank 0. Uses at most
 * `blocks` of the device's multiprocessors. */
sl_status sli_channel_open(sli_channel *channel, const ncclUniqueId *id, int blocks);
/* Aborts the operation in flight, without the other end. May wait for the device, and thus for
 * other channels on it, so all channels of a device must be aborted concurrently. Any thread. */
void sli_channel_abort(sli_channel *channel);
/* Closes an idle or aborted channel: waits up to a second for the library. */
void sli_channel_close(sli_channel *channel);

/* Sets *met if the other end is connected. */
sl_status sli_channel_meet(sli_channel *channel, bool *met);
/* Issues the next operation; the channel must be idle. */
sl_status sli_channel_issue(sli_channel *channel, void *data, size_t bytes);
/* Sets *complete if the operation is complete. */
sl_status sli_channel_poll(sli_channel *channel, bool *complete);

#endif
