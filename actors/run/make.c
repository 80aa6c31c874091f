/* SPDX-License-Identifier: Apache-2.0 */
/* Creating a runtime from a plan, and destroying it. */
#include "actors/run/state.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Allocates an array whose elements belong to different workers: each starts on a cache line. */
static void *allot_lines(sl_runtime *rt, size_t count, size_t size) {
  return (void *)sli_align((size_t)allot(rt, 1, count * size + SLI_CACHE_LINE));
}

/* ---- queues and workers ------------------------------------------------------------- */

/* Returns the worker of a queue: its device's worker, a separate one, the carrier for links, or the
 * stand-in for the process it belongs to. */
static worker *place_queue(sl_runtime *rt, const sl_queue *q, const int32_t *home) {
  device *d = &rt->devices[q->device];
  if (is_away(rt, q->device)) return &rt->away[rt->plan->devices[q->device].process];
  if (rt->carrier && q->ops->link) return rt->carrier;
  if (q->apart && rt->threads) return &rt->workers[rt->nworkers++];
  return d->worker = &rt->workers[home[q->device]];
}

static void make_queue(sl_runtime *rt, int32_t i, const int32_t *home) {
  const sl_queue *from = &rt->plan->queues[i];
  queue *q = &rt->queues[i];
  q->id = i;
  q->flying = SL_NONE;
  q->ops = from->ops;
  q->launch = from->ops->launch;
  q->plan = from;
  q->look_ahead_ns = (uint64_t)(from->look_ahead * 1e9 + 0.5);
  q->selective = from->order || q->look_ahead_ns || from->lane;
  q->device = &rt->devices[from->device];
  q->lanes = from->lane ? &q->device->lanes : NULL;
  q->run_ahead = SLI_MAX(from->run_ahead, 1);
  q->worker = place_queue(rt, from, home);
  q->worker->share.nqueues++;
}

/* True if every firing takes a slot through this port and keeps it until it is complete. */
static bool takes_each_time(const sl_plan *plan, const sl_port *out) {
  const sl_map *map = &plan->maps[out->map];
  uint32_t i = 0;
  while (i < map->period && map->entries[i].flags & SL_FIRST) i++;
  return i == map->period && plan->regs[out->reg].nconsumers && !plan->regs[out->reg].held;
}

/* Most firings of an actor in flight on a queue that notifies readers only at retirement: limited
 * by the slots. */
static int64_t most_under_way(const sl_plan *plan, const sl_actor *a, int64_t most) {
  for (int32_t p = 0; p < a->nout; p++)
    if (takes_each_time(plan, &a->out[p]))
      most = SLI_MIN(most, sli_quota_most(&plan->regs[a->out[p].reg]));
  return most;
}

static int32_t count_flights(const sl_runtime *rt, const queue *q) {
  if (!q->ops->modelled || !q->ops->overlaps) return q->run_ahead;
  int64_t sum = 0;
  for (int32_t i = 0; i < q->nactors; i++)
    sum += most_under_way(rt->plan, q->actors[i]->plan, q->run_ahead);
  return (int32_t)SLI_MAX(SLI_MIN(sum, q->run_ahead), 1);
}

/* Allocates flights, each with room for all notifications of its completion. */
static void make_flights(sl_runtime *rt, queue *q) {
  size_t most = 1;
  for (int32_t i = 0; i < q->nactors; i++)
    most = SLI_MAX(most, (size_t)(q->actors[i]->plan->nin + q->actors[i]->plan->nout));
  q->nflights = count_flights(rt, q);
  q->flights = allot_own(rt, q->worker, (size_t)q->nflights, sizeof *q->flights);
  for (int32_t f = 0; f < q->nflights; f++)
    q->flights[f].notices = allot_own(rt, q->worker, most, sizeof(notice));
}

static void allot_lists(sl_runtime *rt, worker *w) {
  share *s = &w->share;
  s->queues = allot_own(rt, w, (size_t)s->nqueues, sizeof *s->queues);
  s->actors = allot_own(rt, w, (size_t)s->nactors, sizeof *s->actors);
  s->sparse = allot_own(rt, w, (size_t)s->nactors, sizeof *s->sparse);
  w->awaited.polled = allot_own(rt, w, (size_t)s->nqueues, sizeof *w->awaited.polled);
  s->nqueues = s->nactors = 0;
}

static void list_actor(actor *a) {
  queue *q = a->queue;
  share *s = &q->worker->share;
  q->actors[q->nactors++] = a;
  s->actors[s->nactors++] = a;
  if (a->every > 1) s->sparse[s->nsparse++] = a;
  else s->firings_per_step += (uint64_t)a->plan->firings_per_step;
}

/* Lists the queues and actors of each worker. */
static void make_lists(sl_runtime *rt) {
  const sl_plan *plan = rt->plan;
  int32_t *nactors = sli_calloc((size_t)plan->nqueues, sizeof *nactors);
  for (int32_t i = 0; i < plan->nactors; i++) {
    nactors[plan->actors[i].queue]++;
    rt->actors[i].queue->worker->share.nactors++;
  }
  for (int32_t i = 0; i < rt->nworkers; i++) allot_lists(rt, &rt->workers[i]);
  for (int32_t i = 0; i < plan->nqueues; i++) {
    queue *q = &rt->queues[i];
    share *s = &q->worker->share;
    if (q->worker->process >= 0) continue;
    q->runnable = allot_own(rt, q->worker, (size_t)nactors[i] + 1, sizeof *q->runnable);
    *q->runnable++ = &rt->actors[plan->nactors];
    q->top = q->runnable;
    q->actors = allot_own(rt, q->worker, (size_t)nactors[i], sizeof *q->actors);
    s->queues[s->nqueues++] = q;
  }
  for (int32_t i = 0; i < plan->nactors; i++)
    if (rt->actors[i].queue->worker->process < 0) list_actor(&rt->actors[i]);
  for (int32_t i = 0; i < plan->nqueues; i++)
    for (int32_t k = 0; k < plan->queues[i].norder; k++)
      rt->actors[plan->queues[i].order[k]].ordered = true;
  free(nactors);
}

/* Maps each device of this process to a worker. */
static int32_t *share_workers(const sl_runtime *rt) {
  int32_t *home = sli_calloc((size_t)rt->plan->ndevices, sizeof *home), count = 0;
  for (int32_t d = 0; d < rt->plan->ndevices; d++)
    if (!is_away(rt, d)) home[d] = count++ % rt->nworkers;
  return home;
}

static worker *allot_workers(int32_t most) {
  worker *workers = sli_aligned_alloc(SLI_LINE_PAIR, (size_t)most * sizeof *workers);
  memset(workers, 0, (size_t)most * sizeof *workers);
  return workers;
}

/* Chooses the worker that drives transfers between processes. */
static void make_processes(sl_runtime *rt) {
  if (!rt->options.peers) return;
  rt->away = allot_workers(rt->plan->nprocesses);
  rt->carrier = &rt->workers[rt->carries_apart ? rt->nworkers++ : 0];
  rt->carrier->peers = rt->options.peers;
}

static void make_workers(sl_runtime *rt) {
  for (int32_t i = 0; i < rt->nworkers; i++) {
    worker *w = &rt->workers[i];
    w->rt = rt;
    w->id = i;
    w->process = SL_NONE;
    w->progress.current = SL_NONE;
    w->real = rt->threads;
    w->clock = rt->clock;
    w->unusual = true;
    w->spin_ns = 20000;
    w->random = (rt->options.jitter_seed + (uint64_t)i + 1) * UINT64_C(0x9E3779B97F4A7C15) | 1;
  }
  for (int32_t i = 0; rt->away && i < rt->plan->nprocesses; i++)
    rt->away[i].rt = rt, rt->away[i].id = rt->nworkers + i, rt->away[i].process = i;
}

/* Lists the lanes of each device. */
static void make_lanes(sl_runtime *rt) {
  for (int32_t i = 0; i < rt->plan->nqueues; i++) {
    lanes *l = rt->queues[i].lanes;
    if (!l) continue;
    if (!l->queues) l->queues = allot(rt, (size_t)rt->plan->nqueues, sizeof(queue *));
    l->unused = WHOLE_DEVICE;
    l->queues[l->nqueues++] = &rt->queues[i];
  }
}

/* Names a group by its devices. */
static const char *group_name(sl_runtime *rt, int32_t group) {
  const sl_plan *plan = rt->plan;
  const char *name = "";
  for (int32_t i = 0; i < plan->nqueues; i++) {
    const sl_device *d = &plan->devices[plan->queues[i].device];
    if (plan->queues[i].group != group + 1) continue;
    const char *comma = *name ? ", " : "";
    name = plan->nprocesses > 1 ? sli_arena_format(&rt->memory, "%s%s%s (process %d)", name, comma,
                                                   d->name, d->process)
                                : sli_arena_format(&rt->memory, "%s%s%s", name, comma, d->name);
  }
  return name;
}

static void make_groups(sl_runtime *rt) {
  const sl_plan *plan = rt->plan;
  rt->ngroups = sli_plan_groups(plan);
  rt->groups = allot(rt, (size_t)rt->ngroups, sizeof *rt->groups);
  for (int32_t i = 0; i < plan->nqueues; i++)
    if (plan->queues[i].group) rt->groups[plan->queues[i].group - 1].members++;
  for (int32_t g = 0; g < rt->ngroups; g++) {
    const sl_peers *peers = rt->options.peers;
    rt->groups[g].name = group_name(rt, g);
    if (peers && peers->groups) memcpy(rt->groups[g].id, peers->groups[g], SL_GROUP_ID_BYTES);
  }
}

static void make_state(sl_runtime *rt) {
  const sl_plan *plan = rt->plan;
  rt->quotas = allot(rt, (size_t)plan->nregs, sizeof *rt->quotas);
  rt->actors = allot_lines(rt, (size_t)plan->nactors + 1, sizeof *rt->actors);
  rt->actors[plan->nactors].order = ~(unsigned __int128)0;
  rt->regs = allot_lines(rt, (size_t)plan->nregs, sizeof *rt->regs);
  rt->queues = allot_lines(rt, (size_t)plan->nqueues, sizeof *rt->queues);
  rt->devices = allot_lines(rt, (size_t)plan->ndevices, sizeof *rt->devices);
  rt->pools = allot_lines(rt, (size_t)plan->npools, sizeof *rt->pools);
  rt->maps = allot(rt, (size_t)plan->nmaps, sizeof *rt->maps);
  int32_t *home = share_workers(rt);
  rt->workers = allot_workers(rt->nworkers + 1 + (rt->threads ? plan->nqueues : 0));
  make_processes(rt);
  for (int32_t i = 0; i < plan->npools; i++)
    rt->pools[i] = (pool){.level.quota = plan->pools[i].quota,
                          .queues = allot(rt, (size_t)plan->nqueues, sizeof(queue *))};
  for (int32_t i = 0; i < plan->nqueues; i++) make_queue(rt, i, home);
  free(home);
  make_groups(rt);
  make_lanes(rt);
  make_workers(rt);
  sli_wire(rt);
  make_lists(rt);
  for (int32_t i = 0; i < plan->nqueues; i++)
    if (rt->queues[i].worker->process < 0) make_flights(rt, &rt->queues[i]);
}

/* ---- the runtime --------------------------------------------------------------------- */

static sl_status make_rings(sl_runtime *rt) {
  uint64_t records = 1;
  while (records < (rt->options.trace_records ? rt->options.trace_records : 1u << 16)) records *= 2;
  for (int32_t i = 0; i < rt->nworkers; i++) {
    ring *r = &rt->workers[i].ring;
    SLI_TRY(SLI_ALLOCATE(r->records, records, "a worker's trace records"));
    r->mask = records - 1;
  }
  return SL_OK;
}

static sl_status check_queues(const sl_plan *plan, const sl_runtime_options *options) {
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_queue_ops *ops = plan->queues[plan->actors[i].queue].ops;
    if (options->clock == SL_CLOCK_VIRTUAL && !ops->modelled)
      return sl_fail(SL_E_USAGE, "queue %s runs real kernels, which cannot follow a virtual clock",
                     plan->queues[plan->actors[i].queue].name);
  }
  return SL_OK;
}

/* Prepares the programs of this process, each through its kind of queue. */
static sl_status prepare_programs(sl_runtime *rt) {
  sl_status status = SL_OK;
  for (int32_t i = 0; i < rt->plan->nactors && !status; i++) {
    const actor *a = &rt->actors[i];
    const sl_queue *q = a->queue->plan;
    if (!a->program || q->ops->timed || is_away(rt, q->device)) continue;
    status = q->ops->prepare
                 ? q->ops->prepare(a->plan->program, rt->plan->devices[q->device].number)
                 : sl_program_prepare(a->plan->program);
  }
  return status;
}

/* Number of cores that the process may use. */
static int count_cores(void) {
  long all = SLI_MAX(sysconf(_SC_NPROCESSORS_CONF), 1);
  cpu_set_t *set = CPU_ALLOC(all);
  size_t bytes = CPU_ALLOC_SIZE(all);
  int cores = set && !sched_getaffinity(0, bytes, set) ? CPU_COUNT_S(bytes, set) : (int)all;
  CPU_FREE(set);
  return cores;
}

/* True if some worker of this process does its firings' work itself and cannot respond
 * meanwhile. */
static bool any_works(const sl_runtime *rt) {
  for (int32_t i = 0; i < rt->plan->nqueues; i++)
    if (!is_away(rt, rt->plan->queues[i].device) && rt->plan->queues[i].ops->works) return true;
  return false;
}

/* True if the carrier is a worker without other tasks. A worker that is always responsive can also
 * carry, which is best when no core is left for another worker. */
static bool carries_apart(const sl_runtime *rt, int threads, int cores) {
  if (!rt->options.peers || rt->options.workers == 1) return false;
  return rt->options.workers || rt->nworkers > 1 || threads < cores || any_works(rt);
}

/* Counts the workers: one per device here, or the number requested. Sets whether there are more
 * threads than cores, including the carrier. */
static void count_workers(sl_runtime *rt) {
  const sl_plan *plan = rt->plan;
  int threads = 0, here = 0, cores = count_cores();
  for (int32_t d = 0; d < plan->ndevices; d++) {
    here += !is_away(rt, d);
    if (!is_away(rt, d)) threads += SLI_MAX(plan->devices[d].threads, 1);
  }
  int32_t workers = rt->options.workers ? SLI_MIN(rt->options.workers, here) : here;
  rt->nworkers = rt->threads ? SLI_MAX(workers, 1) : 1;
  threads = SLI_MAX(threads, rt->nworkers);
  rt->carries_apart = carries_apart(rt, threads, cores);
  rt->oversubscribed = threads + rt->carries_apart > cores;
}

/* Reads checks requested by the environment. */
static sl_status read_checks(bool *slots) {
  const char *text = getenv("SLUICE_CHECK");
  if (!text || !*text) return SL_OK;
  if (strcmp(text, "slots")) return sl_fail(SL_E_USAGE, "SLUICE_CHECK=%s: must be slots", text);
  *slots = true;
  return SL_OK;
}

sl_status sl_runtime_create(const sl_plan *plan, const sl_runtime_options *options,
                            sl_runtime **out) {
  bool check = options->check;
  SLI_TRY(sli_memory_check());
  SLI_TRY(check_queues(plan, options));
  SLI_TRY(read_checks(&check));
  sl_runtime *rt = sli_calloc(1, sizeof *rt);
  rt->plan = plan;
  rt->options = *options;
  rt->options.check = check;
  rt->threads = options->clock == SL_CLOCK_REAL;
  rt->first_step = rt->steps = options->first_step;
  gate_init(&rt->gate, options->first_step);
  count_workers(rt);
  sli_clock_init(&rt->clock);
  make_state(rt);
  sl_status status = make_rings(rt);
  if (!status) status = sli_memory_check();
  if (!status) status = prepare_programs(rt);
  if (!status) status = sli_threads_start(rt);
  if (status) {
    sl_runtime_destroy(rt);
    return status;
  }
  *out = rt;
  return SL_OK;
}

void sl_runtime_destroy(sl_runtime *rt) {
  if (!rt) return;
  sli_threads_join(rt);
  for (int32_t i = 0; i < rt->nworkers; i++) {
    worker *w = &rt->workers[i];
    sli_mailbox_fini(&w->mailbox);
    sli_arena_fini(&w->memory);
    free(w->ring.records);
    free(w->detail);
  }
  for (int32_t i = 0; i < rt->plan->nqueues; i++)
    if (rt->queues[i].impl && rt->queues[i].ops->abort)
      rt->queues[i].ops->abort(rt->queues[i].impl);
  for (int32_t i = 0; i < rt->plan->nqueues; i++)
    if (rt->queues[i].impl) rt->queues[i].ops->close(rt->queues[i].impl);
  sli_arenas_destroy(rt);
  for (int32_t i = 0; rt->away && i < rt->plan->nprocesses; i++)
    sli_arena_fini(&rt->away[i].memory);
  sli_remotes_free(rt);
  free(rt->away);
  free(rt->workers);
  sli_arena_fini(&rt->memory);
  free(rt);
}
