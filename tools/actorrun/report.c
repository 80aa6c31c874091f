/* SPDX-License-Identifier: Apache-2.0 */
/* --report: the run as one JSON object. */
#include "tools/actorrun/actorrun.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "actors/status/status.h"
#include "base/json_text.h"
#include "graph/compile/compile.h"
#include "graph/state/state.h"
#include "io/atomic.h"
#include "io/json.h"
#include "kernels/library.h"

/* Adds a number. Infinities and NaN become null, because JSON has neither. */
static void add_number(cJSON *to, const char *name, double value) {
  cJSON_AddNumberToObject(to, name, value);
}

/* Adds a number as the shortest text that reads back as the same double. cJSON's formatting may
 * lose the last bits. */
static void add_exact(cJSON *to, const char *name, double value) {
  char text[32];
  if (!isfinite(value)) {
    cJSON_AddNullToObject(to, name);
    return;
  }
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  cJSON_AddRawToObject(to, name, text);
}

/* Adds one text, or for an option with several values an array. */
static void add_texts(cJSON *to, const sl_option *o, const sl_args *args) {
  bool several = o->kind == SL_OPTION_LIST && sl_arg_given(args, o->name, 1);
  if (!several) {
    cJSON_AddStringToObject(to, o->name, sl_arg_text(args, o->name));
    return;
  }
  cJSON *list = cJSON_AddArrayToObject(to, o->name);
  for (int i = 0; sl_arg_given(args, o->name, i); i++)
    cJSON_AddItemToArray(list, cJSON_CreateString(sl_arg_given(args, o->name, i)));
}

void options_to_json(cJSON *to, const sl_option *options, const sl_args *args) {
  for (const sl_option *o = options; o && o->name; o++) {
    if (o->value == NULL && !sl_arg_given(args, o->name, 0)) continue;
    switch (o->kind) {
    case SL_OPTION_INT: add_number(to, o->name, (double)sl_arg_int(args, o->name)); break;
    case SL_OPTION_FLOAT: add_number(to, o->name, sl_arg_float(args, o->name)); break;
    case SL_OPTION_FLAG: cJSON_AddBoolToObject(to, o->name, sl_arg_flag(args, o->name)); break;
    case SL_OPTION_LIST:
    case SL_OPTION_TEXT: add_texts(to, o, args); break;
    }
  }
}

static void add_quotas(cJSON *to, const job *j) {
  sl_quota q;
  const char *part;
  for (int i = 0; i < sli_lowered_quota(j->lowered, i, &q, &part); i++) {
    cJSON *quota = cJSON_CreateObject();
    cJSON_AddStringToObject(quota, "name", q.name);
    if (q.stage != SL_NONE) add_number(quota, "stage", q.stage);
    add_number(quota, "slots", q.slots);
    if (part) cJSON_AddStringToObject(quota, "part", part);
    cJSON_AddItemToArray(to, quota);
  }
}

static void add_stage(void *ctx, int stage) {
  cJSON_AddItemToArray(ctx, cJSON_CreateNumber(stage));
}

static void add_step(cJSON *steps, const job *j, size_t index) {
  const sl_step_report *r = &j->progress.records[index].report;
  double seconds = progress_step_seconds(&j->progress, index);
  char hex[64];
  snprintf(hex, sizeof hex, "%a", r->loss);
  cJSON *step = cJSON_CreateObject();
  add_number(step, "step", (double)r->step);
  add_number(step, "loss", r->loss);
  cJSON_AddStringToObject(step, "loss_hex", hex);
  add_number(step, "grad_norm", r->grad_norm);
  add_number(step, "lr", (double)r->lr);
  add_number(step, "seconds", seconds);
  add_number(step, "cpu_seconds", progress_step_cpu_seconds(&j->progress, index));
  add_number(step, "tokens_per_second", seconds > 0 ? (double)j->progress.items / seconds : 0);
  cJSON_AddItemToArray(steps, step);
}

/* Adds the steps of a run that computes nothing. They have times but no losses; a step ends with
 * its last firing. */
static void add_traced_steps(cJSON *steps, const job *j) {
  int64_t count = sl_runtime_steps(j->rt);
  uint64_t *end = sli_calloc((size_t)count, sizeof *end);
  sli_step_ends(j->rt, count, end);
  for (int64_t s = 0; s < count; s++) {
    if (!end[s] || (s && !end[s - 1])) continue; /* older than the trace */
    double seconds = (double)(end[s] - (s ? end[s - 1] : 0)) * 1e-9;
    cJSON *step = cJSON_CreateObject();
    add_number(step, "step", (double)s);
    add_number(step, "seconds", seconds);
    add_number(step, "tokens_per_second", seconds > 0 ? (double)j->progress.items / seconds : 0);
    cJSON_AddItemToArray(steps, step);
  }
  free(end);
}

/* Adds the parts of a step's time. */
static void add_parts(cJSON *to, const sl_statistics *statistics) {
  add_number(to, "passes_seconds", statistics->passes_seconds);
  add_number(to, "update_seconds", statistics->update_seconds);
  add_number(to, "other_seconds", statistics->other_seconds);
}

static void add_device_statistics(cJSON *to, const sl_device_statistics *f) {
  add_number(to, "busy_seconds", f->busy_seconds);
  add_number(to, "span_seconds", f->span_seconds);
  add_number(to, "bubble_fraction", f->bubble_fraction);
  add_number(to, "peak_activations", f->peak_activations);
  add_number(to, "update_seconds", f->update_seconds);
}

/* Adds a device. Without statistics only the plan's values are added. */
static void add_device(cJSON *devices, const job *j, int32_t d, const sl_statistics *stats) {
  cJSON *device = cJSON_CreateObject();
  add_number(device, "device", d);
  cJSON_AddStringToObject(device, "name", j->plan->devices[d].name);
  if (stats) add_device_statistics(device, &stats->devices[d]);
  cJSON *bytes = cJSON_AddObjectToObject(device, "peak_bytes");
  for (int use = 0; use < SL_MEMORY_COUNT; use++)
    add_number(bytes, sl_memory_name((sl_memory)use),
               (double)sl_plan_memory(j->plan, d, (sl_memory)use));
  add_number(bytes, "total", (double)sl_device_bytes(&j->plan->devices[d]));
  cJSON_AddItemToArray(devices, device);
}

static void add_devices(cJSON *root, const job *j, const sl_statistics *stats) {
  cJSON *devices = cJSON_AddArrayToObject(root, "devices");
  for (int32_t d = 0; d < j->plan->ndevices; d++) add_device(devices, j, d, stats);
}

static void add_statistics(cJSON *root, const job *j, const sl_statistics *stats) {
  add_number(root, "bubble_fraction", stats->bubble_fraction);
  add_number(root, "step_seconds", stats->step_seconds);
  add_parts(root, stats);
  add_number(root, "tokens_per_second",
             stats->step_seconds > 0 ? (double)j->progress.items / stats->step_seconds : 0);
  add_devices(root, j, stats);
}

/* Adds the plan's totals for a step: bytes transferred, flops of the passes, and how many devices
 * each listed device represents. */
static void add_step_of_plan(cJSON *predicted, const job *j) {
  moved_sum sum = moved_in_step(j);
  add_number(predicted, "alike", sl_lowered_alike(j->lowered));
  add_number(predicted, "flops_per_step", sl_lowered_flops(j->lowered));
  cJSON *moved = cJSON_AddObjectToObject(predicted, "moved_bytes_per_step");
  for (int t = 0; t < SL_TRAFFIC_COUNT; t++)
    add_number(moved, sl_traffic_name((sl_traffic)t), sum.all[t]);
  if (!has_hosts(j)) return;
  cJSON *crossed = cJSON_AddObjectToObject(predicted, "between_hosts_bytes_per_step");
  for (int t = 0; t < SL_TRAFFIC_COUNT; t++)
    add_number(crossed, sl_traffic_name((sl_traffic)t), sum.crossed[t]);
}

/* Adds the statistics of a simulation, and the source of its durations. */
static void add_predicted(cJSON *root, const job *j, const char *durations,
                          const sl_statistics *statistics) {
  cJSON *predicted = cJSON_AddObjectToObject(root, "predicted");
  cJSON_AddStringToObject(predicted, "durations", durations);
  add_number(predicted, "bubble_fraction", statistics->bubble_fraction);
  add_number(predicted, "step_seconds", statistics->step_seconds);
  add_parts(predicted, statistics);
  add_step_of_plan(predicted, j);
  double joules = step_joules(j, statistics);
  if (joules > 0) {
    add_number(predicted, "joules_per_step", joules);
    if (j->made.items) add_number(predicted, "joules_per_item", joules / (double)j->made.items);
  }
  cJSON *devices = cJSON_AddArrayToObject(predicted, "devices");
  for (int32_t d = 0; d < j->plan->ndevices; d++) {
    cJSON *device = cJSON_CreateObject();
    add_number(device, "device", d);
    add_device_statistics(device, &statistics->devices[d]);
    cJSON_AddItemToArray(devices, device);
  }
}

/* Predicts from the durations of --profile, --machine or --cost, or else from those measured in
 * this run. */
static void predict(cJSON *root, const job *j) {
  const settings *s = j->settings;
  bool modelled = *sl_arg_text(s->run, "cost") || s->modelled.hardware.flops_per_second > 0;
  bool own = s->clock == SL_CLOCK_REAL && !s->profile && !modelled;
  double *seconds = own ? sli_calloc((size_t)j->plan->nactors, sizeof *seconds) : NULL;
  if (own) sl_runtime_durations(j->rt, seconds);
  sl_statistics stats;
  sl_status status = sl_plan_predict(j->plan, seconds, &stats);
  free(seconds);
  if (status) return;
  add_predicted(root, j, own ? "measured" : s->profile ? "profile" : "modelled", &stats);
  free(stats.devices);
}

/* Adds measured and predicted statistics. A run on the virtual clock is its own prediction. */
static void add_all_statistics(cJSON *root, const job *j) {
  const settings *s = j->settings;
  sl_statistics stats = sl_runtime_statistics(j->rt);
  add_statistics(root, j, &stats);
  if (s->clock != SL_CLOCK_VIRTUAL || sl_arg_float(s->run, "jitter")) predict(root, j);
  else add_predicted(root, j, s->profile ? "profile" : "modelled", &stats);
  free(stats.devices);
}

/* Adds the duration of one call of an op, measured and by the machine file. */
static void add_op(cJSON *ops, const job *j, const sl_actor *actor, int c) {
  const sl_program_call *call = &actor->program->calls[c];
  double predicted = sli_lowered_call_seconds(j->lowered, actor->program, c);
  cJSON *op = cJSON_CreateObject();
  cJSON_AddStringToObject(op, "name", call->name);
  cJSON_AddStringToObject(op, "op", call->op->name);
  add_number(op, "seconds", (double)call->time->ns * 1e-9 / (double)(call->time->calls - 1));
  add_number(op, "calls_per_step", actor->firings_per_step);
  if (predicted > 0) add_number(op, "predicted_seconds", predicted);
  cJSON_AddItemToArray(ops, op);
}

/* Adds durations of ops, for --profile of later runs and for actortune compare. */
static void add_ops(cJSON *root, const job *j) {
  cJSON *ops = cJSON_AddArrayToObject(root, "ops");
  for (int32_t a = 0; a < j->plan->nactors; a++) {
    const sl_actor *actor = &j->plan->actors[a];
    for (int c = 0; actor->program && c < actor->program->ncalls; c++) {
      const sl_call_time *time = actor->program->calls[c].time;
      if (time && time->calls >= 2) add_op(ops, j, actor, c);
    }
  }
}

/* Adds the bytes that a step transferred, by purpose: in total, and to each device. */
static void add_moved(cJSON *runtime, const job *j, const sl_runtime_counts *counts) {
  int64_t steps = sl_runtime_steps(j->rt) - sl_checkpoints_start(j->checkpoints);
  if (steps < 1) return;
  cJSON *moved = cJSON_AddObjectToObject(runtime, "moved_bytes_per_step");
  for (int t = 0; t < SL_TRAFFIC_COUNT; t++)
    add_number(moved, sl_traffic_name((sl_traffic)t),
               (double)counts->moved_bytes[t] / (double)steps);
  if (sl_job_processes(j->processes) > 1)
    add_number(runtime, "sent_bytes_per_step", (double)counts->sent_bytes / (double)steps);
}

/* Adds the bytes of weights that a step's rollouts read, and the bytes that are copies. */
static void add_rollout_weights(cJSON *root, const job *j) {
  if (!settings_text(j->settings, "rl")) return;
  sli_rollout_weights bytes = sli_lowered_rollout_weights(j->lowered);
  cJSON *to = cJSON_AddObjectToObject(root, "rollout_weights");
  add_number(to, "in_place_bytes", bytes.in_place);
  add_number(to, "copied_bytes_per_step", bytes.copied);
}

static void add_runtime(cJSON *root, const job *j) {
  sl_runtime_counts counts = sl_runtime_count(j->rt);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  cJSON *runtime = cJSON_AddObjectToObject(root, "runtime");
  add_number(runtime, "firings", (double)counts.firings);
  add_number(runtime, "replayed_firings", (double)counts.replayed);
  add_number(runtime, "messages", (double)counts.messages);
  add_number(runtime, "wakes", (double)counts.wakes);
  add_number(runtime, "core_seconds", (double)counts.ran_ns * 1e-9);
  add_number(runtime, "coreless_seconds", (double)counts.coreless_ns * 1e-9);
  add_moved(runtime, j, &counts);
  add_number(runtime, "plan_seconds", (double)j->plan_ns * 1e-9);
  if (counts.first_firing_ns > j->process_start_ns)
    add_number(runtime, "start_seconds",
               (double)(counts.first_firing_ns - j->process_start_ns) * 1e-9);
  add_number(runtime, "peak_resident_bytes", (double)usage.ru_maxrss * 1024);
}

static void add_pieces(cJSON *root, const job *j) {
  const int64_t *lengths;
  int pieces = sl_graph_pieces(j->made.graph, &lengths);
  if (!lengths) return;
  cJSON *array = cJSON_AddArrayToObject(root, "piece_lengths");
  for (int k = 0; k < pieces; k++)
    cJSON_AddItemToArray(array, cJSON_CreateNumber((double)lengths[k]));
}

static void add_evaluations(cJSON *root, const job *j) {
  const evals *e = &j->evals;
  const char *word;
  double rows = (double)sl_graph_evaluated(j->made.graph, &word);
  cJSON *of = cJSON_AddObjectToObject(root, "evaluated");
  add_number(of, word, rows);
  cJSON *list = cJSON_AddArrayToObject(root, "evaluations");
  for (size_t i = 0; i < e->count; i++) {
    char hex[64];
    cJSON *one = cJSON_CreateObject();
    const double *values = e->records[i].values;
    snprintf(hex, sizeof hex, "%a", values[0]);
    add_number(one, "steps", (double)e->records[i].step);
    add_exact(one, "loss", values[0]);
    cJSON_AddStringToObject(one, "eval_hex", hex);
    cJSON *metrics = e->nvalues > 1 ? cJSON_AddObjectToObject(one, "metrics") : NULL;
    for (int v = 1; v < e->nvalues; v++) add_exact(metrics, e->names[v], values[v]);
    cJSON_AddItemToArray(list, one);
  }
}

static void add_counters(cJSON *root, const counters *all) {
  cJSON *list = cJSON_AddObjectToObject(root, "tallies");
  for (int i = 0; i < all->count; i++) {
    const counter *t = &all->items[i];
    cJSON *one = cJSON_AddObjectToObject(list, t->name);
    cJSON_AddItemToObject(one, "sum", cJSON_CreateDoubleArray(t->sum, (int)t->n));
    cJSON_AddItemToObject(one, "last", cJSON_CreateDoubleArray(t->last, (int)t->n));
  }
}

/* Adds the figures of the last step. */
static void add_figures(cJSON *root, const job *j) {
  cJSON *last = cJSON_AddObjectToObject(root, "last_figures");
  for (int i = 0; i < j->figures.count; i++)
    if (isfinite(j->last[i])) add_exact(last, j->figures.names[i], j->last[i]);
}

static cJSON *make_report(const job *j, const char *ended, const char *failure) {
  const settings *s = j->settings;
  char hash[32];
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)j->plan->hash);
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "model", s->model->name);
  cJSON *options = cJSON_AddObjectToObject(root, "options");
  options_to_json(options, s->options, s->run);
  options_to_json(cJSON_AddObjectToObject(root, "model_options"), s->model->options, s->model_args);
  cJSON_AddStringToObject(root, "plan_hash", hash);
  cJSON_AddStringToObject(root, "clock", s->clock == SL_CLOCK_VIRTUAL ? "virtual" : "real");
  cJSON_AddStringToObject(root, "schedule", sl_lowered_schedule(j->lowered));
  cJSON_AddStringToObject(root, "products", sl_lowered_products(j->lowered));
  const char *library = sli_lowered_library(j->lowered);
  if (library) cJSON_AddStringToObject(root, "products_library", library);
  if (library) cJSON_AddStringToObject(root, "products_choice", sli_products_why());
  if (library) add_number(root, "products_library_bytes", (double)sli_library_bytes());
  cJSON_AddStringToObject(root, "tensors", sl_lowered_tensors(j->lowered));
  add_quotas(cJSON_AddArrayToObject(root, "quotas"), j);
  job_delayed(j, add_stage, cJSON_AddArrayToObject(root, "delayed_update_stages"));
  add_pieces(root, j);
  cJSON_AddStringToObject(root, "ended", ended);
  if (failure) cJSON_AddStringToObject(root, "failure", failure);
  add_number(root, "first_step", (double)sl_checkpoints_start(j->checkpoints));
  if (settings_evaluate(s)) add_evaluations(root, j);
  if (j->counters.count) add_counters(root, &j->counters);
  if (j->figures.count && j->progress.count) add_figures(root, j);
  cJSON *steps = cJSON_AddArrayToObject(root, "steps");
  for (size_t i = 0; i < j->progress.count; i++) add_step(steps, j, i);
  return root;
}

/* Adds results that are known only between runs. */
static void add_results(cJSON *root, const job *j) {
  if (!j->progress.count) add_traced_steps(cJSON_GetObjectItem(root, "steps"), j);
  add_all_statistics(root, j);
  add_ops(root, j);
  add_rollout_weights(root, j);
  add_runtime(root, j);
}

sl_status report_write(const char *path, const job *j, const char *failure) {
  cJSON *root = make_report(j, failure ? "failed" : j->stopped ? "stopped" : "done", failure);
  add_results(root, j);
  return sli_json_write(path, root);
}

sl_status report_write_meanwhile(const char *path, const job *j) {
  return sli_json_write(path, make_report(j, "running", NULL));
}

sl_status report_write_plan(const char *path, const job *j, const sl_statistics *stats) {
  cJSON *root = make_report(j, "planned", NULL);
  add_devices(root, j, NULL);
  if (stats) add_predicted(root, j, j->settings->profile ? "profile" : "modelled", stats);
  return sli_json_write(path, root);
}
