/* SPDX-License-Identifier: Apache-2.0 */
/* The --cost option: durations of passes on modelled devices. */
#ifndef SLUICE_TOOLS_CLI_COST_H
#define SLUICE_TOOLS_CLI_COST_H

#include "tools/cli/settings.h"

/* Parses "F=1,B=2,W=1,comm=0", "F=1:1:2,B=2" stage by stage, and "head.F=1:1:1" for a block
 * spread over the stages. Fills settings->lower.simulation.cost, whose arrays are in the settings'
 * arena. */
sl_status cost_read(settings *s, const char *text);
/* Formats a cost so that cost_read() reads it back; empty if all are zero. The caller frees it. */
char *cost_text(const sl_cost *cost);
/* Multiplies all durations by a factor, in arrays of the arena. */
sl_cost cost_scaled(sli_arena *arena, const sl_cost *cost, double by);

#endif
