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
static const sli_axis_link beside = {0, 1e10, 0, NULL};

/* ---- links --------------------------------------------------------------------------- */

static int per_host(const sl_hardware *h) { return SLI_MAX(h->devices_per_host, 1); }

/* The number a device would have if all were there. */
static int number_of(const sli_inputs *in, int device) {
  return in->grid.alike ? sli_layout_number(in, device, 0) : device;
}

/* What is said of these two. */
static const sl_hardware_link *pair_link(const sl_hardware *h, int from, int to) {
  for (int i = 0; i < h->npairs; i++) {
    const sl_hardware_pair *p = &h->pairs[i];
    if ((p->from == from && p->to == to) || (p->from == to && p->to == from)) return &p->link;
  }
  return NULL;
}

/* A device's share of the links of its host. */
static sl_hardware_link network_link(const sl_hardware *h) {
  sl_hardware_link link = h->link;
  if (h->links_per_host > 0) link.bytes_per_second *= h->links_per_host / per_host(h);
  return link;
}

sl_hardware_link sli_lower_link(const sli_inputs *in, int from, int to) {
  const sl_lower_options *o = in->options;
  if (o->cost.comm > 0) return (sl_hardware_link){o->cost.comm, 0};
  if (!o->hardware) return (sl_hardware_link){0, 0};
  int n = per_host(o->hardware);
  from = number_of(in, from), to = number_of(in, to);
  const sl_hardware_link *pair = pair_link(o->hardware, from, to);
  if (pair) return *pair;
  return from / n == to / n ? o->hardware->host_link : network_link(o->hardware);
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

/* Messages, one after another, until each of so many has heard of all others. */
static double rounds(sl_algorithm algorithm, int size) {
  if (size < 2) return 0;
  return algorithm == SL_ALGORITHM_RING ? size - 1 : algorithm == SL_ALGORITHM_DIRECT ? 1 : ceil(log2(size));
}

/* First the `near` of each host, then as many hosts: what each receives there and here, of all that it
 * receives. */
static sli_axis_link hierarchical(const sl_hardware_link *host, const sl_hardware_link *net, int near,
                                  int hosts) {
  double all = (double)near * hosts, here = (near - 1.0) / near, there = (hosts - 1.0) / all;
  double wire = (host->bytes_per_second > 0 ? here / host->bytes_per_second : 0) +
                (net->bytes_per_second > 0 ? there / net->bytes_per_second : 0);
  double seconds = rounds(SL_ALGORITHM_TREE, near) * host->seconds + rounds(SL_ALGORITHM_TREE, hosts) * net->seconds;
  return (sli_axis_link){.seconds = seconds, .bytes_per_second = wire > 0 ? (all - 1) / all / wire : 0};
}

static sli_axis_link link_between(const sli_inputs *in, sli_along along, int size) {
  const sl_hardware *h = in->options->hardware;
  const sl_hardware_link net = network_link(h), *host = &h->host_link;
  double inside = host->bytes_per_second, steps = rounds(h->algorithm, size);
  if (within(in, along, per_host(h)))
    return (sli_axis_link){.seconds = steps * host->seconds, .bytes_per_second = inside,
                           .measured = h->exchange[0]};
  int near = together_in(in, along, per_host(h));
  double rate = near * net.bytes_per_second;
  sli_axis_link link = {steps * net.seconds, near > 1 && inside > 0 ? SLI_MIN(rate, inside) : rate, 0, NULL};
  if (h->algorithm == SL_ALGORITHM_HIERARCHICAL && near > 1)
    link = hierarchical(host, &net, near, (size + near - 1) / near);
  link.measured = h->exchange[1];
  return link;
}

/* Which device along the pipeline has this number, and as which rank; -1: none. */
static int find_place(const sli_inputs *in, int number) {
  int ranks = sli_grid_ranks(&in->grid);
  for (int place = 0; place < in->p * ranks; place++)
    if (sli_layout_number(in, place / ranks, place % ranks) == number) return place;
  return -1;
}

static bool same_row(const sli_inputs *in, sli_along along, int a, int b) {
  int ranks = sli_grid_ranks(&in->grid);
  sli_grid all = in->grid;
  all.alike = false;
  a = find_place(in, a), b = find_place(in, b);
  if (a < 0 || b < 0 || a / ranks != b / ranks || a == b) return false;
  int member = sli_rank_member(&all, b % ranks, along);
  return sli_rank_at(&all, a % ranks, along, member) == b % ranks;
}

/* The slowest link of two members of a row sets its pace. */
static void note_pairs(const sli_inputs *in, sli_along along, sli_axis_link *link) {
  const sl_hardware *h = in->options->hardware;
  for (int i = 0; i < h->npairs; i++) {
    const sl_hardware_pair *p = &h->pairs[i];
    if (!same_row(in, along, p->from, p->to)) continue;
    double rate = p->link.bytes_per_second;
    link->seconds = SLI_MAX(link->seconds, rounds(h->algorithm, link->size) * p->link.seconds);
    if (rate > 0) link->bytes_per_second = link->bytes_per_second > 0 ? SLI_MIN(rate, link->bytes_per_second) : rate;
  }
}

static sli_axis_link modelled_link(const sli_inputs *in, sli_along along) {
  int size = sli_grid_size(&in->grid, along);
  sli_axis_link link = link_between(in, along, size);
  link.size = size;
  note_pairs(in, along, &link);
  return link;
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
    grid->link[a] = h ? modelled_link(in, sli_row_of(a)) : beside;
  }
  grid->hardware = h;
}

/* ---- time ---------------------------------------------------------------------------- */

/* What a node receives in a tick, or in a step; where pieces differ, their mean. */
static double received(const sli_lowering *l, const sli_node *n) {
  if (!n->shapes) return n->remote_bytes;
  double sum = 0;
  for (int k = 0; k < l->in->k; k++) sum += n->shapes[l->cut.pieces[k].variant].remote_bytes;
  return sum / l->in->k;
}

static sli_half half_of(const sli_node *n) {
  if (n->remote_axis == SLI_AXIS_EXPERT) return SLI_ALL_TO_ALL;
  if (n->op != &sl_op_join) return SLI_REDUCE_SCATTER;
  const sli_node *from = n->in[0] ? n->in[0]->producer : NULL;
  return from && from->cls == SL_CLASS_C && from->op == &sl_op_slice ? SLI_ALL_TO_ALL : SLI_ALL_GATHER;
}

/* Gradients of parameters, on their way to be added up over the devices and back, may be of smaller
 * numbers than they are computed in. */
static double as_sent(const sl_hardware *h, const sli_node *n) {
  if (!h || h->gradient_bytes <= 0 || n->remote_axis != SLI_AXIS_DATA) return 1;
  bool gradient = n->phase == SLI_PHASE_NORM || (n->phase == SLI_PHASE_MAIN && n->accumulate_span);
  return gradient ? h->gradient_bytes / (double)sl_dtype_bytes(n->out_type[0].dtype) : 1;
}

bool sli_lower_is_measured(const sli_lowering *l, const sli_node *n) {
  const sli_axis_link *link = &l->in->grid.link[n->remote_axis];
  if (n->cls != SL_CLASS_C) return false;
  if (n->op == &sl_op_slice) return link->measured && link->measured[SL_EXCHANGE_ALL_TO_ALL].seconds;
  return sli_exchange_is_measured(link, half_of(n));
}

double sli_lower_exchange_seconds(const sli_lowering *l, const sli_group *g) {
  double bytes[SLI_AXES][SLI_ALL_TO_ALL + 1] = {0}, seconds = 0;
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    bytes[n->remote_axis][half_of(n)] += received(l, n) * as_sent(l->in->options->hardware, n);
  }
  for (int a = 0; a < SLI_AXES; a++)
    for (int h = 0; h <= SLI_ALL_TO_ALL; h++)
      seconds += sli_exchange_seconds(&l->in->grid.link[a], (sli_half)h, bytes[a][h]);
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
