/* What other folders and the tools may ask of lowering, besides sluice/lower.h: what registers are
 * for, and how users name their quotas. */
#ifndef SLUICE_GRAPH_LOWER_H
#define SLUICE_GRAPH_LOWER_H

#include <sluice/lower.h>

#include "graph/lower/roles.h"

/* Reads "act.b=4", "act.b@2=4", "act.b=4,3,2,1" (from stage 0 on) or "fwd@1=3,-,2" (from stage 1
 * on, but not at 2). What is wrong is said of "quota TEXT". The quotas and their name are one
 * allocation, for free(). */
sl_status sli_quota_read(const char *text, int *count, sl_quota **out);

/* Is a register or pool of this name, of this stage, meant? "act" stands for "act.b" and "act.w". */
bool sli_quota_names(const sl_quota *quota, const char *name, int stage);

/* Do slots of this name count the activations of a stage? */
bool sli_quota_counts_activations(const char *name);

#endif
