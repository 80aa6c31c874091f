/* Lanes: transient registers, full one after another in the same slots.
 *
 * Where parameters or gradients are shared out, each block of a stage needs its own whole
 * for a moment, and it would be for nothing if each had memory for that. Where tensors are,
 * each exchange has results that the next level reads, and then nobody. What the blocks
 * make for the same purpose is a lane: its registers have the same slots. For that to be
 * safe whatever the timing, the groups that fill them must come in a fixed order, so they
 * hand a turn around, a register of no bytes from each to the next, and from the last back
 * to the first, where one is waiting at the start. A lane with two slots fills one while
 * the other is read. What hops bring of such registers takes turns at their ends as well, and
 * so do parameters that are fetched when an exchange needs them. */
#include "graph/lower/ir.h"

#include <stdlib.h>

/* Where blocks take turns, what stays within one is there while it has its turn. */
static bool passes_in_block(const sli_lowering *l, const sli_bundle *b) {
  for (int i = 0; i < b->nconsumers; i++)
    if (l->groups[b->consumers[i]].cls == SL_CLASS_W) return false; /* it may be put off */
  return !sli_leaves_block(l, b) &&
         !sli_lower_given(l, SLI_ROLE_INNER, l->groups[b->producer].stage);
}

/* What one level of a way makes for later ones of the same way is there until the last of them has
 * read it. Where the user gives it slots, each register has its own, and more than one microbatch can
 * be on its way. */
static bool is_passing(const sli_lowering *l, const sli_bundle *b) {
  if (b->role != SLI_ROLE_INNER || b->rate != SLI_PER_TICK) return false;
  if (l->in->layers) return passes_in_block(l, b);
  if (b->eval) return false;
  const sli_group *from = &l->groups[b->producer];
  for (int i = 0; i < b->nconsumers; i++) {
    const sli_group *to = &l->groups[b->consumers[i]];
    if (to->back != from->back || to->level <= from->level || to->cls == SL_CLASS_W) return false;
  }
  return !sli_lower_given(l, SLI_ROLE_INNER, from->stage);
}

/* What an exchange after all ticks makes for its next step, and nobody else reads. */
static bool is_interim(const sli_lowering *l, const sli_bundle *b) {
  if (b->role != SLI_ROLE_REDUCE || b->rate != SLI_PER_STEP) return false;
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
    const sli_bundle *b = &l->bundles[l->bundles[g->inputs[i]].origin];
    sli_group *from = b->producer == SL_NONE ? NULL : &l->groups[b->producer];
    if (!from || from->cls != SL_CLASS_C || from->rate != SLI_PER_STEP) continue;
    if (b->role != SLI_ROLE_TURN) g->depth = SLI_MAX(g->depth, 1 + depth_of(l, from));
  }
  return g->depth;
}

/* ---- who fills the same lane ------------------------------------------------------------- */

/* Of one device, do they do the same for one block each? What is spread over the stages comes
 * when the others' is there, and takes no turns with the stage's own. */
static bool do_the_same(const sli_lowering *l, int a, int b) {
  sli_group *x = &l->groups[a], *y = &l->groups[b];
  bool spread = sli_is_spread_group(l, x);
  if (spread != sli_is_spread_group(l, y) || (spread && x->part != y->part)) return false;
  return x->stage == y->stage && x->rank == y->rank && x->host == y->host && x->cls == y->cls &&
         x->back == y->back && x->rate == y->rate && x->eval == y->eval && x->axis == y->axis &&
         x->phase == y->phase &&
         (x->cls != SL_CLASS_C || x->nodes[0]->op == y->nodes[0]->op) &&
         (x->rate != SLI_PER_STEP || depth_of(l, x) == depth_of(l, y));
}

/* The same for groups that do the same. */
static uint64_t hash_same(uint64_t hash, const sli_group *x) {
  const int fields[] = {x->stage, x->rank, x->cls, x->axis, (int)x->rate, x->host, x->back, x->eval};
  return sli_hash(hash, fields, sizeof fields);
}

/* What goes on to the next block is made last, whatever comes before it. */
static bool same_section(const sli_lowering *l, int a, int b, sli_role role) {
  sli_section x = sli_lower_section(l, a), y = sli_lower_section(l, b);
  return role == SLI_ROLE_BETWEEN ? x.last == y.last : x.first == y.first;
}

static int slots_of(const sli_lowering *l, int bundle) {
  int leader = l->bundles[bundle].lane.leader;
  return leader == SL_NONE ? bundle : leader;
}

/* Are both for passes of a stage that come in one order, there and back? */
static bool come_in_turn(const sli_lowering *l, const sli_hop *x, const sli_hop *y) {
  const sli_group *a = &l->groups[x->reader], *b = &l->groups[y->reader];
  bool passes = !a->phase && !b->phase && (a->cls == SL_CLASS_F || a->cls == SL_CLASS_B) &&
                (b->cls == SL_CLASS_F || b->cls == SL_CLASS_B);
  return passes && sli_routes[x->route].homes && a->stage == b->stage && a->rank == b->rank &&
         sli_is_one_at_a_time(l, a->stage) &&
         same_section(l, x->reader, y->reader, SLI_ROLES);
}

/* Hops share slots at their end where they go the same way, and what they bring has the same
 * slots, or is what readers of one lane fetch as the same number from one device. */
static bool bring_the_same(const sli_lowering *l, const sli_group *a, const sli_group *b) {
  const sli_hop *x = a->hop, *y = b->hop;
  if (x->route != y->route || x->home != y->home || a->rate != b->rate || a->device != b->device || x->to != y->to)
    return false;
  if ((x->reader == SL_NONE) != (y->reader == SL_NONE)) return false;
  if (x->reader == SL_NONE) return slots_of(l, x->origin) == slots_of(l, y->origin);
  return x->nth == y->nth && l->bundles[x->origin].device == l->bundles[y->origin].device &&
         ((do_the_same(l, x->reader, y->reader) &&
           same_section(l, x->reader, y->reader, SLI_ROLES)) || come_in_turn(l, x, y));
}

/* The same for groups of one lane. */
static uint64_t hash_lane(const sli_lowering *l, const sli_group *g) {
  const sli_hop *x = g->hop;
  if (!x) return hash_same(SLI_HASH_SEED, g);
  const int fields[] = {(int)x->route, g->device, x->to,
                        x->reader == SL_NONE ? slots_of(l, x->origin) : x->nth};
  uint64_t hash = sli_hash(SLI_HASH_SEED, fields, sizeof fields);
  bool both = x->reader == SL_NONE || sli_routes[x->route].homes; /* ways may share it */
  return both ? hash : hash_same(hash, &l->groups[x->reader]);
}

static bool is_same_lane(const sli_lowering *l, int a, int b, sli_role role) {
  const sli_group *x = &l->groups[a], *y = &l->groups[b];
  if (x->hop || y->hop) return x->hop && y->hop && bring_the_same(l, x, y);
  return do_the_same(l, a, b) && same_section(l, a, b, role);
}

/* The transient bundle of a group that comes number `nth` among those of one role, or SL_NONE. */
static int nth_transient(const sli_lowering *l, int group, sli_role role, int nth) {
  const sli_group *g = &l->groups[group];
  for (int i = 0; i < g->noutputs; i++) {
    const sli_bundle *b = &l->bundles[g->outputs[i]];
    if (b->transient && b->role == role && !nth--) return g->outputs[i];
  }
  return SL_NONE;
}

/* ---- one lane ---------------------------------------------------------------------------- */

/* Where blocks have all pieces of a microbatch, so do turns. */
static sli_rate turn_rate(const sli_lowering *l, const sli_group *g) {
  return l->in->layers && g->rate < SLI_PER_STEP ? SLI_PER_MICROBATCH : g->rate;
}

/* Named after who waits for it, or what that brings. */
void sli_add_turn(sli_lowering *l, int from, int to, bool first) {
  const sli_group *a = &l->groups[from], *b = &l->groups[to];
  int *reader = sli_arena_alloc(&l->arena, sizeof *reader);
  const char *whose = b->hop ? l->bundles[b->outputs[0]].name : b->name;
  reader[0] = to;
  sli_add_bundle(l, (sli_bundle){.name = sli_arena_format(&l->arena, "turn:%s", whose),
                                 .role = SLI_ROLE_TURN, .producer = from, .nconsumers = 1,
                                 .consumers = reader, .rate = turn_rate(l, a), .eval = a->eval,
                                 .memory = sli_roles[SLI_ROLE_TURN].memory, .device = a->device,
                                 .initial = first, .over = SL_NONE});
}

static int by_turn(const void *a, const void *b, void *lowering) {
  return sli_lower_turn(lowering, *(const int *)a, *(const int *)b);
}

/* Does it read what has been brought back from where the bundle lives, and so holds none of these slots? */
static bool reads_brought_back(const sli_lowering *l, const sli_bundle *b, int group) {
  return b->role == SLI_ROLE_SPILL && sli_is_filled(l, b, &l->groups[group]);
}

/* Does `x`, a reader of something else in the lane, wait for `later`: as it reads it too, or what those who read
 * it make? What leaves for its home may be read by nobody on the way there: `x` makes it itself then, or comes
 * behind who does. */
static bool waits_for(const sli_lowering *l, int x, const sli_bundle *later) {
  int level = l->groups[x].level, maker = later->producer;
  if (later->role == SLI_ROLE_SPILL && (x == maker || level > l->groups[maker].level)) return true;
  for (int i = 0; i < later->nconsumers; i++) {
    int y = later->consumers[i];
    if (!reads_brought_back(l, later, y) && (x == y || level > l->groups[y].level)) return true;
  }
  return false;
}

/* May a reader of one bundle have to wait for another that comes later? */
static bool is_held_for(const sli_lowering *l, const sli_bundle *b, const sli_bundle *later) {
  for (int i = 0; i < b->nconsumers; i++)
    if (!reads_brought_back(l, b, b->consumers[i]) && waits_for(l, b->consumers[i], later)) return true;
  return false;
}

/* The same of anything that a group makes at once with its turn in the lane. */
static bool is_held_for_group(const sli_lowering *l, int bundle, int group, sli_role role) {
  bool held = false;
  for (int nth = 0, at; !held && (at = nth_transient(l, group, role, nth)) != SL_NONE; nth++)
    held = is_held_for(l, &l->bundles[bundle], &l->bundles[at]);
  return held;
}

/* Of the bundles that come number `nth` of each group, how many there must be at once. */
static int least_slots(const sli_lowering *l, const int *groups, int n, sli_role role, int nth) {
  int least = 1;
  for (int i = 0; i < n; i++) {
    int held = 1;
    for (int j = 0; j < i; j++) {
      int before = nth_transient(l, groups[j], role, nth);
      held += before != SL_NONE && is_held_for_group(l, before, groups[i], role);
    }
    least = SLI_MAX(least, held);
  }
  return least;
}

/* May it be read by several levels of a way: what is gathered, and what levels hand on while it is on its
 * way to where it lives? */
static bool is_read_later(sli_role role) { return role == SLI_ROLE_GATHER || role == SLI_ROLE_SPILL; }

/* The bundles that come number `nth` of each group have the slots of the first of them.
 * False if there are none. */
static bool share_slots(sli_lowering *l, const int *groups, int n, sli_role role, int nth) {
  int leader = SL_NONE;
  for (int i = 0; i < n; i++) {
    int at = nth_transient(l, groups[i], role, nth);
    if (at != SL_NONE && (leader == SL_NONE || at < leader)) leader = at;
  }
  int least = is_read_later(role) && n > 1 ? least_slots(l, groups, n, role, nth) : n > 1;
  for (int i = 0; i < n; i++) {
    int at = nth_transient(l, groups[i], role, nth);
    if (at != SL_NONE) l->bundles[at].lane = (sli_lane){at == leader ? SL_NONE : leader, least};
  }
  return leader != SL_NONE;
}

/* Has the user said how many slots a lane has? What is fetched answers to "gather" as well. Hops
 * without a reader do as what they bring. */
static bool is_settled(const sli_lowering *l, int group, sli_role role) {
  const sli_group *g = &l->groups[group];
  bool fetched = g->hop && g->hop->reader != SL_NONE;
  if (g->rate != SLI_PER_STEP || (g->hop && !fetched)) return true;
  bool gathered = fetched && !sli_routes[g->hop->route].homes;
  return sli_lower_given(l, gathered ? SLI_ROLE_GATHER : role, g->stage);
}

/* Of what is made once a step: are two slots less than one for each? If not, it has those. */
static bool is_worth_it(sli_lowering *l, const int *groups, int n, sli_role role) {
  size_t two = 0, all = 0;
  if (is_settled(l, groups[0], role)) return true;
  for (int nth = 0, found = 1; found; nth++) {
    size_t most = 0;
    found = 0;
    for (int i = 0; i < n; i++) {
      int at = nth_transient(l, groups[i], role, nth);
      size_t bytes = at == SL_NONE ? 0 : l->bundles[at].bytes;
      found |= at != SL_NONE;
      all += bytes;
      most = SLI_MAX(most, bytes);
    }
    two += 2 * most;
  }
  for (int i = 0, at; i < n && two >= all; i++)
    while ((at = nth_transient(l, groups[i], role, 0)) != SL_NONE) l->bundles[at].transient = false;
  return two < all;
}

/* Groups [n] of one lane, in order. */
static void close_lane(sli_lowering *l, const int *groups, int n, sli_role role) {
  if (!is_worth_it(l, groups, n, role)) return;
  for (int nth = 0; share_slots(l, groups, n, role, nth); nth++) {}
  for (int i = 0; i < n && n > 1; i++) sli_add_turn(l, groups[i], groups[(i + 1) % n], i + 1 == n);
}

/* The last place in line of those who read what passes from a group. */
static int read_until(const sli_lowering *l, int group) {
  int last = l->places[group], at;
  for (int nth = 0; (at = nth_transient(l, group, SLI_ROLE_INNER, nth)) != SL_NONE; nth++) {
    const sli_bundle *b = &l->bundles[at];
    for (int i = 0; i < b->nconsumers; i++) last = SLI_MAX(last, l->places[b->consumers[i]]);
  }
  return last;
}

/* Of the groups [n] that do the same, in order, takes those that make one lane, and returns how
 * many are left. What passes from level to level is given up when all who read it have; who takes the
 * slot over comes behind these in line, so nobody waits for himself, and one slot is enough. */
static int take_lane(sli_lowering *l, int *groups, int n, sli_role role, bool passing) {
  int *lane = sli_calloc((size_t)n, sizeof *lane), taken = 0, left = 0, until = 0;
  for (int i = 0; i < n; i++) {
    bool fits = !passing || !taken || l->places[groups[i]] > until;
    if (!fits) groups[left++] = groups[i];
    else if (passing) until = read_until(l, lane[taken++] = groups[i]);
    else lane[taken++] = groups[i];
  }
  close_lane(l, lane, taken, role);
  free(lane);
  return left;
}

/* ---- all lanes --------------------------------------------------------------------------- */

/* Groups whose bundles of a role are transient, in lists by the hash of their lane: those of one
 * lane are in one list, in order. */
typedef struct lists {
  uint32_t mask;
  int *head;   /* [mask + 1] */
  int *next;   /* [groups] */
  bool *done;  /* [groups] in a lane already, or in no list */
  int *lane;   /* [groups] room for one */
} lists;

static lists list_groups(const sli_lowering *l, int begin, int end, sli_role role) {
  lists x = {.mask = 1};
  size_t n = (size_t)end + 1;
  while (x.mask < (uint32_t)(end - begin)) x.mask = 2 * x.mask + 1;
  x.head = sli_calloc((size_t)x.mask + 1, sizeof *x.head);
  x.next = sli_calloc(n, sizeof *x.next);
  x.done = sli_calloc(n, sizeof *x.done);
  x.lane = sli_calloc(n, sizeof *x.lane);
  for (uint32_t h = 0; h <= x.mask; h++) x.head[h] = SL_NONE;
  for (int i = end - 1; i >= begin; i--) {
    x.done[i] = nth_transient(l, i, role, 0) == SL_NONE;
    if (x.done[i]) continue;
    int *head = &x.head[hash_lane(l, &l->groups[i]) & x.mask];
    x.next[i] = *head;
    *head = i;
  }
  return x;
}

/* The lanes of all groups that fill one with this one. */
static void make_lanes(sli_lowering *l, lists *x, int first, sli_role role) {
  bool passing = role == SLI_ROLE_INNER && !l->groups[first].hop;
  int n = 0;
  for (int i = first; i != SL_NONE; i = x->next[i]) {
    if (x->done[i] || !is_same_lane(l, first, i, role)) continue;
    x->lane[n++] = i;
    x->done[i] = true;
  }
  qsort_r(x->lane, (size_t)n, sizeof *x->lane, by_turn, l);
  while (n) n = take_lane(l, x->lane, n, role, passing);
}

/* Of groups begin to end - 1, where their bundles of a role are transient. */
static void close_lanes(sli_lowering *l, int begin, int end, sli_role role) {
  lists x = list_groups(l, begin, end, role);
  for (int i = begin; i < end; i++)
    if (!x.done[i]) make_lanes(l, &x, i, role);
  free(x.head);
  free(x.next);
  free(x.done);
  free(x.lane);
}

/* First the lanes of what is made, then those of what brings it: it shares slots at the end of a
 * hop where it does at its beginning. */
void sli_lower_lanes(sli_lowering *l) {
  l->places = sli_lower_places(l);
  static const sli_role made[] = {SLI_ROLE_INNER, SLI_ROLE_GATHER, SLI_ROLE_REDUCE,
                                  SLI_ROLE_SPILL, SLI_ROLE_BETWEEN, SLI_ROLE_DKV,
                                  SLI_ROLE_KV_SPILL};
  static const sli_role brought[] = {SLI_ROLE_INNER, SLI_ROLE_GATHER, SLI_ROLE_REDUCE,
                                     SLI_ROLE_H2D, SLI_ROLE_D2H, SLI_ROLE_D2D, SLI_ROLE_FILL,
                                     SLI_ROLE_WEIGHTS, SLI_ROLE_KV_FILL};
  for (int i = 0; i < l->nbundles; i++) {
    sli_bundle *b = &l->bundles[i];
    if (b->source == SL_NONE) b->transient |= is_passing(l, b) || is_interim(l, b);
  }
  for (size_t r = 0; r < SLI_COUNT(made); r++) close_lanes(l, 0, l->ncomputing, made[r]);
  for (int i = 0; i < l->nbundles; i++) {
    sli_bundle *b = &l->bundles[i];
    bool fetched = b->source != SL_NONE && l->groups[b->producer].hop->reader != SL_NONE;
    if (b->source != SL_NONE && !fetched) b->transient &= l->bundles[b->origin].transient;
  }
  for (size_t r = 0; r < SLI_COUNT(brought); r++)
    close_lanes(l, l->ncomputing, l->ngroups, brought[r]);
}
