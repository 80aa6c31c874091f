/* SPDX-License-Identifier: Apache-2.0 */
/* Cost of a session's ticks: --tick. */
#ifndef SLUICE_TOOLS_SERVING_TICKS_H
#define SLUICE_TOOLS_SERVING_TICKS_H

#include <cjson/cJSON.h>

#include <sluice/session.h>

#include "base/base.h"

/* Reads "A,B,C,D,E": the cost of a tick, a position, a row, a pair and a pick (0 if left out), for
 * each stage. A file, the report of a run with --arrivals, gives the cost of a single stage
 * (*whole), to be divided among several stages. SL_E_USAGE, SL_E_INPUT. */
sl_status ticks_read(const char *text, sl_tick_cost *out, bool *whole);
/* Returns a fraction of a cost. */
sl_tick_cost ticks_share(const sl_tick_cost *c, double share);
/* Adds a cost to a report, in the format of such a report file. */
void ticks_report(cJSON *root, const sl_tick_cost *numbers, const sl_tick_cost *corners);

#endif
