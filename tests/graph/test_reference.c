/* SPDX-License-Identifier: Apache-2.0 */
/* The shipped models, run node by node, match PyTorch: loss, gradient norm and learning rate of 20
 * steps, from the same weights and tokens.
 * labels: unthreaded smoke */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <sluice/sluice.h>

#include "io/safetensors.h"
#include "models/models.h"
#include "tests/support/graph_interp.h"

static const char *in_reference(char out[512], const char *name) {
  const char *source = getenv("SLUICE_SOURCE");
  snprintf(out, 512, "%s/tests/reference/%s", source ? source : ".", name);
  return out;
}

static const sl_model *find_model(const char *name) {
  for (int i = 0; sli_models[i]; i++)
    if (!strcmp(sli_models[i]->name, name)) return sli_models[i];
  CHECK(false, "no model %s", name);
  return NULL;
}

static sl_graph *build(const char *name, const char *const *options) {
  const sl_model *model = find_model(name);
  sl_args *args;
  CHECK(!sl_args_create(model->options, &args), "%s", sl_detail());
  char path[512];
  CHECK(!sl_args_set(args, "data", in_reference(path, "tokens.u16")), "%s", sl_detail());
  for (; *options; options += 2)
    CHECK(!sl_args_set(args, options[0], options[1]), "%s", sl_detail());
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = 4});
  CHECK(!model->build(g, args), "%s", sl_detail());
  CHECK(!sli_pass_gradients(g), "%s", sl_detail());
  sli_graph_check(g);
  sl_args_destroy(args);
  return g;
}

static void load(interp *in, const char *file) {
  char path[512];
  sli_safetensors *weights;
  CHECK(!sli_safetensors_open(in_reference(path, file), &weights), "%s", sl_detail());
  for (int p = 0; p < in->g->nparams; p++) {
    const sl_tensor *param = in->g->params[p];
    const sli_stored_tensor *stored = sli_safetensors_find(weights, param->name);
    CHECK(stored, "%s has no %s", file, param->name);
    CHECK(stored->bytes == sl_type_bytes(&param->type), "%s has another shape", param->name);
    CHECK(!sli_safetensors_read(weights, stored, interp_data(in, param)), "%s", sl_detail());
  }
  CHECK(sli_safetensors_count(weights) == in->g->nparams, "%s has other tensors too", file);
  sli_safetensors_close(weights);
}

static double relative(double a, double b) { return fabs(a - b) / fabs(b); }

static void agrees_with_pytorch(const char *name, const char *init, const char *losses,
                                const char *const *options) {
  sl_graph *g = build(name, options);
  interp in = interp_create(g, 1);
  load(&in, init);
  char path[512], line[512];
  FILE *file = fopen(in_reference(path, losses), "r");
  CHECK(file, "cannot open %s", path);
  int steps = 0;
  while (fgets(line, sizeof line, file)) {
    int step;
    double loss, norm, lr, exact_loss, exact_norm;
    if (*line == '#') continue;
    CHECK(sscanf(line, "%d %lf %lf %lf %lf %lf", &step, &loss, &norm, &lr, &exact_loss,
                 &exact_norm) == 6,
          "%s: %s", path, line);
    double found = interp_step(&in, step), found_norm = *(double *)interp_data(&in, g->grad_norm);
    CHECK(relative(found, exact_loss) < 1e-5, "%s step %d: loss %.9g, PyTorch has %.9g", name, step,
          found, exact_loss);
    CHECK(relative(found_norm, exact_norm) < 1e-4, "%s step %d: norm %.9g, PyTorch has %.9g", name,
          step, found_norm, exact_norm);
    CHECK(relative((double)sl_optimizer_lr(&g->training.optimizer, step), lr) < 1e-6,
          "%s step %d: lr", name, step);
    steps++;
  }
  CHECK(steps == 20, "%s has %d steps", path, steps);
  fclose(file);
  interp_destroy(&in);
  sl_graph_destroy(g);
}

int main(void) {
  static const char *const gpt[] = {
      "layers", "4",    "width",  "64",   "heads",  "4", "context",     "32", "batch", "8",
      "lr",     "3e-3", "min-lr", "3e-4", "warmup", "4", "decay-steps", "16", NULL};
  RUN(agrees_with_pytorch, "gpt", "gpt_init.safetensors", "gpt_losses.txt", gpt);
  static const char *const llama[] = {"layers",   "3", "width",       "64",   "heads",   "4",
                                      "kv-heads", "2", "ffn",         "176",  "context", "32",
                                      "batch",    "8", "lr",          "3e-3", "min-lr",  "3e-4",
                                      "warmup",   "4", "decay-steps", "16",   NULL};
  RUN(agrees_with_pytorch, "llama", "llama_init.safetensors", "llama_losses.txt", llama);
  return 0;
}
