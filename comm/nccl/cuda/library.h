/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL, loaded on first use: it is large, and only jobs with GPUs in several processes use it. */
#ifndef SLUICE_COMM_NCCL_CUDA_LIBRARY_H
#define SLUICE_COMM_NCCL_CUDA_LIBRARY_H

#include <nccl.h>

#include <sluice/status.h>

/* clang-format off */
#define SLI_NCCL_FUNCTIONS(X)                                                        \
  X(ncclCommAbort)                                                                   \
  X(ncclCommDestroy)                                                                 \
  X(ncclCommFinalize)                                                                \
  X(ncclCommGetAsyncError)                                                           \
  X(ncclCommInitRankConfig)                                                          \
  X(ncclGetErrorString)                                                              \
  X(ncclGetLastError)                                                                \
  X(ncclGetUniqueId)                                                                 \
  X(ncclGetVersion)                                                                  \
  X(ncclAllGather)                                                                   \
  X(ncclAllReduce)                                                                   \
  X(ncclBroadcast)                                                                   \
  X(ncclGroupEnd)                                                                    \
  X(ncclGroupStart)                                                                  \
  X(ncclReduce)                                                                      \
  X(ncclReduceScatter)                                                               \
  X(ncclRecv)                                                                        \
  X(ncclSend)
/* clang-format on */

typedef struct sli_nccl_library {
#define X(name) __typeof__(&name) name;
  SLI_NCCL_FUNCTIONS(X)
#undef X
} sli_nccl_library;

/* Loads the library, once; later calls return the same table. Any thread. */
sl_status sli_nccl_load(const sli_nccl_library **library);

#endif
