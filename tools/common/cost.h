/* What --cost says: durations of passes on modelled devices. */
#ifndef SLUICE_TOOLS_COST_H
#define SLUICE_TOOLS_COST_H

#include "tools/common/settings.h"

/* "F=1,B=2,W=1,comm=0"; "F=1:1:2,B=2" stage by stage; "head.F=1:1:1" of a block that is spread over
 * them. In settings->modelled.cost, whose arrays are in the settings' arena. */
sl_status cost_read(settings *s, const char *text);
/* A text that reads as the same; empty if all are zero. The caller's to free(). */
char *cost_text(const sl_cost *cost);
/* All passes so many times as long, in arrays of the arena. */
sl_cost cost_scaled(sli_arena *arena, const sl_cost *cost, double by);

#endif
