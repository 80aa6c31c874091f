/* SPDX-License-Identifier: Apache-2.0 */
/* Walks of states on CPUs. */
#ifndef SLUICE_KERNELS_CPU_WALKS_H
#define SLUICE_KERNELS_CPU_WALKS_H

#include "kernels/cpu/chunk.h"
#include "kernels/walks/walks.h"

/* Runs an op on the call's team. */
void sli_walk_on_cpu(const sl_call *call, sli_walk_run *run);
/* Runs a walk of states [dk, dv] by values. */
void sli_walk_values(const sl_call *call, const sli_linear_shape *s, sli_walk *w);

/* Walks of a tick's sequences. `make` fills in the walk of `rows` rows, the first of which is
 * `row`. */
typedef void sli_make_walk(const sl_call *call, const sli_linear_shape *s, int32_t row,
                           sli_walk *w);
void sli_walk_served(const sl_call *call, int states, sli_make_walk *make);
size_t sli_walk_served_scratch(const sl_call *call, int threads);

#endif
