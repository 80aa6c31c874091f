/* SPDX-License-Identifier: Apache-2.0 */
/* Links between devices on modelled hardware: between two devices, and among all devices along an
 * axis of a grid.
 *
 * Devices are numbered host by host; the layout maps places to devices (layout.c). If each row of
 * an axis is within one host, its link is the host's. Otherwise rows span hosts, and h members of a
 * row share h network links of a host. Rings that leave a host over all of them move min(host link,
 * h * network link); the host with the fewest members sets the pace. Pairs of devices may have
 * individual links: the slowest pair sets the link of a row, and the slowest row sets that of its
 * axis. */
#include <math.h>
#include <stdlib.h>

#include "graph/lower/ir.h"
#include "graph/sharding/sharding.h"

/* Link of devices without a description: cores read other cores' data in place. The number of
 * processes is ignored, since training must not depend on it. */
static const sli_axis_link beside = {0, 1e10, 0, NULL};

/* ---- of two devices ---------------------------------------------------------------------- */

static int per_host(const sl_hardware *h) { return SLI_MAX(h->devices_per_host, 1); }

/* Returns the described link of two devices, or NULL if there is none. */
static const sl_hardware_link *pair_link(const sl_hardware *h, int from, int to) {
  for (int i = 0; i < h->npairs; i++) {
    const sl_hardware_pair *p = &h->pairs[i];
    if ((p->from == from && p->to == to) || (p->from == to && p->to == from)) return &p->link;
  }
  return NULL;
}

/* Returns a device's share of the network links of its host. */
static sl_hardware_link network_link(const sl_hardware *h) {
  sl_hardware_link link = h->link;
  if (h->links_per_host > 0) link.bytes_per_second *= h->links_per_host / per_host(h);
  return link;
}

static sl_hardware_link number_link(const sl_hardware *h, int from, int to) {
  const sl_hardware_link *pair = pair_link(h, from, to);
  if (pair) return *pair;
  return from / per_host(h) == to / per_host(h) ? h->host_link : network_link(h);
}

/* Returns the slower of two rates; 0 is unlimited. */
static double slower_rate(double a, double b) {
  return a > 0 && b > 0 ? SLI_MIN(a, b) : SLI_MAX(a, b);
}

static sl_hardware_link slower(sl_hardware_link a, sl_hardware_link b) {
  return (sl_hardware_link){SLI_MAX(a.seconds, b.seconds),
                            slower_rate(a.bytes_per_second, b.bytes_per_second)};
}

/* Returns the link of two devices; if one device represents its whole stage, the slowest link of
 * the pairs that it represents. */
sl_hardware_link sli_lower_link(const sli_inputs *in, int from, int to) {
  const sl_lower_options *o = in->options;
  const sl_hardware *h = o->simulation.hardware;
  if (o->simulation.cost.comm > 0) return (sl_hardware_link){o->simulation.cost.comm, 0};
  if (!h) return (sl_hardware_link){0, 0};
  if (!in->grid.alike) return number_link(h, from, to);
  sl_hardware_link link = {0, 0};
  for (int r = 0; r < sli_grid_ranks(&in->grid); r++)
    link =
        slower(link, number_link(h, sli_layout_number(in, from, r), sli_layout_number(in, to, r)));
  return link;
}

sl_hardware sli_lower_hardware(const sl_lower_options *o) {
  sl_hardware h = *o->simulation.hardware;
  int64_t devices = SLI_MAX(o->parallel.stages, 1);
  const int axes[] = {o->parallel.data, o->parallel.sequence, o->parallel.tensor};
  for (size_t a = 0; a < SLI_COUNT(axes); a++) devices *= SLI_MAX(axes[a], 1);
  h.busy = (int)SLI_MIN(devices, SLI_MAX(h.devices_per_host, 1));
  return h;
}

double sli_lower_process_link(const sli_inputs *in, int from, int to, size_t bytes) {
  const sl_hardware *h = in->options->simulation.hardware;
  if (!h || from / per_host(h) != to / per_host(h)) return 0;
  return sli_process_link_seconds(h, (double)bytes);
}

/* Returns a device's share of what all devices of a modelled host have. */
static double host_share(const sli_inputs *in, double of_host) {
  const sl_hardware *h = in->options->simulation.hardware;
  return of_host / SLI_MIN(per_host(h), in->p * sli_grid_ranks(&in->grid));
}

static bool has_host(const sli_inputs *in) {
  return in->kind->modelled && in->options->simulation.hardware;
}

double sli_lower_host_rate(const sli_inputs *in) {
  if (!has_host(in)) return 0;
  return host_share(in, in->options->simulation.hardware->host_memory_bytes_per_second);
}

double sli_lower_update_rate(const sli_inputs *in) {
  if (!has_host(in)) return 0;
  return host_share(in, in->options->simulation.hardware->host_updates_per_second);
}

double sli_lower_crossing(const sli_inputs *in) {
  double most = 0;
  for (int place = 0; place < in->devices; place++) {
    int next = in->device_at[(place + in->ranks) % in->devices];
    most = SLI_MAX(most, sli_lower_link(in, in->device_at[place], next).seconds);
  }
  return most;
}

/* ---- links of a row ---------------------------------------------------------------------- */

/* Rows along some axes, over all devices, including devices that another device represents. */
typedef struct rows {
  const sli_inputs *in;
  sli_grid grid;
  sli_along along;
  int size, count; /* members of each row, and number of rows */
} rows;

static rows rows_along(const sli_inputs *in, sli_along along) {
  rows r = {.in = in, .grid = in->grid, .along = along};
  r.grid.alike = false;
  r.size = sli_grid_size(&r.grid, along);
  r.count = in->p * sli_grid_ranks(&r.grid) / r.size;
  return r;
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Lists the hosts of the row with this first member, sorted. */
static void hosts_of(const rows *r, int along, int rank, int *to) {
  int n = per_host(r->in->options->simulation.hardware);
  for (int m = 0; m < r->size; m++)
    to[m] = sli_layout_number(r->in, along, sli_rank_at(&r->grid, rank, r->along, m)) / n;
  qsort(to, (size_t)r->size, sizeof *to, by_number);
}

/* Returns the smallest number of members that any row has in one host: the row size, if no row
 * leaves its host. */
static int fewest_together(const rows *r) {
  int fewest = r->size, ranks = sli_grid_ranks(&r->grid);
  int *hosts = sli_calloc((size_t)r->size, sizeof *hosts);
  for (int place = 0; place < r->in->p * ranks; place++) {
    if (sli_rank_member(&r->grid, place % ranks, r->along)) continue;
    hosts_of(r, place / ranks, place % ranks, hosts);
    for (int m = 0, end; m < r->size; m = end) {
      for (end = m; end < r->size && hosts[end] == hosts[m]; end++) {}
      fewest = SLI_MIN(fewest, end - m);
    }
  }
  free(hosts);
  return fewest;
}

/* Returns the number of sequential messages until each of `size` devices has data from all
 * others. */
static double rounds(sl_algorithm algorithm, int size) {
  if (size < 2) return 0;
  return algorithm == SL_ALGORITHM_RING     ? size - 1
         : algorithm == SL_ALGORITHM_DIRECT ? 1
                                            : ceil(log2(size));
}

/* Link of a hierarchical exchange: first among the `near` members in each host, then among
 * hosts. Shares of the received bytes go over the host's link and the network. */
static sli_axis_link hierarchical(const sl_hardware_link *host, const sl_hardware_link *net,
                                  int near, int hosts) {
  double all = (double)near * hosts, here = (near - 1.0) / near, there = (hosts - 1.0) / all;
  double wire = (host->bytes_per_second > 0 ? here / host->bytes_per_second : 0) +
                (net->bytes_per_second > 0 ? there / net->bytes_per_second : 0);
  double seconds = rounds(SL_ALGORITHM_TREE, near) * host->seconds +
                   rounds(SL_ALGORITHM_TREE, hosts) * net->seconds;
  return (sli_axis_link){.seconds = seconds,
                         .bytes_per_second = wire > 0 ? (all - 1) / all / wire : 0};
}

/* Returns the link that results from the description of hosts. */
static sli_axis_link link_by_hosts(const rows *r) {
  const sl_hardware *h = r->in->options->simulation.hardware;
  const sl_hardware_link net = network_link(h), *host = &h->host_link;
  double inside = host->bytes_per_second, steps = rounds(h->algorithm, r->size);
  int near = r->size > 1 ? fewest_together(r) : 1;
  if (near == r->size)
    return (sli_axis_link){
        .seconds = steps * host->seconds, .bytes_per_second = inside, .measured = h->exchange[0]};
  double rate = near * net.bytes_per_second;
  sli_axis_link link = {steps * net.seconds, near > 1 && inside > 0 ? SLI_MIN(rate, inside) : rate,
                        0, NULL};
  if (h->algorithm == SL_ALGORITHM_HIERARCHICAL && near > 1)
    link = hierarchical(host, &net, near, (r->size + near - 1) / near);
  link.measured = h->exchange[1];
  return link;
}

/* ---- pairs with links of their own ------------------------------------------------------- */

/* Returns each device's place by its number, over all devices. */
static int *places_by_number(const rows *r) {
  int ranks = sli_grid_ranks(&r->grid), *to = sli_calloc((size_t)(r->in->p * ranks), sizeof *to);
  for (int place = 0; place < r->in->p * ranks; place++)
    to[sli_layout_number(r->in, place / ranks, place % ranks)] = place;
  return to;
}

static bool in_one_row(const rows *r, int a, int b) {
  int ranks = sli_grid_ranks(&r->grid), member = sli_rank_member(&r->grid, b % ranks, r->along);
  return a != b && a / ranks == b / ranks &&
         sli_rank_at(&r->grid, a % ranks, r->along, member) == b % ranks;
}

/* Returns the slowest individual link of two members of a row; *count is the number of pairs with
 * individual links. */
static sl_hardware_link slowest_pair(const rows *r, int *count) {
  const sl_hardware *h = r->in->options->simulation.hardware;
  int *place = places_by_number(r), devices = r->count * r->size;
  sl_hardware_link link = {0, 0};
  *count = 0;
  for (int i = 0; i < h->npairs; i++) {
    const sl_hardware_pair *p = &h->pairs[i];
    bool there = p->from < devices && p->to < devices && pair_link(h, p->from, p->to) == &p->link;
    if (!there || !in_one_row(r, place[p->from], place[p->to])) continue;
    link = slower(link, p->link);
    ++*count;
  }
  free(place);
  return link;
}

/* Applies individual links. If all pairs have one, no other link counts. Measured tables are
 * dropped, since they assume uniform links. */
static void note_pairs(const rows *r, sli_axis_link *link) {
  const sl_hardware *h = r->in->options->simulation.hardware;
  int count = 0;
  sl_hardware_link own =
      h->npairs && r->size > 1 ? slowest_pair(r, &count) : (sl_hardware_link){0, 0};
  if (!count) return;
  own.seconds *= rounds(h->algorithm, r->size);
  if (count < r->count * (r->size * (r->size - 1) / 2))
    own = slower(own, (sl_hardware_link){link->seconds, link->bytes_per_second});
  *link = (sli_axis_link){.seconds = own.seconds, .bytes_per_second = own.bytes_per_second};
}

sli_axis_link sli_lower_axis_link(const sli_inputs *in, int axis) {
  const rows r = rows_along(in, sli_row_of(axis));
  sli_axis_link link = link_by_hosts(&r);
  note_pairs(&r, &link);
  link.size = r.size;
  return link;
}

/* ---- all axes ---------------------------------------------------------------------------- */

/* True if devices of a stage that differ along this axis have separate memories. */
static bool is_apart(const sli_inputs *in, int axis) {
  if (in->kind->copy) return true;
  if (in->options->parallel.processes <= 1) return false;
  for (int d = 0; d < in->devices; d++) {
    int rank = sli_rank_at(&in->grid, sli_rank_of(in, d), 1u << axis, 0);
    int first = sli_device_at(in, sli_along_of(in, d), rank);
    if (sl_device_process(d, in->devices, in->options->parallel.processes) !=
        sl_device_process(first, in->devices, in->options->parallel.processes))
      return true;
  }
  return false;
}

void sli_lower_axis_links(sli_inputs *in) {
  const sl_hardware *h = in->options->simulation.hardware;
  sli_grid *grid = &in->grid;
  for (int a = 0; a < SLI_AXES; a++) {
    grid->apart[a] = is_apart(in, a);
    grid->link[a] = h ? sli_lower_axis_link(in, a) : beside;
  }
  grid->hardware = h;
}
