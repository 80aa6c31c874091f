/* What a server leaves of itself when it ends: --report. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "io/atomic.h"
#include "tools/actorserve/actorserve.h"

static void add_number(cJSON *to, const char *name, double value) { cJSON_AddNumberToObject(to, name, value); }

static void add_sizes(cJSON *root, const sl_session_info *about) {
  add_number(root, "context", (double)about->context);
  add_number(root, "rows", (double)about->rows);
  add_number(root, "sequences", about->sequences);
  add_number(root, "groups", about->groups);
  add_number(root, "pages", (double)about->pages);
}

static void add_devices(cJSON *root, const sl_plan *plan) {
  cJSON *devices = cJSON_AddArrayToObject(root, "devices");
  for (int32_t d = 0; d < plan->ndevices; d++) {
    cJSON *device = cJSON_CreateObject(), *bytes;
    add_number(device, "device", d);
    cJSON_AddStringToObject(device, "name", plan->devices[d].name);
    bytes = cJSON_AddObjectToObject(device, "peak_bytes");
    for (int use = 0; use < SL_MEMORY_COUNT; use++)
      add_number(bytes, sl_memory_name((sl_memory)use), (double)sl_plan_memory(plan, d, (sl_memory)use));
    add_number(bytes, "total", (double)sl_device_bytes(&plan->devices[d]));
    cJSON_AddItemToArray(devices, device);
  }
}

static void add_done(cJSON *root, const sl_session_stats *x) {
  add_number(root, "requests", (double)x->requests);
  add_number(root, "ticks", (double)x->ticks);
  add_number(root, "rows_computed", (double)x->rows);
  add_number(root, "prompt_rows", (double)x->rows_prompt);
  add_number(root, "rows_again", (double)x->rows_again);
  add_number(root, "tokens", (double)x->tokens);
  add_number(root, "preemptions", (double)x->preemptions);
  cJSON *ended = cJSON_AddObjectToObject(root, "ended");
  for (int e = 0; e < SL_END_COUNT; e++) add_number(ended, sl_end_name((sl_end)e), (double)x->ended[e]);
}

static sl_status write_text(const char *path, const char *text) {
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (status) return status;
  status = sli_atomic_write(&file, text, strlen(text));
  if (!status) return sli_atomic_commit(&file);
  sli_atomic_abandon(&file);
  return status;
}

sl_status report_write(const char *path, const served *m) {
  sl_session_info about = sl_session_about(m->session);
  sl_session_stats done = sl_session_stat(m->session);
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "model", m->voice.name);
  add_sizes(root, &about);
  add_devices(root, about.plan);
  add_done(root, &done);
  char *text = cJSON_Print(root);
  sl_status status = write_text(path, text);
  cJSON_free(text);
  cJSON_Delete(root);
  return status;
}
