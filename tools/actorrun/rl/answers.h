/* SPDX-License-Identifier: Apache-2.0 */
/* --answers: a file with answers and their rewards, as lines of JSON or as a page. */
#ifndef SLUICE_TOOLS_ACTORRUN_ANSWERS_H
#define SLUICE_TOOLS_ACTORRUN_ANSWERS_H

#include "tools/actorrun/rl/rl.h"

typedef struct answers_file answers_file;

/* Opens the file. A run that goes on behind step `first` appends. NULL in *out: --answers is not
 * given. */
sl_status answers_open(const settings *s, int64_t first, answers_file **out);
/* Writes a step's answers: a page shows those to its first prompt. A reward that is NaN is none. */
void answers_step(answers_file *f, const rl_prompts *prompts, const sl_rollouts_report *report,
                  int n, const sl_answer *answers, const double *rewards, const double *advantages);
/* SL_E_IO: the file could not be written as a whole. */
sl_status answers_close(answers_file *f);

#endif
