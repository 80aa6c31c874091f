/* SPDX-License-Identifier: Apache-2.0 */
/* Durations of served calls on this machine: products with weights in their stored formats, and
 * attention to pages. */
#ifndef SLUICE_TOOLS_ACTORTUNE_MACHINE_SERVED_H
#define SLUICE_TOOLS_ACTORTUNE_MACHINE_SERVED_H

#include <cjson/cJSON.h>

#include "tools/cli/cli.h"
#include "tools/planner/planner.h"

/* Measures for about `seconds` and adds curves to `curves`. Products are also measured with
 * `devices` devices busy. Weights come from memory, not from a cache. */
sl_status served_measure(const settings *s, int devices, double seconds, cJSON *curves);

#endif
