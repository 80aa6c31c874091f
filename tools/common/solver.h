/* --home auto: of all choices the one that takes least time and fits. */
#ifndef SLUICE_TOOLS_COMMON_SOLVER_H
#define SLUICE_TOOLS_COMMON_SOLVER_H

#include "tools/common/choice.h"

typedef struct solved {
  char *said;                  /* as options, for free() */
  double seconds;              /* of a step, predicted */
  size_t bytes[SL_SPACE_COUNT]; /* of the device that takes most of each */
  int tried;                   /* plans */
} solved;

/* Makes the settings say what was found. SL_E_BUDGET: nothing fits, and what takes least of all that
 * was tried. `run` is that of plan_make(). */
sl_status solve_homes(settings *s, const sl_lower_options *run, solved *out);

#endif
