/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's calls return immediately (blocking = 0) and report "in progress" where they would block.
 * The communicator must then be polled, and not used, until it reports another state. Only then is
 * the event after an operation recorded, because the operation may not have been in the stream
 * before. */
#include "comm/nccl/cuda/channel.h"

#include <unistd.h>

#include "kernels/cuda/cuda.h"

static sl_status channel_check(const sli_channel *channel, ncclResult_t result, const char *what) {
  if (result == ncclSuccess || result == ncclInProgress) return SL_OK;
  return sl_fail(result == ncclUnhandledCudaError ? SL_E_DEVICE : SL_E_PEER, "%s: %s (%s)", what,
                 channel->nccl->ncclGetErrorString(result),
                 channel->nccl->ncclGetLastError(channel->comm));
}

static sl_status ask(const sli_channel *channel, const char *what, bool *in_progress) {
  ncclResult_t result = ncclSuccess;
  sl_status status =
      channel_check(channel, channel->nccl->ncclCommGetAsyncError(channel->comm, &result), what);
  if (!status) status = channel_check(channel, result, what);
  if (!status) *in_progress = result == ncclInProgress;
  return status;
}

/* Creates a stream of the highest priority, ahead of compute kernels, because a block that waits to
 * start holds up two devices. */
static sl_status make_stream(sli_channel *channel) {
  int least = 0, greatest = 0;
  sl_status status = sli_cuda_use(channel->device);
  if (status) return status;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (!error)
    error = cudaStreamCreateWithPriority(&channel->stream, cudaStreamNonBlocking, greatest);
  if (!error) error = cudaEventCreateWithFlags(&channel->event, cudaEventDisableTiming);
  return sli_cuda_check(error, channel->device, "cannot create a stream");
}

sl_status sli_channel_open(sli_channel *channel, const ncclUniqueId *id, int blocks) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.minCTAs = 1;
  config.maxCTAs = blocks;
  sl_status status = make_stream(channel);
  if (status) return status;
  return channel_check(channel,
                       channel->nccl->ncclCommInitRankConfig(&channel->comm, 2, *id,
                                                             channel->sends ? 0 : 1, &config),
                       "connecting failed");
}

static ncclResult_t state_of(const sli_channel *channel) {
  ncclResult_t now = ncclInProgress,
               result = channel->nccl->ncclCommGetAsyncError(channel->comm, &now);
  return result ? result : now;
}

static bool end_in_peace(const sli_channel *channel) {
  if (channel->state != SLI_CHANNEL_FREE || state_of(channel)) return false;
  ncclResult_t result = channel->nccl->ncclCommFinalize(channel->comm);
  for (int ms = 0; result == ncclInProgress && ms < 1000; ms++, result = state_of(channel))
    usleep(1000);
  if (result) return false;
  result = channel->nccl->ncclCommDestroy(channel->comm);
  return !result || result == ncclInProgress; /* gone, or ending */
}

void sli_channel_abort(sli_channel *channel) {
  if (!channel->comm) return;
  cudaSetDevice(channel->device);
  channel->nccl->ncclCommAbort(channel->comm);
  channel->comm = NULL;
}

void sli_channel_close(sli_channel *channel) {
  if (!channel->stream) return;
  cudaSetDevice(channel->device);
  if (channel->comm && !end_in_peace(channel)) channel->nccl->ncclCommAbort(channel->comm);
  if (channel->event) cudaEventDestroy(channel->event);
  cudaStreamDestroy(channel->stream);
  *channel = (sli_channel){0};
}

sl_status sli_channel_meet(sli_channel *channel, bool *met) {
  bool busy = true;
  sl_status status = ask(channel, "connecting failed", &busy);
  if (!status) *met = !busy;
  return status;
}

static sl_status record(sli_channel *channel) {
  channel->state = SLI_CHANNEL_RUNNING;
  sl_status status = sli_cuda_use(channel->device);
  return status ? status
                : sli_cuda_check(cudaEventRecord(channel->event, channel->stream), channel->device,
                                 "fails");
}

sl_status sli_channel_issue(sli_channel *channel, void *data, size_t bytes) {
  SLI_CHECK(channel->state == SLI_CHANNEL_FREE, "GPU %d: a channel has two operations",
            channel->device);
  sl_status status = sli_cuda_use(channel->device);
  if (status) return status;
  ncclResult_t result =
      channel->sends
          ? channel->nccl->ncclSend(data, bytes, ncclUint8, 1, channel->comm, channel->stream)
          : channel->nccl->ncclRecv(data, bytes, ncclUint8, 0, channel->comm, channel->stream);
  channel->state = SLI_CHANNEL_ISSUING;
  status = channel_check(channel, result, channel->sends ? "sending failed" : "receiving failed");
  return status || result == ncclInProgress ? status : record(channel);
}

sl_status sli_channel_poll(sli_channel *channel, bool *complete) {
  bool busy = false;
  sl_status status = ask(channel, channel->sends ? "sending failed" : "receiving failed", &busy);
  if (!status && channel->state == SLI_CHANNEL_ISSUING && !busy) status = record(channel);
  if (status || channel->state == SLI_CHANNEL_ISSUING) return status;
  cudaError_t error = cudaEventQuery(channel->event);
  if (error == cudaErrorNotReady) {
    cudaGetLastError(); /* "not ready" is recorded as an error: clear it */
    return SL_OK;
  }
  status = sli_cuda_check(error, channel->device, "fails");
  if (status) return status;
  channel->state = SLI_CHANNEL_FREE;
  *complete = true;
  return SL_OK;
}
