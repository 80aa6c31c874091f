/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of experts: whatever rows want, each row is computed once, in the tick's firings, with the
 * parts that it needs in their slots; no slot is overwritten while it is lent; a part is read only
 * if it is not held. With room for everything, levels are read in the order HEBF, which takes
 * hardly longer than the best of all orders.
 * labels: unthreaded random */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "ops/loads.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

static uint64_t state;
static int any(int most) { /* from 0 to most */
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)((state >> 33) % (uint64_t)(most + 1));
}

static sli_expert_loads random_shape(void) {
  sli_expert_loads s = {.experts = 1 + any(11), .levels = 1 + any(3), .base = 1 + any(2)};
  int all = s.experts * sli_expert_parts(&s), least = sli_expert_least_slots(&s);
  int slots = any(all);
  s.slots = SLI_MAX(least, slots);
  if (!any(2)) s.slots = least;
  s.ascending = !any(3);
  s.wanted = s.experts;
  sli_expert_loads_settle(&s);
  return s;
}

/* Contents of the slots, and the firing that each was last lent in. */
typedef struct memory {
  int32_t *part;
  int64_t *lent;
  int64_t firing, reads;
} memory;

static void read_parts(memory *m, const sli_expert_loads *s, const sli_load *loads, int n) {
  for (int i = 0; i < n; i++) {
    int32_t part = 1 + loads[i].expert * sli_expert_parts(s) + loads[i].part;
    CHECK(loads[i].slot >= 0 && loads[i].slot < s->slots, "slot %d", loads[i].slot);
    CHECK(!m->lent[loads[i].slot] || m->lent[loads[i].slot] <= m->firing - SLI_LENT,
          "slot %d is overwritten while it is lent", loads[i].slot);
    for (int32_t k = 0; k < s->slots; k++) CHECK(m->part[k] != part, "a part that is held is read");
    m->part[loads[i].slot] = part;
    m->reads++;
  }
}

static void compute(memory *m, const sli_part_loads *x, int32_t (*items)[2], int n, int32_t *rows) {
  const sli_expert_loads *s = x->shape;
  for (int i = 0; i < n; i++) {
    int32_t e = items[i][0], v = items[i][1];
    CHECK(rows[e * s->levels + v] > 0, "expert %d, level %d: no rows are left", e, v);
    rows[e * s->levels + v] = 0;
    for (int32_t p = 0; p < s->base + v; p++) {
      int32_t slot = x->slot_of[e * sli_expert_parts(s) + p] - 1;
      CHECK(slot >= 0 && m->part[slot] == 1 + e * sli_expert_parts(s) + p,
            "expert %d, part %d is not there", e, p);
      m->lent[slot] = m->firing;
    }
  }
}

/* Guesses rows that resemble those that the tick will have. What comes so is settled as the loader
 * does: at random it is there when the tick begins, and otherwise dropped unless it is wanted. */
static void guess(sli_part_loads *x, memory *m, int64_t tick, const int32_t *rows) {
  const sli_expert_loads *s = x->shape;
  int n = s->experts * s->levels;
  int32_t *like = sli_calloc((size_t)n, sizeof *like);
  sli_load *loads = sli_calloc((size_t)s->slots, sizeof *loads);
  for (int i = 0; i < n; i++) like[i] = any(3) ? rows[i] : any(1);
  m->firing++; /* lends nothing, and waits for nothing that is lent */
  for (int32_t i = 0; i < s->slots; i++) m->lent[i] += m->lent[i] > 0;
  read_parts(m, s, loads, sli_loads_guess(x, tick, like, loads));
  free(loads);
  free(like);
}

static void settle(sli_part_loads *x, memory *m) {
  for (int32_t i = 0; i < x->shape->slots; i++) {
    bool there = any(1), wanted = x->late[i] && sli_loads_wants(x, i);
    if (!x->late[i]) continue;
    if (!wanted && !there) sli_loads_forget(x, i), m->part[i] = 0;
    if (!wanted || there) x->late[i] = 0;
  }
}

static void check_tick(sli_part_loads *x, memory *m, int64_t tick) {
  const sli_expert_loads *s = x->shape;
  int n = s->experts * s->levels, left = 0;
  int32_t *rows = sli_calloc((size_t)n, sizeof *rows);
  int(*items)[2] = sli_calloc((size_t)n, sizeof *items);
  sli_load *loads = sli_calloc((size_t)s->slots, sizeof *loads);
  int busy = any(3);
  for (int i = 0; i < n; i++) rows[i] = any(3) < busy ? 1 + any(9) : 0;
  bool guesses = any(1);
  if (guesses) guess(x, m, tick, rows);
  int64_t before = m->reads, wanted = sli_loads_begin(x, tick, rows);
  if (guesses) settle(x, m);
  for (int f = 0; f < s->firings; f++) {
    int nitems = 0, nloads = (m->firing++, sli_loads_next(x, loads, items, &nitems));
    read_parts(m, s, loads, nloads);
    compute(m, x, items, nitems, rows);
  }
  for (int i = 0; i < n; i++) left += rows[i];
  CHECK(!left, "%d rows are left after %d firings with %d slots", left, s->firings, s->slots);
  CHECK(m->reads - before <= wanted, "%lld reads for %lld parts", (long long)(m->reads - before),
        (long long)wanted);
  free(rows);
  free(items);
  free(loads);
}

static void check_random(uint64_t seed) {
  state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
  sli_expert_loads s = random_shape();
  void *book = sli_calloc(1, sli_loads_bytes(&s));
  sli_part_loads x = sli_loads_view(&s, book);
  memory m = {sli_calloc((size_t)s.slots, sizeof(int32_t)),
              sli_calloc((size_t)s.slots, sizeof(int64_t)), 0, 0};
  for (int64_t tick = 0; tick < 12; tick++) check_tick(&x, &m, tick);
  free(m.part);
  free(m.lent);
  free(book);
}

static void rows_come_once_from_what_is_held(seeds s) {
  for (uint64_t seed = s.first; seed < s.end; seed++) check_random(seed);
  printf("%llu seeds from %llu on\n", (unsigned long long)seeds_count(s),
         (unsigned long long)s.first);
}

/* Checks that the next load is the most wanted among the experts' lowest missing levels; ties: the
 * lowest expert. */
static void levels_are_read_by_rows(void) {
  sli_expert_loads s = {.experts = 3, .levels = 2, .base = 1, .wanted = 3, .slots = 6};
  const int32_t rows[] = {1, 2, 0, 5, 4, 1}; /* at least level 0 and 1: 3 2, 5 5, 5 1 */
  const int32_t want[][2] = {{1, 0}, {1, 1}, {2, 0}, {0, 0}, {0, 1}, {2, 1}};
  sli_expert_loads_settle(&s);
  void *book = sli_calloc(1, sli_loads_bytes(&s));
  sli_part_loads x = sli_loads_view(&s, book);
  sli_load loads[6];
  int32_t items[6][2];
  int at = 0, nitems;
  CHECK(sli_loads_begin(&x, 0, rows) == 6, "all parts are wanted");
  for (int f = 0; f < s.firings; f++) {
    int n = sli_loads_next(&x, loads, items, &nitems);
    for (int i = 0; i < n; i++, at++)
      CHECK(at < 6 && loads[i].expert == want[at][0] && loads[i].part == want[at][1],
            "read %d is of expert %d, part %d", at, loads[i].expert, loads[i].part);
  }
  CHECK(at == 6, "%d reads", at);
  free(book);
}

/* ---- the order beside all orders ---------------------------------------------------------------
 */

/* Items of a tick: the disk reads them in line, and rows compute in the same order. */
typedef struct items {
  int n, order[6], left;
  struct {
    int32_t expert, level;
    double read, compute;
  } of[6];
} items;

static double time_of(const items *x) {
  double loaded = 0, done = 0;
  for (int i = 0; i < x->n; i++) {
    loaded += x->of[x->order[i]].read;
    done = SLI_MAX(done, loaded) + x->of[x->order[i]].compute;
  }
  return done;
}

/* Returns the least time of all orders that continue the first `at` items; levels of an expert
 * ascend. */
static double least_time(items *x, int at, unsigned taken) {
  if (at == x->n) return time_of(x);
  double least = INFINITY;
  for (int i = 0; i < x->n; i++) {
    bool may = !(taken >> i & 1);
    for (int k = 0; k < x->n; k++)
      may &=
          x->of[k].expert != x->of[i].expert || x->of[k].level >= x->of[i].level || taken >> k & 1;
    if (!may) continue;
    x->order[at] = i;
    double time = least_time(x, at + 1, taken | 1U << i);
    least = SLI_MIN(least, time);
  }
  return least;
}

/* Returns the time of the order in which the loader reads. */
static double loader_time(items *x, sli_expert_loads s, const int32_t *rows, bool ascending) {
  sli_load loads[18];
  int32_t pairs[6][2];
  int at = 0, nitems;
  s.ascending = ascending;
  s.slots = SLI_LENT * s.experts * sli_expert_parts(&s);
  s.wanted = s.experts;
  sli_expert_loads_settle(&s);
  void *book = sli_calloc(1, sli_loads_bytes(&s));
  sli_part_loads view = sli_loads_view(&s, book);
  sli_loads_begin(&view, 0, rows);
  for (int f = 0; f < s.firings; f++)
    for (int n = sli_loads_next(&view, loads, pairs, &nitems), i = 0; i < n; i++)
      for (int k = 0; k < x->n; k++)
        if (x->of[k].expert == loads[i].expert && x->of[k].level + s.base - 1 == loads[i].part)
          x->order[at++] = k;
  CHECK(at == x->n, "%d of %d items are read", at, x->n);
  free(book);
  return time_of(x);
}

static void the_order_is_near_the_best(uint64_t first) {
  enum { CASES = 2000 };
  double by_rows = 0, by_number = 0;
  int count = 0;
  for (uint64_t seed = first; seed < first + CASES; seed++) {
    state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    sli_expert_loads s = {.levels = 1 + any(2), .base = 2};
    s.experts = 6 / s.levels;
    int32_t rows[6];
    items x = {0};
    double ratio = (1 + any(30)) / 10.0; /* of reading a plane to computing a row */
    for (int i = 0; i < s.experts * s.levels; i++) rows[i] = any(2) ? any(4) : 0;
    for (int32_t e = 0; e < s.experts; e++)
      for (int32_t v = 0; v < s.levels; v++) {
        int more = 0;
        for (int k = v; k < s.levels; k++) more += rows[e * s.levels + k];
        if (!more) continue;
        x.of[x.n].expert = e, x.of[x.n].level = v;
        x.of[x.n].read = ratio * (v ? 1 : s.base);
        x.of[x.n++].compute = more * (v ? .5 : 1);
      }
    if (!x.n) continue;
    count++;
    double best = least_time(&x, 0, 0);
    by_rows += loader_time(&x, s, rows, false) / best;
    by_number += loader_time(&x, s, rows, true) / best;
  }
  by_rows /= count, by_number /= count;
  printf("%d cases from seed %llu: by rows %.4f of the best order's time, ascending %.4f\n", count,
         (unsigned long long)first, by_rows, by_number);
  CHECK(by_rows <= by_number, "by rows takes longer than ascending: %g, %g", by_rows, by_number);
  CHECK(by_rows < 1.06, "by rows takes %g of the best order's time", by_rows);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 400);
  RUN(the_order_is_near_the_best, s.first);
  RUN(levels_are_read_by_rows);
  RUN(rows_come_once_from_what_is_held, s);
  return 0;
}
