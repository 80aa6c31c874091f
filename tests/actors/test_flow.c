/* SPDX-License-Identifier: Apache-2.0 */
/* Compares flow, which works from firing counts only, with a simulation that moves every token:
 * ready keys, used slots, and what each port lacks. Plans are random (with pools, initial slots,
 * late and reversed readers, private state), or rings that share slots; comparisons happen in the
 * middle of firings, too.
 *
 *   test_actors_flow [SEED [COUNT]]
 * labels: unthreaded */
#include <inttypes.h>
#include <string.h>

#include "actors/plan/plan.h"
#include "tests/support/actors_plans.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

/* ---- a simulation of tokens -------------------------------------------------------------- */

enum { KEYS = 4096, LOOKED_AT = 40 };

/* A register. For each key: whether it has a slot, whether it is ready, and how many readers still
 * hold it. */
typedef struct tokens {
  int32_t used;
  bool has_slot[KEYS], ready[KEYS];
  int32_t owed[KEYS];
} tokens;

typedef struct simulation {
  const sl_plan *plan;
  tokens *regs;
  int64_t *fired, *begun;
  uint64_t random;
  uint64_t seed;
} simulation;

static uint32_t flags_at(const simulation *s, const sl_port *p, int64_t n, int64_t *key) {
  uint32_t flags;
  *key = sl_map_key(&s->plan->maps[p->map], n, &flags);
  CHECK((flags & SL_SKIP) || (*key >= 0 && *key < KEYS), "a key of %lld", (long long)*key);
  return flags & SL_SKIP ? 0 : flags;
}

static int64_t first_key(const simulation *s, const sl_port *p) {
  int64_t least = INT64_MAX;
  for (uint32_t n = 0; n < s->plan->maps[p->map].period; n++) {
    uint32_t flags;
    int64_t key = sl_map_key(&s->plan->maps[p->map], n, &flags);
    if (!(flags & SL_SKIP)) least = SLI_MIN(least, key);
  }
  return least;
}

/* Returns the readers of a key. Each port reads every key from its first one on. */
static int32_t readers_of(const simulation *s, int32_t reg, int64_t key) {
  int32_t n = 0;
  for (int32_t a = 0; a < s->plan->nactors; a++)
    for (int32_t p = 0; p < s->plan->actors[a].nin; p++) {
      const sl_port *port = &s->plan->actors[a].in[p];
      n += port->reg == reg && first_key(s, port) <= key;
    }
  return n;
}

static void begin_register(simulation *s, int32_t reg) {
  const sl_register *r = &s->plan->regs[reg];
  tokens *t = &s->regs[reg];
  t->used = r->held;
  for (int64_t key = 0; key < r->initial; key++) {
    t->ready[key] = true;
    t->owed[key] = readers_of(s, reg, key);
    bool stays = t->owed[key] || !r->nconsumers || r->producer == SL_NONE || r->pool != SL_NONE;
    t->has_slot[key] = stays;
    t->used += stays;
  }
}

static simulation begin(const sl_plan *plan, uint64_t seed) {
  simulation s = {plan,
                  sli_calloc((size_t)plan->nregs, sizeof(tokens)),
                  sli_calloc((size_t)plan->nactors, sizeof(int64_t)),
                  sli_calloc((size_t)plan->nactors, sizeof(int64_t)),
                  seed,
                  seed};
  for (int32_t r = 0; r < plan->nregs; r++) begin_register(&s, r);
  return s;
}

static void end(simulation *s) {
  free(s->regs);
  free(s->fired);
  free(s->begun);
}

static int32_t leader_of(const sl_plan *plan, int32_t reg) {
  return plan->regs[reg].shares ? plan->regs[reg].shares - 1 : reg;
}

static int32_t used_with_shared(const simulation *s, int32_t reg) {
  int32_t sum = 0;
  for (int32_t r = 0; r < s->plan->nregs; r++)
    if (leader_of(s->plan, r) == leader_of(s->plan, reg)) sum += s->regs[r].used;
  return sum;
}

/* Returns whether the pool of a register can give one more slot, when `more[reg]` further slots of
 * each register are taken. */
static bool pool_gives(const simulation *s, int32_t reg, const int32_t *more) {
  const sl_plan *plan = s->plan;
  int32_t pool = plan->regs[reg].pool, sum = 0;
  if (pool == SL_NONE) return true;
  for (int32_t r = 0; r < plan->nregs; r++) {
    if (plan->regs[r].pool != pool) continue;
    int32_t used = s->regs[r].used + more[r], kept = sli_register_kept(&plan->regs[r]);
    if (r == reg && used < kept) return true;
    sum += SLI_MAX(used, kept);
  }
  return sum < plan->pools[pool].quota;
}

/* Returns what port p of an actor (inputs, then outputs) lacks for the next firing. */
static int lacks(const simulation *s, int32_t actor, int32_t p) {
  const sl_actor *a = &s->plan->actors[actor];
  bool input = p < a->nin;
  const sl_port *port = input ? &a->in[p] : &a->out[p - a->nin];
  int64_t key;
  if (!(flags_at(s, port, s->begun[actor], &key) & SL_FIRST)) return SLI_LACKS_NOTHING;
  const sl_register *r = &s->plan->regs[port->reg];
  if (input)
    return r->producer == SL_NONE || s->regs[port->reg].ready[key] ? SLI_LACKS_NOTHING
                                                                   : SLI_LACKS_INPUT;
  if (used_with_shared(s, port->reg) >= r->quota) return SLI_LACKS_SLOT;
  int32_t *more = sli_calloc((size_t)s->plan->nregs, sizeof *more);
  for (int32_t o = 0; o < p - a->nin; o++)
    more[a->out[o].reg] += (flags_at(s, &a->out[o], s->begun[actor], &key) & SL_FIRST) != 0;
  bool gives = pool_gives(s, port->reg, more);
  free(more);
  return gives ? SLI_LACKS_NOTHING : SLI_LACKS_POOL;
}

static bool can_begin(const simulation *s, int32_t actor) {
  const sl_actor *a = &s->plan->actors[actor];
  if (s->begun[actor] > s->fired[actor]) return false;
  for (int32_t p = 0; p < a->nin + a->nout; p++)
    if (lacks(s, actor, p)) return false;
  return true;
}

static void begin_firing(simulation *s, int32_t actor) {
  const sl_actor *a = &s->plan->actors[actor];
  int64_t key;
  for (int32_t p = 0; p < a->nout; p++) {
    tokens *t = &s->regs[a->out[p].reg];
    if (!(flags_at(s, &a->out[p], s->begun[actor], &key) & SL_FIRST)) continue;
    t->has_slot[key] = true;
    t->used++;
  }
  s->begun[actor]++;
}

static void free_slot(tokens *t, int64_t key) {
  CHECK(t->has_slot[key], "a slot is freed twice");
  t->has_slot[key] = false;
  t->used--;
}

static void end_firing(simulation *s, int32_t actor) {
  const sl_actor *a = &s->plan->actors[actor];
  int64_t key, n = s->fired[actor]++;
  for (int32_t p = 0; p < a->nout; p++) {
    tokens *t = &s->regs[a->out[p].reg];
    if (!(flags_at(s, &a->out[p], n, &key) & SL_LAST)) continue;
    t->ready[key] = true;
    t->owed[key] = s->plan->regs[a->out[p].reg].nconsumers;
    if (!t->owed[key]) free_slot(t, key);
  }
  for (int32_t p = 0; p < a->nin; p++) {
    tokens *t = &s->regs[a->in[p].reg];
    if (!(flags_at(s, &a->in[p], n, &key) & SL_LAST)) continue;
    if (--t->owed[key] == 0) free_slot(t, key);
  }
}

/* ---- the comparison ------------------------------------------------------------------------ */

static void compare(const simulation *s, const sli_flow *flow) {
  const sl_plan *plan = s->plan;
  const sli_flow_state at = {.fired = s->fired, .begun = s->begun};
  for (int32_t r = 0; r < plan->nregs; r++) {
    int32_t holder, used = sli_flow_used(flow, &at, r, &holder);
    CHECK(used == used_with_shared(s, r), "seed %" PRIu64 ": %d slots of %s in use, not %d",
          s->seed, used, plan->regs[r].name, used_with_shared(s, r));
    bool owed = false;
    for (int64_t key = 0; key < LOOKED_AT; key++) {
      bool ready = plan->regs[r].producer == SL_NONE || plan->regs[r].held || s->regs[r].ready[key];
      owed |= s->regs[r].has_slot[key] && s->regs[r].owed[key];
      CHECK(plan->regs[r].held || sli_flow_is_ready(flow, &at, r, key) == ready,
            "seed %" PRIu64 ": key %d of %s is%s ready", s->seed, (int)key, plan->regs[r].name,
            ready ? "" : " not");
    }
    CHECK(!owed || plan->regs[r].producer == SL_NONE || holder != SL_NONE,
          "seed %" PRIu64 ": somebody has %s", s->seed, plan->regs[r].name);
  }
  for (int32_t a = 0; a < plan->nactors; a++) {
    if (s->begun[a] > s->fired[a]) continue;
    int first = SLI_LACKS_NOTHING;
    for (int32_t p = 0; p < plan->actors[a].nin + plan->actors[a].nout; p++) {
      int32_t o = p - plan->actors[a].nin;
      sli_lack lack = o < 0 ? sli_flow_input(flow, &at, a, p) : sli_flow_output(flow, &at, a, o);
      int want = lacks(s, a, p);
      CHECK((int)lack.what == want, "seed %" PRIu64 ": %s, port %d lacks %d, not %d", s->seed,
            plan->actors[a].name, p, lack.what, want);
      if (!first) first = want;
    }
    CHECK((int)sli_flow_lack(flow, &at, a).what == first, "seed %" PRIu64 ": %s", s->seed,
          plan->actors[a].name);
  }
}

/* Compares at every moment of a random run; returns its number of firings. */
static int64_t simulate(const sl_plan *plan, uint64_t seed, int64_t most) {
  simulation s = begin(plan, seed);
  sli_flow *flow = sli_flow_create(plan);
  int64_t moves = 0;
  for (int idle = 0; idle < 4 * plan->nactors && moves < most;) {
    int32_t a = random_below(&s.random, plan->nactors);
    bool ends = s.begun[a] > s.fired[a];
    if (ends && s.fired[a] < LOOKED_AT) end_firing(&s, a);
    else if (!ends && can_begin(&s, a)) begin_firing(&s, a);
    else {
      idle++;
      continue;
    }
    idle = 0;
    moves++;
    compare(&s, flow);
  }
  sli_flow_destroy(flow);
  end(&s);
  return moves;
}

/* ---- registers that share slots -------------------------------------------------------------- */

/* A ring: each maker has one of the registers that share slots, with readers. */
static sl_plan *make_ring(uint64_t seed) {
  int n = 2 + random_below(&seed, 4), quota = 1 + random_below(&seed, 3);
  sl_plan *plan = sl_plan_create(4, 1);
  int32_t each = sl_plan_map_each(plan);
  sl_plan_add_device(plan, (sl_device){.name = "d", .kind = "timed", .threads = 1});
  sl_plan_add_queue(plan, (sl_queue){.name = "q", .ops = &sl_queue_timed, .run_ahead = 1});
  for (int i = 0; i < 2 * n; i++)
    sl_plan_add_register(plan, (sl_register){.name = sl_plan_format(plan, "r%d", i),
                                             .quota_name = "q",
                                             .pool = SL_NONE,
                                             .quota = i < n ? quota : 1,
                                             .initial = i == n,
                                             .shares = i && i < n});
  for (int i = 0; i < n; i++) {
    sl_port out[] = {{i, each}, {n + (i + 1) % n, i + 1 < n ? each : sl_plan_map_lag(plan, 1, 1)}};
    sl_plan_add_actor(plan, (sl_actor){.name = sl_plan_format(plan, "m%d", i),
                                       .ticks = each,
                                       .firings_per_step = 4,
                                       .source = !i,
                                       .nin = 1,
                                       .nout = 2,
                                       .in = &(sl_port){n + i, each},
                                       .out = out});
  }
  for (int i = 0; i < n; i++)
    for (int k = random_below(&seed, 2); k >= 0; k--)
      sl_plan_add_actor(plan, (sl_actor){.name = sl_plan_format(plan, "r%d.%d", i, k),
                                         .ticks = each,
                                         .firings_per_step = 4,
                                         .nin = 1,
                                         .in = &(sl_port){i, each}});
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  return plan;
}

static int64_t simulate_random(uint64_t seed) {
  random_plan *r = random_plan_create(seed, seed + 1, QUEUES_TIMED);
  int64_t moves = simulate(random_plan_get(r), seed, 300);
  random_plan_destroy(r);
  return moves;
}

static int64_t simulate_ring(uint64_t seed) {
  sl_plan *ring = make_ring(seed);
  int64_t moves = simulate(ring, seed, 300);
  sl_plan_destroy(ring);
  return moves;
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 60);
  int count = (int)seeds_count(s);
  int64_t moves = 0, shared = 0;
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    RUN_AS("random_plans", moves += simulate_random(seed));
    RUN_AS("rings", shared += simulate_ring(seed));
  }
  printf("%d random plans, %lld moves; %lld of rings\n", count, (long long)moves,
         (long long)shared);
  CHECK(!count || (moves > 50 * count && shared > 50 * count), "hardly anything moves");
  return 0;
}
