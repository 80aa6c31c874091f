/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces the CUDA runtime's header where there is no GPU, so that the files of kernels/cuda
 * compile for the host and their kernels really run there.
 *
 * A launch runs its blocks one after another. Every thread of a block is a fiber; fibers switch at
 * barriers and at operations of a whole warp (shuffles, ballots, products of the tensor cores).
 * Shared memory is allocated for each launch with exactly the requested bytes, and holds NaNs
 * before each block. The order of threads between barriers can be set, which exposes results that
 * depend on it.
 *
 * "The device's memory" is the host's. Streams run their operations later, in any order that events
 * allow (runtime.cpp). Further behaviour of real devices is not modelled; tests/gpu covers that. */
#ifndef SLUICE_TESTS_EMULATED_CUDA_RUNTIME_H
#define SLUICE_TESTS_EMULATED_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the runtime, as far as Sluice calls it ----------------------------------------- */

typedef enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorPeerAccessUnsupported = 217,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorStreamCaptureUnsupported = 900
} cudaError_t;

typedef struct emulated_stream *cudaStream_t;
#define cudaStreamLegacy ((cudaStream_t)0x1)
typedef struct emulated_event *cudaEvent_t;
typedef struct emulated_graph *cudaGraph_t;
typedef struct emulated_exec *cudaGraphExec_t;

enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum {
  cudaStreamNonBlocking = 1,
  cudaEventDefault = 0,
  cudaEventDisableTiming = 2,
  cudaEventBlockingSync = 1,
  cudaHostAllocPortable = 1,
  cudaHostAllocDefault = 0,
};

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlockOptin;
  int major, minor, multiProcessorCount;
};

const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor };
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);

cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemset(void *to, int value, size_t bytes);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value);

/* ---- settings of tests ----------------------------------------------------------------- */

/* Number of devices, or -1 if there is no driver. */
extern int emulated_devices;
/* Threads run from the last to the first between barriers. */
extern int emulated_backwards;
/* Number of following captures that fail. */
extern int emulated_bad_captures;
/* Number of following graphs that find no memory on the device. */
extern int emulated_full;
/* Returns whether the device has failed, which is then the last error. */
int emulated_has_failed(void);
/* Appends a call to a stream, with a copy of the argument. */
void emulated_call(cudaStream_t stream, void (*run)(void *), const void *arg, size_t bytes);
/* Live allocations: memory, streams, events and graphs together. */
extern int emulated_live;

#ifdef __cplusplus
}

/* ---- the language ------------------------------------------------------------------------ */

#include <math.h>
#include <string.h>

#include <functional>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
#define __align__(n) alignas(n)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

extern dim3 emulated_thread, emulated_block, emulated_block_size, emulated_grid;
extern unsigned char *emulated_shared;
#define threadIdx emulated_thread
#define blockIdx emulated_block
#define blockDim emulated_block_size
#define gridDim emulated_grid

/* Returns when all threads of the block have arrived. */
void emulated_barrier();
/* Passes up to 64 bytes to the other lanes of the caller's warp, and returns, once all have
 * arrived, what they passed; valid until the next exchange but one. */
const void *emulated_exchange(const void *mine, size_t bytes);
inline const void *emulated_of_lane(const void *all, int lane) {
  return (const char *)all + lane * 128;
}

inline void __syncthreads() { emulated_barrier(); }
bool __syncthreads_or(bool here);

template <typename S> S __shfl_sync(unsigned, S x, int lane) {
  const void *all = emulated_exchange(&x, sizeof x);
  memcpy(&x, emulated_of_lane(all, lane), sizeof x);
  return x;
}
template <typename S> S __shfl_xor_sync(unsigned lanes, S x, int k) {
  return __shfl_sync(lanes, x, (int)(threadIdx.x % 32) ^ k);
}

inline void __syncwarp() {
  char none = 0;
  emulated_exchange(&none, sizeof none);
}

unsigned __ballot_sync(unsigned lanes, bool here);
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }

inline float __uint_as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

void emulated_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void emulated_mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
/* D [64, 8 columns]; if `a` is NULL, A comes from the descriptor, and B is read along the rows of
 * its tile. */
void emulated_wgmma(float (*d)[4], int columns, const uint32_t *a, uint64_t a_desc, uint64_t b_desc,
                    bool add);
uint32_t emulated_round_tf32(float x);
/* ldmatrix of four matrices: each lane gives the address of a row. */
void emulated_ldmatrix(uint32_t (&to)[4], const void *row, bool transposed);

/* cp.async: the copy takes place when the thread waits for its group; until then the target holds
 * NaNs. */
void emulated_copy_async(void *to, const void *from, int bytes, bool there);
void emulated_commit_copies();
/* Waits for all groups but the `newest` ones. */
void emulated_wait_copies(unsigned newest);

/* ---- launching ------------------------------------------------------------------------------ */

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};

void emulated_launch(const cudaLaunchConfig_t *config, const void *kernel,
                     const std::function<void()> &run);

template <typename... P>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), P... args) {
  emulated_launch(config, (const void *)kernel, [=] { kernel(args...); });
  return cudaSuccess;
}

#endif
#endif
