/* Lanes: registers that are briefly full, one after another, in the same slots.
 *
 * Where parameters or gradients are shared out, each block of a stage needs its own whole
 * for a moment, and it would be for nothing if each had memory for that. Where tensors are,
 * each exchange has results that the next level reads, and then nobody. What the blocks
 * make for the same purpose is a lane: its registers have the same slots. For that to be
 * safe whatever the timing, the groups that fill them must come in a fixed order, so they
 * hand a turn around, a register of no bytes from each to the next, and from the last back
 * to the first, where one is waiting at the start. A lane with two slots fills one while
 * the other is read. */
#include "graph/lower/ir.h"

#include <stdlib.h>
#include <string.h>

/* What is exchanged within one way is there from one level to the next only. Where the user
 * gives it slots, each register has its own, and more than one microbatch can be on its way. */
static bool is_passing(const sli_lowering *l, const sli_bundle *b) {
  if (strcmp(b->quota_name, "inner") || b->rate != SLI_PER_TICK) return false;
  const sli_group *from = &l->groups[b->producer];
  bool exchanged = from->cls == SL_CLASS_C;
  for (int i = 0; i < b->nconsumers; i++) {
    const sli_group *to = &l->groups[b->consumers[i]];
    if (to->level != from->level + 1 || to->cls == SL_CLASS_W) return false;
    exchanged |= to->cls == SL_CLASS_C;
  }
  return exchanged && !sli_lower_given(l, "inner", from->stage);
}

/* What an exchange after all ticks makes for its next step, and nobody else reads. */
static bool is_interim(const sli_lowering *l, const sli_bundle *b) {
  if (strcmp(b->quota_name, "reduce") || b->rate != SLI_PER_STEP) return false;
  if (b->over != SL_NONE) return false;
  for (int i = 0; i < b->nconsumers; i++)
    if (l->groups[b->consumers[i]].cls != SL_CLASS_C) return false;
  return true;
}

/* Asked for often, and found once. */
static int depth_of(const sli_lowering *l, sli_group *g) {
  if (g->depth) return g->depth;
  g->depth = 1;
  for (int i = 0; i < g->ninputs; i++) {
    const sli_bundle *b = &l->bundles[g->inputs[i]];
    sli_group *from = b->producer == SL_NONE ? NULL : &l->groups[b->producer];
    if (!from || from->cls != SL_CLASS_C || from->rate != SLI_PER_STEP || b->turn) continue;
    g->depth = SLI_MAX(g->depth, 1 + depth_of(l, from));
  }
  return g->depth;
}

bool sli_lower_same_lane(const sli_lowering *l, int a, int b) {
  sli_group *x = &l->groups[a], *y = &l->groups[b];
  return x->stage == y->stage && x->rank == y->rank && x->cls == y->cls && x->back == y->back &&
         x->rate == y->rate && x->axis == y->axis &&
         (x->cls != SL_CLASS_C || x->nodes[0]->op == y->nodes[0]->op) &&
         (x->rate != SLI_PER_STEP || depth_of(l, x) == depth_of(l, y));
}

/* The brief bundle of a group that comes number `nth` among those of one name, or SL_NONE. */
static int nth_brief(const sli_lowering *l, int group, const char *name, int nth) {
  const sli_group *g = &l->groups[group];
  for (int i = 0; i < g->noutputs; i++) {
    const sli_bundle *b = &l->bundles[g->outputs[i]];
    if (b->brief && !strcmp(b->quota_name, name) && !nth--) return g->outputs[i];
  }
  return SL_NONE;
}

static void add_turn(sli_lowering *l, int from, int to, bool first) {
  SLI_GROW(l->bundles, (size_t)l->nbundles, l->bundle_capacity);
  sli_group *a = &l->groups[from], *b = &l->groups[to];
  int *reader = sli_arena_alloc(&l->arena, sizeof *reader), at = l->nbundles++;
  reader[0] = to;
  l->bundles[at] = (sli_bundle){.name = sli_arena_format(&l->arena, "turn:%s", b->name),
                                .quota_name = "turn", .producer = from, .nconsumers = 1,
                                .consumers = reader, .rate = a->rate,
                                .memory = SL_MEMORY_ACTIVATIONS, .device = a->device,
                                .initial = first, .turn = true, .leader = SL_NONE,
                                .over = SL_NONE};
  SLI_GROW(a->outputs, (size_t)a->noutputs, a->output_capacity);
  a->outputs[a->noutputs++] = at;
  SLI_GROW(b->inputs, (size_t)b->ninputs, b->input_capacity);
  b->inputs[b->ninputs++] = at;
}

int sli_lower_turn(const sli_lowering *l, int a, int b) {
  const sli_group *x = &l->groups[a], *y = &l->groups[b];
  if (x->level != y->level) return x->level - y->level;
  if (x->part != y->part) return x->back ? y->part - x->part : x->part - y->part;
  return a - b;
}

static int by_turn(const void *a, const void *b, void *lowering) {
  return sli_lower_turn(lowering, *(const int *)a, *(const int *)b);
}

/* The bundles that come number `nth` of each group have the slots of the first of them.
 * False if there are none. */
static bool share_slots(sli_lowering *l, const int *groups, int n, const char *name, int nth) {
  int leader = SL_NONE;
  for (int i = 0; i < n; i++) {
    int at = nth_brief(l, groups[i], name, nth);
    if (at != SL_NONE && (leader == SL_NONE || at < leader)) leader = at;
  }
  for (int i = 0; i < n; i++) {
    int at = nth_brief(l, groups[i], name, nth);
    if (at != SL_NONE && at != leader) l->bundles[at].leader = leader;
  }
  return leader != SL_NONE;
}

/* Of what is made once a step: are two slots less than one for each? If not, it has those. */
static bool is_worth_it(sli_lowering *l, const int *groups, int n, const char *name) {
  const sli_group *first = &l->groups[groups[0]];
  size_t two = 0, all = 0;
  if (first->rate != SLI_PER_STEP || sli_lower_given(l, name, first->stage)) return true;
  for (int nth = 0, found = 1; found; nth++) {
    size_t most = 0;
    found = 0;
    for (int i = 0; i < n; i++) {
      int at = nth_brief(l, groups[i], name, nth);
      size_t bytes = at == SL_NONE ? 0 : l->bundles[at].bytes;
      found |= at != SL_NONE;
      all += bytes;
      most = SLI_MAX(most, bytes);
    }
    two += 2 * most;
  }
  for (int i = 0, at; i < n && two >= all; i++)
    while ((at = nth_brief(l, groups[i], name, 0)) != SL_NONE) l->bundles[at].brief = false;
  return two < all;
}

/* Groups [n] of one lane, in order. */
static void close_lane(sli_lowering *l, const int *groups, int n, const char *name) {
  if (!is_worth_it(l, groups, n, name)) return;
  for (int nth = 0; share_slots(l, groups, n, name, nth); nth++) {}
  for (int i = 0; i < n && n > 1; i++) add_turn(l, groups[i], groups[(i + 1) % n], i + 1 == n);
}

/* Of the groups [n] that do the same, in order, takes those that make one lane, and returns how
 * many are left. What passes from level to level is given up when all groups of the next
 * level have read it, and these may need each other's results: so there is a level between
 * any two in a lane, and one slot is enough. */
static int take_lane(sli_lowering *l, int *groups, int n, const char *name, bool passing) {
  int *lane = sli_calloc((size_t)n, sizeof *lane), taken = 0, left = 0;
  for (int i = 0; i < n; i++) {
    int level = l->groups[groups[i]].level;
    bool fits = !passing || !taken || level > l->groups[lane[taken - 1]].level + 1;
    if (fits) lane[taken++] = groups[i];
    else groups[left++] = groups[i];
  }
  close_lane(l, lane, taken, name);
  free(lane);
  return left;
}

/* The lanes of all groups that do the same as this one. */
static void make_lanes(sli_lowering *l, int first, const char *name, bool passing, bool *done) {
  int *groups = sli_calloc((size_t)l->ngroups, sizeof *groups), n = 0;
  for (int i = first; i < l->ngroups; i++) {
    if (done[i] || nth_brief(l, i, name, 0) == SL_NONE) continue;
    if (!sli_lower_same_lane(l, first, i)) continue;
    groups[n++] = i;
    done[i] = true;
  }
  qsort_r(groups, (size_t)n, sizeof *groups, by_turn, l);
  while (n) n = take_lane(l, groups, n, name, passing);
  free(groups);
}

void sli_lower_lanes(sli_lowering *l) {
  static const char *const names[] = {"inner" /* passing */, "gather", "reduce"};
  for (int i = 0; i < l->nbundles; i++) {
    sli_bundle *b = &l->bundles[i];
    b->brief |= is_passing(l, b) || is_interim(l, b);
  }
  for (size_t k = 0; k < SLI_COUNT(names); k++) {
    const char *name = names[k];
    bool *done = sli_calloc((size_t)l->ngroups, sizeof *done);
    for (int i = 0; i < l->ngroups; i++)
      if (!done[i] && nth_brief(l, i, name, 0) != SL_NONE) make_lanes(l, i, name, !k, done);
    free(done);
  }
}
