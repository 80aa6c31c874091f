/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the rules of flow.h, given numbers of firings. */
#include "actors/plan/plan.h"

#include <stdlib.h>

/* ---- maps ------------------------------------------------------------------------- */

/* Firing that takes a key (SL_FIRST) or releases it (SL_LAST) at a port with this map, or -1. */
static int64_t firing_of(const sl_map *map, int64_t key, uint32_t flag) {
  int64_t best = -1;
  for (uint32_t i = 0; i < map->period; i++) {
    const sl_map_entry *e = &map->entries[i];
    int64_t beyond = key - e->offset;
    if (!(e->flags & flag) || (e->flags & SL_SKIP) || beyond < 0) continue;
    if (map->stride ? beyond % map->stride : beyond) continue;
    int64_t n = (map->stride ? beyond / map->stride : 0) * map->period + i;
    if (n >= 0 && (best < 0 || n < best)) best = n;
  }
  return best;
}

int64_t sli_flow_taken(const sl_plan *plan, const sl_port *port, int64_t n) {
  uint32_t flags;
  if (n < 0) return -1;
  int64_t key = sl_map_key(&plan->maps[port->map], n, &flags);
  return (flags & SL_FIRST) && !(flags & SL_SKIP) ? key : -1;
}

/* ---- readers ------------------------------------------------------------------------- */

struct sli_flow {
  const sl_plan *plan;
  int32_t *first; /* [nregs + 1] into readers */
  sli_reader *readers;
  int32_t *next;    /* [nregs] circular list of the registers that share its slots */
  int64_t *reach;   /* [nregs] number of newest keys that may still have slots */
  int32_t *lasting; /* [nregs] initial slots that are never given back */
};

static void index_readers(sli_flow *f) {
  const sl_plan *plan = f->plan;
  int32_t *at = sli_calloc((size_t)plan->nregs + 1, sizeof *at);
  for (int32_t r = 0; r < plan->nregs; r++) {
    at[r] = f->first[r];
    f->first[r + 1] = f->first[r] + plan->regs[r].nconsumers;
  }
  f->readers = sli_calloc((size_t)f->first[plan->nregs] + 1, sizeof *f->readers);
  for (int32_t a = 0; a < plan->nactors; a++)
    for (int32_t p = 0; p < plan->actors[a].nin; p++) {
      const sl_port *port = &plan->actors[a].in[p];
      const sl_map *map = &plan->maps[port->map];
      f->readers[at[port->reg]++] = (sli_reader){a, port->map, sli_map_first(map, 0)};
      f->reach[port->reg] = SLI_MAX(f->reach[port->reg], sli_ready_size(plan, port->reg, map));
    }
  free(at);
}

static void index_sharers(sli_flow *f) {
  for (int32_t r = 0; r < f->plan->nregs; r++) {
    int32_t leader = f->plan->regs[r].shares - 1;
    f->next[r] = r;
    if (leader < 0) continue;
    f->next[r] = f->next[leader];
    f->next[leader] = r;
  }
}

const sli_reader *sli_flow_readers(const sli_flow *f, int32_t reg, int32_t *count) {
  *count = f->first[reg + 1] - f->first[reg];
  return &f->readers[f->first[reg]];
}

int32_t sli_flow_answers(const sli_flow *f, int32_t reg, int64_t key) {
  int32_t n = 0;
  for (int32_t i = f->first[reg]; i < f->first[reg + 1]; i++) n += f->readers[i].first_key <= key;
  return n;
}

static void count_lasting(sli_flow *f) {
  for (int32_t i = 0; i < f->plan->nregs; i++) {
    const sl_register *r = &f->plan->regs[i];
    bool comes_free = r->nconsumers && r->producer != SL_NONE && r->pool == SL_NONE;
    for (int64_t key = 0; key < r->initial && !comes_free; key++)
      f->lasting[i] += !sli_flow_answers(f, i, key);
  }
}

sli_flow *sli_flow_create(const sl_plan *plan) {
  sli_flow *f = sli_calloc(1, sizeof *f);
  f->plan = plan;
  f->first = sli_calloc((size_t)plan->nregs + 1, sizeof *f->first);
  f->next = sli_calloc((size_t)plan->nregs + 1, sizeof *f->next);
  f->reach = sli_calloc((size_t)plan->nregs + 1, sizeof *f->reach);
  index_readers(f);
  index_sharers(f);
  f->lasting = sli_calloc((size_t)plan->nregs + 1, sizeof *f->lasting);
  count_lasting(f);
  return f;
}

void sli_flow_destroy(sli_flow *f) {
  if (!f) return;
  free(f->first);
  free(f->readers);
  free(f->next);
  free(f->reach);
  free(f->lasting);
  free(f);
}

/* ---- keys -------------------------------------------------------------------------- */

/* True if some reader has taken the key. The key was then ready, even if the producer's number of
 * firings, which may be older or unknown, says otherwise. */
static bool was_taken(const sli_flow *f, const sli_flow_state *at, int32_t reg, int64_t key) {
  for (const sli_reader *r = f->readers + f->first[reg]; r < f->readers + f->first[reg + 1]; r++) {
    int64_t n = firing_of(&f->plan->maps[r->map], key, SL_FIRST);
    if (n >= 0 && n < at->fired[r->actor]) return true;
  }
  return false;
}

bool sli_flow_is_ready(const sli_flow *f, const sli_flow_state *at, int32_t reg, int64_t key) {
  const sl_register *r = &f->plan->regs[reg];
  const sl_port *out = sli_plan_output(f->plan, reg);
  if (key < r->initial || !out) return true;
  int64_t n = firing_of(&f->plan->maps[out->map], key, SL_LAST);
  return (n >= 0 && n < at->fired[r->producer]) || was_taken(f, at, reg, key);
}

/* True if a reader has yet to give a key back, whether it has taken it or not. */
static bool owes(const sli_flow *f, const sli_flow_state *at, const sli_reader *r, int64_t key) {
  int64_t n = firing_of(&f->plan->maps[r->map], key, SL_LAST);
  return key >= r->first_key && (n < 0 || n >= at->fired[r->actor]);
}

/* A reader that has yet to give a key back, or SL_NONE. */
static int32_t actor_owing(const sli_flow *f, const sli_flow_state *at, int32_t reg, int64_t key) {
  for (const sli_reader *r = f->readers + f->first[reg]; r < f->readers + f->first[reg + 1]; r++)
    if (owes(f, at, r, key)) return r->actor;
  return SL_NONE;
}

/* ---- slots ------------------------------------------------------------------------- */

/* Counts slots of initial keys that some reader has yet to give back. *holder becomes the holder of
 * the oldest. */
static int32_t initial_used(const sli_flow *f, const sli_flow_state *at, int32_t reg,
                            int32_t *holder) {
  int32_t used = 0;
  for (int64_t key = f->plan->regs[reg].initial - 1; key >= 0; key--) {
    int32_t has = actor_owing(f, at, reg, key);
    if (has == SL_NONE) continue;
    used++;
    *holder = has;
  }
  return used;
}

/* Counts one register's slots in use. Scans the keys taken, from the newest back to the oldest that
 * can still have a slot. */
static int32_t used_alone(const sli_flow *f, const sli_flow_state *at, int32_t reg,
                          int32_t *holder) {
  const sl_register *r = &f->plan->regs[reg];
  const sl_port *out = sli_plan_output(f->plan, reg);
  if (!out || r->held) return r->held ? 1 : r->initial;
  const sl_map *map = &f->plan->maps[out->map];
  int64_t made = at->fired[r->producer], n = at->begun ? at->begun[r->producer] : made;
  int64_t left = SLI_MAX(f->reach[reg], sli_quota_most(r));
  int32_t used = f->lasting[reg];
  while (n-- > 0 && left > 0) {
    int64_t key = sli_flow_taken(f->plan, out, n);
    if (key < 0) continue;
    left--;
    int32_t has = actor_owing(f, at, reg, key);
    if (has == SL_NONE && firing_of(map, key, SL_LAST) < made) continue;
    used++;
    if (has != SL_NONE) *holder = has;
  }
  return n < 0 ? used + initial_used(f, at, reg, holder) : used;
}

int32_t sli_flow_used(const sli_flow *f, const sli_flow_state *at, int32_t reg, int32_t *holder) {
  *holder = SL_NONE;
  int32_t used = used_alone(f, at, reg, holder);
  for (int32_t r = f->next[reg]; r != reg; r = f->next[r]) used += used_alone(f, at, r, holder);
  return used;
}

/* ---- pools -------------------------------------------------------------------------- */

sli_level sli_flow_level(const sli_flow *f, const sli_flow_state *at, int32_t pool) {
  sli_level level = {.quota = f->plan->pools[pool].quota};
  for (int32_t i = 0; i < f->plan->nregs; i++) {
    const sl_register *r = &f->plan->regs[i];
    int32_t holder;
    if (r->pool == pool && r->producer != SL_NONE)
      sli_level_join(&level, sli_flow_used(f, at, i, &holder), sli_register_kept(r));
  }
  return level;
}

/* True if its pool admits output `port` of an actor, once earlier outputs have taken theirs. */
static bool is_admitted(const sli_flow *f, const sli_flow_state *at, int32_t actor, int32_t port) {
  const sl_actor *a = &f->plan->actors[actor];
  int32_t pool = f->plan->regs[a->out[port].reg].pool;
  if (pool == SL_NONE) return true;
  sli_level level = sli_flow_level(f, at, pool);
  for (int32_t p = 0;; p++) {
    const sl_register *r = &f->plan->regs[a->out[p].reg];
    int32_t holder, kept = sli_register_kept(r);
    if (r->pool != pool || sli_flow_taken(f->plan, &a->out[p], at->fired[actor]) < 0) continue;
    int32_t used = sli_flow_used(f, at, a->out[p].reg, &holder);
    if (p == port) return sli_level_admits(&level, used, kept);
    sli_level_take(&level, used, kept);
  }
}

/* ---- what an actor lacks -------------------------------------------------------------- */

sli_lack sli_flow_input(const sli_flow *f, const sli_flow_state *at, int32_t actor, int32_t port) {
  const sl_port *p = &f->plan->actors[actor].in[port];
  sli_lack lack = {SLI_LACKS_NOTHING, sli_flow_taken(f->plan, p, at->fired[actor]), p->reg,
                   f->plan->regs[p->reg].producer};
  if (lack.key >= 0 && !sli_flow_is_ready(f, at, p->reg, lack.key)) lack.what = SLI_LACKS_INPUT;
  return lack;
}

sli_lack sli_flow_output(const sli_flow *f, const sli_flow_state *at, int32_t actor, int32_t port) {
  const sl_port *p = &f->plan->actors[actor].out[port];
  sli_lack lack = {SLI_LACKS_NOTHING, sli_flow_taken(f->plan, p, at->fired[actor]), p->reg,
                   SL_NONE};
  if (lack.key < 0) return lack;
  int32_t slots = at->slots ? at->slots[p->reg] : -1;
  if (slots < 0) slots = f->plan->regs[p->reg].quota;
  if (sli_flow_used(f, at, p->reg, &lack.on) >= slots) lack.what = SLI_LACKS_SLOT;
  if (lack.what || is_admitted(f, at, actor, port)) return lack;
  lack.what = SLI_LACKS_POOL;
  for (int32_t r = 0; r < f->plan->nregs && lack.on == SL_NONE; r++)
    if (f->plan->regs[r].pool == f->plan->regs[p->reg].pool) sli_flow_used(f, at, r, &lack.on);
  return lack;
}

sli_lack sli_flow_lack(const sli_flow *f, const sli_flow_state *at, int32_t actor) {
  const sl_actor *a = &f->plan->actors[actor];
  sli_lack lack, unsure = {.what = SLI_LACKS_NOTHING, .key = -1, .reg = SL_NONE, .on = SL_NONE};
  for (int32_t p = 0; p < a->nin; p++) {
    if (!(lack = sli_flow_input(f, at, actor, p)).what) continue;
    if (at->fired[lack.on] >= 0) return lack;
    if (!unsure.what) unsure = lack;
  }
  for (int32_t p = 0; p < a->nout; p++)
    if ((lack = sli_flow_output(f, at, actor, p)).what) return lack;
  return unsure;
}
