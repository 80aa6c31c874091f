/* What devices of a stage exchange on modelled hardware: how long it takes, and how much it is.
 *
 * A collective is nodes that read what other devices have made: a sum of everyone's part, a
 * join of all parts. Each moves over its device's own memory what its row's cost says, and
 * receives the other members' parts over the link of its axis:
 *
 *     seconds = its bytes in memory / memory rate + bytes from others / link rate
 *
 * and once for all nodes of a group, whose messages travel together, ceil(log2(R)) times the
 * link's latency. That is what recursive halving (reduce-scatter) and doubling (all-gather)
 * take: (R-1)/R of the tensor each way and log2(R) messages, an all-reduce of n bytes both
 * (Thakur, Rabenseifner & Gropp, "Optimization of Collective Communication Operations in
 * MPICH", IJHPCA 19(1), 2005). A ring moves as much in R-1 steps, and so does a direct
 * exchange through a switch in one; where tensors are large all three take the same time.
 *
 * Devices are numbered host by host; who are neighbours, the layout says (layout.c). If all members of
 * each row of an axis are in one host, their link is the host's. Else they meet between hosts,
 * where h of the row's members sit behind h network links of a host: rings that leave a host
 * over all of them move min(host link, h * network link). */
#include <math.h>
#include <stdlib.h>

#include "graph/share/share.h"
#include "graph/lower/ir.h"

/* Of devices nobody has described: cores read what others have made where it lies. How many
 * processes drive them is of no account, for what is learned must not depend on that. */
static const sli_axis_link beside = {0, 1e10};

/* ---- links --------------------------------------------------------------------------- */

static int per_host(const sl_hardware *h) { return SLI_MAX(h->devices_per_host, 1); }

/* The number a device would have if all were there. */
static int number_of(const sli_inputs *in, int device) {
  return in->grid.alike ? sli_layout_number(in, device, 0) : device;
}

sl_hardware_link sli_lower_link(const sli_inputs *in, int from, int to) {
  const sl_lower_options *o = in->options;
  if (o->cost.comm > 0) return (sl_hardware_link){o->cost.comm, 0};
  if (!o->hardware) return (sl_hardware_link){0, 0};
  int n = per_host(o->hardware);
  bool host = number_of(in, from) / n == number_of(in, to) / n;
  return host ? o->hardware->host_link : o->hardware->link;
}

double sli_lower_host_rate(const sli_inputs *in) {
  const sl_hardware *h = in->options->hardware;
  if (!in->kind->modelled || !h) return 0;
  return h->host_memory_bytes_per_second / SLI_MIN(per_host(h), in->p * sli_grid_ranks(&in->grid));
}

double sli_lower_crossing(const sli_inputs *in) {
  double most = 0;
  for (int place = 0; place < in->devices; place++) {
    int next = in->device_at[(place + in->ranks) % in->devices];
    most = SLI_MAX(most, sli_lower_link(in, in->device_at[place], next).seconds);
  }
  return most;
}

static bool is_shared(const sli_inputs *in, sli_along along, int axis) {
  return (along >> axis & 1) && in->grid.size[axis] > 1;
}

/* From the first member of a row to the last. */
static int reach_of(const sli_inputs *in, sli_along along) {
  int reach = 0;
  for (int a = 0; a < SLI_AXES; a++)
    if (is_shared(in, along, a)) reach += sli_layout_stride(in, a) * (in->grid.size[a] - 1);
  return reach;
}

/* Of the members of a row, those that are in one block of `n` devices. */
static int together_in(const sli_inputs *in, sli_along along, int n) {
  int together = 1;
  for (int a = 0; a < SLI_AXES; a++)
    if (is_shared(in, along, a))
      together *= SLI_MAX(SLI_MIN(in->grid.size[a], n / sli_layout_stride(in, a)), 1);
  return together;
}

/* Is each row along these in one block of `n` devices? */
static bool within(const sli_inputs *in, sli_along along, int n) {
  const sli_grid *grid = &in->grid;
  int ranks = sli_grid_ranks(grid), reach = reach_of(in, along);
  for (int place = 0; place < in->p * ranks; place++) {
    int first = sli_layout_number(in, place / ranks, place % ranks);
    if (!sli_rank_member(grid, place % ranks, along) && first / n != (first + reach) / n) return false;
  }
  return true;
}

/* What all axes of rows exchange as one counts as the data's. */
static sli_along along_of(int axis) { return axis == SLI_AXIS_DATA ? sli_grid_rows() : 1u << axis; }

static sli_axis_link modelled_link(const sli_inputs *in, sli_along along) {
  const sl_hardware *h = in->options->hardware;
  int size = sli_grid_size(&in->grid, along), n = per_host(h);
  double steps = ceil(log2(size));
  if (within(in, along, n))
    return (sli_axis_link){steps * h->host_link.seconds, h->host_link.bytes_per_second};
  int together = together_in(in, along, n);
  double rate = together * h->link.bytes_per_second, inside = h->host_link.bytes_per_second;
  if (together > 1 && inside > 0) rate = SLI_MIN(rate, inside);
  return (sli_axis_link){steps * h->link.seconds, rate};
}

/* Do devices of one stage that differ along an axis lie in memories of their own? */
static bool is_apart(const sli_inputs *in, int axis) {
  if (in->kind->copy) return true;
  if (in->options->processes <= 1) return false;
  for (int d = 0; d < in->devices; d++) {
    int rank = sli_rank_at(&in->grid, sli_rank_of(in, d), 1u << axis, 0);
    int first = sli_device_at(in, sli_along_of(in, d), rank);
    if (sl_device_process(d, in->devices, in->options->processes) !=
        sl_device_process(first, in->devices, in->options->processes))
      return true;
  }
  return false;
}

void sli_lower_axis_links(sli_inputs *in) {
  const sl_hardware *h = in->options->hardware;
  sli_grid *grid = &in->grid;
  for (int a = 0; a < SLI_AXES; a++) {
    grid->apart[a] = is_apart(in, a);
    grid->link[a] = h ? modelled_link(in, along_of(a)) : beside;
  }
  if (!h) return;
  grid->flops_per_second = h->flops_per_second;
  grid->bytes_per_second = h->bytes_per_second;
  grid->op_seconds = h->op_seconds;
}

/* ---- time ---------------------------------------------------------------------------- */

/* What a node receives in a tick, or in a step; where pieces differ, their mean. */
static double received(const sli_lowering *l, const sli_node *n) {
  if (!n->shapes) return n->remote_bytes;
  double sum = 0;
  for (int k = 0; k < l->in->k; k++) sum += n->shapes[l->pieces[k].variant].remote_bytes;
  return sum / l->in->k;
}

double sli_lower_exchange_seconds(const sli_lowering *l, const sli_group *g) {
  double bytes[SLI_AXES] = {0}, seconds = 0;
  for (int i = 0; i < g->nnodes; i++) bytes[g->nodes[i]->remote_axis] += received(l, g->nodes[i]);
  for (int a = 0; a < SLI_AXES; a++) {
    const sli_axis_link *link = &l->in->grid.link[a];
    if (bytes[a] > 0) seconds += link->seconds;
    if (bytes[a] > 0 && link->bytes_per_second > 0) seconds += bytes[a] / link->bytes_per_second;
  }
  return seconds;
}

/* ---- bytes --------------------------------------------------------------------------- */

static double firings(const sli_lowering *l, sli_rate rate) {
  return rate == SLI_PER_TICK ? l->in->m * l->in->k : rate == SLI_PER_MICROBATCH ? l->in->m : 1;
}

uint64_t (*sli_lower_exchanged(const sli_lowering *l, sli_arena *arena))[SLI_AXES] {
  double(*sum)[SLI_AXES] = sli_calloc((size_t)l->in->devices, sizeof *sum);
  uint64_t(*to)[SLI_AXES] = sli_arena_alloc(arena, (size_t)l->in->devices * sizeof *to);
  for (int i = 0; i < l->ngroups; i++) {
    const sli_group *g = &l->groups[i];
    for (int n = 0; n < g->nnodes; n++)
      sum[g->device][g->nodes[n]->remote_axis] += received(l, g->nodes[n]) * firings(l, g->rate);
  }
  for (int d = 0; d < l->in->devices; d++)
    for (int a = 0; a < SLI_AXES; a++) to[d][a] = (uint64_t)llround(sum[d][a]);
  free(sum);
  return to;
}
