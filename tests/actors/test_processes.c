/* SPDX-License-Identifier: Apache-2.0 */
/* A plan over several processes has the same losses as in one, bit for bit, and no register exceeds
 * its quota. A stop ends all processes at the same step, an abort ends them immediately, and
 * messages that name unknown objects are rejected.
 *
 *   test_actors_processes [SEED [COUNT]]
 * labels: random smoke */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "actors/run/run.h"
#include "base/base.h"
#include "tests/support/loopback.h"
#include "tests/support/schedules.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { STEPS = 3, STAGES = 4, MICROBATCHES = 6 };

typedef struct losses {
  int count;
  double loss[STEPS], norm[STEPS];
} losses;

static void take_step(void *ctx, const sl_step_report *report) {
  losses *l = ctx;
  CHECK(report->step == l->count && l->count < STEPS, "steps are reported in order");
  l->loss[l->count] = report->loss;
  l->norm[l->count++] = report->grad_norm;
}

/* One process, with a copy of the plan and a runtime. */
typedef struct member {
  pthread_t thread;
  lowered_model model;
  losses losses;
  sl_runtime *rt;
  int64_t steps;
  sl_status status;
} member;

typedef struct job {
  const char *schedule, *model, *kind;
  char *const *words;
  int nprocesses, workers;
  uint64_t jitter_seed;
  member of[MOST_PROCESSES];
  loopback *processes;
} job;

static void start(job *j, int self) {
  member *p = &j->of[self];
  bool data = !strcmp(j->kind, "cpu");
  sl_lower_options lower = {.parallel.stages = STAGES,
                            .schedule.chunks = sl_schedule_chunks(j->schedule),
                            .schedule.name = j->schedule,
                            .parallel.processes = j->nprocesses,
                            .devices = {.kind = j->kind, .threads = 1},
                            .report.on_step = take_step,
                            .report.ctx = &p->losses};
  CHECK(!lowered_model_init(&p->model, j->model, j->words, MICROBATCHES, 1, &lower), "%s",
        sl_detail());
  sl_runtime_options options = {.process = self,
                                .workers = j->workers,
                                .no_data = !data,
                                .jitter_seed = j->jitter_seed,
                                .jitter_ns = 20000,
                                .watchdog_seconds = 20};
  if (j->processes) options.peers = loopback_peers(j->processes, self);
  CHECK(!sl_plan_prove(p->model.plan), "%s", sl_detail());
  CHECK(!sl_runtime_create(p->model.plan, &options, &p->rt), "%s", sl_detail());
  if (j->processes) loopback_attach(j->processes, self, p->rt);
  sl_lowered_attach(p->model.lowered, p->rt);
  if (data) sl_params_init(p->model.lowered, p->rt, 1);
}

static void *run(void *arg) {
  member *p = arg;
  p->status = sl_runtime_run(p->rt, p->steps);
  return NULL;
}

static void launch(job *j, int64_t steps) {
  j->processes = loopback_create(j->nprocesses);
  for (int i = 0; i < j->nprocesses; i++) start(j, i);
  for (int i = 0; i < j->nprocesses; i++) {
    j->of[i].steps = steps;
    CHECK(!pthread_create(&j->of[i].thread, NULL, run, &j->of[i]), "no thread");
  }
}

static void join(job *j) {
  for (int i = 0; i < j->nprocesses; i++) pthread_join(j->of[i].thread, NULL);
}

/* Gives process 0 the statistics of another process, in portions of at most about `most` bytes. */
static void tell_in_portions(sl_runtime *rt, const sl_runtime *other, size_t most) {
  sl_export *e = sl_export_open(other, most, 0);
  const void *portion;
  int count = 0;
  for (size_t size; (size = sl_export_next(e, &portion)); count++) {
    CHECK(!count || size <= most, "a portion of %zu bytes, not %zu", size, most);
    CHECK(sl_runtime_import(rt, portion, size - 1, 0) == SL_E_INPUT, "what is cut off is refused");
    CHECK(!sl_runtime_import(rt, portion, size, 0), "%s", sl_detail());
    CHECK(!count || sl_runtime_import(rt, portion, size, 0) == SL_E_INPUT,
          "so is what has come before");
  }
  CHECK(count > 1 && !sl_export_next(e, &portion), "%d portions", count);
  sl_export_close(e);
}

static void tell_at_once(sl_runtime *rt, const sl_runtime *other) {
  void *bytes;
  size_t size = sl_runtime_export(other, &bytes);
  CHECK(sl_runtime_import(rt, bytes, size - 1, 0) == SL_E_INPUT, "what is cut off is refused");
  CHECK(!sl_runtime_import(rt, bytes, size, 0), "%s", sl_detail());
  free(bytes);
}

/* Process 0 knows the statistics of all processes. */
static void statistics_add_up(const char *schedule, job *j) {
  const sl_plan *plan = j->of[0].model.plan;
  sl_runtime *rt = j->of[0].rt;
  uint64_t firings = sl_runtime_count(rt).firings;
  for (int i = 1; i < j->nprocesses; i++) {
    if (i % 2) tell_in_portions(rt, j->of[i].rt, 1500);
    else tell_at_once(rt, j->of[i].rt);
    firings += sl_runtime_count(j->of[i].rt).firings;
  }
  CHECK(sl_runtime_count(rt).firings == firings, "%s: firings add up", schedule);
  sl_trace_record *records;
  uint64_t dropped;
  CHECK(sl_runtime_trace(rt, &records, &dropped) == firings && !dropped, "%s: so do records",
        schedule);
  free(records);
  sl_statistics f = sl_runtime_statistics(rt);
  CHECK(f.step_seconds > 0, "%s: a step takes time", schedule);
  for (int32_t d = 0; d < plan->ndevices; d++)
    CHECK(f.devices[d].busy_seconds > 0 && f.devices[d].peak_activations > 0,
          "%s: device %d is known", schedule, d);
  free(f.devices);
}

static void finish(job *j) {
  for (int i = 0; i < j->nprocesses; i++) {
    const member *p = &j->of[i];
    CHECK(p->model.plan->hash == j->of[0].model.plan->hash, "every process has the same plan");
    for (int32_t r = 0; r < p->model.plan->nregs; r++)
      CHECK(sl_runtime_peak_slots(p->rt, r) <= p->model.plan->regs[r].quota, "%s: %s is too full",
            j->schedule, p->model.plan->regs[r].name);
    sl_runtime_destroy(p->rt);
  }
  for (int i = 0; i < j->nprocesses; i++) lowered_model_fini(&j->of[i].model);
  loopback_destroy(j->processes);
}

/* ---- a GPT -------------------------------------------------------------------------------- */

static losses train(const char *schedule, char *text, int nprocesses, int workers) {
  char *words[] = {"--data", text,        "--layers", "8",       "--width", "32", "--heads",
                   "2",      "--context", "16",       "--batch", "6",       NULL};
  job j = {.schedule = schedule,
           .model = "gpt",
           .kind = "cpu",
           .words = words,
           .nprocesses = nprocesses,
           .workers = workers,
           .jitter_seed = 1};
  launch(&j, STEPS);
  join(&j);
  for (int i = 0; i < nprocesses; i++)
    CHECK(!j.of[i].status, "%s, process %d: %s", schedule, i, sl_status_text(j.of[i].status));
  losses l = j.of[0].losses;
  CHECK(l.count == STEPS, "%s: process 0 reports every step", schedule);
  for (int i = 1; i < nprocesses; i++)
    CHECK(!j.of[i].losses.count, "%s: only process 0 reports", schedule);
  statistics_add_up(schedule, &j);
  finish(&j);
  return l;
}

static void same_losses(const char *schedule, char *text) {
  losses one = train(schedule, text, 1, 0);
  static const int cases[][2] = {{2, 0}, {4, 0}, {3, 0}, {2, 1}};
  for (size_t c = 0; c < SLI_COUNT(cases); c++) {
    losses l = train(schedule, text, cases[c][0], cases[c][1]);
    for (int i = 0; i < STEPS; i++)
      CHECK(l.loss[i] == one.loss[i] && l.norm[i] == one.norm[i],
            "%s over %d processes, %d workers each, step %d: loss %a, norm %a; in one %a, %a",
            schedule, cases[c][0], cases[c][1], i, l.loss[i], l.norm[i], one.loss[i], one.norm[i]);
  }
}

/* ---- stop, abort, wrong messages ------------------------------------------------------------- */

static job null_job(const char *schedule, uint64_t seed, int nprocesses) {
  return (job){.schedule = schedule,
               .model = "pipeline",
               .kind = "null",
               .nprocesses = nprocesses,
               .workers = (int)(seed % 3),
               .jitter_seed = seed};
}

/* Stops the processes of a job as they do when one of them is asked to stop. */
static int64_t stop_all(job *j) {
  int64_t last = 0;
  for (int i = 0; i < j->nprocesses; i++) last = SLI_MAX(last, sl_runtime_hold(j->of[i].rt));
  usleep((useconds_t)(j->jitter_seed * 7919 % 1000)); /* workers poll or sleep */
  for (int i = 0; i < j->nprocesses; i++) sl_runtime_end_at(j->of[i].rt, last);
  return last;
}

static void stops_at_one_step(const char *schedule, uint64_t seed) {
  job j = null_job(schedule, seed, 2 + (int)(seed % 3));
  launch(&j, 1000000);
  usleep((useconds_t)(seed % 7 * 3000));
  sl_runtime_stop(j.of[seed % 2].rt);
  CHECK(sl_runtime_wants_stop(j.of[seed % 2].rt), "a stop is a wish first");
  int64_t last = stop_all(&j);
  join(&j);
  for (int i = 0; i < j.nprocesses; i++) {
    CHECK(j.of[i].status == SL_E_STOPPED, "seed %" PRIu64 ": process %d", seed, i);
    CHECK(sl_runtime_steps(j.of[i].rt) == last,
          "seed %" PRIu64
          ": process %d ends after %lld, not "
          "%lld",
          seed, i, (long long)sl_runtime_steps(j.of[i].rt), (long long)last);
  }
  finish(&j);
}

/* A limited trace export keeps the newest whole steps, and all other data. */
static void old_steps_are_left_out(void) {
  enum { RUN = 200, MOST = 1000 };
  job j = null_job("1f1b", 0, 2);
  launch(&j, RUN);
  join(&j);
  sl_export *e = sl_export_open(j.of[1].rt, 0, MOST);
  const void *portion;
  size_t size = sl_export_next(e, &portion);
  uint64_t firings = sl_runtime_count(j.of[0].rt).firings + sl_runtime_count(j.of[1].rt).firings;
  CHECK(size < (MOST + 500) * sizeof(sl_trace_record), "%zu bytes", size);
  CHECK(!sl_runtime_import(j.of[0].rt, portion, size, 0), "%s", sl_detail());
  sl_export_close(e);
  CHECK(sl_runtime_count(j.of[0].rt).firings == firings, "all firings count");
  sl_trace_record *records;
  uint64_t dropped;
  size_t n = sl_runtime_trace(j.of[0].rt, &records, &dropped);
  free(records);
  CHECK(dropped && n + dropped == firings, "%zu records, %" PRIu64 " dropped", n, dropped);
  sl_statistics f = sl_runtime_statistics(j.of[0].rt);
  CHECK(f.step_seconds > 0, "the last steps are known");
  free(f.devices);
  finish(&j);
}

static void aborts_at_once(const char *schedule) {
  job j = null_job(schedule, 3, 2);
  launch(&j, 1000000);
  usleep(3000);
  for (int i = 0; i < j.nprocesses; i++) sl_runtime_abort(j.of[i].rt, SL_E_DEVICE, "it is gone");
  join(&j);
  for (int i = 0; i < j.nprocesses; i++)
    CHECK(j.of[i].status == SL_E_DEVICE, "%s", sl_status_text(j.of[i].status));
  finish(&j);
}

static void refuses_strange_messages(uint64_t seed) {
  job j = null_job("1f1b", 0, 2);
  launch(&j, 1);
  join(&j);
  uint64_t random = seed | 1;
  int taken = 0;
  for (int i = 0; i < 20000; i++) {
    sli_message m;
    for (size_t b = 0; b < sizeof m; b++) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      ((unsigned char *)&m)[b] = (unsigned char)random;
    }
    if (i % 2) m.reg %= 64, m.kind %= 5; /* closer to valid values */
    m.slot = i % 3 ? m.slot : -1 - i;
    if (i % 3 == 0) m.kind = SLI_FREE;
    taken += !sl_runtime_deliver(j.of[0].rt, &m) && m.kind == SLI_FREE && m.slot < 0;
    taken += sl_runtime_place(j.of[0].rt, &m, 1 + (size_t)(random % 9999)) != NULL;
    taken += !sl_runtime_arrived(j.of[0].rt, &m, 1 + (size_t)(random % 9999));
  }
  CHECK(!taken, "seed %" PRIu64 ": %d strange messages got in", seed, taken);
  finish(&j);
}

/* Returns the workers of each of four processes that have one device and one core, for the given
 * job. */
static int32_t workers_of(job j) {
  launch(&j, 1);
  join(&j);
  int32_t workers = sli_runtime_workers(j.of[0].rt);
  for (int i = 0; i < j.nprocesses; i++)
    CHECK(!j.of[i].status, "%s", sl_status_text(j.of[i].status));
  finish(&j);
  return workers;
}

/* With one core, a worker that always responds doubles as the carrier; a worker that computes does
 * so only on request. */
static void the_carrier_has_a_worker_of_its_own_if_needed(char *text) {
  char *words[] = {"--data", text,        "--layers", "4",       "--width", "8", "--heads",
                   "1",      "--context", "4",        "--batch", "6",       NULL};
  job null = null_job("1f1b", 0, STAGES), cpu = null;
  cpu.model = "gpt", cpu.kind = "cpu", cpu.words = words;
  cpu_set_t all, one;
  CHECK(!sched_getaffinity(0, sizeof all, &all), "no cores are known");
  CPU_ZERO(&one);
  for (int c = 0; !CPU_COUNT(&one); c++)
    if (CPU_ISSET(c, &all)) CPU_SET(c, &one);
  CHECK(!sched_setaffinity(0, sizeof one, &one), "a core is refused");
  CHECK(workers_of(null) == 1, "a worker besides that of a null device");
  CHECK(workers_of(cpu) == 2, "no worker besides one that computes");
  null.workers = 2, cpu.workers = 1;
  CHECK(workers_of(null) == 2 && workers_of(cpu) == 1, "not as many workers as asked for");
  sched_setaffinity(0, sizeof all, &all);
}

static void too_many_processes(void) {
  lowered_model x;
  sl_lower_options lower = {
      .parallel.stages = 2, .parallel.processes = 3, .devices = {.kind = "null"}};
  CHECK(lowered_model_init(&x, "pipeline", NULL, 4, 1, &lower) == SL_E_USAGE, "3 for 2");
  CHECK(strstr(sl_detail(), "3 processes are too many for 2 pipeline devices"), "%s", sl_detail());
  lowered_model_fini(&x);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 12);
  static const char *const names[] = {"1f1b", "zb-h1", "v-half", "interleaved", "gpipe"};
  const char *source = getenv("SLUICE_SOURCE");
  char *text = sli_format("%s/tests/reference/text.txt", source ? source : ".");
  for (size_t i = 0; i < SLI_COUNT(names); i++) RUN(same_losses, names[i], text);
  for (uint64_t i = s.first; i < s.end; i++) RUN(stops_at_one_step, names[i % 5], i);
  for (size_t i = 0; i < SLI_COUNT(names); i++) RUN(aborts_at_once, names[i]);
  RUN(old_steps_are_left_out);
  RUN(refuses_strange_messages, s.first);
  RUN(too_many_processes);
  RUN(the_carrier_has_a_worker_of_its_own_if_needed, text);
  free(text);
  return 0;
}
