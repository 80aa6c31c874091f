/* SPDX-License-Identifier: Apache-2.0 */
/* Teams: the threads of one CPU device, which share the chunks of a kernel. */
#ifndef SLUICE_KERNELS_CPU_TEAM_H
#define SLUICE_KERNELS_CPU_TEAM_H

#include <sluice/op.h>

/* Starts threads - 1 helpers; the thread that calls sl_team_for() is member 0. Each helper calls
 * bind(arg, its number) once before its first chunk; bind may be NULL. Returns NULL if a thread
 * cannot be started. */
struct sl_team *sli_team_create(int threads, void (*bind)(void *arg, int thread), void *arg);

/* Returns the number of threads, or 1 for a NULL team. */
int sli_team_threads(const struct sl_team *team);

void sli_team_destroy(struct sl_team *team);

#endif
