/* SPDX-License-Identifier: Apache-2.0 */
/* --answers: writes answers and their rewards to a file, as JSON lines or as a page. */
#ifndef SLUICE_TOOLS_ACTORRUN_RL_ANSWERS_H
#define SLUICE_TOOLS_ACTORRUN_RL_ANSWERS_H

#include "tools/actorrun/rl/rl.h"

typedef struct answers_file answers_file;

/* Opens the file. A run that resumes after step `first` appends. *out is NULL if --answers was not
 * given. */
sl_status answers_open(const settings *s, int64_t first, answers_file **out);
/* Writes a step's answers. A page shows the answers to the step's first prompt. NaN means no
 * reward. */
void answers_step(answers_file *f, const rl_prompts *prompts, const sl_rollouts_report *report,
                  int n, const sl_answer *answers, const double *rewards, const double *advantages);
/* SL_E_IO: the file could not be written completely. */
sl_status answers_close(answers_file *f);

#endif
