/* What links devices have to each other on modelled hardware: two of them, and all along an axis of a grid.
 *
 * Devices are numbered host by host; who is where, the layout says (layout.c). If all members of
 * each row of an axis are in one host, their link is the host's. Else they meet between hosts,
 * where h of the row's members sit behind h network links of a host: rings that leave a host
 * over all of them move min(host link, h * network link), and the host with the fewest sets the pace. Pairs may
 * have links of their own: the slowest of two members of a row is that of the row, and the slowest row that of its
 * axis. */
#include <math.h>
#include <stdlib.h>

#include "graph/lower/ir.h"
#include "graph/share/share.h"

/* Of devices nobody has described: cores read what others have made where it lies. How many
 * processes drive them is of no account, for what is learned must not depend on that. */
static const sli_axis_link beside = {0, 1e10, 0, NULL};

/* ---- of two devices ---------------------------------------------------------------------- */

static int per_host(const sl_hardware *h) { return SLI_MAX(h->devices_per_host, 1); }

/* What is said of these two; NULL: nothing. */
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

static sl_hardware_link number_link(const sl_hardware *h, int from, int to) {
  const sl_hardware_link *pair = pair_link(h, from, to);
  if (pair) return *pair;
  return from / per_host(h) == to / per_host(h) ? h->host_link : network_link(h);
}

/* No rate: any number of bytes. */
static double slower_rate(double a, double b) { return a > 0 && b > 0 ? SLI_MIN(a, b) : SLI_MAX(a, b); }

static sl_hardware_link slower(sl_hardware_link a, sl_hardware_link b) {
  return (sl_hardware_link){SLI_MAX(a.seconds, b.seconds), slower_rate(a.bytes_per_second, b.bytes_per_second)};
}

/* Where one device stands for all of its stage, that of those with the slowest. */
sl_hardware_link sli_lower_link(const sli_inputs *in, int from, int to) {
  const sl_lower_options *o = in->options;
  const sl_hardware *h = o->hardware;
  if (o->cost.comm > 0) return (sl_hardware_link){o->cost.comm, 0};
  if (!h) return (sl_hardware_link){0, 0};
  if (!in->grid.alike) return number_link(h, from, to);
  sl_hardware_link link = {0, 0};
  for (int r = 0; r < sli_grid_ranks(&in->grid); r++)
    link = slower(link, number_link(h, sli_layout_number(in, from, r), sli_layout_number(in, to, r)));
  return link;
}

sl_hardware sli_lower_hardware(const sl_lower_options *o) {
  sl_hardware h = *o->hardware;
  int64_t devices = SLI_MAX(o->stages, 1);
  const int axes[] = {o->data_parallel, o->sequence, o->tensor};
  for (size_t a = 0; a < SLI_COUNT(axes); a++) devices *= SLI_MAX(axes[a], 1);
  h.busy = (int)SLI_MIN(devices, SLI_MAX(h.devices_per_host, 1));
  return h;
}

double sli_lower_process_link(const sli_inputs *in, int from, int to, size_t bytes) {
  const sl_hardware *h = in->options->hardware;
  if (!h || from / per_host(h) != to / per_host(h)) return 0;
  return sli_process_link_seconds(h, (double)bytes);
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

/* ---- of a row ---------------------------------------------------------------------------- */

/* Rows along some axes of all devices that there would be, were none to stand for others. */
typedef struct rows {
  const sli_inputs *in;
  sli_grid grid;
  sli_along along;
  int size, count; /* of members of each, and of rows */
} rows;

static rows rows_along(const sli_inputs *in, sli_along along) {
  rows r = {.in = in, .grid = in->grid, .along = along};
  r.grid.alike = false;
  r.size = sli_grid_size(&r.grid, along);
  r.count = in->p * sli_grid_ranks(&r.grid) / r.size;
  return r;
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* The hosts of the row with this first member, in their order. */
static void hosts_of(const rows *r, int along, int rank, int *to) {
  int n = per_host(r->in->options->hardware);
  for (int m = 0; m < r->size; m++)
    to[m] = sli_layout_number(r->in, along, sli_rank_at(&r->grid, rank, r->along, m)) / n;
  qsort(to, (size_t)r->size, sizeof *to, by_number);
}

/* Of the members of any row those that are in one host, where that is fewest: all, if no row leaves its host. */
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

/* By what is said of hosts. */
static sli_axis_link link_by_hosts(const rows *r) {
  const sl_hardware *h = r->in->options->hardware;
  const sl_hardware_link net = network_link(h), *host = &h->host_link;
  double inside = host->bytes_per_second, steps = rounds(h->algorithm, r->size);
  int near = r->size > 1 ? fewest_together(r) : 1;
  if (near == r->size)
    return (sli_axis_link){.seconds = steps * host->seconds, .bytes_per_second = inside,
                           .measured = h->exchange[0]};
  double rate = near * net.bytes_per_second;
  sli_axis_link link = {steps * net.seconds, near > 1 && inside > 0 ? SLI_MIN(rate, inside) : rate, 0, NULL};
  if (h->algorithm == SL_ALGORITHM_HIERARCHICAL && near > 1)
    link = hierarchical(host, &net, near, (r->size + near - 1) / near);
  link.measured = h->exchange[1];
  return link;
}

/* ---- pairs with links of their own ------------------------------------------------------- */

/* By a device's number its place, of all devices. */
static int *places_by_number(const rows *r) {
  int ranks = sli_grid_ranks(&r->grid), *to = sli_calloc((size_t)(r->in->p * ranks), sizeof *to);
  for (int place = 0; place < r->in->p * ranks; place++)
    to[sli_layout_number(r->in, place / ranks, place % ranks)] = place;
  return to;
}

static bool in_one_row(const rows *r, int a, int b) {
  int ranks = sli_grid_ranks(&r->grid), member = sli_rank_member(&r->grid, b % ranks, r->along);
  return a != b && a / ranks == b / ranks && sli_rank_at(&r->grid, a % ranks, r->along, member) == b % ranks;
}

/* The slowest link of their own of two members of a row; *count says of how many pairs. */
static sl_hardware_link slowest_pair(const rows *r, int *count) {
  const sl_hardware *h = r->in->options->hardware;
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

/* Where all pairs have links of their own no other counts; tables are of links that are all the same. */
static void note_pairs(const rows *r, sli_axis_link *link) {
  const sl_hardware *h = r->in->options->hardware;
  int count = 0;
  sl_hardware_link own = h->npairs && r->size > 1 ? slowest_pair(r, &count) : (sl_hardware_link){0, 0};
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
    grid->link[a] = h ? sli_lower_axis_link(in, a) : beside;
  }
  grid->hardware = h;
}
