/* SPDX-License-Identifier: Apache-2.0 */
/* Advice for a plan that gets stuck. */
#ifndef SLUICE_ACTORS_PROVE_ADVISE_H
#define SLUICE_ACTORS_PROVE_ADVISE_H

#include "actors/prove/prove.h"

/* Finds the smallest change of one quota with which a stuck plan finishes: at one stage, or if that
 * is not enough, at all stages. */
sli_advice sli_advise(const sl_plan *plan, const sli_simulation *stuck);

#endif
