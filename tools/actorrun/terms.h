/* What a run is made of, by the names of the options that say so: what decides its results, which
 * a checkpoint is compared by, and besides what all processes of a job must have alike. */
#ifndef SLUICE_TOOLS_ACTORRUN_TERMS_H
#define SLUICE_TOOLS_ACTORRUN_TERMS_H

#include "tools/common/common.h"

void terms_init(terms *t, const settings *s);
/* Adds what the plan's hash does not say, and the contents of the files that are read. SL_E_INPUT names one that
 * cannot be. */
sl_status terms_add_plan(terms *t, const settings *s, const sl_graph *g, const sl_lowered *lowered);
/* Only the files of weights, adapters and tokenizers. */
sl_status terms_add_files(terms *t, const settings *s);

#endif
