/* SPDX-License-Identifier: Apache-2.0 */
/* Searches over schedules, paths and assignments of devices: each candidate is lowered, or priced
 * by what was lowered. */
#ifndef SLUICE_GRAPH_SEARCH_SEARCH_H
#define SLUICE_GRAPH_SEARCH_SEARCH_H

#include "graph/lower/lower.h"
#include "graph/schedule/schedule.h"
#include "graph/search/place.h"

/* Finds the fastest schedule that fits; chunks 0: any number up to most_chunks (search.c). */
sl_status sli_search(const sli_inputs *in, int chunks, int most_chunks, sli_pick *out);

/* Finds paths for `pick` that skip the fraction of all visits given in the options, round-robin or
 * by a search (skip.c). */
sl_status sli_skip(const sli_inputs *in, sli_pick *pick);

#endif
