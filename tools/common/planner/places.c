/* Where links differ, the devices of a plan that was found change places: by what it sends (graph/lower/anneal.c), and
 * then by the virtual clock.
 *
 * How a plan shares tensors, and so what it sends, hangs on its links: where one is slow, nothing that is heavy goes
 * that way. So what is sent is taken of the plan as it is, and of the one that there would be if all links were as good as the
 * best: what is better is better on the clock. */
#include <math.h>
#include <stdlib.h>

#include "graph/lower/lower.h"
#include "graph/state/state.h"
#include "tools/common/planner/inner.h"

bool planner_assigns(const planner *p) {
  const sl_hardware *h = &p->settings->modelled.hardware;
  bool hosts = h->devices_per_host > 1 && p->devices > h->devices_per_host;
  return (h->npairs || hosts) && !sl_arg_given(p->settings->run, "assign", 0);
}

static sl_hardware_link better(sl_hardware_link a, sl_hardware_link b) {
  bool any = !(a.bytes_per_second > 0) || !(b.bytes_per_second > 0);
  return (sl_hardware_link){SLI_MIN(a.seconds, b.seconds), any ? 0 : SLI_MAX(a.bytes_per_second, b.bytes_per_second)};
}

static sl_hardware at_its_best(const sl_hardware *h) {
  sl_hardware best = *h;
  for (int i = 0; i < h->npairs; i++) {
    bool inside = h->pairs[i].from / SLI_MAX(h->devices_per_host, 1) == h->pairs[i].to / SLI_MAX(h->devices_per_host, 1);
    sl_hardware_link *link = inside ? &best.host_link : &best.link;
    *link = better(*link, h->pairs[i].link);
  }
  best.npairs = 0;
  return best;
}

/* By what the plan sends on such hardware. NULL: no other places are better. */
static char *find(const planner *p, const plan_choice *c, const sl_hardware *h, uint64_t seed) {
  settings s = *p->settings;
  planner other = *p;
  plan_made made;
  s.modelled.hardware = *h;
  other.settings = &s;
  if (planner_make(&other, c, c->at[PLAN_MICROBATCHES], PLAN_EXACT, &made)) return NULL;
  char *text = sli_lowered_assign(made.planned.lowered, &p->settings->modelled.hardware, seed);
  planner_unmake(&made);
  return text;
}

/* Is it faster with devices there? Then it has them. Takes the text. */
static bool take(const planner *p, plan_choice *c, char *text) {
  plan_choice x = *c;
  if (!text) return false;
  x.assign = text;
  planner_weigh(p, &x);
  bool faster = x.seconds < c->seconds * (1 - 1e-4);
  free(faster ? c->assign : text);
  if (faster) *c = x;
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

/* All ways to have two devices change places, and then, behind the first of them, as many more times. */
static void vary(const planner *p, int *device, int from, int times, plan_choice *best) {
  for (int a = from; a < p->devices; a++)
    for (int b = a + 1; b < p->devices && !planner_stopped(p); b++) {
      swap(device, a, b);
      weigh_with(p, device, best);
      if (times > 1) vary(p, device, a + 1, times - 1, best);
      swap(device, a, b);
    }
}

/* Of few devices what changes would gain is seen on the clock alone: of very few all ways that there are. */
static void settle(const planner *p, plan_choice *c) {
  enum { VERY_FEW = 4, FEW = 8, ROUNDS = 4 };
  int device[FEW];
  bool more = p->devices <= FEW;
  for (int round = 0; round < ROUNDS && more; round++) {
    double before = c->seconds;
    for (int i = 0; i < p->devices; i++) device[i] = i;
    if (c->assign) sli_assign_read(c->assign, p->devices, device);
    vary(p, device, 0, p->devices <= VERY_FEW ? p->devices : 1, c);
    more = c->seconds < before && p->devices > VERY_FEW;
  }
}

void planner_try_assigned(void *ctx, size_t i) {
  enum { SEEDS = 2 };
  const planner *p = ctx;
  plan_choice *c = &p->choices[i];
  const sl_hardware *now = &p->settings->modelled.hardware, best = at_its_best(now);
  if (!c->exact || !(c->seconds < INFINITY)) return;
  for (uint64_t seed = 1; seed <= SEEDS && now->npairs; seed++) take(p, c, find(p, c, &best, seed));
  while (take(p, c, find(p, c, now, 1))) {}
  if (now->npairs) settle(p, c);
}
