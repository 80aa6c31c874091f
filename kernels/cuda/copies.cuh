/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous copies from device memory into shared memory (cp.async). The copies that a thread
 * has started since its last commit_copies() form a group. A thread sees a group's data after
 * waiting for the group, and its block sees them after the next barrier. Until then the destination
 * must not be read or written. */
#ifndef SLUICE_CUDA_COPIES_CUH
#define SLUICE_CUDA_COPIES_CUH

#include "kernels/cuda/device.cuh"

namespace sli {

#ifdef __CUDACC__
/* Copies BYTES from `from`, or writes zeros if `there` is false; `from` must be readable either
 * way. 16-byte copies bypass the L1 cache, because they are read once. */
template <int BYTES> __device__ inline void copy_async(void *to, const void *from, bool there) {
  unsigned at = (unsigned)__cvta_generic_to_shared(to);
  int bytes = there ? BYTES : 0;
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(at), "l"(from), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(at), "l"(from), "n"(BYTES), "r"(bytes)
                 : "memory");
}
template <int BYTES> __device__ inline void copy_async(void *to, const void *from) {
  static_assert(BYTES == 16, "around the first cache");
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }
/* Waits for all groups of this thread. */
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_group 0;" : : : "memory"); }
#else
template <int BYTES> inline void copy_async(void *to, const void *from, bool there = true) {
  emulated_copy_async(to, from, BYTES, there);
}
inline void commit_copies() { emulated_commit_copies(); }
inline void wait_for_copies() { emulated_wait_copies(0); }
#endif

} // namespace sli

#endif
