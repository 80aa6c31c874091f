/* SPDX-License-Identifier: Apache-2.0 */
/* Writes tasks and buffers as a plan. */
#include "actors/plan/plan.h"
#include "graph/build/build.h"
#include "graph/lower/ir.h"

#include <stdlib.h>
#include <string.h>

/* ---- devices and queues --------------------------------------------------------- */

static int32_t add_queue(sli_lowering *l, const char *name, int device, sl_queue q) {
  q.name = sl_plan_format(l->plan, "%s@%d", name, device);
  q.device = device;
  return sl_plan_add_queue(l->plan, q);
}

/* True if updates have lower priority than passes: if no update waits for the global norm, updates
 * would delay passes that other stages wait for. */
static bool updates_last(const sl_graph *g) {
  return !g->options.infer && g->training.optimizer.clip <= 0;
}

static sl_queue pass_queue(const sli_lowering *l, int device) {
  sl_queue q = {.ops = l->in->kind->compute,
                .run_ahead = l->in->kind->run_ahead,
                .look_ahead = l->in->options->schedule.look_ahead};
  for (int c = 0; c < SL_CLASS_COUNT; c++) {
    int order, rank;
    sli_schedule_order(l->pick.schedule, l->in->p, l->in->m, (sl_class)c, 0, &order, &rank);
    q.class_order[c] = (uint8_t)order;
  }
  if (l->in->in_line) q.class_order[SL_CLASS_C] = q.class_order[SL_CLASS_B];
  if (updates_last(l->in->g)) q.class_order[SL_CLASS_U] = UINT8_MAX;
  int watermark = l->watermarks[sli_along_of(l->in, device)];
  q.lazy_w = watermark >= 0;
  q.watermark = SLI_MAX(watermark, 0);
  return q;
}

/* Returns the queue of a host thread. `apart`: passes that are only launched never wait for it. */
static sl_queue host_queue(const sli_lowering *l, bool apart) {
  const sli_kind *kind = l->in->kind;
  const sl_graph_options *g = &l->in->g->options;
  const sl_queue_ops *served =
      kind->modelled && (g->serve || g->generate) ? &sl_queue_ends : kind->host;
  return (sl_queue){.ops = served,
                    .threads = 1,
                    .space = sli_kind_host_space(kind),
                    .run_ahead = 1,
                    .apart = apart};
}

static int32_t *per_device(sli_lowering *l) {
  return sli_arena_alloc(&l->arena, (size_t)l->in->devices * sizeof(int32_t));
}

/* True if there is an exchange queue for this axis: one for all axes, or one for each. */
static bool has_exchange(const sli_lowering *l, int axis) {
  if (!l->in->by_axis) return !axis && (sli_grid_ranks(&l->in->grid) > 1 || l->in->barriers);
  return !axis ||
         (sli_axes[axis].parent == axis && sli_grid_size(&l->in->grid, sli_row_of(axis)) > 1);
}

/* Adds the queues. Exchanges run concurrently with passes, and stores with both, since stores wait
 * for disks. */
static void add_queues(sli_lowering *l) {
  const sli_kind *kind = l->in->kind;
  const sl_queue exchange = {.ops = kind->compute, .run_ahead = kind->run_ahead};
  int n = l->in->devices;
  sli_queues *q = &l->queues;
  *q = (sli_queues){.pass = per_device(l), .host = per_device(l), .store = per_device(l)};
  if (l->script.lanes) q->back = per_device(l);
  for (int d = 0; d < n; d++) {
    sl_queue pass = pass_queue(l, d);
    if (q->back) pass.lane = "forward";
    q->pass[d] = add_queue(l, "pass", d, pass);
    if (q->back) {
      pass.lane = "backward";
      q->back[d] = add_queue(l, "back", d, pass);
    }
    q->host[d] = add_queue(l, "host", d, host_queue(l, kind->copy != NULL));
  }
  for (int a = 0; a < SLI_AXES; a++) {
    if (!has_exchange(l, a)) continue;
    const char *name = a ? sl_plan_format(l->plan, "exchange.%s", sli_axes[a].name) : "exchange";
    q->exchange[a] = per_device(l);
    for (int d = 0; d < n; d++) q->exchange[a][d] = add_queue(l, name, d, exchange);
  }
  for (int i = 0; i < l->ntasks; i++) /* data from outside must not block anything else */
    if (sli_waits(l, &l->tasks[i]))
      l->tasks[i].own_queue = add_queue(l, "source", l->tasks[i].device, host_queue(l, true));
  for (int d = 0; d < n && l->store; d++)
    q->store[d] = add_queue(l, "store", d, host_queue(l, true));
}

/* Queue of transfers from a device, created on first use; one list per device. */
typedef struct transfer_queue_at {
  sli_transfer_kind kind;
  sl_space home;
  int to;
  int32_t queue;
  int before; /* previous queue of the device, or SL_NONE */
} transfer_queue_at;

typedef struct transfer_queues {
  int *newest; /* [devices] latest queue, or SL_NONE */
  size_t count, capacity;
  transfer_queue_at *all;
  double *slowdowns; /* [devices] */
} transfer_queues;

static int32_t add_transfer_queue(sli_lowering *l, int device, const sli_transfer_task *transfer) {
  const sli_transfer_traits *r = &sli_transfer_kinds[transfer->kind];
  const sli_kind *kind = l->in->kind;
  enum { LOADS_AHEAD = 64 }; /* guesses are planned while loads are under way */
  if (r->loads)
    return add_queue(l, r->name, device, (sl_queue){.ops = kind->loads, .run_ahead = LOADS_AHEAD});
  if (r->homes) {
    const sl_queue_ops *ops = kind->move[transfer->home];
    const char *name = sl_plan_format(l->plan, "%s.%s", r->name, sl_space_name(transfer->home));
    return add_queue(l, name, device,
                     (sl_queue){.ops = ops,
                                .threads = ops->works, /* one: copies are not worth a team */
                                .apart = ops->blocks || ops->works,
                                .run_ahead = ops->blocks ? 1 : kind->run_ahead});
  }
  if (!r->ops)
    return add_queue(l, r->name, device,
                     (sl_queue){.ops = kind->copy, .run_ahead = kind->run_ahead});
  return sl_plan_add_queue(l->plan, (sl_queue){.name = sl_plan_format(l->plan, "%s@%d>%d", r->name,
                                                                      device, transfer->to),
                                               .device = device,
                                               .ops = r->ops,
                                               .class_order = {[SL_CLASS_U] = r->updates},
                                               .run_ahead = r->in_turn ? 1 : l->in->m * l->in->k});
}

static int32_t transfer_queue(sli_lowering *l, transfer_queues *x, int device,
                              const sli_transfer_task *transfer) {
  int to = sli_transfer_kinds[transfer->kind].ops ? transfer->to : device;
  for (int i = x->newest[device]; i != SL_NONE; i = x->all[i].before)
    if (x->all[i].kind == transfer->kind && x->all[i].home == transfer->home && x->all[i].to == to)
      return x->all[i].queue;
  SLI_GROW(x->all, x->count, x->capacity);
  transfer_queue_at at = {transfer->kind, transfer->home, to,
                          add_transfer_queue(l, device, transfer), x->newest[device]};
  x->all[x->count] = at;
  x->newest[device] = (int)x->count++;
  return at.queue;
}

/* Adds a queue to each member of a device's row along some axes, whose collectives fire together.
 */
static void add_group(sli_lowering *l, int device, sli_along along, int32_t *of) {
  const sli_grid *grid = &l->in->grid;
  int axis = 0, members = grid->alike ? 1 : sli_grid_size(grid, along);
  while (!(along >> axis & 1)) axis++;
  const char *name = sl_plan_format(l->plan, "collective.%s", sli_axes[axis].name);
  l->queues.ngroups++;
  for (int m = 0; m < members; m++) {
    int rank = sli_rank_at(grid, sli_rank_of(l->in, device), along, m);
    int member = sli_device_at(l->in, sli_along_of(l->in, device), rank);
    of[member] = add_queue(
        l, name, member,
        (sl_queue){.ops = l->in->kind->group, .run_ahead = 1, .group = l->queues.ngroups});
  }
}

/* Returns the queue of a device's collectives along some axes. */
static int32_t group_queue(sli_lowering *l, int device, sli_along along) {
  int32_t **of = &l->queues.group[along];
  if (!*of) {
    *of = per_device(l);
    for (int d = 0; d < l->in->devices; d++) (*of)[d] = SL_NONE;
  }
  if ((*of)[device] == SL_NONE) add_group(l, device, along, *of);
  return (*of)[device];
}

/* True for host updates whose time is modelled. */
static bool takes_host(const sli_lowering *l, const sli_task *task) {
  return sli_updates_on_host(task) &&
         (sli_lower_host_rate(l->in) > 0 || sli_lower_update_rate(l->in) > 0);
}

/* Returns the queue of modelled updates on the host: its cores, or its memory if nothing is known
 * of the cores. Transfers through the memory have priority there. */
static int32_t update_queue(sli_lowering *l, transfer_queues *x, const sli_task *task) {
  bool cores = sli_lower_update_rate(l->in) > 0;
  const sli_transfer_task at = {.kind = cores ? SLI_TRANSFER_CORES : SLI_TRANSFER_MEMORY,
                                .to = task->device};
  return transfer_queue(l, x, task->device, &at);
}

static int32_t queue_of(sli_lowering *l, transfer_queues *x, const sli_task *task) {
  const sli_queues *q = &l->queues;
  const sli_transfer_task read = {
      .kind = SLI_TRANSFER_LOADS, .to = task->device, .home = SL_SPACE_DISK};
  if (sli_reads_homes(task))
    return l->in->kind->loads_in_line && task->turns > 1
               ? q->pass[task->device]
               : transfer_queue(l, x, task->device, &read);
  if (task->transfer && !sli_lower_is_in_line(l, task))
    return transfer_queue(l, x, task->device, task->transfer);
  if (takes_host(l, task)) return update_queue(l, x, task);
  if (sli_waits(l, task)) return task->own_queue;
  if (task->rate == SLI_PER_STORE) return q->store[task->device];
  if (task->along) return group_queue(l, task->device, task->along);
  if (sli_lower_is_in_line(l, task)) return q->pass[task->device];
  if (task->cls == SL_CLASS_C) return q->exchange[task->axis][task->device];
  bool back = q->back && !task->pace && (task->cls == SL_CLASS_B || task->cls == SL_CLASS_W);
  return (task->host ? q->host : back ? q->back : q->pass)[task->device];
}

/* Formats a device's name: "timed:3". If it represents several devices: "timed:24-31" for a run, or
 * "timed:3+7" for device 3 and 7 other devices. */
static const char *device_name(const sli_lowering *l, int d) {
  int n = l->in->grid.alike ? sli_grid_ranks(&l->in->grid) : 1;
  if (n == 1) return sl_plan_format(l->plan, "%s:%d", l->in->kind->name, d);
  int first = sli_layout_number(l->in, d, 0), least = first, last = first;
  for (int r = 1; r < n; r++) {
    int number = sli_layout_number(l->in, d, r);
    least = SLI_MIN(least, number), last = SLI_MAX(last, number);
  }
  return first == least && last - first == n - 1
             ? sl_plan_format(l->plan, "%s:%d-%d", l->in->kind->name, first, first + n - 1)
             : sl_plan_format(l->plan, "%s:%d+%d", l->in->kind->name, first, n - 1);
}

/* Returns a device's place along an axis; 0 if one device represents all. */
static int emit_place_of(const sli_lowering *l, int device, int axis) {
  const sli_grid *grid = &l->in->grid;
  if (axis == SLI_AXIS_STAGES) return sli_along_of(l->in, device);
  return grid->alike ? 0
                     : sli_rank_member(grid, sli_rank_of(l->in, device), sli_axis_factors(axis));
}

static void add_device(sli_lowering *l, int d) {
  const sl_device_options *o = &l->in->options->devices;
  sl_device device = {
      .name = device_name(l, d),
      .kind = l->in->kind->name,
      .process = sl_device_process(d, l->in->devices, l->in->options->parallel.processes),
      .number = sli_lower_number(l->in, d),
      .threads = SLI_MAX(o->threads, 1),
      .budget_bytes = o->budget_bytes};
  for (int a = 0; a < SLI_AXES; a++) device.at[sli_axes[a].at] = emit_place_of(l, d, a);
  for (int s = 0; s < SL_SPACE_COUNT; s++) device.room[s].memory = l->in->kind->memory[s];
  device.room[SL_SPACE_DISK].path = l->in->options->memory.homes.disk;
  device.room[SL_SPACE_DISK].budget_bytes = l->in->options->memory.homes.disk_bytes;
  device.room[SL_SPACE_HOST].budget_bytes = l->in->options->memory.homes.host_bytes;
  sl_plan_add_device(l->plan, device);
}

/* Sizes workspaces: each device has one per space, as large as its largest task needs. Lanes work
 * at once, so the backward passes have one of their own. */
static void size_workspaces(sli_lowering *l) {
  size_t *back = sli_calloc((size_t)l->in->devices, sizeof *back);
  for (int i = 0; i < l->ntasks; i++) {
    const sli_task *g = &l->tasks[i];
    sl_room *room = &l->plan->devices[g->device].room[sli_lower_space(l, g)];
    bool beside = l->script.lanes && sli_is_of_pass(g) && !g->phase && g->cls != SL_CLASS_F;
    size_t *bytes = beside ? &back[g->device] : &room->workspace_bytes;
    *bytes = SLI_MAX(*bytes, g->workspace_bytes);
  }
  for (int d = 0; d < l->in->devices; d++)
    l->plan->devices[d].room[SL_SPACE_DEVICE].workspace_bytes += back[d];
  free(back);
}

static sl_status add_devices(sli_lowering *l) {
  const sl_device_options *o = &l->in->options->devices;
  const char *name = l->in->kind->name;
  int ranks = sli_grid_ranks(&l->in->grid), all = l->in->p * ranks;
  if (o->count && o->count != all && ranks > 1)
    return sl_fail(SL_E_USAGE,
                   "%d %s devices were given, but %d pipeline stages of %d devices "
                   "each need %d",
                   o->count, name, l->in->p, ranks, all);
  if (o->count && o->count != all)
    return sl_fail(SL_E_USAGE, "%d %s devices were given, but %d pipeline stages need %d", o->count,
                   name, l->in->p, l->in->p);
  if (l->in->options->parallel.processes > l->in->devices)
    return sl_fail(
        SL_E_USAGE,
        "%d processes are too many for %d pipeline devices: each process needs at least one "
        "(parallel.stages)",
        l->in->options->parallel.processes, l->in->devices);
  for (int d = 0; d < l->in->devices; d++) add_device(l, d);
  size_workspaces(l);
  add_queues(l);
  return SL_OK;
}

/* ---- registers -------------------------------------------------------------------- */

static void add_pools(sli_lowering *l) {
  for (int d = 0; d < l->in->devices && l->pools[sli_along_of(l->in, d)]; d++)
    sl_plan_add_pool(l->plan, (sl_pool){sl_plan_format(l->plan, "pool@%d", d),
                                        l->pools[sli_along_of(l->in, d)]});
}

/* Returns 1 + the register that the buffer aliases; 0 if either has several slots. Also 0 if
 * parameters have several slots, since a step's gradients then do not wait for those of the
 * previous step. */
static int32_t aliased_register(const sli_lowering *l, const sli_buffer *b) {
  if (b->aliases == SL_NONE) return 0;
  sli_buffer *under = &l->buffers[b->aliases];
  bool single = SLI_MAX(b->quota, b->quota_most) == 1 &&
                SLI_MAX(under->quota, under->quota_most) == 1 &&
                sli_lower_given(l, SLI_ROLE_PARAM, l->tasks[b->producer].stage) <= 1;
  int self = 1 + (int)(b - l->buffers);
  if (!single || (under->aliased_by && under->aliased_by != self)) return 0;
  under->aliased_by = self;
  return under->reg + 1;
}

static void add_register(sli_lowering *l, sli_buffer *b) {
  bool pooled = b->activation > 0 && l->pools[sli_along_of(l->in, b->device)];
  bool peer = b->home == SL_SPACE_PEER;
  const sli_visits *visits = sli_buffer_visits(l, b);
  const int32_t *lengths = sli_lower_expected_table(l, b->valid_length, visits);
  b->reg = sl_plan_add_register(
      l->plan,
      (sl_register){
          .name = b->name,
          .quota_name = sli_roles[b->role].name,
          .quota = b->quota,
          .quota_most = b->quota_most,
          .pool = pooled ? b->device : SL_NONE,
          .kept = pooled ? l->in->k : 0, /* slots of one microbatch */
          .initial = b->held ? 0 : b->initial,
          .delayed = l->buffers[b->origin].delayed,
          .held = b->held,
          .device = sli_buffer_holder(l, b),
          .space = peer ? SL_SPACE_DEVICE : b->home,
          .peer = peer,
          .memory = b->memory,
          .slot_bytes = b->bytes,
          .payload_bytes = b->payload_bytes,
          .aside = b->aside,
          .rows = b->valid_length ? (int32_t)b->valid_length->rows : 0,
          .nlengths = !lengths ? 0
                      : visits ? visits->count
                               : sli_lower_ticks(l, SLI_PACE_TRAINING),
          .lengths = lengths,
          .shares = b->slot_pool.leader == SL_NONE ? 0 : l->buffers[b->slot_pool.leader].reg + 1,
          .aliases = aliased_register(l, b),
          .activation = b->activation});
}

/* ---- order --------------------------------------------------------------------------- */

/* True if the task takes the pieces of a microbatch from last to first: in the backward pass, a
 * piece's gradient needs those of later pieces. */
static bool is_reversed(const sli_lowering *l, const sli_task *task) {
  return l->in->k > 1 && task->rate == SLI_PER_TICK && task->backward;
}

/* Maps firings to ticks, which are also the keys of buffers that span at most a tick. */
static int32_t tick_map(sli_lowering *l, const sli_task *task) {
  if (!is_reversed(l, task)) return sl_plan_map_each(l->plan);
  sl_map_entry entries[l->in->k];
  for (int i = 0; i < l->in->k; i++)
    entries[i] = (sl_map_entry){l->in->k - 1 - i, SL_FIRST | SL_LAST};
  return sl_plan_add_map(l->plan, (uint32_t)l->in->k, l->in->k, entries);
}

/* ---- ports ------------------------------------------------------------------------------ */

/* Maps the last of every `steps` firings to a key. */
static int32_t sparse_map(sli_lowering *l, int64_t steps) {
  uint32_t every = (uint32_t)steps;
  sl_map_entry *entries = sli_calloc(every, sizeof *entries);
  for (uint32_t i = 0; i + 1 < every; i++) entries[i].flags = SL_SKIP;
  entries[every - 1].flags = SL_FIRST | SL_LAST;
  int32_t map = sl_plan_add_map(l->plan, every, 1, entries);
  free(entries);
  return map;
}

/* Returns the firings per microbatch. */
static uint32_t turns_of(const sli_lowering *l, const sli_task *task) {
  if (task->rate == SLI_PER_LEAVING) return (uint32_t)l->in->leaving;
  return (uint32_t)(task->rate == SLI_PER_PAIR ? sli_lower_pairs(l) : l->in->k);
}

/* Returns by how many versions a task of training reads ahead of its rollouts. */
static int32_t versions_ahead(const sli_lowering *l, const sli_task *task, const sli_buffer *b) {
  int ahead = sli_lower_ahead(l);
  bool oldest = task->transfer ? task->transfer->oldest : task->pace == SLI_PACE_ROLLOUT,
       old = oldest || b->role != SLI_ROLE_PARAM || b->initial <= 1 || !ahead;
  return old ? 0 : ahead;
}

/* Maps firings to keys of a delay: the writer is ahead by the slots that are full at the start. A
 * transfer copies all keys. */
static int32_t delay_map(sli_lowering *l, const sli_task *task, const sli_buffer *b, bool output) {
  const sli_buffer *origin = &l->buffers[b->origin];
  const sli_delay *delay = sli_delay_before(origin->delayed);
  int first = output ? b->initial : 0, count = 0;
  if (!delay->in) return sl_plan_map_lag(l->plan, 1, first);
  bool writes = output && !task->transfer;
  sl_map_entry *entries = sli_calloc((size_t)l->in->m, sizeof *entries);
  for (int i = 0; i < l->in->m; i++) {
    bool there = writes ? delay->in->writes[i] : delay->in->reads[i];
    entries[i] =
        there ? (sl_map_entry){first + count++, SL_FIRST | SL_LAST} : (sl_map_entry){0, SL_SKIP};
  }
  int32_t map = sl_plan_add_map(l->plan, (uint32_t)l->in->m, count, entries);
  free(entries);
  return map;
}

/* Maps the firings of a tick of a task that fires several times. If the first one reads guesses, it
 * takes part in nothing else. */
static int32_t turn_map(sli_lowering *l, const sli_task *task, const sli_buffer *b) {
  const sl_tensor *guesses = sli_guesses(task);
  uint32_t turns = (uint32_t)task->turns, first = guesses != NULL;
  bool each = b->rate == SLI_PER_TURN;
  if (!first) return each ? sl_plan_map_each(l->plan) : sl_plan_map_span(l->plan, turns);
  bool guessed = l->spots[guesses->id].buffer == b->origin;
  sl_map_entry *entries = sli_calloc(turns, sizeof *entries);
  for (uint32_t i = 0; i < turns; i++) {
    uint32_t span = (i == first ? SL_FIRST : 0) | (i + 1 == turns ? SL_LAST : 0);
    if (guessed == (i >= first)) entries[i].flags = SL_SKIP;
    else if (guessed || each) entries[i].flags = SL_FIRST | SL_LAST;
    else entries[i].flags = span;
    if (each && i >= first) entries[i].offset = (int32_t)(i - first);
  }
  int32_t map = sl_plan_add_map(l->plan, turns, each ? turns - first : 1, entries);
  free(entries);
  return map;
}

static int32_t port_map(sli_lowering *l, const sli_task *task, const sli_buffer *b, bool output) {
  sl_plan *plan = l->plan;
  if (b->held || b->producer == SL_NONE) return sl_plan_map_hold(plan);
  if (task->rate == SLI_PER_TURN) return turn_map(l, task, b);
  if (b->role == SLI_ROLE_TURN)
    return sl_plan_map_lag(plan, b->rate == SLI_PER_MICROBATCH ? turns_of(l, task) : 1,
                           output && b->initial);
  if (b->role == SLI_ROLE_DELAY) return delay_map(l, task, b, output);
  if (b->rate == SLI_PER_LEAVING) return sli_lower_leaving_map(l, task);
  bool updates = b->initial && b->producer == (int)(task - l->tasks);
  if (updates) return sl_plan_map_lag(plan, 1, output ? b->initial : b->initial - 1);
  if (b->rate == SLI_PER_STORE && task->rate != SLI_PER_STORE)
    return sparse_map(l, l->in->options->store.every);
  if (b->pace == SLI_PACE_EVAL && !task->pace) return sparse_map(l, l->in->g->options.eval_every);
  if (task->rate >= SLI_PER_STEP) return sl_plan_map_lag(plan, 1, versions_ahead(l, task, b));
  if (b->rate == SLI_PER_STEP)
    return sl_plan_map_lag(plan, (uint32_t)sli_lower_firings(l, task), versions_ahead(l, task, b));
  if (task->rate == SLI_PER_PAIR) return sli_sweep_map(l, task, b);
  if (sli_task_visits(l, task) || sli_buffer_visits(l, b)) return sli_visits_map(l, task, b);
  if (sli_is_piece(l, b)) return sli_piece_map(l, b);
  if (b->rate == SLI_PER_MICROBATCH) return sl_plan_map_span(plan, (uint32_t)l->in->k);
  return tick_map(l, task);
}

static sl_port *task_ports(sli_lowering *l, const sli_task *task, bool output) {
  int count = output ? task->noutputs : task->ninputs;
  const int *buffers = output ? task->outputs : task->inputs;
  sl_port *ports = sli_arena_alloc(&l->arena, (size_t)count * sizeof *ports);
  for (int i = 0; i < count; i++) {
    const sli_buffer *b = &l->buffers[buffers[i]];
    ports[i] = (sl_port){b->reg, port_map(l, task, b, output)};
  }
  return ports;
}

static void add_pieces(sli_lowering *l) {
  const sl_graph *g = l->in->g;
  l->cut.pieces = NULL;
  if (!g->cut.nvariants) return;
  l->cut.pieces = sl_plan_alloc(l->plan, (size_t)l->in->k * sizeof *l->cut.pieces);
  l->cut.leaving = sl_plan_alloc(l->plan, (size_t)l->in->k * sizeof *l->cut.leaving);
  int64_t row = 0;
  for (int k = 0; k < l->in->k; k++) {
    int v = 0;
    while (g->cut.variant_lengths[v] != g->cut.lengths[k]) v++;
    l->cut.pieces[k] = l->cut.leaving[k] = (sl_program_piece){row, g->cut.lengths[k], v};
    if (l->in->leaving != SL_NONE && sli_lower_leaves(l, k))
      l->cut.leaving[k].variant += g->cut.nvariants;
    row += g->cut.lengths[k];
  }
}

/* ---- actors ----------------------------------------------------------------------------- */

/* True for a task that no tick's data drives: it determines how far the run goes. */
static bool is_source(const sli_lowering *l, const sli_task *task) {
  for (int i = 0; i < task->ninputs; i++)
    if (!l->buffers[l->buffers[task->inputs[i]].origin].initial) return false;
  return !task->transfer;
}

/* Ranks exchanges by tick, and within a tick in data order, so that their order is fixed. */
static void set_turn(const sli_lowering *l, const sli_task *task, sl_actor *a) {
  a->rank = (int32_t)(task - l->tasks);
  a->rank_group = l->in->layers ? l->in->k : 1;
  a->rank_stride = l->ncomputing;
}

/* Ranks ticks by groups of p microbatches. If the number is not a multiple, the first group is the
 * short one: it fills the pipeline, while a short last group would drain it early. */
static void set_groups(const sli_lowering *l, sl_actor *a) {
  int ticks = l->in->m * l->in->k;
  a->rank_group = l->in->p * sli_lower_counted(l);
  a->rank_stride = l->pick.v;
  a->rank_shift = (a->rank_group - ticks % a->rank_group) % a->rank_group;
}

/* True if the task makes only gradients of parameters. */
static bool is_for_params(const sli_task *task) {
  bool all = true;
  for (int i = 0; i < task->nnodes; i++) all &= task->nodes[i]->cls == SL_CLASS_W;
  return all;
}

/* Sets the priority of a task on its device, by the schedule. */
static void set_priority(const sli_lowering *l, const sli_task *task, sl_actor *a) {
  a->urgent = task->transfer && sli_lower_is_in_line(l, task);
  if (task->transfer) return;       /* in order of the data */
  if (sli_lower_goes_on(l, task)) { /* before passes that have not begun */
    a->urgent = true;
    set_turn(l, task, a);
    return;
  }
  bool in_line = sli_lower_is_in_line(l, task);
  if (task->cls == SL_CLASS_C && task->rate != SLI_PER_STORE && !in_line) set_turn(l, task, a);
  if (task->stage == SL_NONE || task->host || task->phase || a->rank_group) return;
  const sli_schedule *row = l->pick.schedule;
  sli_at at = sli_lower_at(l, task->stage);
  int order;
  sli_schedule_order(row, l->in->p, l->in->m, in_line && task->backward ? SL_CLASS_B : task->cls,
                     task->chunk, &order, &a->rank);
  sli_formula *rank = task->cls == SL_CLASS_F ? row->rank_f : row->rank_b;
  if (rank) a->rank += rank(&at);
  if (row->grouped) set_groups(l, a);
  a->urgent = sli_is_sharded_task(l, task) && !is_for_params(task); /* all stages wait for it */
  if (l->in->layers) sli_lower_rank(l, task, a);
}
/* Returns the number of steps from one firing step to the next. */
static int32_t every_of(const sli_lowering *l, const sli_task *task) {
  if (task->pace == SLI_PACE_EVAL) return (int32_t)l->in->g->options.eval_every;
  return task->rate == SLI_PER_STORE ? (int32_t)l->in->options->store.every : 1;
}

/* Maps the firings of each tick to that tick. */
static int32_t turn_ticks(sli_lowering *l, const sli_task *task) {
  sl_map_entry *entries = sli_calloc((size_t)task->turns, sizeof *entries);
  for (int i = 0; i < task->turns; i++) entries[i].flags = SL_FIRST | SL_LAST;
  int32_t map = sl_plan_add_map(l->plan, (uint32_t)task->turns, 1, entries);
  free(entries);
  return map;
}

/* Maps firings to ticks; passes of another pace count separate ticks. */
static int32_t firing_ticks(sli_lowering *l, const sli_task *task) {
  if (task->rate == SLI_PER_LEAVING) return sli_lower_leaving_ticks(l, task);
  int32_t all =
      task->pace ? sli_lower_ticks(l, task->pace) : every_of(l, task) * l->in->m * l->in->k;
  int32_t n = sli_lower_firings(l, task);
  if (sli_task_visits(l, task)) return sli_visits_ticks(l, sli_task_visits(l, task));
  if (task->rate == SLI_PER_PAIR) return sli_sweep_ticks(l, task, all);
  if (task->rate == SLI_PER_TURN) return turn_ticks(l, task);
  if (n > 1 && !task->pace) return tick_map(l, task);
  sl_map_entry *entries = sli_calloc((size_t)n, sizeof *entries);
  for (int32_t i = 0; i < n; i++) /* tasks that fire less often fire after their ticks */
    entries[i] = (sl_map_entry){
        task->pace ? (int32_t)((int64_t)(i + 1) * all / n) - 1 : all - n + i, SL_FIRST | SL_LAST};
  int32_t map = sl_plan_add_map(l->plan, (uint32_t)n, all, entries);
  free(entries);
  return map;
}

static void add_actor(sli_lowering *l, transfer_queues *x, int task) {
  sli_task *g = &l->tasks[task];
  sl_plan *plan = l->plan;
  if (!g->transfer) g->seconds = sli_lower_seconds(l, g) * sli_lower_slowdown(x->slowdowns, g);
  sl_actor a = {.name = g->name,
                .cls = sli_reads_homes(g) ? SL_CLASS_L : g->cls,
                .queue = queue_of(l, x, g),
                .stage = g->stage,
                .chunk = g->chunk,
                .firings_per_step = sli_lower_firings(l, g),
                .every = every_of(l, g),
                .ticks = firing_ticks(l, g),
                .own_ticks = g->pace ? sli_lower_ticks(l, g->pace) : 0,
                .nin = g->ninputs,
                .nout = g->noutputs,
                .source = is_source(l, g),
                .in = task_ports(l, g, false),
                .out = task_ports(l, g, true),
                .bases = sli_visits_bases(l, g),
                .program = sli_lower_program(l, task),
                .seconds = g->transfer ? sli_lower_copied(l, g, 0) : g->seconds,
                .seconds_table = sli_lower_seconds_table(l, g, sli_lower_slowdown(x->slowdowns, g)),
                .shares = sli_lower_shares(l, g)};
  sli_lower_rows_seconds(l, g, &a.by_rows, &a.by_picks);
  a.nshares = a.shares ? l->in->m : 0;
  a.nseconds = a.seconds_table ? sli_lower_ticks(l, SLI_PACE_TRAINING) : 0;
  set_priority(l, g, &a);
  g->actor = sl_plan_add_actor(plan, a);
}

/* Adds actors of transfers before the first reader of the data. */
static void add_actors(sli_lowering *l, transfer_queues *x, int task) {
  const sli_task *g = &l->tasks[task];
  for (int i = 0; i < g->ninputs; i++) {
    int by =
        l->buffers[g->inputs[i]].source == SL_NONE ? SL_NONE : l->buffers[g->inputs[i]].producer;
    if (by != SL_NONE && l->tasks[by].actor == SL_NONE) add_actors(l, x, by);
  }
  add_actor(l, x, task);
}

/* Finishes the plan. On modelled devices with known durations, also tries a different order; this
 * is pointless with one stage, since no other stage waits for its passes. */
static sl_status finish(sli_lowering *l) {
  const sl_lower_options *o = l->in->options;
  bool even = sli_cost_is_given(&o->simulation.cost) && !o->simulation.cost.nstages,
       modelled = l->in->kind->modelled && l->in->p > 1;
  bool *aside = sli_arena_alloc(&l->arena, (size_t)l->plan->nactors * sizeof *aside);
  for (int i = 0; i < l->ntasks; i++)
    if (l->tasks[i].actor != SL_NONE) aside[l->tasks[i].actor] = l->tasks[i].pace;
  bool derived = !o->schedule.order || !strcmp(o->schedule.order, "derive");
  sl_status status = sli_order_passes(&(sli_pass_order){
      .plan = l->plan,
      .ndevices = l->in->devices,
      .queues = l->queues.pass,
      .scripts = l->script.passes,
      .nscripted = l->script.count,
      .aside = aside,
      .given = o->schedule.order                    ? o->schedule.order
               : l->in->in_line && l->in->ranks > 1 ? "derive"
                                                    : NULL,
      .tuned = l->pick.tune.order,
      .split = l->pick.split,
      .improve = modelled && !even && !o->simulation.any_order,
      .latency = modelled && !o->simulation.any_order && l->pick.schedule->fixed_order &&
                 (sli_lower_crossing(l->in) > 0 || l->in->in_line)});
  if (!status && l->queues.ngroups) {
    status = sl_plan_fix_groups(l->plan);
    if (!status) status = sli_plan_settle(l->plan);
  }
  /* the proof fails as well, and says how to fix it */
  return status == SL_E_STUCK && derived ? SL_OK : status;
}

sl_status sli_lower_emit(sli_lowering *l) {
  l->plan = sl_plan_create(l->in->m, l->in->k);
  l->plan->ticked = true;
  l->numbers = sli_arena_alloc(&l->arena, (size_t)l->in->g->ntensors * sizeof *l->numbers);
  sl_status status = add_devices(l);
  if (status) return status;
  transfer_queues x = {.newest =
                           sli_arena_alloc(&l->arena, (size_t)l->in->devices * sizeof *x.newest)};
  for (int d = 0; d < l->in->devices; d++) x.newest[d] = SL_NONE;
  add_pools(l);
  add_pieces(l);
  x.slowdowns = sli_lower_slowdowns(l);
  for (int i = 0; i < l->nbuffers; i++) add_register(l, &l->buffers[i]);
  for (int i = 0; i < l->ncomputing; i++) add_actors(l, &x, i);
  free(x.all);
  free(x.slowdowns);
  return finish(l);
}
