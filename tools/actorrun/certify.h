/* SPDX-License-Identifier: Apache-2.0 */
/* --certify: a line for each step, with the bits of its loss and a hash of every parameter and of
 * the optimizer's state. --recheck: compares a run with such lines. */
#ifndef SLUICE_TOOLS_ACTORRUN_CERTIFY_H
#define SLUICE_TOOLS_ACTORRUN_CERTIFY_H

#include "tools/actorrun/actorrun.h"

/* Says whether the run stops after each step for this. */
bool certify_wanted(const settings *s);
/* Checks the two options before the run: SL_E_USAGE or SL_E_INPUT name the file. */
sl_status certify_check(const settings *s);
/* Runs the steps one at a time, in all processes. SL_E_INPUT: a step differs from the file of
 * --recheck; it names the step and the first of the tensors that differ. */
sl_status certify_run(job *j, int64_t steps);

#endif
