/* SPDX-License-Identifier: Apache-2.0 */
/* Consecutive calls that a CPU team runs as one, because none touches the output of another. The
 * team then waits for its last thread only once. */
#ifndef SLUICE_KERNELS_CPU_JOINED_H
#define SLUICE_KERNELS_CPU_JOINED_H

#include <sluice/program.h>

enum { SLI_JOINED = 4, SLI_JOINED_INPUTS = 6 }; /* maximum of joined calls, and of inputs each */

/* Returns, for each call of all variants, how many calls starting with it run as one. The caller
 * frees the array. */
int32_t *sli_joined_find(const sl_program *program);

/* Runs n calls of one op, each with at most one output. */
void sli_joined_run(const sl_call *calls, int n);

#endif
