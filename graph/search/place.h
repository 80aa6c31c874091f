/* SPDX-License-Identifier: Apache-2.0 */
/* Assignment of devices to places after lowering: device order, search, and traffic between
 * hosts. */
#ifndef SLUICE_GRAPH_SEARCH_PLACE_H
#define SLUICE_GRAPH_SEARCH_PLACE_H

#include "graph/lower/lower.h"

/* Orders the devices independently of their numbers. */
void sli_place_order(const sl_hardware *h, int devices, int *order);
/* Searches for the fastest assignment of devices to places on this hardware. Returns it in the
 * format of `assign`; the caller frees it. Returns NULL if none is faster than the current one. */
char *sli_place_anneal(const sli_inputs *in, const sli_sent *sent, const sl_hardware *h,
                       uint64_t seed);
/* Sums the bytes that cross hosts, over all devices: the crossing part of `exchanged`, and of
 * everything else that the plan moves. */
void sli_place_crossed(const sli_inputs *in, const sl_plan *plan, uint64_t (*exchanged)[SLI_AXES],
                       int per_host, double to[SL_TRAFFIC_COUNT]);

#endif
