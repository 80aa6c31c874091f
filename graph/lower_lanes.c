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
#include "graph/lower.h"

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

/* What fills one lane: the groups of a device that do the same for one block each. */
static bool same_lane(const sli_lowering *l, int a, int b) {
  const sli_group *x = &l->groups[a], *y = &l->groups[b];
  return x->stage == y->stage && x->rank == y->rank && x->cls == y->cls && x->back == y->back &&
         (x->cls != SL_CLASS_C || x->nodes[0]->op == y->nodes[0]->op);
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
                                .consumers = reader, .rate = SLI_PER_TICK,
                                .memory = SL_MEMORY_ACTIVATIONS, .device = a->device,
                                .initial = first, .turn = true, .leader = SL_NONE,
                                .over = SL_NONE};
  SLI_GROW(a->outputs, (size_t)a->noutputs, a->output_capacity);
  a->outputs[a->noutputs++] = at;
  SLI_GROW(b->inputs, (size_t)b->ninputs, b->input_capacity);
  b->inputs[b->ninputs++] = at;
}

/* As the data goes: level by level, and block by block within a level, there and back. */
static int by_turn(const void *a, const void *b, void *lowering) {
  const sli_lowering *l = lowering;
  const sli_group *x = &l->groups[*(const int *)a], *y = &l->groups[*(const int *)b];
  if (x->level != y->level) return x->level - y->level;
  if (x->part != y->part) return x->back ? y->part - x->part : x->part - y->part;
  return *(const int *)a - *(const int *)b;
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

/* Groups [n] of one lane, in order. */
static void close_lane(sli_lowering *l, const int *groups, int n, const char *name) {
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
    if (done[i] || nth_brief(l, i, name, 0) == SL_NONE || !same_lane(l, first, i)) continue;
    groups[n++] = i;
    done[i] = true;
  }
  qsort_r(groups, (size_t)n, sizeof *groups, by_turn, l);
  while (n) n = take_lane(l, groups, n, name, passing);
  free(groups);
}

void sli_lower_lanes(sli_lowering *l) {
  static const char *const names[] = {"inner" /* passing */, "gather", "reduce"};
  for (int i = 0; i < l->nbundles; i++) l->bundles[i].brief |= is_passing(l, &l->bundles[i]);
  for (size_t k = 0; k < SLI_COUNT(names); k++) {
    const char *name = names[k];
    bool *done = sli_calloc((size_t)l->ngroups, sizeof *done);
    for (int i = 0; i < l->ngroups; i++)
      if (!done[i] && nth_brief(l, i, name, 0) != SL_NONE) make_lanes(l, i, name, !k, done);
    free(done);
  }
}
