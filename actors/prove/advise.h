/* What would mend a plan that gets stuck. */
#ifndef SLUICE_ACTORS_ADVISE_H
#define SLUICE_ACTORS_ADVISE_H

#include "actors/prove/prove.h"

/* The smallest change of one quota, at one stage or if that is not enough at all stages, with
 * which a plan finishes whose rehearsal is stuck. */
sli_advice sli_advise(const sl_plan *plan, const sli_rehearsal *stuck);

#endif
