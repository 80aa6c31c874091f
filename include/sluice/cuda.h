/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs: enumeration, memory, and a queue that runs programs on a GPU.
 *
 * Every build has these functions. In a build without CUDA (-DSLUICE_CUDA=OFF), or on a machine
 * without a driver or a GPU, they fail with SL_E_UNSUPPORTED and a text that says what is missing
 * and how to proceed. CUDA is not initialized before the first call. */
#ifndef SLUICE_CUDA_H
#define SLUICE_CUDA_H

#include <sluice/program.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_cuda_device {
  char name[64];
  char pci[16];     /* "0000:3b:00.0": used by placement to find the GPU */
  int major, minor; /* compute capability */
  int multiprocessors;
  size_t memory_bytes, free_bytes;
} sl_cuda_device;

/* Sets *count to the number of GPUs; fails if there are none. */
sl_status sl_cuda_count(int *count);
sl_status sl_cuda_describe(int device, sl_cuda_device *description);

/* Allocate one zeroed block of a device's memory, or of pinned host memory that devices access
 * directly, on the NUMA node of the calling thread. The calls may block. */
sl_status sl_cuda_memory_create(int device, size_t bytes, void **memory);
void sl_cuda_memory_destroy(void *memory);
sl_status sl_cuda_pinned_create(size_t bytes, void **memory);
void sl_cuda_pinned_destroy(void *memory);
extern const sl_memory_ops sl_memory_cuda, sl_memory_pinned;

/* Copies between any two memories, host or device, and waits for the copy to finish. */
sl_status sl_cuda_copy(void *to, const void *from, size_t bytes);

/* A stream of device config->device. A launch enqueues the program's kernels and returns; its fence
 * completes when the device reports it, at a time that cannot be predicted. At most
 * SL_CUDA_RUN_AHEAD firings are in flight: another launch sleeps until the oldest completes. Each
 * queue of a device is a separate stream: one for passes, others for copies. The copy op moves data
 * between any two memories.
 *
 * Bases are in the device's memory; bases of copies may also be in pinned memory. Prepare programs
 * with .prepare, not sl_program_prepare; then launch from one thread at a time. A device failure
 * ends the queue (.failure): the text names the op after which it was detected. */
extern const sl_queue_ops sl_queue_cuda;
enum { SL_CUDA_RUN_AHEAD = 64 };

/* Makes later launches on `queue` wait on the device until the firing behind `fence` of `other` is
 * complete; the host does not wait. Both are open queues of sl_queue_cuda, on any devices; the
 * calling worker owns `queue`. */
void sl_cuda_queue_wait(void *queue, void *other, uint64_t fence);

#ifdef __cplusplus
}
#endif
#endif
