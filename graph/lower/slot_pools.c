/* SPDX-License-Identifier: Apache-2.0 */
/* Slot pools (sets of shared slots): transient registers that use the same slots in turn.
 *
 * If parameters or gradients are sharded, each block of a stage needs its whole tensors only
 * briefly; memory for all of them would be wasted. If tensors are sharded, each exchange has
 * results that only the next level reads. Registers that blocks fill for the same purpose form a
 * slot pool and share slots. To be safe at any timing, the tasks that fill them must run in a fixed
 * order. They pass a turn around: a register without bytes leads from each task to the next, and
 * from the last back to the first, where one turn is ready at the start. A slot pool with two slots
 * fills one while the other is read. Transfers' copies of such registers take turns as well, and so
 * do parameters that are fetched when an exchange needs them. */
#include "graph/lower/ir.h"

#include <stdlib.h>
#include <string.h>

/* True for a buffer that stays within its block, if blocks take turns: it lives during the block's
 * turn. */
static bool passes_in_block(const sli_lowering *l, const sli_buffer *b) {
  for (int i = 0; i < b->nconsumers; i++)
    if (l->tasks[b->consumers[i]].cls == SL_CLASS_W) return false; /* W may be postponed */
  return !sli_leaves_block(l, b) &&
         !sli_lower_given(l, SLI_ROLE_INNER, l->tasks[b->producer].stage);
}

/* True for a buffer that one level writes for later levels of the same pass: it lives until the
 * last of them has read it. If the user sets its slots, each register has separate slots, and
 * several microbatches can be in flight. */
static bool is_passing(const sli_lowering *l, const sli_buffer *b) {
  if (b->role != SLI_ROLE_INNER || b->rate != SLI_PER_TICK) return false;
  if (l->in->layers) return passes_in_block(l, b);
  if (b->pace) return false;
  const sli_task *from = &l->tasks[b->producer];
  if (from->rate == SLI_PER_TURN) return false;
  for (int i = 0; i < b->nconsumers; i++) {
    const sli_task *to = &l->tasks[b->consumers[i]];
    if (to->backward != from->backward || to->level <= from->level || to->cls == SL_CLASS_W ||
        to->rate == SLI_PER_TURN)
      return false;
  }
  return !sli_lower_given(l, SLI_ROLE_INNER, from->stage);
}

/* True for a result of an exchange after all ticks that only the next step of the exchange
 * reads. */
static bool is_interim(const sli_lowering *l, const sli_buffer *b) {
  if (b->role != SLI_ROLE_REDUCE || b->rate != SLI_PER_STEP) return false;
  if (b->aliases != SL_NONE) return false;
  for (int i = 0; i < b->nconsumers; i++)
    if (l->tasks[b->consumers[i]].cls != SL_CLASS_C) return false;
  return true;
}

/* Returns the depth of an exchange. It is needed often, so g->depth caches it. */
static int depth_of(const sli_lowering *l, sli_task *task) {
  if (task->depth) return task->depth;
  task->depth = 1;
  for (int i = 0; i < task->ninputs; i++) {
    const sli_buffer *b = &l->buffers[l->buffers[task->inputs[i]].origin];
    sli_task *from = b->producer == SL_NONE ? NULL : &l->tasks[b->producer];
    if (!from || from->cls != SL_CLASS_C || from->rate != SLI_PER_STEP) continue;
    if (b->role != SLI_ROLE_TURN) task->depth = SLI_MAX(task->depth, 1 + depth_of(l, from));
  }
  return task->depth;
}

/* ---- tasks of the same slot pool ------------------------------------------------------------- */

/* True if two tasks of a device do the same for one block each. Tasks of blocks sharded over the
 * stages run when the other stages' data is ready, and do not take turns with the stage's other
 * tasks. */
static bool do_the_same(const sli_lowering *l, int a, int b) {
  sli_task *x = &l->tasks[a], *y = &l->tasks[b];
  bool sharded = sli_is_sharded_task(l, x);
  if (sharded != sli_is_sharded_task(l, y) || (sharded && x->part != y->part)) return false;
  return x->stage == y->stage && x->rank == y->rank && x->host == y->host && x->cls == y->cls &&
         x->backward == y->backward && x->rate == y->rate && x->pace == y->pace &&
         x->axis == y->axis && x->along == y->along && x->phase == y->phase &&
         (x->cls != SL_CLASS_C || x->nodes[0]->op == y->nodes[0]->op) &&
         (x->rate != SLI_PER_STEP || depth_of(l, x) == depth_of(l, y));
}

/* Hashes a task; equal for tasks that do the same. */
static uint64_t hash_same(uint64_t hash, const sli_task *x) {
  const int fields[] = {x->stage,     x->rank, x->cls,      x->axis,
                        (int)x->rate, x->host, x->backward, x->pace};
  return sli_hash(hash, fields, sizeof fields);
}

/* Compares the sections of two tasks: from the end for BETWEEN, since the data for the next block
 * is written last, whatever comes before. */
static bool same_section(const sli_lowering *l, int a, int b, sli_role role) {
  sli_section x = sli_lower_section(l, a), y = sli_lower_section(l, b);
  return role == SLI_ROLE_BETWEEN ? x.last == y.last : x.first == y.first;
}

static int slots_of(const sli_lowering *l, int buffer) {
  int leader = l->buffers[buffer].slot_pool.leader;
  return leader == SL_NONE ? buffer : leader;
}

/* True if both transfers are for passes of a stage that come in one order, forward and backward. */
static bool come_in_turn(const sli_lowering *l, const sli_transfer_task *x,
                         const sli_transfer_task *y) {
  const sli_task *a = &l->tasks[x->reader], *b = &l->tasks[y->reader];
  bool passes = !a->phase && !b->phase && (a->cls == SL_CLASS_F || a->cls == SL_CLASS_B) &&
                (b->cls == SL_CLASS_F || b->cls == SL_CLASS_B);
  return passes && sli_transfer_kinds[x->kind].homes && a->stage == b->stage &&
         a->rank == b->rank && sli_is_one_at_a_time(l, a->stage) &&
         same_section(l, x->reader, y->reader, SLI_ROLES);
}

/* True if two transfers share slots at their destination: they take the same route, and bring
 * buffers that share slots, or buffers that readers of one slot pool fetch from one device with the
 * same index. */
static bool bring_the_same(const sli_lowering *l, const sli_task *a, const sli_task *b) {
  const sli_transfer_task *x = a->transfer, *y = b->transfer;
  if (x->kind != y->kind || x->home != y->home || a->rate != b->rate || a->device != b->device ||
      x->to != y->to)
    return false;
  if ((x->reader == SL_NONE) != (y->reader == SL_NONE)) return false;
  if (x->reader == SL_NONE) return slots_of(l, x->origin) == slots_of(l, y->origin);
  return x->nth == y->nth && l->buffers[x->origin].device == l->buffers[y->origin].device &&
         ((do_the_same(l, x->reader, y->reader) &&
           same_section(l, x->reader, y->reader, SLI_ROLES)) ||
          come_in_turn(l, x, y));
}

/* Hashes a task; equal for tasks of one slot pool. */
static uint64_t hash_slot_pool(const sli_lowering *l, const sli_task *task) {
  const sli_transfer_task *x = task->transfer;
  if (!x) return hash_same(SLI_HASH_SEED, task);
  const int fields[] = {(int)x->kind, task->device, x->to,
                        x->reader == SL_NONE ? slots_of(l, x->origin) : x->nth};
  uint64_t hash = sli_hash(SLI_HASH_SEED, fields, sizeof fields);
  /* forward and backward may share it */
  bool both = x->reader == SL_NONE || sli_transfer_kinds[x->kind].homes;
  return both ? hash : hash_same(hash, &l->tasks[x->reader]);
}

static bool is_same_slot_pool(const sli_lowering *l, int a, int b, sli_role role) {
  const sli_task *x = &l->tasks[a], *y = &l->tasks[b];
  if (x->transfer || y->transfer) return x->transfer && y->transfer && bring_the_same(l, x, y);
  return do_the_same(l, a, b) && same_section(l, a, b, role);
}

/* Returns transient buffer number `nth` of a role among a task's outputs, or SL_NONE. */
static int nth_transient(const sli_lowering *l, int task, sli_role role, int nth) {
  const sli_task *g = &l->tasks[task];
  for (int i = 0; i < g->noutputs; i++) {
    const sli_buffer *b = &l->buffers[g->outputs[i]];
    if (b->transient && b->role == role && !nth--) return g->outputs[i];
  }
  return SL_NONE;
}

/* ---- one slot pool --------------------------------------------------------------------------- */

/* Returns the rate of turns: per microbatch if blocks take all pieces of a microbatch. */
static sli_rate turn_rate(const sli_lowering *l, const sli_task *task) {
  return l->in->layers && task->rate < SLI_PER_STEP ? SLI_PER_MICROBATCH : task->rate;
}

/* Adds a turn, named after the task that waits for it, or after the buffer that this task
 * brings. */
void sli_add_turn(sli_lowering *l, int from, int to, bool first) {
  const sli_task *a = &l->tasks[from], *b = &l->tasks[to];
  int *reader = sli_arena_alloc(&l->arena, sizeof *reader);
  const char *whose = b->transfer ? l->buffers[b->outputs[0]].name : b->name;
  reader[0] = to;
  sli_add_buffer(l, (sli_buffer){.name = sli_arena_format(&l->arena, "turn:%s", whose),
                                 .role = SLI_ROLE_TURN,
                                 .producer = from,
                                 .nconsumers = 1,
                                 .consumers = reader,
                                 .rate = turn_rate(l, a),
                                 .pace = a->pace,
                                 .memory = sli_roles[SLI_ROLE_TURN].memory,
                                 .device = a->device,
                                 .initial = first,
                                 .aliases = SL_NONE});
}

static int by_turn(const void *a, const void *b, void *lowering) {
  return sli_lower_turn(lowering, *(const int *)a, *(const int *)b);
}

/* True if the task reads a copy brought back from the buffer's home, and so holds none of these
 * slots. */
static bool reads_brought_back(const sli_lowering *l, const sli_buffer *b, int task) {
  return b->role == SLI_ROLE_SPILL && sli_is_filled(l, b, &l->tasks[task]);
}

/* True if `x`, a reader of another buffer in the slot pool, waits for `later`: because it reads it,
 * or reads results of its readers. A buffer that is spilled may have no reader in the same pass;
 * then `x` writes it itself, or comes after its producer. */
static bool waits_for(const sli_lowering *l, int x, const sli_buffer *later) {
  int level = l->tasks[x].level, maker = later->producer;
  if (later->role == SLI_ROLE_SPILL && (x == maker || level > l->tasks[maker].level)) return true;
  for (int i = 0; i < later->nconsumers; i++) {
    int y = later->consumers[i];
    if (!reads_brought_back(l, later, y) && (x == y || level > l->tasks[y].level)) return true;
  }
  return false;
}

/* ---- the slots that a pool needs ------------------------------------------------------------- */

/* Searches for tasks that a task waits for in every tick. */
typedef struct waits {
  const sli_lowering *l;
  int *seen;  /* [ntasks] number of the last search that visited the task; 0: none */
  int *stack; /* [ntasks] tasks whose predecessors the search has yet to visit */
  int count, searches;
  int from; /* place of the task searched for; no task before this place waits for it */
} waits;

static waits waits_create(const sli_lowering *l) {
  size_t n = (size_t)l->ntasks + 1;
  return (waits){.l = l, .seen = sli_calloc(n, sizeof(int)), .stack = sli_calloc(n, sizeof(int))};
}

static void waits_destroy(waits *w) {
  free(w->seen);
  free(w->stack);
}

static void look_behind(waits *w, int task) {
  if (task == SL_NONE || task >= w->l->ncomputing || w->seen[task] == w->searches) return;
  w->seen[task] = w->searches;
  if (w->l->places[task] >= w->from) w->stack[w->count++] = task;
}

/* Visits the readers of the previous task's buffer in a slot pool of one slot, since they free the
 * slot. */
static void look_behind_slot(waits *w, int before, int output) {
  const sli_lowering *l = w->l;
  for (int nth = 0, at; (at = nth_transient(l, before, SLI_ROLE_INNER, nth)) != SL_NONE; nth++) {
    const sli_buffer *b = &l->buffers[at];
    if (b->slot_pool.least != 1 || slots_of(l, at) != slots_of(l, output)) continue;
    for (int i = 0; i < b->nconsumers; i++) look_behind(w, b->consumers[i]);
  }
}

static void look_behind_turn(waits *w, int before, const sli_task *task) {
  look_behind(w, before);
  for (int i = 0; i < task->noutputs; i++) {
    const sli_buffer *b = &w->l->buffers[task->outputs[i]];
    if (b->role == SLI_ROLE_INNER && b->transient && !w->l->in->layers)
      look_behind_slot(w, before, task->outputs[i]);
  }
}

/* True if `task` fires after `maker` in every tick: for what it reads, for its turn, or for a slot.
 */
static bool comes_after(waits *w, int task, int maker) {
  const sli_lowering *l = w->l;
  w->searches++;
  w->count = 0;
  w->from = l->places[maker];
  for (look_behind(w, task); w->count;) {
    const sli_task *g = &l->tasks[w->stack[--w->count]];
    for (int i = 0; i < g->ninputs; i++) {
      const sli_buffer *b = &l->buffers[l->buffers[g->inputs[i]].origin];
      if (b->initial || b->rate != l->tasks[maker].rate || b->producer == SL_NONE) continue;
      if (b->role == SLI_ROLE_TURN) look_behind_turn(w, b->producer, g);
      else look_behind(w, b->producer);
    }
  }
  return w->seen[maker] == w->searches;
}

/* True if a reader of one buffer may have to wait for a later buffer; `surely`: has to in every
 * run. */
static bool is_held_for(waits *w, const sli_buffer *b, const sli_buffer *later, bool surely) {
  const sli_lowering *l = w->l;
  bool held = false;
  for (int i = 0; i < b->nconsumers && !held; i++) {
    int x = b->consumers[i];
    if (reads_brought_back(l, b, x)) continue;
    held = surely ? comes_after(w, x, later->producer) : waits_for(l, x, later);
  }
  return held;
}

/* Returns the same for any buffer that a task writes in the same turn of the slot pool. */
static bool is_held_for_task(waits *w, int buffer, int task, sli_role role, bool surely) {
  const sli_lowering *l = w->l;
  bool held = false;
  for (int nth = 0, at; !held && (at = nth_transient(l, task, role, nth)) != SL_NONE; nth++)
    held = is_held_for(w, &l->buffers[buffer], &l->buffers[at], surely);
  return held;
}

/* Returns how many buffers with index `nth` of tasks [n] must exist when the last of the tasks
 * writes its buffer. */
static int held_slots(waits *w, const int *tasks, int n, sli_role role, int nth, bool surely) {
  int held = !surely || nth_transient(w->l, tasks[n - 1], role, nth) != SL_NONE;
  for (int j = 0; j + 1 < n; j++) {
    int before = nth_transient(w->l, tasks[j], role, nth);
    held += before != SL_NONE && is_held_for_task(w, before, tasks[n - 1], role, surely);
  }
  return held;
}

/* Returns how many buffers with index `nth` of each task must exist concurrently. Levels show what
 * may wait. If turns and slots of other pools also make tasks of one level wait, more buffers are
 * certain to wait. */
static int least_slots(const sli_lowering *l, const int *tasks, int n, sli_role role, int nth) {
  waits w = waits_create(l);
  int least = 1;
  for (int i = 1; i <= n; i++) {
    least = SLI_MAX(least, held_slots(&w, tasks, i, role, nth, false));
    if (role == SLI_ROLE_SPILL) least = SLI_MAX(least, held_slots(&w, tasks, i, role, nth, true));
  }
  waits_destroy(&w);
  return least;
}

/* True if several levels of a pass may read buffers of this role: gathered parameters, and buffers
 * that are passed on while they are being spilled. */
static bool is_read_later(sli_role role) {
  return role == SLI_ROLE_GATHER || role == SLI_ROLE_SPILL;
}

/* Gives the buffers with index `nth` of each task the slots of the first such buffer. Returns false
 * if there are none. */
static bool share_slots(sli_lowering *l, const int *tasks, int n, sli_role role, int nth) {
  int leader = SL_NONE;
  for (int i = 0; i < n; i++) {
    int at = nth_transient(l, tasks[i], role, nth);
    if (at != SL_NONE && (leader == SL_NONE || at < leader)) leader = at;
  }
  int least = is_read_later(role) && n > 1 ? least_slots(l, tasks, n, role, nth) : n > 1;
  for (int i = 0; i < n; i++) {
    int at = nth_transient(l, tasks[i], role, nth);
    if (at != SL_NONE)
      l->buffers[at].slot_pool = (sli_slot_pool){at == leader ? SL_NONE : leader, least};
  }
  return leader != SL_NONE;
}

/* True if the user has set the slots of a slot pool. "gather" applies to fetched buffers as well.
 * Transfers without a reader follow the buffer they bring. */
static bool is_settled(const sli_lowering *l, int task, sli_role role) {
  const sli_task *g = &l->tasks[task];
  bool fetched = g->transfer && g->transfer->reader != SL_NONE;
  if (g->rate != SLI_PER_STEP || (g->transfer && !fetched)) return true;
  bool gathered = fetched && !sli_transfer_kinds[g->transfer->kind].homes;
  return sli_lower_given(l, gathered ? SLI_ROLE_GATHER : role, g->stage);
}

/* Decides whether buffers written once a step share slots: only if two shared slots take less
 * memory than one slot each. */
static bool is_worth_it(sli_lowering *l, const int *tasks, int n, sli_role role) {
  size_t two = 0, all = 0;
  if (is_settled(l, tasks[0], role)) return true;
  for (int nth = 0, found = 1; found; nth++) {
    size_t most = 0;
    found = 0;
    for (int i = 0; i < n; i++) {
      int at = nth_transient(l, tasks[i], role, nth);
      size_t bytes = at == SL_NONE ? 0 : l->buffers[at].bytes;
      found |= at != SL_NONE;
      all += bytes;
      most = SLI_MAX(most, bytes);
    }
    two += 2 * most;
  }
  for (int i = 0, at; i < n && two >= all; i++)
    while ((at = nth_transient(l, tasks[i], role, 0)) != SL_NONE) l->buffers[at].transient = false;
  return two < all;
}

/* Closes a slot pool of tasks [n], in order. */
static void close_slot_pool(sli_lowering *l, const int *tasks, int n, sli_role role) {
  if (!is_worth_it(l, tasks, n, role)) return;
  for (int nth = 0; share_slots(l, tasks, n, role, nth); nth++) {}
  for (int i = 0; i < n && n > 1; i++) sli_add_turn(l, tasks[i], tasks[(i + 1) % n], i + 1 == n);
}

/* ---- buffers that are passed on ----------------------------------------------------------------
 */

/* A buffer that is passed from level to level, and the places in order at which it is written and
 * last read. A task that takes over its slot comes after the last reader in order, so no task waits
 * for itself, and one slot is enough. */
typedef struct passed {
  int buffer, task;
  int from, until;
  int pool; /* number of its slot pool, from 0 on */
} passed;

/* Returns the place from which on a buffer's slot is free for the next of tasks [n]. While an
 * exchange sends what a pass has written, the next pass runs: the one after that takes the slot. */
static int read_until(const sli_lowering *l, const sli_buffer *b, const int *tasks, int n) {
  int last = l->places[b->producer];
  bool sent = false;
  for (int i = 0; i < b->nconsumers; i++) {
    last = SLI_MAX(last, l->places[b->consumers[i]]);
    sent |= l->tasks[b->consumers[i]].cls == SL_CLASS_C;
  }
  for (int i = 0; i < n && sent && l->tasks[b->producer].cls != SL_CLASS_C; i++)
    if (l->places[tasks[i]] > last) return l->places[tasks[i]];
  return last;
}

static int list_passed(const sli_lowering *l, const int *tasks, int n, passed **list) {
  size_t count = 0, capacity = 0;
  *list = NULL;
  for (int i = 0; i < n; i++)
    for (int nth = 0, at; (at = nth_transient(l, tasks[i], SLI_ROLE_INNER, nth)) != SL_NONE;
         nth++) {
      SLI_GROW(*list, count, capacity);
      (*list)[count++] = (passed){.buffer = at,
                                  .task = tasks[i],
                                  .from = l->places[tasks[i]],
                                  .until = read_until(l, &l->buffers[at], tasks, n)};
    }
  return (int)count;
}

/* Largest first, then in order. */
static int by_size(const void *a, const void *b, void *lowering) {
  const sli_lowering *l = lowering;
  const passed *x = a, *y = b;
  size_t one = l->buffers[x->buffer].bytes, other = l->buffers[y->buffer].bytes;
  if (one != other) return one > other ? -1 : 1;
  return x->from != y->from ? x->from - y->from : x->buffer - y->buffer;
}

static int by_pool(const void *a, const void *b) {
  const passed *x = a, *y = b;
  return x->pool != y->pool ? x->pool - y->pool : x->from - y->from;
}

/* Gives each buffer the first slot pool whose other buffers exist at other times. Since the largest
 * choose first, none makes the slots of its slot pool larger. */
static void choose_pools(sli_lowering *l, passed *list, int n) {
  qsort_r(list, (size_t)n, sizeof *list, by_size, l);
  bool *busy = sli_calloc((size_t)n, sizeof *busy);
  for (int i = 0; i < n; i++) {
    memset(busy, 0, (size_t)i);
    for (int j = 0; j < i; j++)
      busy[list[j].pool] |= list[j].from <= list[i].until && list[i].from <= list[j].until;
    while (busy[list[i].pool]) list[i].pool++;
  }
  free(busy);
  qsort(list, (size_t)n, sizeof *list, by_pool);
}

/* Adds a turn unless another slot pool of the tasks has it. */
static void add_turn_once(sli_lowering *l, int from, int to, bool first) {
  const sli_task *task = &l->tasks[to];
  for (int i = 0; i < task->ninputs; i++) {
    const sli_buffer *b = &l->buffers[task->inputs[i]];
    if (b->role == SLI_ROLE_TURN && b->producer == from && b->initial == first) return;
  }
  sli_add_turn(l, from, to, first);
}

/* Closes a slot pool of buffers [n], in order. */
static void close_passed(sli_lowering *l, const passed *list, int n) {
  int leader = list[0].buffer;
  for (int i = 1; i < n; i++) leader = SLI_MIN(leader, list[i].buffer);
  for (int i = 0; i < n; i++) {
    int at = list[i].buffer;
    l->buffers[at].slot_pool = (sli_slot_pool){at == leader ? SL_NONE : leader, n > 1};
    l->buffers[at].pooled = true;
    if (n > 1) add_turn_once(l, list[i].task, list[(i + 1) % n].task, i + 1 == n);
  }
}

static void close_pools(sli_lowering *l, passed *list, int count) {
  choose_pools(l, list, count);
  for (int i = 0, end; i < count; i = end) {
    for (end = i + 1; end < count && list[end].pool == list[i].pool;) end++;
    close_passed(l, &list[i], end - i);
  }
}

static void close_passed_pools(sli_lowering *l, const int *tasks, int n) {
  passed *list;
  int count = list_passed(l, tasks, n, &list);
  close_pools(l, list, count);
  free(list);
}

/* ---- blocks that come one after another -------------------------------------------------------
 *
 * If all pieces of a microbatch go through a block before the next block, and a stage has one
 * microbatch at a time, then no two blocks need their whole tensors at once, neither in one
 * direction nor in both. With one slot for each (--quota gather=1, reduce=1), buffers of all blocks
 * and of both directions choose their pools by size: the largest of each block share a slot. */

static bool has_single_slots(const sli_lowering *l, const sli_task *task, sli_role role) {
  bool sharded = role == SLI_ROLE_GATHER || role == SLI_ROLE_REDUCE;
  return l->in->layers && sharded && !l->pick.split && !task->pace && task->stage != SL_NONE &&
         task->rate < SLI_PER_STEP && l->act_b[task->stage] <= l->in->k &&
         sli_lower_given(l, role, task->stage) == 1;
}

/* Extends the time of a buffer to all passes of its block in the same direction, which each piece
 * runs anew. */
static void cover_block(const sli_lowering *l, passed *p) {
  const sli_task *from = &l->tasks[p->task];
  for (int i = *sli_newest_on(l, from->stage, from->rank); i != SL_NONE; i = l->tasks[i].before) {
    const sli_task *g = &l->tasks[i];
    if (i >= l->ncomputing || g->cls == SL_CLASS_C || g->backward != from->backward || g->pace ||
        g->rate >= SLI_PER_STEP || sli_block_of_task(l, g) != sli_block_of_task(l, from))
      continue;
    p->from = SLI_MIN(p->from, l->places[i]);
    p->until = SLI_MAX(p->until, l->places[i]);
  }
}

/* True if a device runs both tasks on one queue. */
static bool are_on_one_queue(const sli_task *a, const sli_task *b) {
  bool exchanges = a->cls == SL_CLASS_C;
  return a->host == b->host && exchanges == (b->cls == SL_CLASS_C) &&
         (!exchanges || (a->axis == b->axis && a->along == b->along));
}

/* Makes the pools of the tasks on the queue of task `first`. */
static void close_block_pools(sli_lowering *l, int first, sli_role role) {
  const sli_task *of = &l->tasks[first];
  size_t count = 0, capacity = 0;
  passed *list = NULL;
  int at = nth_transient(l, first, role, 0);
  if (at == SL_NONE || l->buffers[at].pooled || !has_single_slots(l, of, role)) return;
  for (int i = *sli_newest_on(l, of->stage, of->rank); i != SL_NONE; i = l->tasks[i].before) {
    const sli_task *g = &l->tasks[i];
    if (i >= l->ncomputing || !has_single_slots(l, g, role) || !are_on_one_queue(of, g)) continue;
    for (int nth = 0; (at = nth_transient(l, i, role, nth)) != SL_NONE; nth++) {
      SLI_GROW(list, count, capacity);
      list[count] = (passed){at, i, l->places[i], l->places[i], 0};
      cover_block(l, &list[count++]);
    }
  }
  close_pools(l, list, (int)count);
  free(list);
}

/* ---- all slot pools -------------------------------------------------------------------------- */

/* Tasks with transient buffers of a role, in lists by the hash of their slot pool. Tasks of one
 * slot pool are in one list, in order. */
typedef struct lists {
  uint32_t mask;
  int *head;      /* [mask + 1] */
  int *next;      /* [tasks] */
  bool *done;     /* [tasks] in a slot pool already, or in no list */
  int *slot_pool; /* [tasks] scratch space for one slot pool */
} lists;

static lists list_tasks(const sli_lowering *l, int begin, int end, sli_role role) {
  lists x = {.mask = 1};
  size_t n = (size_t)end + 1;
  while (x.mask < (uint32_t)(end - begin)) x.mask = 2 * x.mask + 1;
  x.head = sli_calloc((size_t)x.mask + 1, sizeof *x.head);
  x.next = sli_calloc(n, sizeof *x.next);
  x.done = sli_calloc(n, sizeof *x.done);
  x.slot_pool = sli_calloc(n, sizeof *x.slot_pool);
  for (uint32_t h = 0; h <= x.mask; h++) x.head[h] = SL_NONE;
  for (int i = end - 1; i >= begin; i--) {
    int at = nth_transient(l, i, role, 0);
    x.done[i] = at == SL_NONE || l->buffers[at].pooled;
    if (x.done[i]) continue;
    int *head = &x.head[hash_slot_pool(l, &l->tasks[i]) & x.mask];
    x.next[i] = *head;
    *head = i;
  }
  return x;
}

/* Makes the slot pools of all tasks that share one with this task. */
static void make_slot_pools(sli_lowering *l, lists *x, int first, sli_role role) {
  bool passing = role == SLI_ROLE_INNER && !l->tasks[first].transfer;
  int n = 0;
  for (int i = first; i != SL_NONE; i = x->next[i]) {
    if (x->done[i] || !is_same_slot_pool(l, first, i, role)) continue;
    x->slot_pool[n++] = i;
    x->done[i] = true;
  }
  qsort_r(x->slot_pool, (size_t)n, sizeof *x->slot_pool, by_turn, l);
  if (passing) close_passed_pools(l, x->slot_pool, n);
  else close_slot_pool(l, x->slot_pool, n, role);
}

/* Makes the slot pools of tasks begin to end - 1 with transient buffers of a role. */
static void close_slot_pools(sli_lowering *l, int begin, int end, sli_role role) {
  lists x = list_tasks(l, begin, end, role);
  for (int i = begin; i < end; i++)
    if (!x.done[i]) make_slot_pools(l, &x, i, role);
  free(x.head);
  free(x.next);
  free(x.done);
  free(x.slot_pool);
}

/* Makes the slot pools of producers first, then those of transfers: a copy shares slots at its
 * destination if the original does at its source. */
void sli_lower_slot_pools(sli_lowering *l) {
  l->places = sli_lower_places(l);
  static const sli_role made[] = {SLI_ROLE_INNER,   SLI_ROLE_GATHER,  SLI_ROLE_REDUCE,
                                  SLI_ROLE_SPILL,   SLI_ROLE_BETWEEN, SLI_ROLE_DKV,
                                  SLI_ROLE_KV_SPILL};
  static const sli_role brought[] = {SLI_ROLE_INNER, SLI_ROLE_GATHER,  SLI_ROLE_REDUCE,
                                     SLI_ROLE_H2D,   SLI_ROLE_D2H,     SLI_ROLE_D2D,
                                     SLI_ROLE_FILL,  SLI_ROLE_WEIGHTS, SLI_ROLE_KV_FILL};
  for (int i = 0; i < l->nbuffers; i++) {
    sli_buffer *b = &l->buffers[i];
    /* turns of collectives could differ between the members of a group */
    bool collected = b->producer != SL_NONE && l->tasks[b->producer].along;
    if (b->source == SL_NONE && !collected) b->transient |= is_passing(l, b) || is_interim(l, b);
  }
  for (size_t r = 0; r < SLI_COUNT(made); r++) {
    for (int i = 0; i < l->ncomputing; i++) close_block_pools(l, i, made[r]);
    close_slot_pools(l, 0, l->ncomputing, made[r]);
  }
  for (int i = 0; i < l->nbuffers; i++) {
    sli_buffer *b = &l->buffers[i];
    bool fetched = b->source != SL_NONE && l->tasks[b->producer].transfer->reader != SL_NONE;
    if (b->source != SL_NONE && !fetched) b->transient &= l->buffers[b->origin].transient;
  }
  for (size_t r = 0; r < SLI_COUNT(brought); r++)
    close_slot_pools(l, l->ncomputing, l->ntasks, brought[r]);
}
