/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk functions for CPU level 1 of ARM64: the same instructions as level 0, and fused products.
 */
#include "kernels/cpu/vector/vector.h"

#define SLI_FUSED
#define SLI_TABLE sli_cpu_level1
#include "kernels/cpu/vector/vector.h"
