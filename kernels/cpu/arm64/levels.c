/* SPDX-License-Identifier: Apache-2.0 */
/* CPU levels of ARM64. Linux reports the features of the processor
 * (Documentation/arch/arm64/elf_hwcaps.rst). */
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "kernels/cpu/chunk.h"

/* All processors have the instructions of level 1. */
static bool has_fused(void) { return true; }

static bool has_dot_products(void) { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }

static bool has_matrix_products(void) {
  const unsigned long both = HWCAP2_I8MM | HWCAP2_BF16;
  return (getauxval(AT_HWCAP2) & both) == both;
}

const sli_cpu_level_row sli_cpu_levels[] = {{&sli_cpu_level0, NULL},
                                            {&sli_cpu_level1, has_fused},
                                            {&sli_cpu_level2, has_dot_products},
                                            {&sli_cpu_level3, has_matrix_products},
                                            {NULL, NULL}};
