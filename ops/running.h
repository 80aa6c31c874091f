/* SPDX-License-Identifier: Apache-2.0 */
/* Running statistics, for CPU and CUDA. */
#ifndef SLUICE_OPS_RUNNING_H
#define SLUICE_OPS_RUNNING_H

#include <math.h>

#include <sluice/op.h>

/* Returns the weight of a microbatch's value in a running statistic (running_part). */
static inline float sli_running_factor(const sl_call *call) {
  double momentum = (double)call->attrs->running.momentum;
  double behind = (double)(call->attrs->running.microbatches - 1 - call->tick.microbatch);
  return momentum == 0 ? 1 : (float)(momentum * pow(1 - momentum, behind));
}

#endif
