/* What to do where a plan does not fit in the devices' memory. */
#ifndef SLUICE_TOOLS_ACTORRUN_FIT_H
#define SLUICE_TOOLS_ACTORRUN_FIT_H

#include "tools/common/common.h"

/* After plan_make(s, run, ...) has failed with SL_E_BUDGET: tries other options on the same model and
 * devices, for some seconds at most, and adds to sl_detail() which of them fit, and with how much
 * memory of the fullest device. */
void fit_advise(const settings *s, const sl_lower_options *run);

/* Where no budget was given: do the devices of this host fit in its memory together? SL_E_BUDGET with
 * numbers, and what would. `nlocal`: processes of the job on this host. */
sl_status fit_check_host(const settings *s, const sl_lower_options *run, const sl_plan *plan,
                         int nlocal);

#endif
