/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/exported.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/tempdir.h"
#include "tests/support/test.h"

void exported_unpack(const char *name, const char *folder) {
  const char *source = getenv("SLUICE_SOURCE");
  char *command = sli_format("tar -xzf '%s/tests/reference/pytorch/%s.tar.gz' -C '%s'",
                             source ? source : ".", name, folder);
  CHECK(!system(command), "%s", command);
  free(command);
}

static void exported_open(const char *folder, exported_cases *out) {
  out->folder = folder;
  char *path = sli_format("%s/losses.json", folder);
  CHECK(!sli_json_open(path, &out->figures), "%s", sl_detail());
  free(path);
}

void exported_each(const char *name, double tolerance,
                   void (*one)(const exported_cases *c, const cJSON *of, double tolerance)) {
  sli_tempdir unpacked;
  exported_cases c;
  CHECK(!sli_tempdir_open(NULL, &unpacked), "%s", sl_detail());
  exported_unpack(name, unpacked.folder);
  char *folder = sli_tempdir_path(&unpacked, name);
  exported_open(folder, &c);
  const cJSON *of;
  cJSON_ArrayForEach(of, c.figures.root) RUN_AS(of->string, one(&c, of, tolerance));
  sli_json_fini(&c.figures);
  free(folder);
  sli_tempdir_close(&unpacked);
}

/* ---- one run ------------------------------------------------------------------------------- */

typedef struct run {
  sl_exported *exported;
  sl_args *args;
  sl_graph *graph;
  sl_lowered *lowered;
  sl_runtime *rt;
  double loss;
} run;

static void take_step(void *ctx, const sl_step_report *report) {
  ((run *)ctx)->loss = report->loss;
}

/* Returns the name of a case's files: its own, or that of another case. */
static const char *file_of(const cJSON *of) {
  const cJSON *file = cJSON_GetObjectItemCaseSensitive(of, "file");
  return file ? file->valuestring : of->string;
}

static sl_status set_options(const exported_cases *c, const cJSON *of, const char *lr, run *r) {
  const char *const fixed[][2] = {
      {"lr", lr}, {"min-lr", lr}, {"warmup", "0"}, {"weight-decay", "0"}, {"clip", "0"}};
  sl_status status = sl_args_create(sl_exported_model(r->exported)->options, &r->args);
  for (size_t i = 0; i < SLI_COUNT(fixed) && !status; i++)
    status = sl_args_set(r->args, fixed[i][0], fixed[i][1]);
  const cJSON *constants = cJSON_GetObjectItemCaseSensitive(of, "rows_in_constants");
  if (constants && !status)
    status = sl_args_set(r->args, "rows-in-constants", constants->valuestring);
  const sl_exported_input *inputs;
  int n = sl_exported_inputs(r->exported, &inputs);
  for (int i = 0; i < n && !status; i++) {
    char *given =
        sli_format("%s=%s/%s.%s.npy", inputs[i].name, c->folder, file_of(of), inputs[i].name);
    status = sl_args_set(r->args, "input", given);
    free(given);
  }
  return status;
}

/* Takes one step of plain gradient descent with this learning rate. */
static sl_status start(const exported_cases *c, const cJSON *of, const char *lr, run *r) {
  char *path = sli_format("%s/%s.pt2", c->folder, file_of(of));
  sl_status status = sl_exported_open(path, &r->exported);
  free(path);
  if (!status) status = set_options(c, of, lr, r);
  if (status) return status;
  const sl_training training = {.optimizer = "sgd"};
  const cJSON *microbatches = cJSON_GetObjectItemCaseSensitive(of, "microbatches");
  r->graph =
      sl_graph_create(&(sl_graph_options){.microbatches = microbatches ? microbatches->valueint : 1,
                                          .pieces = 1,
                                          .training = &training});
  status = sl_model_build(sl_exported_model(r->exported), r->graph, r->args);
  const cJSON *data = cJSON_GetObjectItemCaseSensitive(of, "data");
  const sl_lower_options options = {.parallel.data = data ? data->valueint : 1,
                                    .devices = {.kind = "cpu"},
                                    .report.on_step = take_step,
                                    .report.ctx = r};
  if (!status) status = sl_lower(r->graph, &options, &r->lowered);
  if (status) return status;
  const sl_plan *plan = sl_lowered_plan(r->lowered);
  status = sl_plan_prove(plan);
  if (!status) status = sl_runtime_create(plan, &(sl_runtime_options){0}, &r->rt);
  if (status) return status;
  sl_lowered_attach(r->lowered, r->rt);
  status = sl_params_init(r->lowered, r->rt, 1);
  return status ? status : sl_runtime_run(r->rt, 1);
}

static void finish(run *r) {
  sl_runtime_destroy(r->rt);
  sl_lowered_destroy(r->lowered);
  sl_graph_destroy(r->graph);
  sl_args_destroy(r->args);
  sl_exported_close(r->exported);
}

/* ---- figures ------------------------------------------------------------------------------- */

static const float *param_data(const run *r, const char *name, int64_t *count) {
  const sl_param_info *params;
  int n = sl_lowered_params(r->lowered, &params), i = 0;
  while (i < n && strcmp(params[i].name, name)) i++;
  *count = i < n ? sl_type_elements(&params[i].type) : 0;
  return i < n ? sl_param_data(r->lowered, r->rt, i) : NULL;
}

/* Checks a gradient: the change of the parameter in a step of plain descent, divided by the
 * rate. */
static void check_gradient(const cJSON *of, const cJSON *gradient, const run *still,
                           const run *moved, double tolerance) {
  const double rate = 1e4;
  int64_t count, same;
  const float *before = param_data(still, gradient->string, &count),
              *after = param_data(moved, gradient->string, &same);
  double most = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, gradient) most = fmax(most, fabs(item->valuedouble));
  CHECK(count == cJSON_GetArraySize(gradient), "%s: gradient of %s: %lld elements", of->string,
        gradient->string, (long long)count);
  int64_t i = 0;
  cJSON_ArrayForEach(item, gradient) {
    double got = ((double)before[i] - (double)after[i]) / rate, want = item->valuedouble;
    CHECK(fabs(got - want) <= 10 * tolerance * most + 1e-8,
          "%s: gradient of %s[%lld]: %.9g, PyTorch's %.9g", of->string, gradient->string,
          (long long)i, got, want);
    i++;
  }
}

/* Tied parameters have their first name in the figures and their last name in the program. */
static bool has_param(const run *r, const char *name) {
  int64_t count;
  return param_data(r, name, &count) != NULL;
}

static void compare(const cJSON *of, const run *still, const run *moved, double tolerance) {
  const cJSON *loss = cJSON_GetObjectItemCaseSensitive(of, "loss"), *gradient;
  CHECK(cJSON_IsNumber(loss), "%s: it trains, and PyTorch has no loss", of->string);
  double want = loss->valuedouble;
  CHECK(fabs(still->loss - want) <= tolerance * fmax(fabs(want), 0.1),
        "%s: loss %.9g, PyTorch's %.9g", of->string, still->loss, want);
  cJSON_ArrayForEach(gradient, cJSON_GetObjectItemCaseSensitive(of, "gradients")) {
    if (has_param(moved, gradient->string)) check_gradient(of, gradient, still, moved, tolerance);
    else CHECK(strstr(of->string, "tied"), "%s: no parameter %s", of->string, gradient->string);
  }
}

void exported_check(const exported_cases *c, const cJSON *of, double tolerance,
                    const char *refused) {
  run still = {0}, moved = {0};
  sl_status status = start(c, of, "0", &still);
  if (!status) status = start(c, of, "1e4", &moved);
  const char *error = status ? sl_detail() : "";
  if (refused) CHECK(strstr(error, refused), "%s: \"%s\"", of->string, error);
  else CHECK(!status, "%s: %s", of->string, error);
  if (!status) compare(of, &still, &moved, tolerance);
  finish(&still);
  finish(&moved);
}

static void as_recorded(const exported_cases *c, const cJSON *of, double tolerance) {
  const cJSON *refused = cJSON_GetObjectItemCaseSensitive(of, "refused");
  exported_check(c, of, tolerance, refused ? refused->valuestring : NULL);
}

void exported_compare(const char *name, double tolerance) {
  exported_each(name, tolerance, as_recorded);
}
