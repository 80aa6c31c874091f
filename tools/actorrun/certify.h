/* SPDX-License-Identifier: Apache-2.0 */
/* --certify: writes a line for each step, with the bits of its loss and a hash of every parameter
 * and of its optimizer state. --recheck: compares a run with such lines. */
#ifndef SLUICE_TOOLS_ACTORRUN_CERTIFY_H
#define SLUICE_TOOLS_ACTORRUN_CERTIFY_H

#include "tools/actorrun/actorrun.h"

/* Returns whether the run stops after each step for certification. */
bool certify_wanted(const settings *s);
/* Checks both options before the run. SL_E_USAGE or SL_E_INPUT names the file. */
sl_status certify_check(const settings *s);
/* Runs the steps one at a time, in all processes. SL_E_INPUT: a step differs from the --recheck
 * file; the message names the step and the first tensor that differs. */
sl_status certify_run(job *j, int64_t steps);

#endif
