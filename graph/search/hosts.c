/* SPDX-License-Identifier: Apache-2.0 */
/* Traffic between hosts in a step, where consecutive runs of `per_host` device numbers form a host
 * (layout.c).
 *
 * In a plan with all devices, this traffic is what devices of different hosts read or copy from
 * each other. If one device of a stage stands for its whole grid, each pair of stages stands for
 * one pair of devices per rank. The layout then gives the number of members of each axis row on
 * other hosts, and a device receives equal amounts from all other members of its row. */
#include "graph/search/place.h"

typedef struct crossing {
  const sli_inputs *in;
  int per_host, ranks; /* ranks of one stage, planned or not */
  double *to;
} crossing;

static int host_of(const crossing *c, int along, int rank) {
  return sli_layout_number(c->in, along, rank) / c->per_host;
}

/* Returns how many of the device pairs that these two devices stand for cross hosts. */
static int pairs_between(const crossing *c, int from, int to) {
  int n = 0;
  if (!c->in->grid.alike) return from / c->per_host != to / c->per_host;
  for (int r = 0; r < c->ranks; r++) n += host_of(c, from, r) != host_of(c, to, r);
  return n;
}

static void hosts_add(void *ctx, int32_t from, int32_t to, sl_traffic traffic, uint64_t bytes) {
  const crossing *c = ctx;
  c->to[traffic] += (double)bytes * pairs_between(c, from, to);
}

/* Returns the fraction of a device's traffic from its row that comes from other hosts. */
static double share_outside(const crossing *c, const sli_grid *grid, int along, int rank,
                            int axis) {
  sli_along row = sli_row_of(axis);
  int members = sli_grid_size(grid, row), outside = 0;
  for (int m = 0; m < members; m++)
    outside += host_of(c, along, sli_rank_at(grid, rank, row, m)) != host_of(c, along, rank);
  return members > 1 ? (double)outside / (members - 1) : 0;
}

/* Adds the traffic that the devices of a stage would exchange, if only one of them is planned. */
static void add_exchanged(const crossing *c, uint64_t (*exchanged)[SLI_AXES]) {
  sli_grid grid = c->in->grid;
  grid.alike = false;
  for (int a = 0; a < SLI_AXES; a++)
    for (int d = 0; d < c->in->devices && a != SLI_AXIS_STAGES; d++)
      for (int r = 0; r < c->ranks && exchanged[d][a]; r++)
        c->to[sli_axes[a].traffic] += (double)exchanged[d][a] * share_outside(c, &grid, d, r, a);
}

void sli_place_crossed(const sli_inputs *in, const sl_plan *plan, uint64_t (*exchanged)[SLI_AXES],
                       int per_host, double to[SL_TRAFFIC_COUNT]) {
  crossing c = {
      .in = in, .per_host = SLI_MAX(per_host, 1), .ranks = sli_grid_ranks(&in->grid), .to = to};
  for (int t = 0; t < SL_TRAFFIC_COUNT; t++) to[t] = 0;
  sl_plan_moves(plan, hosts_add, &c);
  if (in->grid.alike) add_exchanged(&c, exchanged);
}
