/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a channel on its device: the communicator, its stream, and the one operation that
 * may be under way. Errors say what failed; the caller knows the channel. */
#ifndef SLUICE_COMM_CUDA_CHANNEL_H
#define SLUICE_COMM_CUDA_CHANNEL_H

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

/* Starts to meet the other end, which has the same id. The sender is rank 0. Uses at most
 * `blocks` of the device's multiprocessors. */
sl_status sli_channel_open(sli_channel *channel, const ncclUniqueId *id, int blocks);
/* Aborts the operation under way, without the other end. May wait for the device, and so for
 * other channels there: any thread, all channels of a device at once. */
void sli_channel_abort(sli_channel *channel);
/* Closes an idle or aborted channel: waits up to a second for the library. */
void sli_channel_close(sli_channel *channel);

/* Sets *met if the other end has been met. */
sl_status sli_channel_meet(sli_channel *channel, bool *met);
/* Issues the next operation; the channel must be idle. */
sl_status sli_channel_issue(sli_channel *channel, void *data, size_t bytes);
/* Sets *complete if the operation is complete. */
sl_status sli_channel_poll(sli_channel *channel, bool *complete);

#endif
