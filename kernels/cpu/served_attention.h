/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over pages, for kernels that build on it. */
#ifndef SLUICE_KERNELS_CPU_SERVED_ATTENTION_H
#define SLUICE_KERNELS_CPU_SERVED_ATTENTION_H

#include "kernels/cpu/served.h"

/* Returns the scratch of a call whose input 0 holds the queries. */
size_t sli_served_scratch(const sl_call *call, int threads);

/* Fills runs of rows of one sequence, at most SLI_SERVED_RUN each, and of one page if `by_pages`.
 * Returns their number. */
int sli_served_runs(const sl_batch *batch, bool by_pages, sli_run *runs);

/* Fills in `a`, whose queries, keys and values are set, from the call, and attends. */
void sli_served_attend(const sl_call *call, sli_served_attention *a);

#endif
