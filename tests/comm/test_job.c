/* SPDX-License-Identifier: Apache-2.0 */
/* Programs join a job through the library alone. The job runs more than once and stops everywhere
 * after the same step, and statistics of any length reach process 0. A process with another
 * fingerprint or another plan is refused with an error that names it. A failing process ends the
 * job with its error text. A program started alone is a job of one process.
 * labels: smoke
 * needs: zeromq */
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "comm/control/control.h"
#include "comm/job/job.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"

/* ---- jobs ------------------------------------------------------------------------------- */

/* State that all processes of a job inherit when they are forked. */
static char endpoint[PROCESS_ENDPOINT_CHARS], key[SLI_CONTROL_KEY_CHARS + 1], name[64];
static int number; /* number of the job */

static void run_job(int n, void (*main)(process *p)) {
  int port = process_port(endpoint);
  sli_control_make_key(key);
  snprintf(name, sizeof name, "test-%d-%d", (int)getpid(), number++);
  CHECK(processes_run(n, main), "job %d", number);
  close(port);
}

static sl_job *open_job(const process *p) {
  char text[16];
  snprintf(text, sizeof text, "%d", p->self);
  setenv("SLUICE_PROCESS", text, 1);
  snprintf(text, sizeof text, "%d", p->n);
  setenv("SLUICE_PROCESSES", text, 1);
  setenv("SLUICE_ENDPOINT", endpoint, 1);
  setenv("SLUICE_JOB", name, 1);
  setenv("SLUICE_KEY", key, 1);
  sl_job *job = NULL;
  CHECK(!sl_job_open(NULL, &job), "%s", sl_detail());
  CHECK(sl_job_process(job) == p->self && sl_job_processes(job) == p->n, "its place");
  return job;
}

/* Each process has a device with an idle actor that fires `ticks` times per step. */
static sl_plan *make_plan(int nprocesses, int ticks) {
  sl_plan *plan = sl_plan_create(ticks, 1);
  for (int i = 0; i < nprocesses; i++) {
    sl_device device = {.name = "null", .kind = "null", .process = i};
    sl_queue queue = {.name = "null", .ops = &sl_queue_null, .run_ahead = 1};
    sl_actor actor = {.name = "source",
                      .stage = SL_NONE,
                      .chunk = SL_NONE,
                      .firings_per_step = ticks,
                      .source = true};
    queue.device = sl_plan_add_device(plan, device);
    actor.queue = sl_plan_add_queue(plan, queue);
    actor.ticks = sl_plan_map_each(plan);
    sl_plan_add_actor(plan, actor);
  }
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  return plan;
}

static sl_runtime *make_runtime(sl_job *job, const sl_plan *plan, size_t records) {
  sl_runtime *rt = NULL;
  sl_runtime_options options = {.peers = sl_job_peers(job),
                                .process = sl_job_process(job),
                                .no_data = true,
                                .trace_records = records};
  CHECK(!sl_runtime_create(plan, &options, &rt), "%s", sl_detail());
  return rt;
}

/* ---- claims ------------------------------------------------------------------------------ */

static void runs_twice(process *p) {
  sl_job *job = open_job(p);
  sl_plan *plan = make_plan(p->n, 10);
  CHECK(!sl_job_join(job, plan, 0, NULL), "%s", sl_detail());
  sl_runtime *rt = make_runtime(job, plan, 0);
  sl_blob *blobs;
  CHECK(!sl_job_attach(job, rt, 0), "%s", sl_detail());
  CHECK(!sl_job_run(job, 5) && !sl_job_run(job, 7), "%s", sl_detail());
  CHECK(sl_runtime_steps(rt) == 12, "%lld steps", (long long)sl_runtime_steps(rt));
  CHECK(!sl_job_meet(job, "mine", &p->self, sizeof p->self, &blobs), "%s", sl_detail());
  CHECK(!blobs == (p->self > 0), "what is brought is process 0's");
  for (int i = 0; blobs && i < p->n; i++) {
    CHECK(blobs[i].bytes == sizeof i && !memcmp(blobs[i].data, &i, sizeof i), "blob %d", i);
    free(blobs[i].data);
  }
  free(blobs);
  CHECK(!sl_job_gather(job, 0) && !sl_job_gather(job, 0), "%s", sl_detail());
  CHECK(!sl_job_end(job, SL_OK), "%s", sl_detail());
  sl_job_close(job);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

/* Statistics far larger than a barrier message. */
static void long_figures_are_gathered(process *p) {
  enum { TICKS = 1 << 16, STEPS = 34 };
  sl_job *job = open_job(p);
  sl_plan *plan = make_plan(p->n, TICKS);
  CHECK(!sl_job_join(job, plan, 0, NULL), "%s", sl_detail());
  sl_runtime *rt = make_runtime(job, plan, (size_t)1 << 22);
  CHECK(!sl_job_attach(job, rt, 0) && !sl_job_run(job, STEPS), "%s", sl_detail());
  CHECK(!sl_job_gather(job, 0), "%s", sl_detail());
  sl_trace_record *records;
  uint64_t dropped, all = (uint64_t)TICKS * STEPS * (uint64_t)(p->self ? 1 : p->n);
  size_t n = sl_runtime_trace(rt, &records, &dropped);
  CHECK(n == all && !dropped, "%zu records, %llu dropped", n, (unsigned long long)dropped);
  CHECK(sl_runtime_count(rt).firings == all, "firings add up");
  free(records);
  CHECK(!sl_job_end(job, SL_OK), "%s", sl_detail());
  sl_job_close(job);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

static void stops_at_one_step(process *p) {
  sl_job *job = open_job(p);
  sl_plan *plan = make_plan(p->n, 10);
  CHECK(!sl_job_join(job, plan, 0, NULL), "%s", sl_detail());
  sl_runtime *rt = make_runtime(job, plan, 0);
  CHECK(!sl_job_attach(job, rt, 0), "%s", sl_detail());
  if (p->self == 1) sl_runtime_stop(rt);
  CHECK(sl_job_run(job, 1000000000) == SL_E_STOPPED, "%s", sl_detail());
  int64_t steps = sl_runtime_steps(rt);
  sl_blob *blobs;
  CHECK(!sl_job_meet(job, "steps", &steps, sizeof steps, &blobs), "%s", sl_detail());
  for (int i = 0; blobs && i < p->n; i++) {
    CHECK(!memcmp(blobs[i].data, &steps, sizeof steps), "process %d ends elsewhere", i);
    free(blobs[i].data);
  }
  free(blobs);
  for (int again = 0; again < 2; again++) { /* continues; another process stops it */
    CHECK(!sl_job_resume(job) && !sl_job_run(job, 7), "%s", sl_detail());
    CHECK(sl_runtime_steps(rt) == steps + 7, "%lld steps", (long long)sl_runtime_steps(rt));
    if (p->self == again % p->n) sl_runtime_stop(rt);
    CHECK(sl_job_run(job, 1000000000) == SL_E_STOPPED, "%s", sl_detail());
    steps = sl_runtime_steps(rt);
  }
  CHECK(!sl_job_end(job, SL_OK), "%s", sl_detail());
  sl_job_close(job);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

/* All processes get the same error, which names the item and both values. */
static void check_refused(process *p, int nfingerprint, const sl_fingerprint_item *fingerprint,
                          int ticks, const char *text) {
  sl_job *job = open_job(p);
  sl_plan *plan = make_plan(p->n, ticks);
  sl_status status = sl_job_end(job, sl_job_join(job, plan, nfingerprint, fingerprint));
  CHECK(status && strstr(sl_detail(), text), "process %d: %d, %s", p->self, status, sl_detail());
  CHECK(p->self || status == SL_E_INPUT, "an input is wrong");
  sl_job_close(job);
  sl_plan_destroy(plan);
}

static void other_values_are_refused(process *p) {
  sl_fingerprint_item fingerprint[] = {{"--data", "a.txt"}, {"--seed", p->self == 2 ? "7" : "1"}};
  check_refused(p, 2, fingerprint, 10, "process 2 has --seed 7, process 0 has --seed 1");
}

static void a_missing_setting_is_refused(process *p) {
  sl_fingerprint_item fingerprint[] = {{"--seed", "1"}, {"--save", "w"}};
  check_refused(p, p->self == 1 ? 1 : 2, fingerprint, 10,
                "process 1 has no --save, process 0 has --save w");
}

static void one_more_setting_is_refused(process *p) {
  sl_fingerprint_item fingerprint[] = {{"--seed", "1"}, {"--save", "w"}};
  check_refused(p, p->self == 1 ? 2 : 1, fingerprint, 10,
                "process 1 has --save w, process 0 has no --save");
}

static void another_plan_is_refused(process *p) {
  check_refused(p, 0, NULL, p->self == 1 ? 11 : 10, "process 1 runs a different plan (");
}

static void too_much_for_a_meeting_is_refused(process *p) {
  sl_job *job = open_job(p);
  sl_plan *plan = make_plan(p->n, 10);
  CHECK(!sl_job_join(job, plan, 0, NULL), "%s", sl_detail());
  size_t bytes = ((size_t)64 << 20) + 1;
  char *much = sli_calloc(1, bytes);
  CHECK(sl_job_meet(job, "much", much, bytes, NULL) == SL_E_USAGE, "%s", sl_detail());
  free(much);
  CHECK(!sl_job_end(job, SL_OK), "%s", sl_detail());
  sl_job_close(job);
  sl_plan_destroy(plan);
}

static void a_failure_ends_the_job(process *p) {
  sl_job *job = open_job(p);
  sl_plan *plan = make_plan(p->n, 10);
  CHECK(!sl_job_join(job, plan, 0, NULL), "%s", sl_detail());
  sl_runtime *rt = make_runtime(job, plan, 0);
  sl_status status = sl_job_attach(job, rt, 0);
  CHECK(!status, "%s", sl_detail());
  if (p->self == 1) status = sl_fail(SL_E_IO, "the disk of this one is full");
  else status = sl_job_gather(job, 0); /* waits for a process that never comes */
  status = sl_job_end(job, status);
  CHECK(status == (p->self == 1 ? SL_E_IO : SL_E_PEER) && strstr(sl_detail(), "is full"),
        "process %d: %s", p->self, sl_detail());
  sl_job_close(job);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

static void a_program_alone_is_a_job(void) {
  sl_job *job = NULL;
  sl_blob *blobs;
  CHECK(!sl_job_open(NULL, &job), "%s", sl_detail());
  CHECK(sl_job_process(job) == 0 && sl_job_processes(job) == 1, "one of one");
  sl_plan *plan = make_plan(1, 10);
  CHECK(!sl_job_join(job, plan, 1, &(sl_fingerprint_item){"--seed", "1"}), "%s", sl_detail());
  sl_runtime *rt = make_runtime(job, plan, 0);
  CHECK(!sl_job_peers(job) && !sl_job_attach(job, rt, 0), "nobody else");
  CHECK(!sl_job_run(job, 3) && !sl_job_gather(job, 0), "%s", sl_detail());
  CHECK(!sl_job_meet(job, "here", "me", 2, &blobs) && blobs[0].bytes == 2, "%s", sl_detail());
  free(blobs[0].data);
  free(blobs);
  CHECK(sl_runtime_steps(rt) == 3 && !sl_job_end(job, SL_OK), "%s", sl_detail());
  sl_job_close(job);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

int main(void) {
  RUN_AS("runs_twice", run_job(3, runs_twice));
  RUN_AS("long_figures_are_gathered", run_job(2, long_figures_are_gathered));
  RUN_AS("stops_at_one_step", run_job(3, stops_at_one_step));
  RUN_AS("other_values_are_refused", run_job(3, other_values_are_refused));
  RUN_AS("a_missing_term_is_refused", run_job(2, a_missing_setting_is_refused));
  RUN_AS("one_more_term_is_refused", run_job(2, one_more_setting_is_refused));
  RUN_AS("another_plan_is_refused", run_job(2, another_plan_is_refused));
  RUN_AS("too_much_for_a_meeting_is_refused", run_job(2, too_much_for_a_meeting_is_refused));
  RUN_AS("a_failure_ends_the_job", run_job(3, a_failure_ends_the_job));
  RUN(a_program_alone_is_a_job);
  return 0;
}
