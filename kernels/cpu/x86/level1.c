/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk functions for CPU level 1 of x86-64: AVX2, FMA and F16C. */
#include "kernels/cpu/vector/vector.h"

#if !defined(__clang__)
#pragma GCC target("avx2,fma,f16c")
#endif
#define SLI_TABLE sli_cpu_level1
#include "kernels/cpu/vector/vector.h"
