/* SPDX-License-Identifier: Apache-2.0 */
/* Search for the best assignment of devices to places when links differ.
 *
 * The plan's traffic is known (sli_sent): exchanges along the axes of its grid, and transfers from
 * stage to stage. Their durations at other places come from the same functions that lowering uses
 * (links.c, graph/cost), so both agree. The step time is the sum of three terms: the exchanges of
 * the busiest stage, the transfers of a microbatch forward and back through all stages, and the
 * time by which the busiest link exceeds the devices' computation.
 *
 * The search starts from the best nesting of the layout's axes, with devices in an order that does
 * not depend on their numbers (canon.c). It anneals from there by swapping two devices or two
 * hosts. All random draws follow from the seed, and nothing depends on how devices are numbered. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "graph/search/place.h"

typedef struct search {
  sli_inputs in; /* with layout.assign = device */
  const sli_sent *sent;
  int n, per_host, *order; /* [n] devices in canonical order */
  int *at, *device, *best; /* [n] by number in the layout: index in that order, device, and
                              the best index */
  double least;            /* seconds of the best assignment */
  uint64_t seed;
  uint32_t drawn;
} search;

/* ---- time of a step ------------------------------------------------------------------------ */

static double exchange_seconds(const search *s) {
  double *of = sli_calloc((size_t)s->in.p, sizeof *of), most = 0;
  sli_axis_link link[SLI_AXES];
  unsigned known = 0;
  for (int i = 0; i < s->sent->nexchanges; i++) {
    const sli_sent_exchange *e = &s->sent->exchanges[i];
    if (!(known >> e->axis & 1)) link[e->axis] = sli_lower_axis_link(&s->in, e->axis);
    known |= 1u << e->axis;
    of[e->along] += e->times * sli_exchange_seconds(&link[e->axis], e->half, e->bytes);
  }
  for (int d = 0; d < s->in.p; d++) most = SLI_MAX(most, of[d]);
  free(of);
  return most;
}

static int number_at(const search *s, int place) {
  return s->in.grid.alike ? place
                          : sli_layout_number(&s->in, place / s->in.ranks, place % s->in.ranks);
}

/* Returns the seconds of transfers. Transfers between the same two stages overlap, so only the
 * slowest counts. */
static double transfer_seconds(const search *s) {
  double way = 0, slowest = 0, busiest = 0, all = 0;
  for (int i = 0; i < s->sent->ntransfers; i++) {
    const sli_sent_transfer *h = &s->sent->transfers[i], *last = i ? h - 1 : h;
    bool same = h->from / s->in.ranks == last->from / s->in.ranks &&
                h->to / s->in.ranks == last->to / s->in.ranks;
    const sl_hardware_link link =
        sli_lower_link(&s->in, number_at(s, h->from), number_at(s, h->to));
    double wire = link.bytes_per_second > 0 ? h->bytes / link.bytes_per_second : 0;
    double once = link.seconds + wire / s->sent->ticks;
    way += same ? 0 : slowest;
    slowest = same ? SLI_MAX(slowest, once) : once;
    busiest = SLI_MAX(busiest, wire);
    all += once;
  }
  return way + slowest + 1e-3 * all + SLI_MAX(busiest - s->sent->computing, 0);
}

static double seconds(const search *s) { return exchange_seconds(s) + transfer_seconds(s); }

/* ---- start of the search ------------------------------------------------------------------- */

static void anneal_put(search *s, int place, int at) {
  s->at[place] = at;
  s->device[place] = s->order[at];
}

static void anneal_take(search *s, double found) {
  if (found >= s->least * (1 - 1e-9)) return;
  s->least = found;
  memcpy(s->best, s->at, (size_t)s->n * sizeof *s->best);
}

/* Starts from devices in canonical order, numbered as if the axes had this nesting. */
static void begin_with(search *s, const int *nesting) {
  sli_inputs other = s->in;
  other.layout.assign = NULL;
  memcpy(other.layout.nesting, nesting, sizeof other.layout.nesting);
  sli_inputs own = s->in;
  own.layout.assign = NULL;
  int ranks = sli_grid_ranks(&s->in.grid);
  for (int place = 0; place < s->n; place++)
    anneal_put(s, sli_layout_number(&own, place / ranks, place % ranks),
               sli_layout_number(&other, place / ranks, place % ranks));
  anneal_take(s, seconds(s));
}

static bool is_shared(const search *s, int axis) {
  return (axis == SLI_AXIS_STAGES ? s->in.p : s->in.grid.size[axis]) > 1;
}

/* Tries all nestings of the axes from `at` on, innermost last. */
static void anneal_begin(search *s, int nesting[SLI_AXES], int at) {
  if (at == SLI_AXES) {
    begin_with(s, nesting);
    return;
  }
  for (int i = at; i < SLI_AXES; i++) {
    bool other = i > at && is_shared(s, nesting[i]) && is_shared(s, nesting[at]);
    if (i > at && !other) continue;
    int axis = nesting[i];
    nesting[i] = nesting[at], nesting[at] = axis;
    anneal_begin(s, nesting, at + 1);
    nesting[at] = nesting[i], nesting[i] = axis;
  }
}

/* ---- annealing ------------------------------------------------------------------------------- */

static uint32_t draw(search *s) {
  uint32_t word[4] = {s->drawn++, 0, 0, 0};
  sli_philox(word, s->seed);
  return word[0];
}

static int draw_below(search *s, int n) { return (int)((uint64_t)draw(s) * (uint64_t)n >> 32); }

static void swap(search *s, int a, int b) {
  int at = s->at[a];
  anneal_put(s, a, s->at[b]);
  anneal_put(s, b, at);
}

/* Swaps all devices of two hosts. */
static void swap_hosts(search *s, int a, int b) {
  for (int i = 0; i < s->n; i++) {
    int host = s->at[i] / s->per_host, by = (b - a) * s->per_host;
    if (host == a) anneal_put(s, i, s->at[i] + by);
    if (host == b) anneal_put(s, i, s->at[i] - by);
  }
}

typedef struct move {
  bool hosts;
  int a, b;
} move;

static move draw_move(search *s) {
  int hosts = s->n % s->per_host ? 0 : s->n / s->per_host;
  bool whole = hosts > 1 && s->per_host > 1 && draw(s) & 1;
  int of = whole ? hosts : s->n;
  return (move){whole, draw_below(s, of), draw_below(s, of)};
}

/* Applies a move; applying it again undoes it. */
static void anneal_apply(search *s, const move *m) {
  if (m->a == m->b) return;
  if (m->hosts) swap_hosts(s, m->a, m->b);
  else swap(s, m->a, m->b);
}

static bool accept(search *s, double more, double warmth) {
  return more <= 0 || draw(s) * 0x1p-32 < exp(-more / warmth);
}

/* Anneals with fewer steps for more devices, since each step then costs more. */
static void anneal(search *s) {
  const int steps = SLI_MAX(500, SLI_MIN(4000, 400000 / s->n));
  const double first = 0.1, last = 1e-4; /* fractions of the initial time */
  double now = s->least, warmth = first * s->least, colder = pow(last / first, 1.0 / steps);
  for (int i = 0; i < s->n; i++) anneal_put(s, i, s->best[i]);
  for (int i = 0; i < steps && s->least > 0; i++, warmth *= colder) {
    const move m = draw_move(s);
    anneal_apply(s, &m);
    double found = seconds(s);
    if (!accept(s, found - now, warmth)) {
      anneal_apply(s, &m);
      continue;
    }
    now = found;
    anneal_take(s, now);
  }
}

/* ---- entry ------------------------------------------------------------------------------- */

/* Searches; returns false if nothing beats the current assignment. */
static bool look(search *s, const int *now) {
  int nesting[SLI_AXES];
  memcpy(s->device, now, (size_t)s->n * sizeof *now);
  double own = seconds(s);
  s->least = INFINITY;
  memcpy(nesting, s->in.layout.nesting, sizeof nesting);
  sli_place_order(s->in.options->simulation.hardware, s->n, s->order);
  anneal_begin(s, nesting, 0);
  anneal(s);
  for (int i = 0; i < s->n; i++) anneal_put(s, i, s->best[i]);
  return s->least < own * (1 - 1e-6);
}

char *sli_place_anneal(const sli_inputs *in, const sli_sent *sent, const sl_hardware *h,
                       uint64_t seed) {
  sl_lower_options options = *in->options;
  int n = in->p * sli_grid_ranks(&in->grid);
  if (!sent || n < 2) return NULL;
  int *words = sli_calloc(5 * (size_t)n, sizeof *words), *now = words + 4 * n;
  search s = {.in = *in,
              .sent = sent,
              .n = n,
              .per_host = SLI_MAX(h->devices_per_host, 1),
              .order = words,
              .at = words + n,
              .device = words + 2 * n,
              .best = words + 3 * n,
              .seed = seed};
  for (int i = 0; i < n; i++) now[i] = in->layout.assign ? in->layout.assign[i] : i;
  options.simulation.hardware = h;
  s.in.options = &options;
  s.in.layout.assign = s.device;
  char *text = look(&s, now) ? sli_assign_format(s.device, n) : NULL;
  free(words);
  return text;
}
