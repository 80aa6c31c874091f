/* SPDX-License-Identifier: Apache-2.0 */
/* CPU levels of processors that have only the compiler's vectors. */
#include "kernels/cpu/chunk.h"

const sli_cpu_level_row sli_cpu_levels[] = {{&sli_cpu_level0, NULL}, {NULL, NULL}};
