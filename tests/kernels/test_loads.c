/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of experts: whatever rows want, each row is computed once, in the tick's firings, with the
 * parts that it needs in their slots; no slot is overwritten while it is lent; a part is read only
 * if it is not held. With room for everything, levels are read in the order HEBF.
 * labels: unthreaded random */
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
  sli_expert_loads_settle(&s);
  return s;
}

/* What the slots hold, and the firing that each was last lent in. */
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

static void check_tick(sli_part_loads *x, memory *m, int64_t tick) {
  const sli_expert_loads *s = x->shape;
  int n = s->experts * s->levels, left = 0;
  int32_t *rows = sli_calloc((size_t)n, sizeof *rows);
  int(*items)[2] = sli_calloc((size_t)n, sizeof *items);
  sli_load *loads = sli_calloc((size_t)s->slots, sizeof *loads);
  int busy = any(3);
  for (int i = 0; i < n; i++) rows[i] = any(3) < busy ? 1 + any(9) : 0;
  int64_t before = m->reads, wanted = sli_loads_begin(x, tick, rows);
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

/* Of each expert's lowest missing level the one that most rows want; ties: the lowest expert. */
static void levels_are_read_by_rows(void) {
  sli_expert_loads s = {.experts = 3, .levels = 2, .base = 1, .slots = 6};
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

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 400);
  RUN(levels_are_read_by_rows);
  RUN(rows_come_once_from_what_is_held, s);
  return 0;
}
