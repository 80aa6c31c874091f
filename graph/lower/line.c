/* Exchanges in line (--exchange inline): a pass, once begun, has its device until it is done.
 *
 * Where devices of a stage shard its tensors, a pass is several actors with exchanges between
 * them. Exchanges beside the passes have a queue of their own, and the device goes on with
 * whatever can fire. The next microbatch then enters at each exchange. Credits count
 * microbatches that have begun, so many may have begun and none be done. In line, an exchange
 * that a pass waits for is on the queue of the passes, and all actors of a pass but the first go
 * before passes that have not begun. Devices of a stage may drift apart in time, so the order is
 * fixed as well, to the one that emerges on the virtual clock, where they do not. A device then
 * waits for the others at an exchange, and for nothing else.
 *
 * Recomputation of forward tensors waits for the same inputs as its backward pass: its own
 * inputs are there early, and otherwise it would run for microbatches whose turn is far ahead.
 *
 * On modelled devices the wire to the next stage is in line as well: a pass ends when its result
 * has arrived.
 *
 * Exchanges that no pass waits for, such as gradient sums and prefetches, stay beside the
 * passes. */
#include "graph/lower/ir.h"

#include <stdlib.h>

static bool is_of_pass(const sli_group *g) {
  return !g->hop && !g->host && g->phase == SLI_PHASE_MAIN && g->rate == SLI_PER_TICK && g->stage != SL_NONE;
}

/* True if some pass waits for a group's results of a tick. */
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

/* ---- backward passes begin with their inputs
 * --------------------------------------------------- */

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

/* Adds `early` as a reader of what another stage makes for a group in each tick. */
static void begin_with(sli_lowering *l, int early, const sli_group *first) {
  for (int i = 0; i < first->ninputs; i++) {
    const sli_bundle *b = &l->bundles[first->inputs[i]];
    bool arrives = b->producer != SL_NONE && l->groups[b->producer].stage != first->stage &&
                   b->rate == SLI_PER_TICK && l->groups[b->producer].back;
    if (arrives) add_reader(l, first->inputs[i], early);
  }
}

/* True if the group waits for something of its pass, as far as is known of earlier groups. */
static bool waits(const sli_lowering *l, const sli_group *g, const bool *early) {
  for (int i = 0; i < g->ninputs; i++) {
    int by = l->bundles[g->inputs[i]].producer;
    if (by == SL_NONE || !l->groups[by].back || !is_of_pass(&l->groups[by])) continue;
    if (l->groups[by].stage != g->stage || !early[by]) return true;
  }
  return false;
}

/* True if the group only recomputes or exchanges forward tensors. A vocabulary sharded over the
 * stages is excluded: other stages wait for it, and it does not wait for this stage's gradient. */
static bool repeats(const sli_lowering *l, const sli_group *g) {
  bool all = g->back && is_of_pass(g) && !sli_is_spread_group(l, g);
  for (int i = 0; i < g->nnodes; i++)
    all &= g->nodes[i]->again || g->nodes[i]->cls == SL_CLASS_C || !g->nodes[i]->nin;
  return all;
}

/* Finds the groups of backward passes that wait for nothing of their pass: [ngroups]. */
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

/* Makes the other groups wait for the first, by a register of no bytes. */
static void begin_together(sli_lowering *l, int first, int count, const int *others) {
  const sli_group *g = &l->groups[first];
  int *readers = sli_arena_alloc(&l->arena, (size_t)count * sizeof *readers);
  for (int i = 0; i < count; i++) readers[i] = others[count - 1 - i];
  sli_add_bundle(l, (sli_bundle){.name = sli_arena_format(&l->arena, "begun@%d", g->stage),
                                 .role = SLI_ROLE_INNER, .producer = first, .nconsumers = count,
                                 .consumers = readers, .memory = SL_MEMORY_ACTIVATIONS,
                                 .device = g->device, .over = SL_NONE, .reg = SL_NONE});
}

/* Lists, for the first group of a backward pass that waits for something, the groups before it,
 * which do not; the first of them last. Returns their number; 0 for any other group. */
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
