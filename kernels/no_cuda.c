/* SPDX-License-Identifier: Apache-2.0 */
/* Stubs of the CUDA interface for builds without CUDA. */
#include <sluice/cuda.h>

#include "kernels/finite.h"

static sl_status no_cuda_refuse(void) {
  return sl_fail(
      SL_E_UNSUPPORTED,
      "this build of Sluice has no CUDA: use --devices cpu, or rebuild with -DSLUICE_CUDA=ON "
      "where the CUDA toolkit is installed (docs/cuda.md)");
}

sl_status sl_cuda_count(int *count) {
  (void)count;
  return no_cuda_refuse();
}

sl_status sl_cuda_describe(int device, sl_cuda_device *description) {
  (void)device, (void)description;
  return no_cuda_refuse();
}

sl_status sl_cuda_memory_create(int device, size_t bytes, void **memory) {
  (void)device, (void)bytes, (void)memory;
  return no_cuda_refuse();
}

sl_status sl_cuda_pinned_create(size_t bytes, void **memory) {
  (void)bytes, (void)memory;
  return no_cuda_refuse();
}

sl_status sl_cuda_copy(void *to, const void *from, size_t bytes) {
  (void)to, (void)from, (void)bytes;
  return no_cuda_refuse();
}

/* No GPU memory ever exists in this build. */
void sl_cuda_memory_destroy(void *memory) { (void)memory; }
void sl_cuda_pinned_destroy(void *memory) { (void)memory; }
void sl_cuda_queue_wait(void *queue, void *other, uint64_t fence) {
  (void)queue, (void)other, (void)fence;
}

int64_t sli_cuda_first_not_finite(const sl_type *type, const void *data, void *scratch,
                                  void *stream, double *value) {
  (void)type, (void)data, (void)scratch, (void)stream, (void)value;
  return -1;
}

bool sli_cuda_fetch(void *to, const void *from, size_t bytes, void *stream) {
  (void)to, (void)from, (void)bytes, (void)stream;
  return false;
}

static sl_status refuse_memory(const sl_memory_config *config, size_t bytes, void **memory) {
  (void)config, (void)bytes, (void)memory;
  return no_cuda_refuse();
}

static void destroy_nothing(void *memory, size_t bytes) { (void)memory, (void)bytes; }

static sl_status refuse_queue(const sl_queue_config *config, void **queue) {
  (void)config, (void)queue;
  return no_cuda_refuse();
}

static sl_status refuse_program(sl_program *program, int device) {
  (void)program, (void)device;
  return no_cuda_refuse();
}

const sl_queue_ops sl_queue_cuda = {
    .name = "cuda", .open = refuse_queue, .prepare = refuse_program};
const sl_memory_ops sl_memory_cuda = {.name = "cuda",
                                      .fixed = true,
                                      .far = true,
                                      .create = refuse_memory,
                                      .destroy = destroy_nothing,
                                      .copy = sl_cuda_copy};
const sl_memory_ops sl_memory_pinned = {.name = "pinned",
                                        .fixed = true,
                                        .create = refuse_memory,
                                        .destroy = destroy_nothing,
                                        .copy = sl_cuda_copy};
