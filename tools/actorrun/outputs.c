/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs of a run: checkpoints, weights, statistics. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "graph/state/state.h"
#include "io/atomic.h"
#include "tools/actorrun/actorrun.h"

static void print_start(const job *j) {
  if (sl_arg_flag(j->settings->run, "quiet") || j->settings->process) return;
  const cJSON *about = sli_checkpoints_origin(j->checkpoints);
  if (!about) {
    printf("no checkpoint in %s yet: starting from step 0\n",
           sl_arg_text(j->settings->run, "checkpoint"));
    return;
  }
  const cJSON *stages = cJSON_GetObjectItem(about, "stages");
  const cJSON *ranks = cJSON_GetObjectItem(about, "devices_per_stage");
  printf("resuming from %s", sl_checkpoints_from(j->checkpoints));
  if (cJSON_IsNumber(stages)) printf(", written by %d stages", stages->valueint);
  if (cJSON_IsNumber(ranks)) printf(" of %d devices", ranks->valueint);
  putchar('\n');
  if (!cJSON_GetObjectItem(about, "graph"))
    printf("an older release wrote it: cannot check whether the model is the same\n");
}

/* Writes all options in force, for human readers. */
static void describe_options(const job *j) {
  const settings *s = j->settings;
  cJSON *about = sli_checkpoints_about(j->checkpoints);
  cJSON_AddStringToObject(about, "model", s->model->name);
  options_to_json(cJSON_AddObjectToObject(about, "options"), s->options, s->run);
  options_to_json(cJSON_AddObjectToObject(about, "model_options"), s->model->options,
                  s->model_args);
}

/* Returns the model's file, or NULL for a built-in model. */
static const char *code_of(const settings *s) {
  const char *suffix = strrchr(s->model_word, '.');
  return suffix && (!strcmp(suffix, ".c") || !strcmp(suffix, ".so")) ? s->model_word : NULL;
}

/* Opens the directory of --checkpoint, and with --resume finds the checkpoint to continue from. */
sl_status outputs_open(job *j) {
  const settings *s = j->settings;
  sl_checkpoint_options options = {.dir = sl_arg_text(s->run, "checkpoint"),
                                   .keep = (int)sl_arg_int(s->run, "keep"),
                                   .every = sl_arg_int(s->run, "every"),
                                   .resume = sl_arg_flag(s->run, "resume"),
                                   .nfingerprint = (int)j->fingerprint.nresults,
                                   .fingerprint = j->fingerprint.items,
                                   .usual = j->fingerprint.usual,
                                   .code = code_of(s),
                                   .resume_with = settings_text(s, "resume-with")};
  if (!*options.dir) return SL_OK;
  sl_status status = sl_checkpoints_open(&options, j->processes, &j->checkpoints);
  if (status) return status;
  if (options.resume) print_start(j);
  describe_options(j);
  return SL_OK;
}

/* Checks a file, or a folder, which is created if needed. */
static sl_status check_save(const settings *s, const char *path) {
  const pretrained p = settings_pretrained(s);
  if (gguf_is_wanted(path)) {
    SLI_TRY(gguf_check(path, &p, s->lower.parallel.processes));
    char *file = gguf_file_of(path);
    sl_status possible = sli_atomic_check(file);
    free(file);
    return possible;
  }
  if (!huggingface_is_folder(path)) return outputs_try(s->run, &(output){"save", NULL}, 1, false);
  sl_status status = huggingface_check(path, &p);
  return status ? status : outputs_try(s->run, &(output){"save", output_in_folder}, 1, false);
}

/* Checks --planes, which only a safetensors file of one process can have. */
static sl_status check_planes(const settings *s, const char *save) {
  const char *planes = settings_text(s, "planes");
  if (!planes) return SL_OK;
  SLI_TRY(planes_read(planes, &(int){0}, &(int){0}, &(const char *){0}));
  if (!save) return sl_fail(SL_E_USAGE, "--planes %s: needs --save FILE", planes);
  if (gguf_is_wanted(save) || huggingface_is_folder(save))
    return sl_fail(SL_E_USAGE,
                   "--planes %s: --save %s must be a safetensors file, not GGUF or a folder",
                   planes, save);
  if (s->lower.parallel.processes > 1)
    return sl_fail(SL_E_USAGE, "--planes %s: only a run of one process can write planes", planes);
  return SL_OK;
}

/* Checks before any work that the outputs can be written. */
sl_status outputs_check(const settings *s) {
  static const output written[] = {{"save-adapter", output_in_folder},
                                   {"checkpoint", output_in_folder},
                                   {"report", NULL},
                                   {"trace", NULL},
                                   {"plan", NULL},
                                   {"save-paths", NULL},
                                   {"logprobs", NULL},
                                   {"log", log_is_folder}};
  const char *save = settings_text(s, "save");
  SLI_TRY(check_planes(s, save));
  sl_status status = save ? check_save(s, save) : SL_OK;
  return status ? status : outputs_try(s->run, written, SLI_COUNT(written), false);
}

/* Returns the folder of a file; the caller frees it. */
static char *folder_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? sli_format("%.*s/", (int)(slash - path), path) : sli_strdup(".");
}

sl_status outputs_check_shared(const job *j) {
  static const char *const folders[] = {"checkpoint", "save-adapter"};
  const char *save = settings_text(j->settings, "save");
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(folders) && !status; i++) {
    const char *folder = settings_text(j->settings, folders[i]);
    if (!folder) continue;
    char *what = sli_format("--%s %s", folders[i], folder);
    status = sli_shared_folder(what, folder, j->processes);
    free(what);
  }
  if (status || !save) return status;
  char *folder = huggingface_is_folder(save) ? sli_strdup(save) : folder_of(save);
  char *what = sli_format("--save %s", save);
  status = sli_shared_folder(what, folder, j->processes);
  free(what);
  free(folder);
  return status;
}

sl_status outputs_check_report(const settings *s) {
  static const output written[] = {{"report", NULL}, {"plan", NULL}};
  return outputs_try(s->run, written, SLI_COUNT(written), false);
}

static sl_status save_model(const job *j, const char *save) {
  const pretrained p = settings_pretrained(j->settings);
  if (huggingface_is_folder(save))
    return pretrained_save(&p, save, j->lowered, j->rt, j->processes);
  if (gguf_is_wanted(save)) return gguf_save(save, &p, j->lowered, j->rt);
  const char *planes = settings_text(j->settings, "planes");
  int base, width;
  if (planes) {
    SLI_TRY(planes_read(planes, &base, &width, &(const char *){0}));
    return planes_save(save, base, width, j->lowered, j->rt);
  }
  return sl_weights_save(save, j->lowered, j->rt, j->processes);
}

/* Saves the last checkpoint and --save. If one fails, the other is still attempted. */
sl_status outputs_save_values(const job *j) {
  const char *save = settings_text(j->settings, "save");
  const char *adapter = settings_text(j->settings, "save-adapter");
  sl_status status = sl_graph_check_files(j->made.graph);
  if (status) return status;
  status = sl_checkpoints_finish(j->checkpoints, j->lowered, j->rt, j->processes);
  if (!status && adapter)
    status = sl_adapter_save(adapter, settings_text(j->settings, "init"), j->lowered, j->rt,
                             j->processes);
  if (!save) return status;
  if (!status) return save_model(j, save);
  if (sl_job_processes(j->processes) > 1) return status;
  char *failure = sli_strdup(sl_detail());
  if (save_model(j, save)) sli_log("%s", sl_detail());
  sl_fail(status, "%s", failure);
  free(failure);
  return status;
}

static sl_status keep_trace(const job *j, const char *path) {
  const counters *from = &j->counters;
  sl_trace_counter *all = sli_calloc((size_t)from->count + 1, sizeof *all);
  for (int i = 0; i < from->count; i++)
    all[i] = (sl_trace_counter){from->items[i].name, from->items[i].n, from->items[i].sum,
                                from->items[i].last};
  sl_status status =
      sl_trace_write_counters(path, j->plan, j->rt, j->settings->clock, from->count, all);
  free(all);
  return status;
}

static sl_status write_trace_and_report(const job *j, const char *failure) {
  const char *trace = settings_text(j->settings, "trace");
  const char *report = settings_text(j->settings, "report");
  sl_status status = trace ? keep_trace(j, trace) : SL_OK;
  if (!status && report) status = report_write(report, j, failure);
  return status;
}

/* Writes trace and report, even if the run failed. Returns the first failure. */
sl_status outputs_write_reports(const job *j, sl_status status) {
  if (!status) return write_trace_and_report(j, NULL);
  char *failure = sli_strdup(sl_detail());
  if (write_trace_and_report(j, failure)) sli_log("%s", sl_detail());
  sl_fail(status, "%s", failure);
  free(failure);
  return status;
}
