/* Exchanges in line (--exchange inline): a pass, once begun, has its device until it is done.
 *
 * Where devices of a stage share its tensors a pass is several actors, with exchanges between them.
 * Beside passes, exchanges have a queue of their own, and the device goes on with whatever can fire:
 * the next microbatch is let in at each of them, and as credits count microbatches that have begun,
 * many may have begun and none be done. In line, an exchange that a pass waits for is on the queue of
 * the passes, and all of a pass but its first actor goes before whatever has yet to begin. Where
 * devices of a stage may be apart in time the order is fixed as well, to the one that emerges on the
 * virtual clock, where they are not: so a device waits for the others at an exchange, and for
 * nothing else.
 *
 * What a pass back makes again of the way there waits for what that pass waits for, too: its data has
 * long been there, and nothing else would keep it from being made for microbatches whose turn is yet to
 * come.
 *
 * On modelled devices that holds for the wire to the next stage as well: a pass ends when what it has
 * made is there.
 *
 * What no pass waits for, as sums of gradients and what is fetched ahead, stays beside. */
#include "graph/lower/ir.h"

#include <stdlib.h>

static bool is_of_pass(const sli_group *g) {
  return !g->hop && !g->host && g->phase == SLI_PHASE_MAIN && g->rate == SLI_PER_TICK && g->stage != SL_NONE;
}

/* Does any pass wait for what it makes of a tick? */
static bool is_awaited(const sli_group *g) {
  bool awaited = false;
  for (int i = 0; i < g->nnodes; i++)
    awaited |= !g->nodes[i]->accumulate_span && !sli_makes_transient(g->nodes[i]);
  return awaited;
}

bool sli_lower_is_in_line(const sli_lowering *l, const sli_group *g) {
  if (l->in->in_line && g->hop) return g->hop->route == SLI_ROUTE_WIRE && g->rate == SLI_PER_TICK;
  return l->in->in_line && g->cls == SL_CLASS_C && is_of_pass(g) && is_awaited(g);
}

static bool is_in_pass(const sli_lowering *l, const sli_group *g) {
  if (!is_of_pass(g)) return false;
  return g->cls == SL_CLASS_F || g->cls == SL_CLASS_B || sli_lower_is_in_line(l, g);
}

static bool is_same_pass(const sli_lowering *l, const sli_group *a, const sli_group *b) {
  return is_in_pass(l, a) && is_in_pass(l, b) && a->stage == b->stage && a->rank == b->rank && a->back == b->back;
}

bool sli_lower_goes_on(const sli_lowering *l, const sli_group *g) {
  if (!l->in->in_line || !is_in_pass(l, g)) return false;
  int self = (int)(g - l->groups);
  for (int i = *sli_newest_on(l, g->stage, g->rank); i != SL_NONE; i = l->groups[i].before)
    if (i != self && is_same_pass(l, &l->groups[i], g) && sli_lower_turn(l, i, self) < 0) return true;
  return false;
}

/* ---- passes back begin with what they wait for ----------------------------------------------- */

static void add_reader(sli_lowering *l, int bundle, int reader) {
  sli_bundle *b = &l->bundles[bundle];
  int *readers = sli_arena_alloc(&l->arena, (size_t)(b->nconsumers + 1) * sizeof *readers), n = 0;
  for (int i = 0; i < b->nconsumers; i++) {
    if (b->consumers[i] == reader) return;
    if (b->consumers[i] > reader && n == i) readers[n++] = reader;
    readers[n++] = b->consumers[i];
  }
  if (n == b->nconsumers) readers[n++] = reader;
  b->consumers = readers;
  b->nconsumers = n;
  sli_add_port(&l->groups[reader], bundle, false);
}

/* What a group reads that another stage makes in each tick. */
static void begin_with(sli_lowering *l, int early, const sli_group *first) {
  for (int i = 0; i < first->ninputs; i++) {
    const sli_bundle *b = &l->bundles[first->inputs[i]];
    bool arrives = b->producer != SL_NONE && l->groups[b->producer].stage != first->stage &&
                   b->rate == SLI_PER_TICK && l->groups[b->producer].back;
    if (arrives) add_reader(l, first->inputs[i], early);
  }
}

/* Does the group wait for something of its way, as far as is known of those before it? */
static bool waits(const sli_lowering *l, const sli_group *g, const bool *early) {
  for (int i = 0; i < g->ninputs; i++) {
    int by = l->bundles[g->inputs[i]].producer;
    if (by == SL_NONE || !l->groups[by].back || !is_of_pass(&l->groups[by])) continue;
    if (l->groups[by].stage != g->stage || !early[by]) return true;
  }
  return false;
}

/* Does it only make again, or exchange, what the way there had? What other stages wait for, the vocabulary's, does not
 * wait for this one's gradient. */
static bool repeats(const sli_lowering *l, const sli_group *g) {
  bool all = g->back && is_of_pass(g) && !sli_is_spread_group(l, g);
  for (int i = 0; i < g->nnodes; i++)
    all &= g->nodes[i]->again || g->nodes[i]->cls == SL_CLASS_C || !g->nodes[i]->nin;
  return all;
}

/* [ngroups] which of passes back wait for nothing of their way. */
static bool *find_all_early(const sli_lowering *l) {
  bool *early = sli_calloc((size_t)l->ngroups + 1, sizeof *early), changed = true;
  for (int i = 0; i < l->ngroups; i++) early[i] = repeats(l, &l->groups[i]);
  while (changed) {
    changed = false;
    for (int i = 0; i < l->ngroups; i++)
      if (early[i] && waits(l, &l->groups[i], early)) early[i] = false, changed = true;
  }
  return early;
}

/* The first lets the others go: a register of no bytes. */
static void begin_together(sli_lowering *l, int first, int count, const int *others) {
  const sli_group *g = &l->groups[first];
  int *readers = sli_arena_alloc(&l->arena, (size_t)count * sizeof *readers);
  for (int i = 0; i < count; i++) readers[i] = others[count - 1 - i];
  sli_add_bundle(l, (sli_bundle){.name = sli_arena_format(&l->arena, "begun@%d", g->stage),
                                 .role = SLI_ROLE_INNER, .producer = first, .nconsumers = count,
                                 .consumers = readers, .memory = SL_MEMORY_ACTIVATIONS,
                                 .device = g->device, .over = SL_NONE, .reg = SL_NONE});
}

/* Of the first group of its pass back that waits for something: those whose turn is before, which do not, the
 * first of them last. How many; 0 of any other group. */
static int find_early(const sli_lowering *l, int first, const bool *early, int *out) {
  const sli_group *g = &l->groups[first];
  int n = 0;
  if (!g->back || early[first] || !is_in_pass(l, g)) return 0;
  for (int e = *sli_newest_on(l, g->stage, g->rank); e != SL_NONE; e = l->groups[e].before) {
    if (e == first || !is_same_pass(l, &l->groups[e], g) || sli_lower_turn(l, e, first) > 0) continue;
    if (!early[e]) return 0;
    out[n++] = e;
    if (n > 1 && sli_lower_turn(l, out[n - 2], e) < 0) out[n - 1] = out[n - 2], out[n - 2] = e;
  }
  return n;
}

void sli_lower_line(sli_lowering *l) {
  if (!l->in->in_line) return;
  bool *early = find_all_early(l);
  int *of = sli_calloc((size_t)l->ngroups + 1, sizeof *of);
  for (int i = 0; i < l->ngroups; i++) {
    int n = find_early(l, i, early, of);
    if (n) begin_with(l, of[n - 1], &l->groups[i]);
    if (n > 1) begin_together(l, of[n - 1], n - 1, of);
  }
  free(of);
  free(early);
}
