/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes to tasks: a task becomes one actor.
 *
 * Everything that runs on the same device for the same stage, in the same class and at the same
 * rate, is one task, unless something comes in between. Four things do:
 *
 * - Exchanges. A tensor that other devices must see before a pass can continue cuts the pass
 *   in two. Nodes therefore have levels, which increase by one at each step into an exchange,
 *   within it and out of it. A task holds nodes of one level, so tasks cannot wait for each other
 * in a cycle. An exchange's tasks do one thing each: slice, sum, or join. Exchanges of the backward
 * pass that read forward tensors could run early; they run as late as their readers allow, or their
 * results would fill memory.
 * - Sweeps over earlier pieces of the sequence, if these arrive one at a time. Such a task fires
 *   for each of them, and levels separate it as they separate exchanges.
 * - Visits. A stage whose blocks are visited several times (sl_block_again) has a task for each
 *   visit if other stages run in between.
 * - The granularity, if it is finer than a stage. Each block is then a separate task, and its
 *   gradients can be exchanged while the backward pass continues with earlier blocks. */
#include "graph/lower/ir.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* True for a node that cuts data from a source: part of loading. */
static bool is_loaded(const sli_node *n) {
  const sli_node *from = n->nin && n->in[0] ? n->in[0]->producer : NULL;
  return n->cls == SL_CLASS_L && n->block >= 0 && from && from->cls == SL_CLASS_L;
}

/* True for loading, reporting and the clip. They run concurrently with passes: neither may wait for
 * the other in a queue. */
static bool is_host(const sli_node *n) {
  return sli_op_is(n->op, SL_OP_SOURCE) || n->cls == SL_CLASS_L || n->block < 0;
}

/* True for updates that run on the host, not the device. */
static bool is_hosts_update(const sli_lowering *l, const sli_node *n) {
  int every = l->in->update_every;
  return n->phase == SLI_PHASE_UPDATE && n->block >= 0 && n->cls == SL_CLASS_U &&
         (!every || n->block % every);
}

static sl_class task_class(const sli_lowering *l, const sli_node *n) {
  if (sli_op_is(n->op, SL_OP_SOURCE)) return SL_CLASS_L;
  if (n->cls == SL_CLASS_W && !l->pick.split) return SL_CLASS_B;
  return n->cls;
}

/* ---- levels ------------------------------------------------------------------------ */

typedef struct levels {
  const sli_lowering *l;
  int *visits;    /* [nblocks] earlier visits of the block's stage */
  int *level;     /* [nnodes] */
  bool *backward; /* [nnodes] part of the backward pass, or an exchange of its results */
  bool *early;    /* [nnodes] waits for nothing of its pass: exchanges, slices of a device's own
                     data, resent or recomputed tensors, and constants */
} levels;

static bool is_exchange(const sli_node *n) { return n->cls == SL_CLASS_C; }

/* True for nodes that fire at a separate rate and so belong to no pass. */
static bool stands_apart(const sli_node *n) {
  return is_exchange(n) || sli_op_cut(n->op)->sweeps || sli_op_is(n->op, SL_OP_REPEATS);
}

static sli_rate task_rate(const sli_node *n) {
  if (n->per_step) return SLI_PER_STEP;
  if (sli_op_is(n->op, SL_OP_REPEATS)) return SLI_PER_TURN;
  return sli_op_cut(n->op)->sweeps ? SLI_PER_PAIR : SLI_PER_TICK;
}

/* True for nodes with a level: passes, and all exchanges. */
static bool is_leveled(const sli_node *n) {
  return !is_host(n) && (sli_is_in_pass(n) || is_exchange(n));
}

static bool is_backward(const sli_node *n) { return n->cls == SL_CLASS_B || n->cls == SL_CLASS_W; }

/* True if both nodes are in the same pass, or in exchanges of the same phase. */
static bool same_direction(const levels *x, const sli_node *a, const sli_node *b) {
  return is_leveled(a) && a->phase == b->phase && x->backward[a->id] == x->backward[b->id];
}

/* Returns the level step from one node to another of the same pass: 1 if no task may hold both. */
static int level_between(const sli_node *from, const sli_node *to) {
  return stands_apart(from) || stands_apart(to);
}

static const sli_node *maker(const sli_node *n, int input) {
  return n->in[input] ? n->in[input]->producer : NULL;
}

/* Finds the pass of exchanges: backward if an exchange reads something of the backward pass, or
 * only that pass reads the exchange. */
static void find_ways(levels *x) {
  const sl_graph *g = x->l->in->g;
  struct readers {
    bool backward, forth;
  } *of = sli_calloc((size_t)g->nnodes, sizeof *of);
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    x->backward[i] = n->phase == SLI_PHASE_MAIN && is_backward(n);
    for (int a = 0; a < n->nin && is_exchange(n); a++) {
      const sli_node *p = maker(n, a);
      x->backward[i] |= p && n->phase == SLI_PHASE_MAIN && x->backward[p->id];
    }
  }
  for (int i = g->nnodes - 1; i >= 0; i--) {
    const sli_node *n = g->nodes[i];
    if (is_exchange(n) && n->phase == SLI_PHASE_MAIN)
      x->backward[i] |= of[i].backward && !of[i].forth;
    for (int a = 0; a < n->nin; a++) {
      const sli_node *p = maker(n, a);
      if (!p) continue;
      of[p->id].backward |= x->backward[i];
      of[p->id].forth |= !x->backward[i] && is_leveled(n);
    }
  }
  free(of);
}

/* True for a node that reads parameters alone, in a graph whose blocks have several tasks because
 * of their experts: it would otherwise hold its parameters from the beginning of a tick. */
static bool reads_params_alone(const sl_graph *g, const sli_node *n) {
  bool alone = g->options.serve && g->options.serve->experts.parts;
  for (int a = 0; a < n->nin; a++) alone &= !maker(n, a);
  return alone;
}

/* True for a node that reads rows of a table for its block, as soon as their ids are known. */
static bool reads_ahead(const sli_node *n) {
  return sli_op_is(n->op, SL_OP_LOADS) && n->attrs.experts.firings == 1;
}

/* Finds levels. Readers of what is read ahead come after all earlier nodes, which compute
 * meanwhile. */
static void find_levels(levels *x) {
  const sl_graph *g = x->l->in->g;
  int latest = 0;
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (!is_leveled(n)) continue;
    x->early[i] = is_exchange(n) || n->op == &sl_op_slice || n->rematerialized || n->resends ||
                  !n->nin || reads_params_alone(g, n);
    for (int a = 0; a < n->nin; a++) {
      const sli_node *p = maker(n, a);
      if (!p || !same_direction(x, p, n)) continue;
      if (!x->early[p->id]) x->early[i] = false;
      x->level[i] = SLI_MAX(x->level[i], x->level[p->id] + level_between(p, n));
    }
    if (reads_ahead(n)) x->level[i] = SLI_MAX(x->level[i], latest + 1);
    latest = SLI_MAX(latest, x->level[i]);
  }
}

/* Moves nodes that could run early right before their first reader. */
static void put_off(levels *x) {
  const sl_graph *g = x->l->in->g;
  int *latest = sli_calloc((size_t)g->nnodes, sizeof *latest);
  for (int i = 0; i < g->nnodes; i++) latest[i] = INT_MAX;
  for (int i = g->nnodes - 1; i >= 0; i--) {
    const sli_node *n = g->nodes[i];
    if (!is_leveled(n)) continue;
    if (x->early[i] && latest[i] != INT_MAX) x->level[i] = SLI_MAX(x->level[i], latest[i]);
    for (int a = 0; a < n->nin; a++) {
      const sli_node *p = maker(n, a);
      if (!p || !same_direction(x, p, n) || !x->early[p->id]) continue;
      latest[p->id] = SLI_MIN(latest[p->id], x->level[i] - level_between(p, n));
    }
  }
  free(latest);
}

/* ---- tasks -------------------------------------------------------------------------- */

/* Properties that all nodes of a task have in common. */
typedef struct kin {
  const sl_op *op; /* op of an exchange */
  sl_class cls;
  sli_rate rate;
  int stage, rank, phase, level, part;
  int visit;       /* number of earlier visits of its stage */
  int axis;        /* axis of an exchange, if each axis has a queue */
  sli_along along; /* axes whose devices take part in a collective */
  bool backward;
  /* exchange of sharded parameters, which a pass waits for; or of gradients, which no pass waits
   * for */
  bool parameters, gradients;
} kin;

/* Returns the part of its stage that a node belongs to, if the granularity is finer than a stage.
 * Exchanges that a pass waits for in every tick are separated only by level, unless blocks take
 * turns: a reader of two results of one level then gets them from one task. */
static int part_of(const sli_lowering *l, const sli_node *n) {
  /* waits for the last stage, and other stages wait for it */
  if (sli_is_sharded_node(l, n)) return n->block;
  bool in_pass = is_exchange(n) && !n->per_step && !sli_makes_transient(n) && !l->in->layers;
  return l->in->by_block && !is_host(n) && !in_pass ? n->block : 0;
}

/* True for an exchange of sharded parameters, or of gradients, which come from a pass. */
static bool exchanges(const levels *x, const sli_node *n, bool parameters) {
  return is_exchange(n) && sli_makes_transient(n) && x->early[n->id] == parameters;
}

/* Counts how often each block's stage has been left and entered again before the block. Blocks of
 * one stage that follow each other, visited again or not, run in one go. */
static int *find_visits(sli_lowering *l) {
  const sl_graph *g = l->in->g;
  int *visits = sli_arena_alloc(&l->arena, (size_t)g->nblocks * sizeof *visits),
      *entered = sli_arena_alloc(&l->arena, (size_t)l->stages * sizeof *entered);
  for (int b = 0; b < sli_blocks_in_line(g); b++) {
    int stage = l->stage_of[b];
    if (!b || l->stage_of[b - 1] != stage) entered[stage]++;
    visits[b] = entered[stage] - 1;
  }
  return visits;
}

static kin kin_of(const sli_lowering *l, const levels *x, const sli_node *n) {
  return (kin){.op = is_exchange(n) ? n->op : NULL,
               .cls = task_class(l, n),
               .rate = task_rate(n),
               .stage = n->block < 0 ? SL_NONE : l->stage_of[n->block],
               .rank = n->rank,
               .phase = n->phase,
               .level = x->level[n->id],
               .part = part_of(l, n),
               .visit = n->block < 0 || n->per_step ? 0 : x->visits[n->block],
               .axis = l->in->by_axis && is_exchange(n) ? n->remote_axis : 0,
               .along = n->along,
               .backward = x->backward[n->id],
               .parameters = exchanges(x, n, true),
               .gradients = exchanges(x, n, false)};
}

static bool is_kin(const levels *x, const sli_task *task, const kin *k) {
  return task->stage == k->stage && task->rank == k->rank && task->cls == k->cls &&
         task->phase == k->phase && task->rate == k->rate && task->level == k->level &&
         task->part == k->part && task->visit == k->visit && task->axis == k->axis &&
         task->along == k->along && task->backward == k->backward &&
         (!k->op ||
          (task->nodes[0]->op == k->op && exchanges(x, task->nodes[0], true) == k->parameters &&
           exchanges(x, task->nodes[0], false) == k->gradients));
}

/* Finds the task of a node. Sources and reports get separate tasks, but slices of a source join its
 * task; all other nodes join their kin. The search begins with the newest tasks, the most likely
 * ones. */
static int find_task(const sli_lowering *l, const levels *x, const sli_node *n, const kin *k) {
  if (is_loaded(n)) return l->task_of[n->in[0]->producer->id];
  if (sli_op_is(n->op, SL_OP_SOURCE) || n->cls == SL_CLASS_L) return SL_NONE;
  if (k->rate == SLI_PER_TURN) return SL_NONE;
  for (int i = *sli_newest_on(l, k->stage, k->rank); i != SL_NONE; i = l->tasks[i].before)
    if (!l->tasks[i].host || n->block < 0 || is_hosts_update(l, n))
      if (is_kin(x, &l->tasks[i], k)) return i;
  return SL_NONE;
}

/* Names a task: "F2"; an exchange by its op and stage. */
static const char *task_name(sli_lowering *l, const sli_node *n, const kin *k) {
  static const char *const phases[] = {"",     "norm", "clip",    "update",
                                       "pack", "eval", "rollout", "span"};
  if (sli_op_is(n->op, SL_OP_SOURCE)) return sli_arena_format(&l->arena, "load:%s", n->name);
  if (n->cls == SL_CLASS_L) return n->name;
  if (n->block < 0) return phases[n->phase];
  if (is_exchange(n)) return sli_arena_format(&l->arena, "%s%d", n->op->name, k->stage);
  if (sli_op_is(n->op, SL_OP_LOADS))
    return sli_arena_format(&l->arena, "%s%d", sli_loads_home(n->op), k->stage);
  if (n->phase) return sli_arena_format(&l->arena, "%s%d", phases[n->phase], k->stage);
  return sli_arena_format(&l->arena, "%c%d", sl_class_letter(k->cls), k->stage);
}

/* Adds a task. Reports and the clip, which belong to no single stage, run on the host of one
 * device, in the process that speaks for the job. */
static int add_task(sli_lowering *l, const sli_node *n, const kin *k) {
  static const sli_pace paces[] = {[SLI_PHASE_EVAL] = SLI_PACE_EVAL,
                                   [SLI_PHASE_ROLLOUT] = SLI_PACE_ROLLOUT,
                                   [SLI_PHASE_SPAN] = SLI_PACE_SPAN};
  int *newest = sli_newest_on(l, k->stage, k->rank);
  bool shared = k->stage < 0 || (n->cls == SL_CLASS_L && !sli_op_is(n->op, SL_OP_SOURCE));
  *newest = sli_add_task(
      l, (sli_task){.name = task_name(l, n, k),
                    .cls = k->cls,
                    .stage = k->stage,
                    .rank = k->rank,
                    .level = k->level,
                    .part = k->part,
                    .visit = k->visit,
                    .axis = k->axis,
                    .along = k->along,
                    .backward = k->backward || is_backward(n),
                    .device = shared ? sli_speaker(l->in) : sli_lower_device(l, k->stage, k->rank),
                    .chunk = k->stage < 0 ? SL_NONE : l->chunk_of[k->stage],
                    .phase = k->phase,
                    .rate = k->rate,
                    .turns = k->rate == SLI_PER_TURN ? (int)n->attrs.experts.firings : 0,
                    .pace = paces[n->phase],
                    .host = is_host(n) || is_hosts_update(l, n),
                    .before = *newest});
  return *newest;
}

/* ---- names ------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b) {
  const sli_task *const *x = a, *const *y = b;
  int order = (*x)->rank != (*y)->rank ? (*x)->rank - (*y)->rank : strcmp((*x)->name, (*y)->name);
  return order ? order : *x < *y ? -1 : *x > *y;
}

/* Numbers tasks of one name on one device in order, "F2.0", "F2.1", and adds the device's rank,
 * "F2.1#3". */
static void tell_apart(sli_lowering *l) {
  sli_task **sorted = sli_calloc((size_t)l->ntasks, sizeof *sorted);
  const char **names = sli_calloc((size_t)l->ntasks, sizeof *names);
  for (int i = 0; i < l->ntasks; i++) sorted[i] = &l->tasks[i];
  qsort(sorted, (size_t)l->ntasks, sizeof *sorted, by_name);
  for (int i = 0, n; i < l->ntasks; i += n) {
    for (n = 1; i + n < l->ntasks && sorted[i + n]->rank == sorted[i]->rank &&
                !strcmp(sorted[i + n]->name, sorted[i]->name);)
      n++;
    for (int t = 0; t < n; t++) {
      const sli_task *g = sorted[i + t];
      const char *name = n > 1 ? sli_arena_format(&l->arena, "%s.%d", g->name, t) : g->name;
      bool marked = strchr(name, '#') || !g->rank;
      names[g - l->tasks] = marked ? name : sli_arena_format(&l->arena, "%s#%d", name, g->rank);
    }
  }
  for (int i = 0; i < l->ntasks; i++) l->tasks[i].name = names[i];
  free(sorted);
  free(names);
}

/* ---- the pass ----------------------------------------------------------------------------- */

void sli_lower_task(sli_lowering *l) {
  sl_graph *g = l->in->g;
  size_t n = (size_t)g->nnodes;
  levels x = {.l = l,
              .visits = find_visits(l),
              .level = sli_arena_alloc(&l->arena, n * sizeof *x.level),
              .backward = sli_arena_alloc(&l->arena, n),
              .early = sli_arena_alloc(&l->arena, n)};
  find_ways(&x);
  find_levels(&x);
  put_off(&x);
  int places = (l->stages + 1) * l->in->ranks;
  l->newest = sli_arena_alloc(&l->arena, (size_t)places * sizeof *l->newest);
  for (int i = 0; i < places; i++) l->newest[i] = SL_NONE;
  l->task_of = sli_arena_alloc(&l->arena, n * sizeof *l->task_of);
  for (int i = 0; i < g->nnodes; i++) {
    kin k = kin_of(l, &x, g->nodes[i]);
    int at = find_task(l, &x, g->nodes[i], &k);
    if (at == SL_NONE) at = add_task(l, g->nodes[i], &k);
    sli_task *task = &l->tasks[at];
    SLI_GROW(task->nodes, (size_t)task->nnodes, task->node_capacity);
    task->nodes[task->nnodes++] = g->nodes[i];
    l->task_of[i] = at;
  }
  tell_apart(l);
}
