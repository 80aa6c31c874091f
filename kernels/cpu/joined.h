/* Calls that a CPU's team runs as one: they come one after another, and none of them touches what another one writes.
 * A team that works on all of them waits for its last thread once. */
#ifndef SLUICE_CPU_JOINED_H
#define SLUICE_CPU_JOINED_H

#include <sluice/program.h>

enum { SLI_JOINED = 4, SLI_JOINED_INPUTS = 6 }; /* calls and inputs of each, at most */

/* For each call of all variants, how many from it on run as one; the caller's to free(). */
int32_t *sli_joined_find(const sl_program *program);

/* Runs n calls of one op, which have no more than one output each. */
void sli_joined_run(const sl_call *calls, int n);

#endif
