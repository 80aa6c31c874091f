/* SPDX-License-Identifier: Apache-2.0 */
/* Solver of --home auto: finds the fastest choice that fits. */
#ifndef SLUICE_TOOLS_PLANNER_SOLVER_H
#define SLUICE_TOOLS_PLANNER_SOLVER_H

#include "tools/planner/choice.h"

typedef struct solved {
  char *said;                   /* the choice as options; freed with free() */
  double seconds;               /* predicted seconds of a step */
  size_t bytes[SL_SPACE_COUNT]; /* bytes of each space on the device that uses most of it */
  int tried;                    /* number of plans tried */
  const char *chosen; /* the plan's paths, as sl_lower_options.chosen; in the settings' arena */
} solved;

/* Finds a choice and makes the settings express it. `run` is passed to plan_make(). SL_E_BUDGET:
 * nothing fits; the message states the smallest need. */
sl_status solve_homes(settings *s, const sl_lower_options *run, solved *out);

#endif
