/* SPDX-License-Identifier: Apache-2.0 */
/* Exported PyTorch programs have PyTorch's losses and gradients: the archives of
 * tests/reference/pytorch, each with PyTorch's results. Runs on several stages, with data
 * parallelism and with recomputation give the same.
 * labels: numbers first
 * needs: libzip */
#include <math.h>
#include <string.h>

#include <sluice/pytorch.h>
#include <sluice/sluice.h>

#include "base/base.h"
#include "base/tempdir.h"
#include "graph/graph.h"
#include "io/file.h"
#include "io/json.h"
#include "io/npy.h"
#include "tests/support/exported.h"
#include "tests/support/test.h"

enum { STEPS = 10 };

/* ---- files ---------------------------------------------------------------------------------- */

static sli_tempdir unpacked;

static char *file_of(const char *name, const char *file) {
  char *in = sli_format("%s/%s", name, file), *path = sli_tempdir_path(&unpacked, in);
  free(in);
  return path;
}

/* ---- running ----------------------------------------------------------------------------------
 */

/* A way to run a program. */
typedef struct way {
  const char *name;
  int microbatches, stages, data, tensor;
  const char *schedule;
  bool recompute;
} way;

typedef struct run {
  sl_exported *exported;
  sl_args *args;
  sl_graph *graph;
  sl_lowered *lowered;
  sl_runtime *rt;
  double losses[STEPS];
} run;

static void take_step(void *ctx, const sl_step_report *report) {
  run *r = ctx;
  if (report->step < STEPS) r->losses[report->step] = report->loss;
}

static void set(run *r, const char *name, const char *value) {
  CHECK(!sl_args_set(r->args, name, value), "%s", sl_detail());
}

static void set_inputs(run *r, const char *name) {
  const sl_exported_input *inputs;
  int n = sl_exported_inputs(r->exported, &inputs);
  for (int i = 0; i < n; i++) {
    char *file = sli_format("%s.npy", inputs[i].name), *path = file_of(name, file);
    char *given = sli_format("%s=%s", inputs[i].name, path);
    set(r, "input", given);
    free(file);
    free(path);
    free(given);
  }
}

static run *start(const char *name, const way *w, const char *optimizer, const char *lr) {
  run *r = sli_calloc(1, sizeof *r);
  char *path = file_of(name, "model.pt2");
  CHECK(!sl_exported_open(path, &r->exported), "%s", sl_detail());
  free(path);
  const sl_model *model = sl_exported_model(r->exported);
  CHECK(!sl_args_create(model->options, &r->args), "%s", sl_detail());
  set_inputs(r, name);
  set(r, "lr", lr), set(r, "min-lr", lr), set(r, "warmup", "0");
  set(r, "weight-decay", "0"), set(r, "clip", "0");
  const sl_training training = {.optimizer = optimizer};
  r->graph = sl_graph_create(&(sl_graph_options){
      .microbatches = SLI_MAX(w->microbatches, 1), .pieces = 1, .training = &training});
  CHECK(!sl_model_build(model, r->graph, r->args), "%s", sl_detail());
  sl_lower_options options = {.parallel.stages = SLI_MAX(w->stages, 1),
                              .parallel.data = SLI_MAX(w->data, 1),
                              .parallel.tensor = SLI_MAX(w->tensor, 1),
                              .schedule.name = w->schedule,
                              .memory.recompute = w->recompute ? "full" : NULL,
                              .devices = {.kind = "cpu"},
                              .report.on_step = take_step,
                              .report.ctx = r};
  CHECK(!sl_lower(r->graph, &options, &r->lowered), "%s: %s: %s", name, w->name, sl_detail());
  const sl_plan *plan = sl_lowered_plan(r->lowered);
  CHECK(!sl_plan_prove(plan), "%s", sl_detail());
  CHECK(!sl_runtime_create(plan, &(sl_runtime_options){0}, &r->rt), "%s", sl_detail());
  sl_lowered_attach(r->lowered, r->rt);
  CHECK(!sl_params_init(r->lowered, r->rt, 1), "%s", sl_detail());
  return r;
}

static void finish(run *r) {
  sl_runtime_destroy(r->rt);
  sl_lowered_destroy(r->lowered);
  sl_graph_destroy(r->graph);
  sl_args_destroy(r->args);
  sl_exported_close(r->exported);
  free(r);
}

/* ---- figures ----------------------------------------------------------------------------------
 */

static void open_figures(const char *name, sli_json *out) {
  char *path = file_of(name, "figures.json");
  CHECK(!sli_json_open(path, out), "%s", sl_detail());
  free(path);
}

static double number(const cJSON *of, const char *key) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(of, key);
  CHECK(cJSON_IsNumber(item), "figures have %s", key);
  return item->valuedouble;
}

/* Checks losses; `later` is the tolerance for losses after the first. */
static void check_losses(const char *name, const way *w, const char *key, double later) {
  sli_json figures;
  open_figures(name, &figures);
  const cJSON *losses = cJSON_GetObjectItemCaseSensitive(figures.root, key);
  const int steps = test_many(STEPS, 3, STEPS);
  run *r = start(name, w, NULL, "1e-3");
  CHECK(!sl_runtime_run(r->rt, steps), "%s", sl_detail());
  for (int i = 0; i < steps; i++) {
    double want = cJSON_GetArrayItem(losses, i)->valuedouble, got = r->losses[i];
    CHECK(fabs(got - want) <= (i ? later : 1e-6) * fabs(want),
          "%s, %s, step %d: loss %.9g, PyTorch's %.9g", name, w->name, i, got, want);
  }
  finish(r);
  sli_json_fini(&figures);
}

static const float *param_data(const run *r, const char *name, int64_t *count) {
  const sl_param_info *params;
  int n = sl_lowered_params(r->lowered, &params), i = 0;
  while (i < n && strcmp(params[i].name, name)) i++;
  *count = i < n ? sl_type_elements(&params[i].type) : 0;
  return i < n ? sl_param_data(r->lowered, r->rt, i) : NULL;
}

/* Checks a gradient by its norm and eight elements: one SGD step at a high rate, divided by the
 * rate. */
static void check_gradient(const char *model, const cJSON *of, const float *before,
                           const float *after, int64_t count, double rate) {
  double norm = number(of, "norm"), rounding = number(of, "rounding"), squares = 0;
  double room = 1e-5 * norm + 4 * rounding + 1e-9;
  for (int64_t i = 0; i < count; i++) {
    double g = ((double)before[i] - (double)after[i]) / rate;
    squares += g * g;
  }
  CHECK(fabs(sqrt(squares) - norm) <= room, "%s: gradient of %s: norm %.9g, PyTorch's %.9g", model,
        of->string, sqrt(squares), norm);
  const cJSON *at = cJSON_GetObjectItemCaseSensitive(of, "at"),
              *values = cJSON_GetObjectItemCaseSensitive(of, "values");
  for (int k = 0; k < cJSON_GetArraySize(at); k++) {
    int64_t i = (int64_t)cJSON_GetArrayItem(at, k)->valuedouble;
    double want = cJSON_GetArrayItem(values, k)->valuedouble;
    double got = ((double)before[i] - (double)after[i]) / rate;
    CHECK(fabs(got - want) <= room, "%s: gradient of %s[%lld]: %.9g, PyTorch's %.9g", model,
          of->string, (long long)i, got, want);
  }
}

/* Tied parameters have their last name in the program and their first in the figures, so a name
 * that is not found belongs to a tied parameter. */
static void check_gradients(const char *name) {
  static const way plain = {"one device", 1, 1, 1, 1, NULL, false};
  sli_json figures;
  open_figures(name, &figures);
  run *still = start(name, &plain, "sgd", "0"), *moved = start(name, &plain, "sgd", "1e4");
  CHECK(!sl_runtime_run(still->rt, 1) && !sl_runtime_run(moved->rt, 1), "%s", sl_detail());
  const cJSON *of;
  int missing = 0;
  cJSON_ArrayForEach(of, cJSON_GetObjectItemCaseSensitive(figures.root, "gradients")) {
    int64_t count;
    const float *before = param_data(still, of->string, &count),
                *after = param_data(moved, of->string, &count);
    if (before && after) check_gradient(name, of, before, after, count, 1e4);
    else missing++;
  }
  CHECK(missing <= 1, "%s: %d parameters are missing", name, missing);
  finish(still);
  finish(moved);
  sli_json_fini(&figures);
}

/* ---- data of the user's program ---------------------------------------------------------------
 */

/* Reads one .npy file of i64 as i32. */
typedef struct own_ids {
  sl_source source;
  sl_type type;
  char *bytes;
  sli_npy array;
} own_ids;

static void fill_ids(void *ctx, const sl_tick *tick, void *const *out) {
  const own_ids *ids = ctx;
  (void)tick;
  const int64_t *from = (const int64_t *)(ids->bytes + ids->array.offset);
  for (int64_t i = 0; out[0] && i < ids->array.count; i++)
    ((int32_t *)out[0])[i] = (int32_t)from[i];
}

static void open_ids(own_ids *ids) {
  size_t size;
  char *path = file_of("gpt2", "ids.npy");
  CHECK(!sli_file_read_bytes(path, &ids->bytes, &size), "%s", sl_detail());
  CHECK(!sli_npy_read(path, ids->bytes, size, &ids->array) && ids->array.ndim == 2, "%s", path);
  ids->type = SL_TYPE(SL_I32, ids->array.dim[0], ids->array.dim[1]);
  ids->source = (sl_source){.nout = 1, .types = &ids->type, .fill = fill_ids, .ctx = ids};
  free(path);
}

/* A user's program builds an exported one on its own tensors. */
static void own_data(void) {
  own_ids ids = {0};
  sl_exported *e;
  exported_unpack("gpt2", unpacked.folder);
  open_ids(&ids);
  char *path = file_of("gpt2", "model.pt2");
  CHECK(!sl_exported_open(path, &e), "%s", sl_detail());
  CHECK(sl_exported_rows(e) == ids.array.dim[0], "%lld rows", (long long)sl_exported_rows(e));
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = 1});
  sl_tensor *tokens, *few;
  sl_data(g, &ids.source, &tokens);
  CHECK(!sl_exported_build(e, g, &(sl_exported_options){.inputs = (sl_tensor *[]){tokens, tokens}}),
        "%s", sl_detail());
  CHECK(g->loss.tensor, "the graph has a loss");
  few = sl_slice(g, tokens, 1, 0, 3);
  CHECK(sl_exported_build(e, g, &(sl_exported_options){.inputs = (sl_tensor *[]){few, few}}) ==
                SL_E_SHAPE &&
            strstr(sl_detail(), "input ids is i32[4, 3], and must be i32[4, 16]"),
        "%s", sl_detail());
  sl_graph_destroy(g);
  sl_exported_close(e);
  free(path);
  free(ids.bytes);
}

/* ---- cases ------------------------------------------------------------------------------------
 */

static const char *const models[] = {"gpt2",
                                     "llama",
                                     "qwen3",
                                     "gemma3",
                                     "olmo2",
                                     "phi3",
                                     "mamba2",
                                     "gpt-oss",
                                     "mixtral",
                                     "deepseek-v3",
                                     "qwen3-next",
                                     "rwkv",
                                     "bert",
                                     "t5",
                                     "whisper",
                                     "vit",
                                     "convnext",
                                     "clip",
                                     "swin",
                                     "timm-vit",
                                     "diffusers-unet",
                                     "x-transformers",
                                     "gpt2-dynamic",
                                     "resnet",
                                     "timm-efficientnet",
                                     "torchvision-mobilenet",
                                     "torchvision-shufflenet",
                                     "resnet-dynamic"};

static const way ways[] = {
    {"two microbatches", 2, 1, 1, 1, NULL, false},
    {"--stages 2 --schedule zb-h1", 2, 2, 1, 1, "zb-h1", false},
    {"--data-parallel 2", 1, 1, 2, 1, NULL, false},
    {"--tensor 2", 1, 1, 1, 2, NULL, false},
    {"--recompute full", 2, 1, 1, 1, NULL, true},
};

/* Batch norm and a contrastive loss mix the rows of a batch. There microbatches give another loss,
 * and data parallelism is refused. */
static bool rows_meet(const char *name) {
  static const char *const meet[] = {"clip",
                                     "resnet",
                                     "timm-efficientnet",
                                     "torchvision-mobilenet",
                                     "torchvision-shufflenet",
                                     "resnet-dynamic",
                                     NULL};
  for (int i = 0; meet[i]; i++)
    if (!strcmp(name, meet[i])) return true;
  return false;
}

static void model(const char *name) {
  static const way plain = {"one device", 1, 1, 1, 1, NULL, false};
  int skip = test_many(1, 3, 1); /* stride through the ways */
  exported_unpack(name, unpacked.folder);
  check_losses(name, &plain, "losses", 1e-5);
  check_gradients(name);
  for (size_t i = 0; i < SLI_COUNT(ways); i += (size_t)skip)
    if (!(ways[i].data > 1 && rows_meet(name)))
      check_losses(name, &ways[i], ways[i].microbatches > 1 ? "losses_of_halves" : "losses",
                   rows_meet(name) ? 1e-4 : 1e-5);
}

int main(int argc, char **argv) {
  (void)argc, (void)argv;
  CHECK(!sli_tempdir_open(NULL, &unpacked), "%s", sl_detail());
  RUN(own_data);
  for (size_t i = 0; i < SLI_COUNT(models); i++) RUN_AS(models[i], model(models[i]));
  sli_tempdir_close(&unpacked);
  return 0;
}
