/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk functions for CPU level 2 of ARM64: dot products of bytes (ARMv8.2). */
#include "kernels/cpu/vector/vector.h"

#if !defined(__clang__)
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#define SLI_FUSED
#define SLI_TABLE sli_cpu_level2
#include "kernels/cpu/vector/vector.h"
