/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk functions for CPU level 0: the architecture's baseline. */
#include "kernels/cpu/vector/vector.h"

#define SLI_TABLE sli_cpu_level0
#include "kernels/cpu/vector/vector.h"
