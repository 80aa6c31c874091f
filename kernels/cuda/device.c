/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs and their memory, through the CUDA runtime. The runtime is linked statically and looks for
 * the driver on first use. A build with CUDA therefore starts, and trains on CPUs, without a
 * driver. */
#include <sluice/cuda.h>

#include <cuda_runtime.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cuda/cuda.h"

enum { MOST_MET = 256 }; /* maximum GPUs of a host */

/* Describes what is missing when the runtime returns `error`, and the remedy. */
static sl_status missing(cudaError_t error) {
  int driver = 0, runtime = 0;
  cudaGetLastError(); /* reported here: clear it */
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (!driver)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "no NVIDIA driver: install one (nvidia-smi shows whether it works), pass it through to "
        "the container, or use --devices cpu");
  if (error == cudaErrorInsufficientDriver)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "the NVIDIA driver is too old: it supports CUDA %d.%d, but this build needs %d.%d; "
        "install a newer driver, build with an older toolkit, or use --devices cpu",
        driver / 1000, driver % 100 / 10, runtime / 1000, runtime % 100 / 10);
  return sl_fail(
      SL_E_UNSUPPORTED,
      "no usable GPU (%s): check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --devices cpu",
      cudaGetErrorString(error));
}

static _Thread_local const char *failure;

void sli_cuda_launch_failed(const char *why) { failure = why; }

const char *sli_cuda_take_failure(void) {
  const char *why = failure;
  failure = NULL;
  return why;
}

sl_status sl_cuda_count(int *count) {
  int n = 0;
  cudaError_t error = cudaGetDeviceCount(&n);
  if (error || n < 1) return missing(error ? error : cudaErrorNoDevice);
  *count = n;
  return SL_OK;
}

sl_status sli_cuda_use(int device) {
  int count;
  sl_status status = sl_cuda_count(&count);
  if (status) return status;
  if (device < 0 || device >= count)
    return sl_fail(SL_E_USAGE, "there is no GPU %d: there %s %d, counted from 0", device,
                   count > 1 ? "are" : "is", count);
  return sli_cuda_check(cudaSetDevice(device), device, "cannot be used");
}

sl_status sli_cuda_check(cudaError_t error, int device, const char *what) {
  if (!error) return SL_OK;
  cudaGetLastError(); /* reported here: clear it */
  return sl_fail(error == cudaErrorMemoryAllocation ? SL_E_MEMORY : SL_E_DEVICE, "GPU %d %s: %s",
                 device, what, cudaGetErrorString(error));
}

sl_status sl_cuda_describe(int device, sl_cuda_device *description) {
  sl_cuda_device d = {0};
  struct cudaDeviceProp properties;
  sl_status status = sli_cuda_use(device);
  if (status) return status;
  cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (!error) error = cudaDeviceGetPCIBusId(d.pci, sizeof d.pci, device);
  if (!error) error = cudaMemGetInfo(&d.free_bytes, &d.memory_bytes);
  if (error) return sli_cuda_check(error, device, "cannot be queried");
  snprintf(d.name, sizeof d.name, "%.*s", (int)sizeof d.name - 1, properties.name);
  d.major = properties.major;
  d.minor = properties.minor;
  d.multiprocessors = properties.multiProcessorCount;
  *description = d;
  return SL_OK;
}

/* ---- peer access ----------------------------------------------- */

/* Enables peer access from `device` to `other`. Failure is not an error: copies between them then
 * go through the host. */
static void reach(int device, int other) {
  int can = 0;
  cudaError_t error = cudaDeviceCanAccessPeer(&can, device, other);
  if (!error && !can && device < other)
    sli_log(
        "GPUs %d and %d cannot access each other's memory: data between them goes through host "
        "memory",
        device, other);
  if (!error && can) error = cudaSetDevice(device);
  if (!error && can) error = cudaDeviceEnablePeerAccess(other, 0);
  if (error) cudaGetLastError(); /* already enabled by a library: clear it */
}

sl_status sli_cuda_meet(int device) {
  static pthread_mutex_t meeting = PTHREAD_MUTEX_INITIALIZER;
  static bool here[MOST_MET];
  if (device >= MOST_MET) return SL_OK;
  pthread_mutex_lock(&meeting);
  for (int other = 0; other < MOST_MET && !here[device]; other++)
    if (here[other]) reach(device, other), reach(other, device);
  here[device] = true;
  pthread_mutex_unlock(&meeting);
  return sli_cuda_use(device);
}

/* ---- memory ------------------------------------------------ */

sl_status sl_cuda_memory_create(int device, size_t bytes, void **memory) {
  void *p = NULL;
  char what[64];
  sl_status status = sli_cuda_use(device);
  if (status) return status;
  snprintf(what, sizeof what, "cannot allocate %zu bytes", bytes);
  status = sli_cuda_check(cudaMalloc(&p, bytes), device, what);
  if (status) return status;
  status = sli_cuda_check(cudaMemset(p, 0, bytes), device, "cannot clear its memory");
  if (!status) status = sli_cuda_check(cudaDeviceSynchronize(), device, "fails");
  if (status) cudaFree(p);
  else *memory = p;
  return status;
}

void sl_cuda_memory_destroy(void *memory) {
  if (memory) cudaFree(memory);
}

sl_status sl_cuda_pinned_create(size_t bytes, void **memory) {
  void *p = NULL;
  int count;
  sl_status status = sl_cuda_count(&count);
  if (status) return status;
  cudaError_t error = cudaHostAlloc(&p, bytes, cudaHostAllocPortable);
  if (!error) {
    memset(p, 0, bytes);
    *memory = p;
    return SL_OK;
  }
  cudaGetLastError();
  return sl_fail(SL_E_MEMORY, "cannot pin %zu bytes of host memory: %s", bytes,
                 cudaGetErrorString(error));
}

void sl_cuda_pinned_destroy(void *memory) {
  if (memory) cudaFreeHost(memory);
}

/* Copies synchronously. cudaMemcpy returns before data of pageable memory have arrived, and
 * immediately if both ends are device memory. Sluice's streams do not wait for its stream, so the
 * host does. */
sl_status sl_cuda_copy(void *to, const void *from, size_t bytes) {
  cudaError_t error = cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
  if (!error) error = cudaStreamSynchronize(cudaStreamLegacy);
  if (!error) return SL_OK;
  cudaGetLastError();
  return sl_fail(SL_E_DEVICE, "copying %zu bytes to or from a GPU: %s", bytes,
                 cudaGetErrorString(error));
}

static sl_status memory_create(const sl_memory_config *config, size_t bytes, void **memory) {
  return sl_cuda_memory_create(config->device, bytes, memory);
}

static void memory_destroy(void *memory, size_t bytes) {
  (void)bytes;
  sl_cuda_memory_destroy(memory);
}

static sl_status pinned_create(const sl_memory_config *config, size_t bytes, void **memory) {
  sl_status status = sli_cuda_use(config->device); /* the context that owns the memory */
  return status ? status : sl_cuda_pinned_create(bytes, memory);
}

static void pinned_destroy(void *memory, size_t bytes) {
  (void)bytes;
  sl_cuda_pinned_destroy(memory);
}

const sl_memory_ops sl_memory_cuda = {.name = "cuda",
                                      .fixed = true,
                                      .far = true,
                                      .create = memory_create,
                                      .destroy = memory_destroy,
                                      .copy = sl_cuda_copy};
const sl_memory_ops sl_memory_pinned = {.name = "pinned",
                                        .fixed = true,
                                        .create = pinned_create,
                                        .destroy = pinned_destroy,
                                        .copy = sl_cuda_copy};
