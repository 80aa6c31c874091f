/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions shared by both cross entropies. A chunk of rows stores its sum in the scratch. */
#ifndef SLUICE_KERNELS_CPU_LOSS_H
#define SLUICE_KERNELS_CPU_LOSS_H

#include <sluice/op.h>

size_t sli_loss_scratch(const sl_call *call, int threads);
/* Returns the sum over the rows of the first input, chunk by chunk in order. */
double sli_loss_sum(const sl_call *call);
/* Merges the parts of rows, `part` numbers each, and writes their lse if it is an output. */
void sli_loss_join(const sl_call *call, int part);

#endif
