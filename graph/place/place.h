/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing devices for places, after lowering: the order of devices, the search, and the traffic
 * between hosts. */
#ifndef SLUICE_GRAPH_PLACE_H
#define SLUICE_GRAPH_PLACE_H

#include "graph/lower/lower.h"

/* Orders the devices in a way that does not depend on their numbers. */
void sli_place_order(const sl_hardware *h, int devices, int *order);
/* Searches for the assignment of devices to places that takes the least time on this hardware,
 * in the format of `assign`, for free(). NULL: none is faster than the current one. */
char *sli_place_anneal(const sli_inputs *in, const sli_sent *sent, const sl_hardware *h,
                       uint64_t seed);
/* Sums the bytes that go from host to host over all devices: the share of `exchanged`, and of
 * all else that the plan moves. */
void sli_place_crossed(const sli_inputs *in, const sl_plan *plan, uint64_t (*exchanged)[SLI_AXES],
                       int per_host, double to[SL_TRAFFIC_COUNT]);

#endif
