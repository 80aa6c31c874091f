/* SPDX-License-Identifier: Apache-2.0 */
/* Fingerprint of a run, by option names: what decides its results, which is compared with
 * checkpoints, and what else must agree between all processes of a job. */
#ifndef SLUICE_TOOLS_ACTORRUN_FINGERPRINT_H
#define SLUICE_TOOLS_ACTORRUN_FINGERPRINT_H

#include "tools/cli/cli.h"
#include "tools/serving/serving.h"

void fingerprint_init(fingerprint *fingerprint, const settings *s);
/* Adds what the plan's hash does not cover, and the contents of input files. SL_E_INPUT names an
 * unreadable file. */
sl_status fingerprint_add_plan(fingerprint *fingerprint, const settings *s, const sl_graph *g,
                               const sl_lowered *lowered);
/* Adds only the files of weights, adapters and tokenizers. */
sl_status fingerprint_add_files(fingerprint *fingerprint, const settings *s);

#endif
