/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk functions for CPU level 3 of ARM64: products of bytes of either sign, and of bf16
 * (ARMv8.6). */
#include "kernels/cpu/vector/vector.h"

#if !defined(__clang__)
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm+bf16")
#endif
#define SLI_FUSED
#define SLI_TABLE sli_cpu_level3
#include "kernels/cpu/vector/vector.h"
