/* SPDX-License-Identifier: Apache-2.0 */
/* Sharing the cores of one machine among several processes. */
#ifndef SLUICE_PLACEMENT_SHARE_H
#define SLUICE_PLACEMENT_SHARE_H

#include <sluice/placement.h>

/* Sets [*first, *end) to the cores of part `part` of `parts`: runs of neighbours, as even as
 * possible, disjoint. With fewer cores than parts each part is one core, and parts whose numbers
 * differ by the number of cores share one. Neighbouring stages, which wait for each other at the
 * ends of a step, therefore do not. */
void sli_share_range(int cores, int part, int parts, int *first, int *end);

/* Binds the calling process, which must have a single thread, to its part of this computer. Its
 * children, and placement from then on, see only that part. Does nothing if the system refuses. */
void sli_share_take(const sl_machine *machine, int part, int parts);

/* Binds process `local` of the `nlocal` that a launcher has started here, if their cores must
 * overlap: if all of them, bound like this one, would need more than this computer has. Otherwise
 * keeps the launcher's binding. */
void sli_share_take_among(int local, int nlocal);

#endif
