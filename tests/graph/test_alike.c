/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that one device per stage can represent its whole grid: on the virtual clock it predicts
 * the same step time, bubble, memory and traffic as simulating every device.
 * labels: unthreaded */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/sluice.h>

#include "base/base.h"
#include "models/models.h"
#include "tests/support/test.h"

static const sl_hardware hardware = {.flops_per_second = 1e13,
                                     .bytes_per_second = 1e12,
                                     .op_seconds = 1e-6,
                                     .devices_per_host = 4,
                                     .link = {5e-6, 1e10},
                                     .host_link = {2e-6, 1e11}};

typedef struct setting {
  const char *model, *schedule, *shard;
  int stages, tensor, data, microbatches, pieces;
} setting;

typedef struct prediction {
  sl_graph *g;
  sl_lowered *lowered;
  const sl_plan *plan;
  sl_statistics stats;
} prediction;

static sl_graph *build(const setting *s) {
  char *words[] = {"--layers", "4",       "--width", "128",     "--heads", "8", "--context",
                   "64",       "--vocab", "512",     "--batch", "16",      NULL};
  const sl_model *const *m = sli_models;
  while (*m && strcmp((*m)->name, s->model)) m++;
  CHECK(*m, "there is a model %s", s->model);
  sl_args *args;
  int used;
  CHECK(!sl_args_create((*m)->options, &args), "%s", sl_detail());
  for (char *const *w = words; *w; w += used)
    CHECK(!sl_args_take(args, 2, (char **)w, &used) && used, "option %s", *w);
  sl_graph *g = sl_graph_create(&(sl_graph_options){
      .microbatches = s->microbatches, .pieces = s->pieces, .stages = s->stages, .no_data = true});
  CHECK(!(*m)->build(g, args), "%s", sl_detail());
  sl_args_destroy(args);
  return g;
}

static prediction predict(const setting *s, bool alike) {
  prediction p = {.g = build(s)};
  sl_lower_options options = {.parallel.stages = s->stages,
                              .parallel.tensor = s->tensor,
                              .parallel.data = s->data,
                              .schedule.name = s->schedule,
                              .memory.shard = s->shard,
                              .simulation.alike = alike,
                              .simulation.hardware = &hardware,
                              .devices = {.kind = "timed"}};
  CHECK(!sl_lower(p.g, &options, &p.lowered), "%s", sl_detail());
  p.plan = sl_lowered_plan(p.lowered);
  CHECK(!sl_plan_predict(p.plan, NULL, &p.stats), "%s", sl_detail());
  return p;
}

static void forget(prediction *p) {
  free(p->stats.devices);
  sl_lowered_destroy(p->lowered);
  sl_graph_destroy(p->g);
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

static void compare_device(const char *name, const prediction *one, const prediction *all, int d,
                           int ranks) {
  const sl_device_statistics *a = &one->stats.devices[d], *b = &all->stats.devices[d * ranks];
  CHECK(near(a->busy_seconds, b->busy_seconds), "%s, stage %d: busy for %.9g s, not %.9g", name, d,
        a->busy_seconds, b->busy_seconds);
  CHECK(near(a->span_seconds, b->span_seconds), "%s, stage %d: a span of %.9g s, not %.9g", name, d,
        a->span_seconds, b->span_seconds);
  CHECK(near(a->peak_activations, b->peak_activations), "%s, stage %d: %g activations, not %g",
        name, d, a->peak_activations, b->peak_activations);
  for (int m = 0; m < SL_MEMORY_COUNT; m++) {
    size_t x = sl_plan_memory(one->plan, d, (sl_memory)m);
    size_t y = sl_plan_memory(all->plan, d * ranks, (sl_memory)m);
    CHECK(x == y, "%s, stage %d: %s take %zu bytes, not %zu", name, d, sl_memory_name((sl_memory)m),
          x, y);
  }
}

/* Compares the bytes moved to the first device of each stage. Report traffic is skipped: only one
 * of the devices sends it. */
static void compare_moved(const char *name, const prediction *one, const prediction *all,
                          int stages, int ranks) {
  uint64_t(*a)[SL_TRAFFIC_COUNT] = sli_calloc((size_t)stages, sizeof *a);
  uint64_t(*b)[SL_TRAFFIC_COUNT] = sli_calloc((size_t)(stages * ranks), sizeof *b);
  sl_lowered_moved(one->lowered, a);
  sl_plan_moved(all->plan, b);
  for (int d = 0; d < stages; d++)
    for (int t = 0; t < SL_TRAFFIC_COUNT; t++)
      CHECK(t == SL_TRAFFIC_ASIDE || a[d][t] == b[d * ranks][t],
            "%s, stage %d: %llu bytes of %s, not %llu", name, d, (unsigned long long)a[d][t],
            sl_traffic_name((sl_traffic)t), (unsigned long long)b[d * ranks][t]);
  free(a);
  free(b);
}

/* Bubble of the first device of each stage. The other devices idle while the first one computes the
 * gradient norms of replicated parameters. */
static double first_bubble(const prediction *all, int stages, int ranks) {
  double busy = 0, span = 0;
  for (int d = 0; d < stages; d++) {
    busy += all->stats.devices[d * ranks].busy_seconds / stages;
    span = SLI_MAX(span, all->stats.devices[d * ranks].span_seconds);
  }
  return 1 - busy / span;
}

static void compare(const setting *s) {
  int ranks = s->tensor * s->data;
  char *name = sli_format("%s, %s, shard %s, %d stages on %d x %d, %d pieces", s->model,
                          s->schedule, s->shard, s->stages, s->data, s->tensor, s->pieces);
  prediction one = predict(s, true), all = predict(s, false);
  CHECK(one.plan->ndevices == s->stages && all.plan->ndevices == s->stages * ranks,
        "%s: %d and %d devices", name, one.plan->ndevices, all.plan->ndevices);
  CHECK(sl_lowered_alike(one.lowered) == ranks && sl_lowered_alike(all.lowered) == 1,
        "%s: a device stands for %d", name, sl_lowered_alike(one.lowered));
  printf("%s: %.9g s, bubble %.4g\n", name, all.stats.step_seconds, all.stats.bubble_fraction);
  CHECK(near(one.stats.step_seconds, all.stats.step_seconds), "%s: a step of %.9g s, not %.9g",
        name, one.stats.step_seconds, all.stats.step_seconds);
  double bubble = first_bubble(&all, s->stages, ranks);
  CHECK(near(one.stats.bubble_fraction, bubble), "%s: bubble %.9g, not %.9g", name,
        one.stats.bubble_fraction, bubble);
  CHECK(one.stats.bubble_fraction <= all.stats.bubble_fraction + 1e-9, "%s: bubble %.9g of %.9g",
        name, one.stats.bubble_fraction, all.stats.bubble_fraction);
  for (int d = 0; d < s->stages; d++) compare_device(name, &one, &all, d, ranks);
  compare_moved(name, &one, &all, s->stages, ranks);
  CHECK(near(sl_lowered_flops(one.lowered), sl_lowered_flops(all.lowered)), "%s: the same flops",
        name);
  forget(&one);
  forget(&all);
  free(name);
}

int main(void) {
  static const setting settings[] = {{"gpt", "1f1b", "nothing", 1, 2, 1, 2, 1},
                                     {"gpt", "1f1b", "nothing", 1, 1, 4, 1, 1},
                                     {"gpt", "1f1b", "nothing", 2, 2, 2, 4, 1},
                                     {"gpt", "1f1b", "optimizer", 2, 1, 4, 2, 1},
                                     {"gpt", "gpipe", "gradients", 2, 1, 2, 4, 1},
                                     {"llama", "1f1b", "parameters", 2, 2, 2, 4, 1},
                                     {"llama", "zb-h1", "nothing", 4, 4, 1, 8, 1},
                                     {"gpt", "interleaved", "nothing", 2, 2, 1, 4, 1},
                                     {"llama", "seq1f1b", "nothing", 2, 2, 2, 2, 4},
                                     {"llama", "zb-h2", "optimizer", 2, 4, 2, 4, 1}};
  for (size_t i = 0; i < SLI_COUNT(settings); i++) RUN(compare, &settings[i]);
  return 0;
}
