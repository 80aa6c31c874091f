/* SPDX-License-Identifier: Apache-2.0 */
/* Sharing the cores of one machine among several processes. */
#ifndef SLUICE_PLACEMENT_SHARE_H
#define SLUICE_PLACEMENT_SHARE_H

#include <sluice/placement.h>

/* Sets [*first, *end) to the cores of part `part` of `parts`: disjoint runs of consecutive cores,
 * as even as possible. With fewer cores than parts each part is one core, shared by parts whose
 * numbers differ by a multiple of the number of cores. Adjacent stages, which wait for each other
 * at the ends of a step, therefore never share a core. */
void sli_share_range(int cores, int part, int parts, int *first, int *end);

/* Binds the calling process, which must have a single thread, to its part of this computer. Its
 * children and all later placement see only that part. Does nothing if the system refuses. */
void sli_share_take(const sl_machine *machine, int part, int parts);

/* Binds process `local` of the `nlocal` that a launcher has started here if their cores must
 * overlap, that is, if `nlocal` times this process's cores exceed the computer's. Otherwise keeps
 * the launcher's binding. */
void sli_share_take_among(int local, int nlocal);

#endif
