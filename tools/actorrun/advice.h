/* SPDX-License-Identifier: Apache-2.0 */
/* Advice for plans that do not fit in the devices' memory. */
#ifndef SLUICE_TOOLS_ACTORRUN_ADVICE_H
#define SLUICE_TOOLS_ACTORRUN_ADVICE_H

#include "tools/cli/cli.h"
#include "tools/planner/planner.h"

/* Tries other options on the same model and devices, after plan_make(s, run, ...) failed with
 * SL_E_BUDGET. Takes a few seconds at most. Adds to sl_detail() the options that fit, and the
 * memory of the fullest device with them. */
void advice_give(const settings *s, const sl_lower_options *run);

/* Checks that all devices of this host fit in its memory, if no budget was given. Returns
 * SL_E_BUDGET if they do not; the message has numbers, and options that would fit. `nlocal`:
 * processes of the job on this host. */
sl_status advice_check_host(const settings *s, const sl_lower_options *run, const sl_plan *plan,
                            int nlocal);

#endif
