/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk functions for CPU level 2 of x86-64: AVX-512. */
#include "kernels/cpu/vector/vector.h"

#if !defined(__clang__)
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")
#endif
#define SLI_TABLE sli_cpu_level2
#include "kernels/cpu/vector/vector.h"
