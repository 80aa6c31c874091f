/* SPDX-License-Identifier: Apache-2.0 */
/* Assignment of devices where links differ. The devices of a finished plan are permuted, first to
 * suit the plan's traffic (graph/search/anneal.c), then by simulated time.
 *
 * Sharding of tensors, and so the traffic, depends on the links: no heavy transfer is planned over
 * a slow one. Traffic is therefore taken both from the plan itself and from the plan that would be
 * made if all links were as fast as the fastest one. The permutation that is faster in simulation
 * wins. */
#include <math.h>
#include <stdlib.h>

#include "graph/lower/lower.h"
#include "graph/compile/compile.h"
#include "graph/state/state.h"
#include "tools/planner/search_inner.h"

bool planner_assigns(const planner *p) {
  const sl_hardware *h = &p->settings->modelled.hardware;
  bool hosts = h->devices_per_host > 1 && p->devices > h->devices_per_host;
  return (h->npairs || hosts) && !sl_arg_given(p->settings->run, "assign", 0);
}

static sl_hardware_link better(sl_hardware_link a, sl_hardware_link b) {
  bool any = !(a.bytes_per_second > 0) || !(b.bytes_per_second > 0);
  return (sl_hardware_link){SLI_MIN(a.seconds, b.seconds),
                            any ? 0 : SLI_MAX(a.bytes_per_second, b.bytes_per_second)};
}

static sl_hardware at_its_best(const sl_hardware *h) {
  sl_hardware best = *h;
  for (int i = 0; i < h->npairs; i++) {
    bool inside = h->pairs[i].from / SLI_MAX(h->devices_per_host, 1) ==
                  h->pairs[i].to / SLI_MAX(h->devices_per_host, 1);
    sl_hardware_link *link = inside ? &best.host_link : &best.link;
    *link = better(*link, h->pairs[i].link);
  }
  best.npairs = 0;
  return best;
}

/* Finds a permutation that suits the plan's traffic on such hardware, or returns NULL if none is
 * better. */
static char *places_find(const planner *p, const plan_choice *choice, const sl_hardware *h,
                         uint64_t seed) {
  settings s = *p->settings;
  planner other = *p;
  plan_made made;
  s.modelled.hardware = *h;
  other.settings = &s;
  if (planner_make(&other, choice, choice->at[PLAN_MICROBATCHES], PLAN_EXACT, &made)) return NULL;
  char *text = sli_lowered_assign(made.planned.lowered, &p->settings->modelled.hardware, seed);
  planner_unmake(&made);
  return text;
}

/* Keeps an assignment if it is faster. Takes ownership of its text. */
static bool places_take(const planner *p, plan_choice *choice, char *text) {
  plan_choice x = *choice;
  if (!text) return false;
  x.assign = text;
  planner_weigh(p, &x);
  bool faster = x.seconds < choice->seconds * (1 - 1e-4);
  free(faster ? choice->assign : text);
  if (faster) *choice = x;
  return faster;
}

static void weigh_with(const planner *p, const int *device, plan_choice *best) {
  plan_choice x = *best;
  x.assign = sli_assign_format(device, p->devices);
  planner_weigh(p, &x);
  bool faster = x.seconds < best->seconds * (1 - 1e-9);
  free(faster ? best->assign : x.assign);
  if (faster) *best = x;
}

static void swap(int *device, int a, int b) {
  int first = device[a];
  device[a] = device[b], device[b] = first;
}

/* Tries all swaps of two devices. */
static void vary(const planner *p, int *device, plan_choice *best) {
  for (int a = 0; a < p->devices; a++)
    for (int b = a + 1; b < p->devices && !planner_stopped(p); b++) {
      swap(device, a, b);
      weigh_with(p, device, best);
      swap(device, a, b);
    }
}

/* Swaps devices while that is faster. */
static void climb(const planner *p, plan_choice *choice) {
  enum { ROUNDS = 4 };
  int device[PLANNER_FEW_DEVICES];
  bool more = true;
  for (int round = 0; round < ROUNDS && more; round++) {
    double before = choice->seconds;
    for (int i = 0; i < p->devices; i++) device[i] = i;
    if (choice->assign) sli_assign_read(choice->assign, p->devices, device);
    vary(p, device, choice);
    more = choice->seconds < before;
  }
}

/* Improves the assignment of few devices by simulation alone: by trying all of them, if there is
 * time. The effort is counted in firings, so that the same command finds the same assignment. */
static void settle(const planner *p, plan_choice *choice) {
  enum { FIRINGS = 4000000, LEAST = 24 };
  planner_arrangements all = planner_arrange(&p->settings->modelled.hardware, p->devices);
  int64_t most = SLI_MAX(LEAST, FIRINGS / SLI_MAX(choice->firings, 1));
  for (int i = 0; i < all.count && all.count <= most && !planner_stopped(p); i++)
    weigh_with(p, all.items[i].device, choice);
  if (all.count > most) climb(p, choice);
  free(all.items);
}

void planner_try_assigned(void *ctx, size_t i) {
  enum { SEEDS = 2 };
  const planner *p = ctx;
  plan_choice *c = &p->choices[i];
  const sl_hardware *now = &p->settings->modelled.hardware, best = at_its_best(now);
  if (!c->exact || !(c->seconds < INFINITY)) return;
  for (uint64_t seed = 1; seed <= SEEDS && now->npairs; seed++)
    places_take(p, c, places_find(p, c, &best, seed));
  while (places_take(p, c, places_find(p, c, now, 1))) {}
  if (now->npairs) settle(p, c);
}
