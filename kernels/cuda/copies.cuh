/* Copies from the device's memory into shared memory that go on while the thread does other
 * things (cp.async). What a thread has asked for since its last commit_copies() is a group.
 * A group is there for the thread that asked once it has waited for it, and for its block
 * after the next barrier; until then nobody may read or write where it goes. */
#ifndef SLUICE_CUDA_COPIES_CUH
#define SLUICE_CUDA_COPIES_CUH

#include "kernels/cuda/device.cuh"

namespace sli {

#ifdef __CUDACC__
/* BYTES from `from`, or as many zeros if they are not there; `from` can be read all the
 * same. 16 bytes go around the first cache: they are read once. */
template <int BYTES> __device__ inline void copy_async(void *to, const void *from, bool there) {
  unsigned at = (unsigned)__cvta_generic_to_shared(to);
  int bytes = there ? BYTES : 0;
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 : : "r"(at), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 : : "r"(at), "l"(from), "n"(BYTES), "r"(bytes) : "memory");
}
template <int BYTES> __device__ inline void copy_async(void *to, const void *from) {
  static_assert(BYTES == 16, "around the first cache");
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               : : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }
/* For all groups of this thread. */
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
