/* What ticks of a session take: --tick. */
#ifndef SLUICE_TOOLS_COMMON_TICKS_H
#define SLUICE_TOOLS_COMMON_TICKS_H

#include <cjson/cJSON.h>

#include <sluice/session.h>

#include "base/base.h"

/* "A,B,C,D,E", the numbers of a tick, a position, a row, a pair and a pick (0 if left out), is what each stage takes. A file, which a run with
 * --arrivals has reported, is what a stage takes that is alone, and of several each takes its part: *whole. SL_E_USAGE,
 * SL_E_INPUT. */
sl_status ticks_read(const char *text, sl_tick_cost *out, bool *whole);
/* So much of it. */
sl_tick_cost ticks_share(const sl_tick_cost *c, double share);
/* As such a file has them. */
void ticks_report(cJSON *root, const sl_tick_cost *numbers, const sl_tick_cost *corners);

#endif
