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
                       channel->nccl->ncclCommInitRankConfig(&channel->comm, channel->ranks, *id,
                                                             channel->rank, &config),
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

static ncclResult_t call_nccl(const sli_channel *channel, const sli_channel_call *c) {
  const sli_nccl_library *nccl = channel->nccl;
  ncclComm_t comm = channel->comm;
  cudaStream_t stream = channel->stream;
  switch (c->kind) {
  case SLI_SEND: return nccl->ncclSend(c->in, c->count, c->type, c->peer, comm, stream);
  case SLI_RECEIVE: return nccl->ncclRecv(c->out, c->count, c->type, c->peer, comm, stream);
  case SLI_ALL_REDUCE:
    return nccl->ncclAllReduce(c->in, c->out, c->count, c->type, ncclSum, comm, stream);
  case SLI_REDUCE_SCATTER:
    return nccl->ncclReduceScatter(c->in, c->out, c->count, c->type, ncclSum, comm, stream);
  case SLI_ALL_GATHER: return nccl->ncclAllGather(c->in, c->out, c->count, c->type, comm, stream);
  case SLI_REDUCE:
    return nccl->ncclReduce(c->in, c->out, c->count, c->type, ncclSum, c->peer, comm, stream);
  case SLI_BROADCAST:
    return nccl->ncclBroadcast(c->in, c->out, c->count, c->type, c->peer, comm, stream);
  }
  return ncclInvalidUsage;
}

sl_status sli_channel_issue(sli_channel *channel, int count, const sli_channel_call *calls) {
  static const char *const doing[] = {[SLI_SEND] = "sending failed",
                                      [SLI_RECEIVE] = "receiving failed",
                                      [SLI_ALL_REDUCE] = "an all-reduce failed",
                                      [SLI_REDUCE_SCATTER] = "a reduce-scatter failed",
                                      [SLI_ALL_GATHER] = "an all-gather failed",
                                      [SLI_REDUCE] = "a reduce-scatter failed",
                                      [SLI_BROADCAST] = "an all-gather failed"};
  SLI_CHECK(channel->state == SLI_CHANNEL_FREE, "GPU %d: a channel has two operations",
            channel->device);
  SLI_TRY(sli_cuda_use(channel->device));
  ncclResult_t result = ncclSuccess, end;
  channel->doing = doing[calls->kind];
  channel->state = SLI_CHANNEL_ISSUING;
  channel->nccl->ncclGroupStart();
  for (int i = 0; i < count && (!result || result == ncclInProgress); i++)
    result = call_nccl(channel, &calls[i]);
  end = channel->nccl->ncclGroupEnd();
  if (!result || result == ncclInProgress) result = end;
  SLI_TRY(channel_check(channel, result, channel->doing));
  return result == ncclInProgress ? SL_OK : record(channel);
}

sl_status sli_channel_poll(sli_channel *channel, bool *complete) {
  bool busy = false;
  sl_status status = ask(channel, channel->doing, &busy);
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
