/* SPDX-License-Identifier: Apache-2.0 */
/* Solver of --home auto: finds the fastest choice that fits. */
#ifndef SLUICE_TOOLS_COMMON_SOLVER_H
#define SLUICE_TOOLS_COMMON_SOLVER_H

#include "tools/common/choice.h"

typedef struct solved {
  char *said;                   /* the choice as options; freed with free() */
  double seconds;               /* predicted seconds of a step */
  size_t bytes[SL_SPACE_COUNT]; /* bytes of the device that takes most of each space */
  int tried;                    /* number of plans tried */
  const char *chosen; /* their paths, as sl_lower_options.chosen; in the settings' arena */
} solved;

/* Makes the settings express the choice found. `run` is that of plan_make(). SL_E_BUDGET:
 * nothing fits; the message names the smallest need. */
sl_status solve_homes(settings *s, const sl_lower_options *run, solved *out);

#endif
