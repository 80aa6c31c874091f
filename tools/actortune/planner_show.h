/* SPDX-License-Identifier: Apache-2.0 */
/* Output of actortune plan as text, JSON and a figure. */
#ifndef SLUICE_TOOLS_ACTORTUNE_PLANNER_SHOW_H
#define SLUICE_TOOLS_ACTORTUNE_PLANNER_SHOW_H

#include <stdio.h>

#include "tools/cli/cli.h"
#include "tools/planner/planner.h"

/* Returns how many of the best plans are shown. */
size_t planner_shown(const planner *p);
/* Returns whether a dimension has more than one value among all choices. */
bool planner_varies(const planner *p, plan_dim dim);
/* Formats a value: "4", "zb-h1". */
const char *planner_value(const plan_choice *choice, plan_dim dim, char text[32]);

void planner_show(const planner *p, FILE *out);
sl_status planner_json_write(const planner *p, const char *path);
sl_status planner_svg_write(const planner *p, const char *path);

#endif
