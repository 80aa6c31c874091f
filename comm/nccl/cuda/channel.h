/* One end of a channel on its device: the communicator, its stream, and the one operation
 * that may be under way. Errors say what failed; who calls knows whose channel it is. */
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

/* Begins to meet the other end, which has the same id. The sender is rank 0. At most `blocks`
 * of the device's multiprocessors are taken. */
sl_status sli_channel_open(sli_channel *channel, const ncclUniqueId *id, int blocks);
/* Ends what is under way, without the other end. It may wait for the device, and so for other
 * channels there: any thread, all channels of a device at once. */
void sli_channel_abort(sli_channel *channel);
/* Of a channel at rest, or aborted: waits up to a second for the library. */
void sli_channel_close(sli_channel *channel);

/* Has the other end been met? */
sl_status sli_channel_meet(sli_channel *channel, bool *met);
/* Issues the next operation; the channel has none. */
sl_status sli_channel_issue(sli_channel *channel, void *data, size_t bytes);
/* Is the operation complete? */
sl_status sli_channel_poll(sli_channel *channel, bool *complete);

#endif
