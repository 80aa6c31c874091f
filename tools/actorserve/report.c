/* SPDX-License-Identifier: Apache-2.0 */
/* Report of a server at its end: --report. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "io/atomic.h"
#include "ops/storage.h"
#include "tools/actorserve/counts.h"
#include "tools/actorserve/workload.h"

static void add_number(cJSON *to, const char *name, double value) {
  cJSON_AddNumberToObject(to, name, value);
}

static void add_devices(cJSON *root, const sl_plan *plan) {
  cJSON *devices = cJSON_AddArrayToObject(root, "devices");
  for (int32_t d = 0; d < plan->ndevices; d++) {
    cJSON *device = cJSON_CreateObject(), *bytes;
    add_number(device, "device", d);
    cJSON_AddStringToObject(device, "name", plan->devices[d].name);
    bytes = cJSON_AddObjectToObject(device, "peak_bytes");
    for (int use = 0; use < SL_MEMORY_COUNT; use++)
      add_number(bytes, sl_memory_name((sl_memory)use),
                 (double)sl_plan_memory(plan, d, (sl_memory)use));
    add_number(bytes, "total", (double)sl_device_bytes(&plan->devices[d]));
    cJSON_AddItemToArray(devices, device);
  }
}

/* Adds the draft model, which only the first process has. */
static void add_draft(cJSON *root, const served *served) {
  const sl_session *draft = sl_session_draft(served->session);
  if (!draft) return;
  sl_session_info about = sl_session_about(draft);
  sl_session_stats done = sl_session_stat(draft);
  cJSON *to = cJSON_AddObjectToObject(root, "draft");
  cJSON_AddStringToObject(to, "model", draft_model_path(served->draft));
  add_number(to, "context", (double)about.context);
  add_devices(to, about.plan);
  counts_add(to, &done);
}

static void add_shares(cJSON *to, const char *name, double mean, const double *seconds) {
  cJSON *shares = cJSON_AddObjectToObject(to, name);
  add_number(shares, "mean", mean);
  for (int i = 0; i < OUTCOME_SHARES; i++) {
    char share[16];
    snprintf(share, sizeof share, "p%.0f", outcome_shares[i] * 100);
    add_number(shares, share, seconds[i]);
  }
}

static void add_outcome(cJSON *root, const workload *p) {
  add_number(root, "seconds", p->run.seconds);
  add_number(root, "answered", (double)p->outcome.answered);
  add_number(root, "refused", (double)p->outcome.refused);
  add_number(root, "tokens_per_second", p->outcome.tokens_per_second);
  add_shares(root, "ttft_seconds", p->outcome.ttft_mean, p->outcome.ttft);
  add_shares(root, "tpot_seconds", p->outcome.tpot_mean, p->outcome.tpot);
  cJSON *bubbles = cJSON_AddArrayToObject(root, "bubbles");
  for (int i = 0; i < p->run.nstages; i++)
    cJSON_AddItemToArray(bubbles, cJSON_CreateNumber(1 - p->run.busy[i] / p->run.seconds));
  if (p->devices) {
    add_number(root, "devices", p->devices);
    add_number(root, "tokens_per_second_per_device", p->outcome.tokens_per_second / p->devices);
  }
  if (p->joules > 0 && p->run.stats.tokens) {
    add_number(root, "joules", p->joules);
    add_number(root, "joules_per_token", p->joules / (double)p->run.stats.tokens);
  }
  ticks_report(root, &p->cost, &p->corners);
  if (p->run.notes) cJSON_AddStringToObject(root, "notes", p->run.notes);
}

/* Adds the bytes of the weights on all devices, by the format in which they are stored. */
static void add_weights(cJSON *root, const sl_lowered *lowered) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  cJSON *to = cJSON_AddObjectToObject(root, "weights");
  for (int i = 0; i < n; i++)
    for (int p = 0; p < params[i].nplaces; p++) {
      const sl_type *type = &params[i].places[p].type;
      const char *name = sli_storage_in_planes(params[i].storage) ? "planes"
                         : params[i].storage ? sli_storage_name(params[i].storage)
                                             : sl_dtype_name(type->dtype);
      cJSON *have = cJSON_GetObjectItemCaseSensitive(to, name);
      double bytes = (double)sl_type_bytes(type);
      if (have) cJSON_SetNumberValue(have, have->valuedouble + bytes);
      else add_number(to, name, bytes);
    }
}

static sl_status write_report(const char *path, cJSON *root) {
  char *text = sli_json_mend(cJSON_Print(root));
  sl_status status = sli_atomic_text(path, text);
  cJSON_free(text);
  cJSON_Delete(root);
  return status;
}

sl_status report_workload(const char *path, const settings *s, const workload *p) {
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "model", s->model->name);
  cJSON_AddStringToObject(root, "clock", sl_arg_text(s->run, "clock"));
  add_number(root, "context", (double)p->run.about.context);
  counts_add(root, &p->run.stats);
  add_outcome(root, p);
  return write_report(path, root);
}

sl_status report_write(const char *path, const served *served) {
  sl_session_info about = sl_session_about(served->session);
  sl_session_stats done = sl_session_stat(served->session);
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "model", served->chat_format.name);
  add_number(root, "context", (double)about.context);
  add_devices(root, about.plan);
  add_weights(root, about.lowered);
  counts_add(root, &done);
  add_draft(root, served);
  return write_report(path, root);
}
