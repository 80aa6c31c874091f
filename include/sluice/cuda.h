/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs: enumeration, memory, and a queue that runs programs on one.
 *
 * Every build has these functions. A build without CUDA (-DSLUICE_CUDA=OFF), or a machine without a
 * driver or a GPU, fails with SL_E_UNSUPPORTED and a text that says what is missing and how to
 * proceed. CUDA is not touched before the first call. */
#ifndef SLUICE_CUDA_H
#define SLUICE_CUDA_H

#include <sluice/program.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_cuda_device {
  char name[64];
  char pci[16];     /* "0000:3b:00.0": how placement finds the GPU */
  int major, minor; /* compute capability */
  int multiprocessors;
  size_t memory_bytes, free_bytes;
} sl_cuda_device;

/* Number of GPUs: at least one, else the call fails. */
sl_status sl_cuda_count(int *count);
sl_status sl_cuda_describe(int device, sl_cuda_device *description);

/* One block of a device's memory, or of pinned host memory that devices access directly, on the
 * NUMA node of the calling thread. Both are zeroed, and the calls may block. */
sl_status sl_cuda_memory_create(int device, size_t bytes, void **memory);
void sl_cuda_memory_destroy(void *memory);
sl_status sl_cuda_pinned_create(size_t bytes, void **memory);
void sl_cuda_pinned_destroy(void *memory);
extern const sl_memory_ops sl_memory_cuda, sl_memory_pinned;

/* Copies between any two memories, of host or devices, and waits. */
sl_status sl_cuda_copy(void *to, const void *from, size_t bytes);

/* A stream of device config->device. A launch enqueues the program's kernels and returns; its fence
 * is complete when the device says so, which cannot be known in advance. At most SL_CUDA_RUN_AHEAD
 * firings are unfinished: one more sleeps until the oldest completes. Several queues of one device
 * are several streams: one for passes, others for copies. The copy op moves data between any two
 * memories.
 *
 * Bases are in the device's memory; those of copies may also be in pinned memory. .prepare, not
 * sl_program_prepare, makes a program ready; then one thread at a time launches it. A device
 * failure ends the queue (.failure): the text names the op after which it was detected. */
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
