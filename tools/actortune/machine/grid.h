/* SPDX-License-Identifier: Apache-2.0 */
/* Curves of a machine file, made from samples. */
#ifndef SLUICE_TOOLS_ACTORTUNE_MACHINE_GRID_H
#define SLUICE_TOOLS_ACTORTUNE_MACHINE_GRID_H

#include <cjson/cJSON.h>

#include "tools/actortune/machine/probe.h"

/* Makes "curves" for all observed ops: matrix products over m, n and k, attention over positions
 * and head size, all others over bytes. Each is also over the number of concurrently computing
 * devices, if that was varied. */
cJSON *grid_curves(const samples *s);
/* Returns how far the median step is from the fastest: the time-weighted median over samples. */
double grid_spread(const samples *s);

#endif
