/* The chunk functions for CPU level 0: what every machine of the architecture has. */
#include "kernels/cpu/vector/vector.h"

#define SLI_TABLE sli_cpu_level0
#include "kernels/cpu/vector/vector.h"
