/* SPDX-License-Identifier: Apache-2.0 */
/* The shipped models match PyTorch and Hugging Face transformers: the same losses for 20 steps from
 * the same weights and tokens, the same weights afterwards, and the same logits from files that
 * transformers wrote.
 * labels: numbers smoke */
#include <math.h>
#include <string.h>

#include <sluice/sluice.h>

#include "base/base.h"
#include "io/safetensors.h"
#include "models/models.h"
#include "tests/support/test.h"

enum { STEPS = 20 };

static char *reference(const char *name) {
  const char *source = getenv("SLUICE_SOURCE");
  return sli_format("%s/tests/reference/%s", source ? source : ".", name);
}

/* ---- running a model ------------------------------------------------------------------ */

typedef struct run {
  sl_args *args;
  sl_graph *graph;
  sl_lowered *lowered;
  sl_runtime *rt;
  sl_step_report steps[STEPS];
  const int32_t *tokens; /* inference: the input ... */
  float *logits;         /* ... and the output */
  size_t logit_count;
} run;

static void take_step(void *ctx, const sl_step_report *report) {
  run *r = ctx;
  CHECK(report->step < STEPS, "step %lld", (long long)report->step);
  r->steps[report->step] = *report;
}

static void feed(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count) {
  const run *r = ctx;
  memcpy(tokens, r->tokens + tick->step * count, (size_t)count * sizeof *tokens);
}

static void take_logits(void *ctx, const char *name, const sl_type *type, const void *data) {
  run *r = ctx;
  CHECK(!strcmp(name, "logits") && type->dtype == SL_F32, "the output is logits");
  size_t n = (size_t)sl_type_elements(type);
  r->logits = sli_realloc(r->logits, r->logit_count + n, sizeof(float));
  memcpy(r->logits + r->logit_count, data, n * sizeof(float));
  r->logit_count += n;
}

static void load(run *r, const char *path) {
  sli_safetensors *file;
  CHECK(!sli_safetensors_open(path, &file), "%s", sl_detail());
  const sl_param_info *params;
  int n = sl_lowered_params(r->lowered, &params);
  CHECK(n == sli_safetensors_count(file), "%s has the model's tensors and no others", path);
  for (int i = 0; i < n; i++) {
    const sli_stored_tensor *t = sli_safetensors_find(file, params[i].name);
    CHECK(t && t->elements == (size_t)sl_type_elements(&params[i].type), "%s: %s", path,
          params[i].name);
    CHECK(!sli_safetensors_read(file, t, sl_param_data(r->lowered, r->rt, i)), "%s", sl_detail());
  }
  sli_safetensors_close(file);
}

/* Starts a model; `words` are options as on a command line. */
static run *start(const char *model, char *const *words, bool infer, int microbatches, int stages) {
  const sl_model *const *m = sli_models;
  while (*m && strcmp((*m)->name, model)) m++;
  CHECK(*m, "there is a model %s", model);
  run *r = sli_calloc(1, sizeof *r);
  CHECK(!sl_args_create((*m)->options, &r->args), "%s", sl_detail());
  for (int used; *words; words += used)
    CHECK(!sl_args_take(r->args, words[1] ? 2 : 1, words, &used) && used, "option %s", *words);
  r->graph = sl_graph_create(&(sl_graph_options){.microbatches = microbatches,
                                                 .pieces = 1,
                                                 .infer = infer,
                                                 .feed_tokens = feed,
                                                 .feed_ctx = r});
  CHECK(!(*m)->build(r->graph, r->args), "%s", sl_detail());
  sl_lower_options options = {.parallel.stages = stages,
                              .schedule.chunks = 1,
                              .devices = {.kind = "cpu"},
                              .report.on_step = take_step,
                              .report.on_output = take_logits,
                              .report.ctx = r};
  CHECK(!sl_lower(r->graph, &options, &r->lowered), "%s", sl_detail());
  const sl_plan *plan = sl_lowered_plan(r->lowered);
  CHECK(!sl_plan_prove(plan), "%s", sl_detail());
  CHECK(!sl_runtime_create(plan, &(sl_runtime_options){0}, &r->rt), "%s", sl_detail());
  sl_lowered_attach(r->lowered, r->rt);
  return r;
}

static void finish(run *r) {
  sl_runtime_destroy(r->rt);
  sl_lowered_destroy(r->lowered);
  sl_graph_destroy(r->graph);
  sl_args_destroy(r->args);
  free(r->logits);
  free(r);
}

/* ---- training ------------------------------------------------------------------------- */

static FILE *open_text(const char *name) {
  char *path = reference(name);
  FILE *file = fopen(path, "r");
  CHECK(file, "cannot open %s", path);
  free(path);
  return file;
}

static void check_losses(const run *r, const char *name) {
  FILE *file = open_text(name);
  char line[1024];
  int rows = 0;
  while (fgets(line, sizeof line, file)) {
    int step;
    double loss, norm;
    if (line[0] == '#') continue;
    CHECK(sscanf(line, "%d %lf %lf", &step, &loss, &norm) == 3 && step == rows, "%s: %s", name,
          line);
    const sl_step_report *got = &r->steps[rows++];
    CHECK(fabs(got->loss - loss) <= 1e-4 * loss, "%s step %d: loss %.9g, PyTorch's %.9g", name,
          step, got->loss, loss);
    CHECK(fabs(got->grad_norm - norm) <= 1e-3 * norm, "%s step %d: norm %.9g, PyTorch's %.9g", name,
          step, got->grad_norm, norm);
  }
  fclose(file);
  CHECK(rows == STEPS, "%s has %d steps", name, STEPS);
}

/* Compares a parameter after the last step, by its norm and by a sum that detects permuted
 * elements. `slack` is the allowed difference between fp32 and fp64 per element. */
static void check_tensor(const run *r, const char *name, double norm, double probe, double slack) {
  const sl_param_info *params;
  int n = sl_lowered_params(r->lowered, &params), i = 0;
  while (i < n && strcmp(params[i].name, name)) i++;
  CHECK(i < n, "there is a parameter %s", name);
  const float *x = sl_param_data(r->lowered, r->rt, i);
  size_t count = (size_t)sl_type_elements(&params[i].type);
  double squares = 0, sum = 0;
  for (size_t k = 0; k < count; k++) {
    squares += (double)x[k] * x[k];
    sum += (double)x[k] * cos((double)k);
  }
  double room = 4 * (slack + 1e-6) * sqrt((double)count);
  CHECK(fabs(sqrt(squares) - norm) <= room, "%s: norm %.9g, PyTorch's %.9g", name, sqrt(squares),
        norm);
  CHECK(fabs(sum - probe) <= room, "%s: probe %.9g, PyTorch's %.9g", name, sum, probe);
}

static void check_tensors(const run *r, const char *name) {
  FILE *file = open_text(name);
  char line[1024], tensor[256];
  while (fgets(line, sizeof line, file)) {
    double norm, probe, slack;
    if (line[0] == '#') continue;
    CHECK(sscanf(line, "%255s %*s %*s %*s %*s %lf %lf %lf", tensor, &norm, &probe, &slack) == 4,
          "%s: %s", name, line);
    check_tensor(r, tensor, norm, probe, slack);
  }
  fclose(file);
}

static void losses_agree_with_pytorch(const char *model, char *const *words, int stages) {
  run *r = start(model, words, false, 4, stages);
  char *init = sli_format("%s_init.safetensors", model), *path = reference(init);
  char *losses = sli_format("%s_losses.txt", model), *tensors = sli_format("%s_tensors.txt", model);
  load(r, path);
  CHECK(!sl_runtime_run(r->rt, STEPS), "%s", sl_detail());
  check_losses(r, losses);
  check_tensors(r, tensors);
  free(init);
  free(path);
  free(losses);
  free(tensors);
  finish(r);
}

/* ---- inference -------------------------------------------------------------------------- */

static void logits_agree_with_transformers(const char *model, const char *folder,
                                           char *const *words) {
  run *r = start(model, words, true, 1, 1);
  char *weights = sli_format("%s/model.safetensors", folder), *path = reference(weights);
  load(r, path);
  free(path);
  free(weights);
  char *expected = sli_format("%s/expected.safetensors", folder);
  path = reference(expected);
  sli_safetensors *file;
  CHECK(!sli_safetensors_open(path, &file), "%s", sl_detail());
  const sli_stored_tensor *tokens = sli_safetensors_find(file, "tokens");
  const sli_stored_tensor *logits = sli_safetensors_find(file, "logits");
  int32_t *ids = sli_calloc(tokens->elements, sizeof *ids);
  float *want = sli_calloc(logits->elements, sizeof *want);
  memcpy(ids, sli_safetensors_bytes(file, tokens), tokens->bytes);
  CHECK(!sli_safetensors_read(file, logits, want), "%s", sl_detail());
  r->tokens = ids;
  CHECK(!sl_runtime_run(r->rt, tokens->dim[0]), "%s", sl_detail());
  CHECK(r->logit_count == logits->elements, "%s: %zu logits", folder, r->logit_count);
  for (size_t i = 0; i < logits->elements; i++)
    CHECK(fabsf(r->logits[i] - want[i]) <= 2e-5f, "%s: logit %zu is %g, transformers' %g", folder,
          i, (double)r->logits[i], (double)want[i]);
  sli_safetensors_close(file);
  free(ids);
  free(want);
  free(path);
  free(expected);
  finish(r);
}

int main(void) {
  char *tokens = reference("tokens.u16");
#define TRAINING                                                                        \
  "--width", "64", "--heads", "4", "--context", "32", "--data", tokens, "--lr", "3e-3", \
      "--min-lr", "3e-4", "--warmup", "4", "--decay-steps", "16"
  char *gpt[] = {"--layers", "4", TRAINING, NULL};
  char *llama[] = {"--layers", "3", "--kv-heads", "2", "--ffn", "176", TRAINING, NULL};
  RUN(losses_agree_with_pytorch, "gpt", gpt, 1);
  RUN(losses_agree_with_pytorch, "gpt", gpt, 4);
  RUN(losses_agree_with_pytorch, "llama", llama, 1);
  RUN(losses_agree_with_pytorch, "llama", llama, 3);
  char *hf_gpt2[] = {"--layers", "2", "--width", "32", "--heads", "2", "--context", "32", NULL};
  char *hf_llama[] = {"--layers", "2",     "--width", "32",        "--heads", "4", "--kv-heads",
                      "2",        "--ffn", "88",      "--context", "32",      NULL};
  RUN(logits_agree_with_transformers, "gpt", "hf_gpt2", hf_gpt2);
  RUN(logits_agree_with_transformers, "llama", "hf_llama", hf_llama);
  free(tokens);
  return 0;
}
