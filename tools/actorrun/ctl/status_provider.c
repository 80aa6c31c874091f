/* SPDX-License-Identifier: Apache-2.0 */
/* Status provider of a training run. */
#include <cjson/cJSON.h>
#include <string.h>

#include "tools/actorrun/ctl/ctl.h"

/* The data that each process reports. */
typedef struct own_status {
  progress_status progress;
  int64_t checkpoint; /* step of the newest checkpoint; 0 if none */
} own_status;

static void tell(void *ctx, void *own) {
  job *j = ctx;
  const own_status t = {progress_now(&j->progress), sl_checkpoints_newest(j->checkpoints)};
  memcpy(own, &t, sizeof t);
}

static void add_number(cJSON *to, const char *name, double value) {
  cJSON_AddNumberToObject(to, name, value);
}

/* Returns the steps that all known actors have completed, except actors that skip steps. */
static int64_t steps_done(const sl_run_status *rs) {
  int64_t least = INT64_MAX;
  for (int32_t i = 0; i < rs->plan->nactors; i++) {
    const sl_actor *a = &rs->plan->actors[i];
    if (a->every <= 1 && rs->fired[i] >= 0)
      least = SLI_MIN(least, rs->fired[i] / a->firings_per_step);
  }
  return least == INT64_MAX ? 0 : least;
}

static void add_progress(cJSON *to, const job *j, const sl_run_status *rs, const void *first) {
  own_status t = {.progress = {.done = -1, .steps = j->progress.steps}};
  if (first) memcpy(&t, first, sizeof t);
  const progress_status *l = &t.progress;
  int64_t done = l->done < 0 ? steps_done(rs) : l->done;
  if (first) add_number(to, "step", (double)done);
  add_number(to, "steps", (double)l->steps);
  if (l->elapsed_seconds > 0) add_number(to, "elapsed_seconds", l->elapsed_seconds);
  if (l->done < 0) return;
  char hex[64];
  snprintf(hex, sizeof hex, "%a", l->loss);
  add_number(to, "loss", l->loss);
  cJSON_AddStringToObject(to, "loss_hex", hex);
  add_number(to, "step_seconds", l->step_seconds);
  add_number(to, "tokens_per_second", l->rate);
  cJSON_AddStringToObject(to, "items", j->progress.word);
  add_number(to, "left_seconds", (double)(l->steps - l->done) * l->step_seconds);
}

static void add_checkpoint(cJSON *to, const job *j, const void *const *own) {
  int64_t newest = 0;
  for (int i = 0; i < sl_job_processes(j->processes); i++) {
    own_status t = {0};
    if (own[i]) memcpy(&t, own[i], sizeof t);
    newest = SLI_MAX(newest, t.checkpoint);
  }
  const char *directory = settings_text(j->settings, "checkpoint");
  if (!directory) return;
  cJSON *checkpoint = cJSON_AddObjectToObject(to, "checkpoint");
  cJSON_AddStringToObject(checkpoint, "directory", directory);
  if (newest) add_number(checkpoint, "step", (double)newest);
}

static void describe(void *ctx, const sl_run_status *rs, const void *const *own, cJSON *to) {
  const job *j = ctx;
  add_progress(to, j, rs, own[0]);
  add_checkpoint(to, j, own);
}

subject job_subject(job *j) {
  return (subject){.processes = j->processes,
                   .plan = j->plan,
                   .lowered = j->lowered,
                   .rt = j->rt,
                   .model = j->settings->model->name,
                   .ctx = j,
                   .own_bytes = sizeof(own_status),
                   .tell = tell,
                   .describe = describe};
}

const topic job_topics[] = {{&question_quota, "quota", request_quota},
                            {&question_status, "status", request_status},
                            {&question_trace, "trace", request_trace},
                            {NULL, NULL, NULL}};
