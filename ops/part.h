/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of the ops that cut and join tensors (ops/part.c), for their kernels too. */
#ifndef SLUICE_OPS_PART_H
#define SLUICE_OPS_PART_H

#include "ops/ops.h"

enum { SLI_SUM_MOST = 1024 };

#endif
