/* SPDX-License-Identifier: Apache-2.0 */
/* Search for a cut and its shares. All ops are cut alike at first: every number of ranges and every
 * pair of shares for attention and exchanges is tried. From the best of these a walk goes on: a cut
 * moves by the grain, a range becomes two or two become one, an op goes earlier or later, a share
 * grows or shrinks. A step is taken if it is no worse than the cut of some tries ago (late
 * acceptance: Burke and Bykov, EJOR 258(1), 2017). The same seed finds the same cut. */
#include <math.h>
#include <stdlib.h>

#include "tools/actortune/ranges/ranges.h"

enum { LAYERS = 16, LATE = 50 };

typedef struct walk {
  const range_work *w;
  uint64_t random;
  int most, layers, tried;
  range_cut now, best;
  double now_seconds, best_seconds, late[LATE];
} walk;

static int draw(walk *x, int count) {
  x->random = x->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)(x->random >> 33) % count;
}

/* Lists fewer layers than a tick has, but fills and empties the device as often. */
static double try_cut(walk *x, const range_cut *cut) {
  range_list list;
  x->tried++;
  ranges_list(x->w, cut, x->layers, &list);
  range_list_fini(&list);
  return list.seconds / x->layers * x->w->layers;
}

static bool is_valid(const range_work *w, const range_cut *cut, int op) {
  for (int k = 0; k < cut->count[op]; k++)
    if (range_end(w, cut, op, k) - range_begin(w, cut, op, k) < RANGES_GRAIN / 4.0) return false;
  return true;
}

static void keep_best(walk *x, const range_cut *cut, double seconds) {
  if (seconds < x->best_seconds) x->best = *cut, x->best_seconds = seconds;
}

/* ---- cuts that are alike for all ops ----------------------------------------------------------
 */

/* Cuts each op at the same rows, and joins what is too small of its own rows. */
static void cut_alike(const range_work *w, int parts, range_cut *cut) {
  for (int i = 0; i < w->nops; i++) {
    cut->count[i] = 0;
    for (int k = 0; k < parts; k++) {
      int end = (int)lround((double)w->rows * (k + 1) / parts / RANGES_GRAIN) * RANGES_GRAIN;
      cut->end[i][cut->count[i]++] = k + 1 < parts ? end : w->rows;
      if (!is_valid(w, cut, i)) cut->count[i]--;
    }
    if (!cut->count[i]) cut->count[i] = 1;
    while (cut->count[i] > 1 && !is_valid(w, cut, i)) cut->count[i]--;
  }
}

static void try_alike(walk *x) {
  static const double asks[] = {0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 1};
  range_cut cut = {
      .asks = {[SL_RESOURCE_COMPUTE] = 1, [SL_RESOURCE_DISK] = 0.1, [SL_RESOURCE_COPY] = 0.1},
      .least = 0.3};
  for (int parts = 1; parts <= x->most; parts++)
    for (size_t n = 0; n < SLI_COUNT(asks); n++)
      for (size_t m = 0; m < SLI_COUNT(asks); m++)
        for (int left = 0; left < 1 + (asks[n] < 0.5); left++) { /* leaves room for an exchange */
          cut_alike(x->w, parts, &cut);
          cut.asks[SL_RESOURCE_NETWORK] = asks[n];
          cut.asks[SL_RESOURCE_MEMORY] = asks[m];
          cut.asks[SL_RESOURCE_COMPUTE] = left ? 1 - asks[n] : 1;
          keep_best(x, &cut, try_cut(x, &cut));
        }
}

/* ---- steps ------------------------------------------------------------------------------------
 */

static void change_share(walk *x, range_cut *cut) {
  double step = (draw(x, 2) ? 1 : -1) * (1 + draw(x, 4)) / 100.0;
  int which = draw(x, SL_RESOURCES + 1);
  double *share = which == SL_RESOURCES ? &cut->least : &cut->asks[which];
  *share = SLI_MIN(SLI_MAX(*share + step, 0.05), 1);
}

static void split_part(const range_work *w, range_cut *cut, int op, int part) {
  double begin = range_begin(w, cut, op, part), end = range_end(w, cut, op, part);
  for (int k = cut->count[op]++; k > part; k--) cut->end[op][k] = cut->end[op][k - 1];
  cut->end[op][part] = (int)lround((begin + end) / 2 / RANGES_GRAIN) * RANGES_GRAIN;
}

static void join_parts(range_cut *cut, int op, int part) {
  for (int k = part; k + 1 < cut->count[op]; k++) cut->end[op][k] = cut->end[op][k + 1];
  cut->count[op]--;
}

static void take_step(walk *x, range_cut *cut) {
  int op = draw(x, x->w->nops), part = draw(x, cut->count[op]), what = draw(x, 10);
  bool last = part == cut->count[op] - 1;
  if (what < 4) change_share(x, cut);
  else if (what < 6) cut->rank[op] = draw(x, 2 * x->w->nops);
  else if (what < 8 && !last) cut->end[op][part] += draw(x, 2) ? RANGES_GRAIN : -RANGES_GRAIN;
  else if (what < 9 && cut->count[op] < x->most) split_part(x->w, cut, op, part);
  else if (!last) join_parts(cut, op, part);
}

static void take_walk(walk *x, int tries) {
  x->now = x->best, x->now_seconds = x->best_seconds;
  for (int i = 0; i < LATE; i++) x->late[i] = x->now_seconds;
  for (int i = 0; i < tries; i++) {
    range_cut next = x->now;
    bool valid = true;
    for (int more = draw(x, 3); more >= 0; more--) take_step(x, &next);
    for (int op = 0; op < x->w->nops; op++) valid &= is_valid(x->w, &next, op);
    if (!valid) continue;
    double seconds = try_cut(x, &next), *late = &x->late[i % LATE];
    if (seconds <= x->now_seconds || seconds <= *late) x->now = next, x->now_seconds = seconds;
    keep_best(x, &x->now, x->now_seconds);
    *late = SLI_MIN(*late, x->now_seconds);
  }
}

void ranges_search(const range_work *w, int tries, int most_parts, uint64_t seed,
                   range_found *out) {
  uint64_t begin = sli_now_ns();
  walk x = {.w = w,
            .random = seed,
            .most = most_parts,
            .layers = SLI_MIN(LAYERS, w->layers),
            .best_seconds = INFINITY};
  try_alike(&x);
  take_walk(&x, tries);
  *out = (range_found){x.best, x.best_seconds, (double)(sli_now_ns() - begin) * 1e-9, x.tried};
}
