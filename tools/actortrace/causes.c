/* SPDX-License-Identifier: Apache-2.0 */
/* Cause of each firing: the last input to become ready, or the last credit to return. Slots of
 * registers that share credits are counted through the trace, change by change, by the rules of
 * actors/plan/flow.h. */
#include "tools/actortrace/actortrace.h"

#include <stdlib.h>

#include "actors/plan/plan.h"

/* Keeps the later cause; if both are at the same time, keeps the recorded one. */
static void consider(const analysis *a, int64_t firing, cause candidate) {
  cause *c = &a->causes[firing];
  const sl_trace_record *f = &a->firings[firing].record;
  if (candidate.wait == SL_WAIT_INPUT) c->input_ns = SLI_MAX(c->input_ns, candidate.ready_ns);
  if (candidate.ready_ns < c->ready_ns) return;
  bool recorded = f->wait == candidate.wait && (int32_t)f->reg == candidate.reg;
  if (candidate.ready_ns == c->ready_ns && c->wait != SL_WAIT_NONE && !recorded) return;
  candidate.known = c->known;
  candidate.input_ns = c->input_ns;
  *c = candidate;
}

static void find_inputs(analysis *a, int64_t firing) {
  const sl_trace_record *f = &a->firings[firing].record;
  const sl_actor *x = &a->plan->actors[f->actor];
  for (int32_t p = 0; p < x->nin; p++) {
    int64_t key = sli_flow_taken(a->plan, &x->in[p], f->firing);
    if (key < 0) continue;
    const sl_register *r = &a->plan->regs[x->in[p].reg];
    const hold *h = find_hold(a, x->in[p].reg, key);
    bool initial = r->producer == SL_NONE || key < r->initial;
    if (h && h->ready_by >= 0)
      consider(a, firing,
               (cause){.ready_ns = h->ready_ns,
                       .by = h->ready_by,
                       .reg = x->in[p].reg,
                       .wait = SL_WAIT_INPUT});
    else if (!initial) a->causes[firing].known = false;
  }
}

/* A slot being taken or returned. */
typedef struct change {
  uint64_t ns;
  size_t hold;
  bool freed;
} change;

/* Orders by time, then in the order in which slots are taken: a slot used for no time is freed
 * before the next is taken. */
static int by_time(const void *a, const void *b) {
  const change *x = a, *y = b;
  if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
  if (x->hold != y->hold) return x->hold < y->hold ? -1 : 1;
  return x->freed - y->freed;
}

static int32_t slots_of(const sl_plan *plan, int32_t reg) {
  return plan->regs[reg].shares ? plan->regs[reg].shares - 1 : reg;
}

/* Fill levels of registers that share credits: the registers of a pool, those that alias one
 * register's slots, or a single register. */
typedef struct sharing {
  const sl_plan *plan;
  int32_t pool, nregs;
  const int32_t *regs;
  sli_level level; /* level of the pool */
  /* [nregs of the plan] slots in use, indexed by the first register with the same slots */
  int32_t *used;
  bool *full;     /* [nregs of the plan] no slot could be taken */
  change *opened; /* [nregs of the plan] the change that let the next slot be taken */
  bool *open;     /* [nregs of the plan] `opened` is set */
} sharing;

static bool may_take(const sharing *s, int32_t reg) {
  const sl_register *r = &s->plan->regs[reg];
  if (s->used[slots_of(s->plan, reg)] >= r->quota) return false;
  return s->pool == SL_NONE || sli_level_admits(&s->level, s->used[reg], sli_register_kept(r));
}

static void causes_take(sharing *s, int32_t reg) {
  int32_t *used = &s->used[slots_of(s->plan, reg)];
  if (s->pool != SL_NONE) sli_level_take(&s->level, *used, sli_register_kept(&s->plan->regs[reg]));
  ++*used;
}

static void give_back(sharing *s, int32_t reg) {
  int32_t *used = &s->used[slots_of(s->plan, reg)];
  --*used;
  if (s->pool != SL_NONE) sli_level_free(&s->level, *used, sli_register_kept(&s->plan->regs[reg]));
}

static void apply_change(analysis *a, sharing *s, const change *c) {
  const hold *h = &a->holds[c->hold];
  if (c->freed) {
    give_back(s, h->reg);
  } else {
    if (s->open[h->reg]) {
      const hold *by = &a->holds[s->opened[h->reg].hold];
      consider(a, h->taken_by,
               (cause){.ready_ns = s->opened[h->reg].ns,
                       .by = by->freed_by,
                       .reg = h->reg,
                       .wait = SL_WAIT_CREDIT});
    }
    causes_take(s, h->reg);
    s->open[h->reg] = false;
  }
  for (int32_t i = 0; i < s->nregs; i++) {
    int32_t reg = s->regs[i];
    bool full = !may_take(s, reg);
    if (s->full[reg] && !full && c->freed) s->opened[reg] = *c, s->open[reg] = true;
    s->full[reg] = full;
  }
}

static int by_taking(const void *a, const void *b) {
  const hold *x = a, *y = b;
  if (x->taken_ns != y->taken_ns) return x->taken_ns < y->taken_ns ? -1 : 1;
  if (x->taken_by != y->taken_by) return x->taken_by < y->taken_by ? -1 : 1;
  return x->key < y->key ? -1 : x->key > y->key;
}

static void find_credits(analysis *a, sharing *s) {
  size_t count = 0, n = 0;
  s->level = (sli_level){.quota = s->pool == SL_NONE ? 0 : s->plan->pools[s->pool].quota};
  for (int32_t i = 0; i < s->nregs; i++) {
    const sl_register *r = &s->plan->regs[s->regs[i]];
    count += 2 * (a->first_hold[s->regs[i] + 1] - a->first_hold[s->regs[i]]);
    if (r->producer != SL_NONE)
      sli_level_join(&s->level, s->used[s->regs[i]], sli_register_kept(r));
  }
  change *changes = sli_calloc(count + 1, sizeof *changes);
  for (int32_t i = 0; i < s->nregs; i++)
    for (size_t h = a->first_hold[s->regs[i]]; h < a->first_hold[s->regs[i] + 1]; h++) {
      const hold *x = &a->holds[h];
      if (x->taken_by >= 0) changes[n++] = (change){x->taken_ns, h, false};
      if (x->freed_ns != UINT64_MAX) changes[n++] = (change){x->freed_ns, h, true};
    }
  for (int32_t i = 0; i < s->nregs; i++) s->full[s->regs[i]] = !may_take(s, s->regs[i]);
  qsort(changes, n, sizeof *changes, by_time);
  for (size_t i = 0; i < n; i++) apply_change(a, s, &changes[i]);
  free(changes);
}

/* Counts slots in use at the start of the trace, including initial keys. If the trace lost its
 * oldest firings, counts the slots that are seen to return. */
static void find_first_used(const analysis *a, sharing *s) {
  const sl_plan *plan = s->plan;
  int64_t *fired = sli_calloc((size_t)plan->nactors + 1, sizeof *fired);
  int64_t step = a->trace->nsteps ? a->trace->step[0].step : 0;
  for (int32_t i = 0; i < plan->nactors; i++) fired[i] = sli_firings(&plan->actors[i], step);
  const sli_flow_state at = {.fired = fired};
  for (int32_t r = 0, holder; r < plan->nregs && !a->trace->dropped; r++)
    if (!plan->regs[r].shares) s->used[r] = sli_flow_used(a->flow, &at, r, &holder);
  for (size_t h = 0; h < a->nholds && a->trace->dropped; h++)
    if (a->holds[h].taken_by < 0) s->used[slots_of(plan, a->holds[h].reg)]++;
  free(fired);
}

/* Counts registers that share credits together: register r's group is its pool's, or that of the
 * first register whose slots it aliases. */
static void find_all_credits(analysis *a) {
  const sl_plan *plan = a->plan;
  size_t n = (size_t)plan->nregs + 1;
  int32_t *regs = sli_calloc(n, sizeof *regs), *next = sli_calloc(n, sizeof *next);
  int32_t *first = sli_calloc(n + (size_t)plan->npools, sizeof *first);
  sharing s = {.plan = plan,
               .regs = regs,
               .used = sli_calloc(n, sizeof *s.used),
               .full = sli_calloc(n, sizeof *s.full),
               .opened = sli_calloc(n, sizeof *s.opened),
               .open = sli_calloc(n, sizeof *s.open)};
  find_first_used(a, &s);
  for (int32_t r = plan->nregs - 1; r >= 0; r--) {
    int32_t pool = plan->regs[r].pool;
    int32_t *group = &first[pool == SL_NONE ? slots_of(plan, r) : plan->nregs + pool];
    next[r] = *group; /* 0 if none, otherwise the number plus 1 */
    *group = r + 1;
  }
  for (int32_t g = 0; g < plan->nregs + plan->npools; g++) {
    s.pool = g < plan->nregs ? SL_NONE : g - plan->nregs;
    s.nregs = 0;
    for (int32_t r = first[g]; r; r = next[r - 1]) regs[s.nregs++] = r - 1;
    if (s.nregs) find_credits(a, &s);
  }
  void *all[] = {regs, next, first, s.used, s.full, s.opened, s.open};
  for (size_t i = 0; i < SLI_COUNT(all); i++) free(all[i]);
}

void find_causes(analysis *a) {
  a->causes = sli_calloc(a->nfirings + 1, sizeof *a->causes);
  for (size_t i = 0; i < a->nfirings; i++)
    a->causes[i] = (cause){.by = -1, .reg = SL_NONE, .known = true};
  for (size_t i = 0; i < a->nfirings; i++) find_inputs(a, (int64_t)i);
  for (int32_t r = 0; r < a->plan->nregs; r++)
    qsort(a->holds + a->first_hold[r], a->first_hold[r + 1] - a->first_hold[r], sizeof *a->holds,
          by_taking);
  find_all_credits(a);
}
