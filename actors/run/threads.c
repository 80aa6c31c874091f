/* SPDX-License-Identifier: Apache-2.0 */
/* Workers as threads, and a run from beginning to end. Each thread opens its queues and devices,
 * then sleeps until a run begins. On the virtual clock there is one worker and no thread: the
 * caller of the run is the worker. */
#include "actors/run/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- opening --------------------------------------------------------------------------- */

typedef struct seat {
  sl_runtime *rt;
  int32_t device;
} seat;

static void bind_thread(void *arg, int thread) {
  const seat *s = arg;
  const sl_runtime_options *options = &s->rt->options;
  if (options->bind) options->bind(options->bind_arg, s->device, thread);
}

static int team_size(const sl_runtime *rt, const queue *q) {
  int threads = q->plan->threads ? q->plan->threads : rt->plan->devices[q->plan->device].threads;
  return SLI_MAX(threads, 1);
}

/* Largest scratch of the programs on a queue. */
static size_t scratch_of(const sl_runtime *rt, const queue *q) {
  size_t (*scratch)(const sl_program *, int) =
      q->ops->scratch ? q->ops->scratch : sl_program_scratch;
  size_t most = 0;
  for (int32_t i = 0; i < q->nactors; i++) {
    const actor *a = q->actors[i];
    if (a->program) most = SLI_MAX(most, scratch(a->program, team_size(rt, q)));
  }
  return most;
}

/* Sets the destination of a link's actors. */
static void set_end(const sl_runtime *rt, const queue *q, sl_queue_config *config) {
  if (!q->ops->link || !q->nactors) return;
  const sl_register *r = &rt->plan->regs[q->actors[0]->plan->out[0].reg];
  const sl_device *d = &rt->plan->devices[r->device];
  config->process = d->process;
  config->copy = sli_room_memory(d, r->space)->copy;
}

/* Sets the group that a queue is of. In a run of one process its first queue makes the id; queues
 * are opened one at a time. */
static sl_status set_group(const sl_runtime *rt, const queue *q, sl_queue_config *config) {
  const sl_plan *plan = rt->plan;
  if (!q->plan->group) return SL_OK;
  config->group = &rt->groups[q->plan->group - 1];
  config->rank = sli_queue_rank(plan, q->id);
  for (int32_t i = 0; i < plan->nqueues; i++)
    config->beside += plan->queues[i].group && plan->queues[i].device == q->plan->device;
  bool first = !config->rank && !rt->options.peers;
  return first && q->ops->identify ? q->ops->identify(config->group->id) : SL_OK;
}

static sl_status open_queue(worker *w, queue *q) {
  sl_runtime *rt = w->rt;
  seat *s = allot(rt, 1, sizeof *s);
  *s = (seat){rt, q->plan->device};
  const sl_device *device = &rt->plan->devices[q->plan->device];
  sl_queue_config config = {.threads = team_size(rt, q),
                            .scratch_bytes = scratch_of(rt, q),
                            .device = device->number,
                            .memory = sli_room_memory(device, SL_SPACE_DEVICE),
                            .host = sli_room_memory(device, SL_SPACE_HOST),
                            .bind = q->plan->apart ? NULL : bind_thread,
                            .bind_arg = s,
                            .peers = rt->options.peers};
  set_end(rt, q, &config);
  SLI_TRY(set_group(rt, q, &config));
  return q->ops->open(&config, &q->impl);
}

/* Opens the worker's queues, which binds its thread, then creates the arenas of its devices, so
 * that their memory is near. Workers do this one at a time: the order is fixed and rt->memory needs
 * no lock. */
static void open_worker(worker *w) {
  for (int32_t i = 0; i < w->share.nqueues && !w->status; i++)
    w->status = open_queue(w, w->share.queues[i]);
  if (!w->status) w->status = sli_arenas_create(w->rt, w);
  if (w->status) w->detail = sli_strdup(sl_detail());
}

/* ---- threads -------------------------------------------------------------------------- */

static void done_for_now(sl_runtime *rt) {
  crew *c = &rt->crew;
  uint32_t left = atomic_fetch_sub_explicit(&c->active, 1, memory_order_acq_rel) - 1;
  if (!left) sli_futex_wake(&c->active);
  if (left == 1 && rt->carrier) sli_worker_wake(rt->carrier);
}

/* Reads how long the thread has had a core, and how long it was runnable without one: the first two
 * numbers of schedstat (Linux, Documentation/scheduler/sched-stats.rst). */
static void read_core_use(worker *w) {
  unsigned long long ran = 0, waited = 0;
  FILE *file = fopen("/proc/thread-self/schedstat", "re");
  if (!file) return;
  if (fscanf(file, "%llu %llu", &ran, &waited) == 2) {
    w->ran_ns = ran;
    w->coreless_ns = waited;
  }
  fclose(file);
}

/* Returns the number of the run that has begun after run `seen`. */
static uint32_t wait_for_run(crew *c, uint32_t seen) {
  uint32_t now;
  while ((now = atomic_load_explicit(&c->epoch, memory_order_acquire)) == seen)
    sli_futex_wait(&c->epoch, seen, UINT64_MAX);
  return now;
}

/* Kernel structure for a thread's time slice (sched_setattr(2), first version). */
typedef struct turns {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns, deadline_ns, period_ns;
} turns;

/* Requests short time slices. The thread works for microseconds at a time, and others wait for it.
 * With a short slice it preempts a computing thread as soon as it wakes, instead of some
 * milliseconds later when that slice is over (Linux 6.12; older kernels ignore it). */
static void take_short_turns(void) {
  turns t = {.size = sizeof t};
  if (syscall(SYS_sched_getattr, 0, &t, sizeof t, 0) || t.policy != SCHED_OTHER) return;
  t.size = sizeof t;
  t.runtime_ns = 100000;
  syscall(SYS_sched_setattr, 0, &t, 0);
}

static void *worker_main(void *arg) {
  worker *w = arg;
  sl_runtime *rt = w->rt;
  uint32_t seen = 0;
  if (w == rt->carrier && rt->carries_apart) take_short_turns();
  prctl(PR_SET_TIMERSLACK, 1000); /* ns: timer slack, so that short sleeps are short */
  open_worker(w);
  for (;;) {
    done_for_now(rt);
    seen = wait_for_run(&rt->crew, seen);
    if (atomic_load(&rt->crew.quit)) return NULL;
    sli_worker_run(w);
    read_core_use(w);
  }
}

/* Firings of all workers as last seen, and the time since which that number is unchanged. */
typedef struct watch {
  uint64_t fired, since_ns;
} watch;

static void watch_progress(const sl_runtime *rt, double period, sli_idle *idle, watch *seen) {
  uint64_t fired = sl_runtime_fired(rt), now = sli_now_ns();
  if (fired != seen->fired) *seen = (watch){fired, now};
  double seconds = (double)(now - seen->since_ns) * 1e-9;
  if (seconds < period) return;
  idle(rt, seconds);
  seen->since_ns = now;
}

/* Sleeps until all workers are done. Checks their progress four times per `period` seconds; never
 * if `period` is 0. */
static void wait_for_workers(sl_runtime *rt, double period, sli_idle *idle) {
  uint64_t every = period > 0 ? (uint64_t)(period * 2.5e8) : UINT64_MAX;
  watch seen = {0, sli_now_ns()};
  uint32_t active;
  while ((active = atomic_load_explicit(&rt->crew.active, memory_order_acquire))) {
    sli_futex_wait(&rt->crew.active, active, every);
    if (period > 0) watch_progress(rt, period, idle, &seen);
  }
}

static sl_status start_thread(sl_runtime *rt, worker *w) {
  atomic_store(&rt->crew.active, 1);
  if (pthread_create(&w->thread, NULL, worker_main, w)) {
    w->thread = 0;
    char limit[SLI_LIMIT_TEXT];
    return sl_fail(SL_E_MEMORY, "cannot start worker thread %d of %d%s", w->id, rt->nworkers,
                   sli_address_limit(limit));
  }
  wait_for_workers(rt, 0, NULL);
  return SL_OK;
}

static sl_status start_worker(sl_runtime *rt, worker *w) {
  sl_status status = SL_OK;
  if (rt->threads) status = start_thread(rt, w);
  else open_worker(w);
  if (status) return status;
  return w->status ? sl_fail(w->status, "%s", w->detail) : SL_OK;
}

sl_status sli_threads_start(sl_runtime *rt) {
  sl_status status = sli_arenas_create(rt, NULL);
  for (int32_t i = 0; i < rt->nworkers && !status; i++) status = start_worker(rt, &rt->workers[i]);
  if (status) return status;
  sli_arenas_point(rt);
  for (int32_t i = 0; i < rt->plan->nactors; i++)
    if (rt->actors[i].queue->worker->process < 0)
      sli_actor_start(rt->actors[i].queue->worker, &rt->actors[i]);
  return sli_address_room(SLI_LIBRARY_BYTES, "threads and libraries");
}

static void begin_run(crew *c, uint32_t workers) {
  atomic_store(&c->active, workers);
  atomic_fetch_add_explicit(&c->epoch, 1, memory_order_release);
  sli_futex_wake(&c->epoch);
}

void sli_threads_join(sl_runtime *rt) {
  atomic_store(&rt->crew.quit, true);
  begin_run(&rt->crew, 0);
  for (int32_t i = 0; i < rt->nworkers; i++)
    if (rt->workers[i].thread) pthread_join(rt->workers[i].thread, NULL);
}

/* ---- groups --------------------------------------------------------------------------- */

sl_status sl_runtime_connect(sl_runtime *rt, bool *ready) {
  bool all = true;
  for (int32_t i = 0; i < rt->plan->nqueues && rt->connected < rt->ngroups; i++) {
    queue *q = &rt->queues[i];
    bool one = true;
    if (q->plan->group != rt->connected + 1 || !q->impl) continue;
    if (q->ops->connect) SLI_TRY(q->ops->connect(q->impl, &one));
    all &= one;
  }
  rt->connected += all && rt->connected < rt->ngroups;
  *ready = rt->connected == rt->ngroups;
  return SL_OK;
}

/* Connects the groups, unless the caller has. */
static sl_status connect_groups(sl_runtime *rt) {
  bool ready = rt->connected == rt->ngroups;
  while (!ready) {
    int32_t before = rt->connected;
    SLI_TRY(sl_runtime_connect(rt, &ready));
    if (rt->connected == before) usleep(100);
  }
  return SL_OK;
}

/* ---- running ------------------------------------------------------------------------ */

static bool all_fired(const sl_runtime *rt, int64_t steps) {
  for (int32_t i = 0; i < rt->nworkers; i++)
    if (worker_fired(&rt->workers[i]) != worker_share(&rt->workers[i], steps)) return false;
  return true;
}

static sl_status failed(const sl_runtime *rt) {
  return sl_fail(rt->failure.status, "%s", rt->failure.text);
}

/* Status of a finished run. */
static sl_status judge(sl_runtime *rt) {
  int64_t final = gate_final(&rt->gate);
  if (gate_look(&rt->gate).aborted) return failed(rt);
  if (!all_fired(rt, final)) return SL_E_STUCK;
  rt->steps = final;
  if (atomic_load_explicit(&rt->failure.state, memory_order_acquire) == FAILURE_KEPT)
    return failed(rt);
  if (final < rt->gate.goal)
    return sl_fail(SL_E_STOPPED, "stopped after step %lld", (long long) final);
  return SL_OK;
}

/* Resets peaks of activations, which count per run. */
static void forget_peaks(sl_runtime *rt) {
  for (int32_t d = 0; d < rt->plan->ndevices; d++) rt->devices[d].peak = rt->devices[d].held;
}

static const int64_t MOST_STEPS = INT64_C(1) << 56; /* firings are counted in 64 bits */

sl_status sli_runtime_run(sl_runtime *rt, int64_t steps, sli_idle *idle) {
  gate_view gate = gate_look(&rt->gate);
  if (steps < 0 || steps > MOST_STEPS - rt->steps)
    return sl_fail(SL_E_USAGE, "a run of %lld steps: must be from 0 to %lld", (long long)steps,
                   (long long)(MOST_STEPS - rt->steps));
  if (gate.aborted) return failed(rt);
  if (gate.closed && !gate.held && gate.begun <= rt->steps)
    return sl_fail(SL_E_STOPPED, "the run was stopped");
  SLI_TRY(connect_groups(rt));
  forget_peaks(rt);
  gate_aim(&rt->gate, rt->steps + steps);
  if (rt->threads) {
    double period = rt->options.watchdog_seconds;
    begin_run(&rt->crew, (uint32_t)rt->nworkers);
    wait_for_workers(rt, period ? period : 30, idle);
  } else {
    sli_worker_run(&rt->workers[0]);
  }
  return judge(rt);
}
