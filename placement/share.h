/* The cores of one machine for several processes. */
#ifndef SLUICE_PLACEMENT_SHARE_H
#define SLUICE_PLACEMENT_SHARE_H

#include <sluice/placement.h>

/* The cores [*first, *end) of part `part` of `parts`: runs of neighbours, as even as
 * can be, disjoint. With fewer cores than parts each part is one core, and those whose numbers are
 * as far apart as there are cores have the same: neighbouring stages, of which one waits for the
 * other at the ends of a step, have not. */
void sli_share_range(int cores, int part, int parts, int *first, int *end);

/* Binds the calling process, which must have a single thread, to its part of this
 * computer: what it starts, and what placement sees from then on, has only that. Does
 * nothing where the system refuses. */
void sli_share_take(const sl_machine *machine, int part, int parts);

/* The same for process `local` of the `nlocal` that something else has started here,
 * if their cores must overlap: when all of them, bound like this one, would need more
 * than this computer has. What is left to others stays as it is. */
void sli_share_take_among(int local, int nlocal);

#endif
