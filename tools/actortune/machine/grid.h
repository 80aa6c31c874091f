/* Samples as the curves of a machine file. */
#ifndef SLUICE_TOOLS_ACTORTUNE_GRID_H
#define SLUICE_TOOLS_ACTORTUNE_GRID_H

#include <cjson/cJSON.h>

#include "tools/actortune/machine/probe.h"

/* "curves" of all rows that were seen: of products over m, n and k, of attention over positions and the
 * numbers of a head, of all others over bytes; and each over how many devices compute at once, where
 * that was seen. */
cJSON *grid_curves(const samples *s);
/* How far the median step is from the fastest: of half of the samples less, weighed by their time. */
double grid_spread(const samples *s);

#endif
