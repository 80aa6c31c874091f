/* Shared by the rules of ops/part.c and their kernels. */
#ifndef SLUICE_OPS_PART_H
#define SLUICE_OPS_PART_H

#include "ops/ops.h"

enum { SLI_SUM_MOST = 1024 };

#endif
