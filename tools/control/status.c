/* SPDX-License-Identifier: Apache-2.0 */
/* Status of a running job: each process reports its part, and the process that was asked
 * combines them into one JSON object. */
#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sluice/run_status.h>

#include "base/json_text.h"
#include "base/memory.h"
#include "tools/control/control.h"

enum { PATIENCE_MS = 800 }; /* a process silent for twice this long counts as lost */

/* ---- this process --------------------------------------------------------------------------- */

/* A process's part: plain data, followed by the owner's data and the bytes of a run status. */
typedef struct part {
  int64_t pid;
  char host[64];
  int64_t begun; /* steps */
  uint64_t firings;
  uint64_t arena_bytes, resident_bytes;
  sli_job_traffic traffic;
} part;

static uint64_t resident_bytes(void) {
  unsigned long pages = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  if (file && fscanf(file, "%*u %lu", &pages) != 1) pages = 0;
  if (file) fclose(file);
  return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool is_here(const subject *s, int32_t device) {
  return s->plan->devices[device].process == sl_job_process(s->processes);
}

static uint64_t arena_bytes(const subject *s) {
  uint64_t bytes = 0;
  for (int32_t d = 0; d < s->plan->ndevices; d++)
    if (is_here(s, d)) bytes += sl_device_bytes(&s->plan->devices[d]);
  return bytes;
}

static void answer_status(control *c, const subject *s, const void *data, size_t bytes, FILE *out) {
  (void)c, (void)data, (void)bytes;
  part p = {.pid = getpid(),
            .begun = sl_runtime_begun(s->rt),
            .arena_bytes = arena_bytes(s),
            .firings = sl_runtime_fired(s->rt),
            .resident_bytes = resident_bytes()};
  if (gethostname(p.host, sizeof p.host - 1)) strcpy(p.host, "?");
  p.traffic = sli_job_count(s->processes);
  void *rs;
  size_t size = sl_runtime_run_status_export(s->rt, &rs);
  void *own = sli_calloc(1, s->own_bytes);
  s->tell(s->ctx, own);
  fwrite(&p, sizeof p, 1, out);
  fwrite(own, s->own_bytes, 1, out);
  fwrite(rs, size, 1, out);
  free(own);
  free(rs);
}

const question question_status = {"look", answer_status};

/* ---- all parts as JSON --------------------------------------------------------------------- */

static void add_number(cJSON *to, const char *name, double value) {
  cJSON_AddNumberToObject(to, name, value);
}

static void add_device_names(cJSON *to, const subject *s, int process) {
  cJSON *names = cJSON_AddArrayToObject(to, "devices");
  for (int32_t d = 0; d < s->plan->ndevices; d++)
    if (s->plan->devices[d].process == process)
      cJSON_AddItemToArray(names, cJSON_CreateString(s->plan->devices[d].name));
}

/* Adds the mean bubble of a process's devices (-1: of all devices), averaged over the devices whose
 * bubble is known; null if none is. */
static void add_bubble(cJSON *to, const subject *s, const sl_run_status *rs, int process) {
  double sum = 0;
  int n = 0;
  for (int32_t d = 0; d < s->plan->ndevices; d++) {
    if (rs->idle[d] < 0 || (process >= 0 && s->plan->devices[d].process != process)) continue;
    sum += rs->idle[d];
    n++;
  }
  if (n) add_number(to, "bubble", sum / n);
  else cJSON_AddNullToObject(to, "bubble");
}

static void add_process(cJSON *to, const subject *s, const sl_run_status *rs, int process,
                        const sl_blob *answer) {
  cJSON *one = cJSON_CreateObject();
  cJSON_AddItemToArray(to, one);
  add_number(one, "process", process);
  cJSON_AddBoolToObject(one, "silent", !answer->data);
  add_device_names(one, s, process);
  if (!answer->data) return;
  part p;
  memcpy(&p, answer->data, sizeof p);
  cJSON_AddStringToObject(one, "host", p.host);
  add_number(one, "pid", (double)p.pid);
  add_number(one, "steps_begun", (double)p.begun);
  add_number(one, "firings", (double)p.firings);
  add_bubble(one, s, rs, sl_job_processes(s->processes) > 1 ? process : -1);
  add_number(one, "resident_bytes", (double)p.resident_bytes);
  add_number(one, "arena_bytes", (double)p.arena_bytes);
  if (sl_job_processes(s->processes) == 1) return;
  add_number(one, "sent_bytes", (double)p.traffic.sent_bytes);
  add_number(one, "received_bytes", (double)p.traffic.received_bytes);
  add_number(one, "control_sent", (double)p.traffic.sent);
  add_number(one, "control_received", (double)p.traffic.received);
}

static void add_tick(cJSON *to, const subject *s, const sl_tick *tick) {
  add_number(to, "step", (double)tick->step + 1);
  add_number(to, "microbatch", tick->microbatch);
  if (s->plan->pieces > 1) add_number(to, "piece", tick->piece);
}

static const char *device_of(const subject *s, int32_t actor) {
  return s->plan->devices[s->plan->queues[s->plan->actors[actor].queue].device].name;
}

static int process_of(const subject *s, int32_t actor) {
  return s->plan->devices[s->plan->queues[s->plan->actors[actor].queue].device].process;
}

/* Follows a chain of waiting actors to its end: an actor that runs, waits for nothing, is unknown,
 * or was visited before. */
static int32_t last_of_chain(const sl_run_status *rs, int32_t actor, bool *circle) {
  bool *seen = sli_calloc((size_t)rs->plan->nactors, sizeof *seen);
  *circle = false;
  for (;;) {
    int32_t running = rs->queues[rs->plan->actors[actor].queue].running;
    if (running != SL_NONE) break;
    seen[actor] = true;
    sl_actor_wait next = sl_run_status_actor_wait(rs, actor);
    if (next.on == SL_NONE) break;
    actor = next.on;
    if ((*circle = seen[actor])) break;
  }
  free(seen);
  return actor;
}

static const char *state_of(const sl_run_status *rs, int32_t actor) {
  int32_t running = rs->queues[rs->plan->actors[actor].queue].running;
  return running == SL_UNKNOWN ? "silent"
         : running == actor    ? "runs"
         : running == SL_NONE  ? "ready"
                               : "queues up";
}

static void add_chain_end(cJSON *to, const subject *s, const sl_run_status *rs, int32_t actor) {
  bool circle;
  int32_t last = last_of_chain(rs, actor, &circle);
  cJSON *end = cJSON_AddObjectToObject(to, "in_the_end");
  cJSON_AddStringToObject(end, "actor", s->plan->actors[last].name);
  cJSON_AddStringToObject(end, "device", device_of(s, last));
  add_number(end, "process", process_of(s, last));
  cJSON_AddStringToObject(end, "state", circle ? "circle" : state_of(rs, last));
}

static void add_wait(cJSON *to, const subject *s, const sl_run_status *rs,
                     const sl_actor_wait *wait) {
  cJSON *w = cJSON_AddObjectToObject(to, "waits");
  cJSON_AddStringToObject(w, "why", sl_wait_name(wait->why));
  if (wait->reg != SL_NONE) {
    cJSON_AddStringToObject(w, "register", s->plan->regs[wait->reg].name);
    if (wait->why == SL_WAIT_CREDIT) add_number(w, "slots", rs->slots[wait->reg]);
  }
  if (wait->on == SL_NONE) return;
  cJSON_AddStringToObject(w, "on", s->plan->actors[wait->on].name);
  cJSON_AddStringToObject(w, "device", device_of(s, wait->on));
  add_number(w, "process", process_of(s, wait->on));
  add_chain_end(w, s, rs, wait->on);
}

/* Returns the queue of a device's passes, or SL_NONE. */
static int32_t pass_queue(const subject *s, int32_t device) {
  for (int32_t a = 0; a < s->plan->nactors; a++) {
    const sl_actor *actor = &s->plan->actors[a];
    if (s->plan->queues[actor->queue].device == device && actor->cls <= SL_CLASS_W)
      return actor->queue;
  }
  return SL_NONE;
}

static void add_device(cJSON *to, const subject *s, const sl_run_status *rs, int32_t device) {
  int32_t queue = pass_queue(s, device);
  const sl_queue_status *q = &rs->queues[SLI_MAX(queue, 0)];
  cJSON *one = cJSON_CreateObject();
  cJSON_AddItemToArray(to, one);
  cJSON_AddStringToObject(one, "device", s->plan->devices[device].name);
  add_number(one, "process", s->plan->devices[device].process);
  bool silent = queue == SL_NONE || q->running == SL_UNKNOWN;
  if (!silent && rs->idle[device] >= 0) add_number(one, "bubble", rs->idle[device]);
  sl_actor_wait wait = {.actor = SL_NONE, .reg = SL_NONE, .on = SL_NONE};
  if (!silent && q->running == SL_NONE) wait = sl_run_status_queue_wait(rs, queue);
  bool waits = wait.actor != SL_NONE && wait.why != SL_WAIT_NONE;
  cJSON_AddStringToObject(one, "state",
                          silent            ? "silent"
                          : q->running >= 0 ? "runs"
                          : waits           ? "waits"
                                            : "ready");
  if (silent) return;
  add_number(one, "seconds", q->seconds);
  int32_t actor = q->running >= 0 ? q->running : wait.actor;
  if (actor == SL_NONE) return;
  sl_tick tick = sl_plan_tick(s->plan, actor, rs->fired[actor]);
  cJSON_AddStringToObject(one, "actor", s->plan->actors[actor].name);
  add_tick(one, s, &tick);
  if (waits) add_wait(one, s, rs, &wait);
}

static void add_own(cJSON *to, const subject *s, const sl_run_status *rs, const sl_blob *answers,
                    int n) {
  const void **own = sli_calloc((size_t)n, sizeof *own);
  for (int i = 0; i < n; i++)
    own[i] = answers[i].data ? (char *)answers[i].data + sizeof(part) : NULL;
  s->describe(s->ctx, rs, own, to);
  free(own);
}

static cJSON *describe(const subject *s, const sl_run_status *rs, const sl_blob *answers, int n) {
  char hash[32];
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)s->plan->hash);
  cJSON *root = cJSON_CreateObject();
  add_number(root, "pid", getpid());
  cJSON_AddStringToObject(root, "model", s->model);
  cJSON_AddStringToObject(root, "schedule", sl_lowered_schedule(s->lowered));
  const char *starter = sli_job_cluster(s->processes)->starter;
  if (starter) cJSON_AddStringToObject(root, "starter", starter);
  if (sl_job_processes(s->processes) > 1)
    cJSON_AddStringToObject(root, "job", sli_job_cluster(s->processes)->job);
  cJSON_AddStringToObject(root, "plan_hash", hash);
  add_own(root, s, rs, answers, n);
  add_bubble(root, s, rs, -1);
  cJSON *processes = cJSON_AddArrayToObject(root, "processes");
  for (int i = 0; i < n; i++) add_process(processes, s, rs, i, &answers[i]);
  cJSON *devices = cJSON_AddArrayToObject(root, "devices");
  for (int32_t d = 0; d < s->plan->ndevices; d++) add_device(devices, s, rs, d);
  return root;
}

/* ---- the request ---------------------------------------------------------------------------- */

/* Reads the answers. A malformed answer counts as none. */
static void read_answers(const subject *s, sl_blob *answers, int n, sl_run_status *rs) {
  size_t before = sizeof(part) + s->own_bytes;
  for (int i = 0; i < n; i++) {
    sl_blob *a = &answers[i];
    if (!a->data) continue;
    bool good =
        a->bytes > before && !sl_run_status_import(rs, (char *)a->data + before, a->bytes - before);
    if (good) continue;
    free(a->data);
    a->data = NULL;
  }
}

/* Fills in this process's own part without asking over the network. */
static void answer_for_self(const subject *s, sl_blob *own) {
  char *text = NULL;
  if (own->data) return;
  FILE *out = sli_memory_stream(&text, &own->bytes);
  answer_status(NULL, s, NULL, 0, out);
  fclose(out);
  own->data = text;
}

sl_status request_status(control *c, const subject *s, const char *text, FILE *out) {
  if (*text) return sl_fail(SL_E_USAGE, "status %s: status takes no argument", text);
  int n = sl_job_processes(s->processes);
  sl_blob *answers = control_ask(c, &question_status, NULL, 0, PATIENCE_MS);
  answer_for_self(s, &answers[sl_job_process(s->processes)]);
  sl_run_status *rs = sl_run_status_create(s->plan);
  read_answers(s, answers, n, rs);
  cJSON *root = describe(s, rs, answers, n);
  char *json = sli_json_mend(cJSON_PrintUnformatted(root));
  SLI_CHECK(json, "no memory for an answer");
  fprintf(out, "%s\n", json);
  cJSON_free(json);
  cJSON_Delete(root);
  sl_run_status_destroy(rs);
  for (int i = 0; i < n; i++) free(answers[i].data);
  free(answers);
  return SL_OK;
}
