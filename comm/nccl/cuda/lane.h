/* One end of a lane on its device: the communicator, its stream, and the one operation
 * that may be under way. Errors say what failed; who calls knows whose lane it is. */
#ifndef SLUICE_COMM_CUDA_LANE_H
#define SLUICE_COMM_CUDA_LANE_H

#include "base/base.h"
#include "comm/nccl/cuda/library.h"

typedef struct sli_lane {
  const sli_nccl_library *nccl;
  ncclComm_t comm;
  cudaStream_t stream;
  cudaEvent_t event;
  int device;
  bool sends;
  enum { SLI_LANE_FREE, SLI_LANE_ISSUING, SLI_LANE_RUNNING } state;
} sli_lane;

/* Begins to meet the other end, which has the same id. The sender is rank 0. At most `blocks`
 * of the device's multiprocessors are taken. */
sl_status sli_lane_open(sli_lane *lane, const ncclUniqueId *id, int blocks);
/* Ends what is under way, without the other end. It may wait for the device, and so for other
 * lanes there: any thread, all lanes of a device at once. */
void sli_lane_abort(sli_lane *lane);
/* Of a lane at rest, or aborted: waits up to a second for the library. */
void sli_lane_close(sli_lane *lane);

/* Has the other end been met? */
sl_status sli_lane_meet(sli_lane *lane, bool *met);
/* Issues the next operation; the lane has none. */
sl_status sli_lane_issue(sli_lane *lane, void *data, size_t bytes);
/* Is the operation complete? */
sl_status sli_lane_poll(sli_lane *lane, bool *complete);

#endif
