/* NCCL's calls return at once (blocking = 0) and say "in progress" where they would have
 * blocked; then the communicator has to be asked, and may not be used, until it says
 * something else. The event behind an operation is recorded only then: before, the
 * operation may not be in the stream yet. */
#include "comm/nccl/cuda/lane.h"

#include <unistd.h>

#include "kernels/cuda/cuda.h"

static sl_status check(const sli_lane *lane, ncclResult_t result, const char *what) {
  if (result == ncclSuccess || result == ncclInProgress) return SL_OK;
  return sl_fail(result == ncclUnhandledCudaError ? SL_E_DEVICE : SL_E_PEER, "%s: %s (%s)", what,
                 lane->nccl->ncclGetErrorString(result), lane->nccl->ncclGetLastError(lane->comm));
}

static sl_status ask(const sli_lane *lane, const char *what, bool *in_progress) {
  ncclResult_t result = ncclSuccess;
  sl_status status = check(lane, lane->nccl->ncclCommGetAsyncError(lane->comm, &result), what);
  if (!status) status = check(lane, result, what);
  if (!status) *in_progress = result == ncclInProgress;
  return status;
}

/* Ahead of what computes: a block of it that waits holds two devices up. */
static sl_status make_stream(sli_lane *lane) {
  int least = 0, greatest = 0;
  sl_status status = sli_cuda_use(lane->device);
  if (status) return status;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (!error) error = cudaStreamCreateWithPriority(&lane->stream, cudaStreamNonBlocking, greatest);
  if (!error) error = cudaEventCreateWithFlags(&lane->event, cudaEventDisableTiming);
  return sli_cuda_check(error, lane->device, "gave no stream");
}

sl_status sli_lane_open(sli_lane *lane, const ncclUniqueId *id, int blocks) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.minCTAs = 1;
  config.maxCTAs = blocks;
  sl_status status = make_stream(lane);
  if (status) return status;
  return check(lane, lane->nccl->ncclCommInitRankConfig(&lane->comm, 2, *id, lane->sends ? 0 : 1,
                                                        &config), "meeting it failed");
}

static ncclResult_t state_of(const sli_lane *lane) {
  ncclResult_t now = ncclInProgress, result = lane->nccl->ncclCommGetAsyncError(lane->comm, &now);
  return result ? result : now;
}

static bool end_in_peace(const sli_lane *lane) {
  if (lane->state != SLI_LANE_FREE || state_of(lane)) return false;
  ncclResult_t result = lane->nccl->ncclCommFinalize(lane->comm);
  for (int ms = 0; result == ncclInProgress && ms < 1000; ms++, result = state_of(lane))
    usleep(1000);
  if (result) return false;
  result = lane->nccl->ncclCommDestroy(lane->comm);
  return !result || result == ncclInProgress; /* gone, or going */
}

void sli_lane_abort(sli_lane *lane) {
  if (!lane->comm) return;
  cudaSetDevice(lane->device);
  lane->nccl->ncclCommAbort(lane->comm);
  lane->comm = NULL;
}

void sli_lane_close(sli_lane *lane) {
  if (!lane->stream) return;
  cudaSetDevice(lane->device);
  if (lane->comm && !end_in_peace(lane)) lane->nccl->ncclCommAbort(lane->comm);
  if (lane->event) cudaEventDestroy(lane->event);
  cudaStreamDestroy(lane->stream);
  *lane = (sli_lane){0};
}

sl_status sli_lane_meet(sli_lane *lane, bool *met) {
  bool busy = true;
  sl_status status = ask(lane, "meeting it failed", &busy);
  if (!status) *met = !busy;
  return status;
}

static sl_status record(sli_lane *lane) {
  lane->state = SLI_LANE_RUNNING;
  sl_status status = sli_cuda_use(lane->device);
  return status ? status : sli_cuda_check(cudaEventRecord(lane->event, lane->stream), lane->device,
                                          "fails");
}

sl_status sli_lane_issue(sli_lane *lane, void *data, size_t bytes) {
  SLI_CHECK(lane->state == SLI_LANE_FREE, "GPU %d: a lane has two operations", lane->device);
  sl_status status = sli_cuda_use(lane->device);
  if (status) return status;
  ncclResult_t result =
      lane->sends ? lane->nccl->ncclSend(data, bytes, ncclUint8, 1, lane->comm, lane->stream)
                  : lane->nccl->ncclRecv(data, bytes, ncclUint8, 0, lane->comm, lane->stream);
  lane->state = SLI_LANE_ISSUING;
  status = check(lane, result, lane->sends ? "sending failed" : "receiving failed");
  return status || result == ncclInProgress ? status : record(lane);
}

sl_status sli_lane_poll(sli_lane *lane, bool *complete) {
  bool busy = false;
  sl_status status = ask(lane, lane->sends ? "sending failed" : "receiving failed", &busy);
  if (!status && lane->state == SLI_LANE_ISSUING && !busy) status = record(lane);
  if (status || lane->state == SLI_LANE_ISSUING) return status;
  cudaError_t error = cudaEventQuery(lane->event);
  if (error == cudaErrorNotReady) {
    cudaGetLastError(); /* it counts as one: forget it */
    return SL_OK;
  }
  status = sli_cuda_check(error, lane->device, "fails");
  if (status) return status;
  lane->state = SLI_LANE_FREE;
  *complete = true;
  return SL_OK;
}
