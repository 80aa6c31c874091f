/* SPDX-License-Identifier: Apache-2.0 */
/* Umbrella header: settings to plans, and the search for the best plan. */
#ifndef SLUICE_TOOLS_PLANNER_PLANNER_H
#define SLUICE_TOOLS_PLANNER_PLANNER_H

#include "tools/planner/choice.h"
#include "tools/planner/each.h"
#include "tools/planner/machine.h"
#include "tools/planner/plan.h"
#include "tools/planner/search.h"
#include "tools/planner/solver.h"

#endif
