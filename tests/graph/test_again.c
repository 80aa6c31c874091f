/* SPDX-License-Identifier: Apache-2.0 */
/* A graph that is lowered again with other homes gives the plan that a new graph gives, or the same
 * error.
 * labels: unthreaded */
#include <string.h>

#include <sluice/sluice.h>

#include "actors/plan/plan.h"
#include "graph/compile/compile.h"
#include "models/models.h"
#include "tests/support/test.h"

static const sl_hardware hardware = {.flops_per_second = 1e13,
                                     .bytes_per_second = 1e12,
                                     .op_seconds = 1e-6,
                                     .copy_bytes_per_second = 1e11,
                                     .devices_per_host = 4,
                                     .link = {5e-6, 1e10},
                                     .host_link = {2e-6, 1e11}};

static const sl_home state[] = {{"state", NULL, SL_SPACE_HOST, 0}};
static const sl_home both[] = {{"act", NULL, SL_SPACE_HOST, 0},
                               {"act", "h.1", SL_SPACE_DEVICE, 0},
                               {"state", "h.[0-2]", SL_SPACE_HOST, 0}};
static const sl_home_options homes[] = {
    {0}, {.count = 1, .homes = state}, {.count = 3, .homes = both}};

typedef struct setting {
  const char *model, *schedule, *shard, *recompute;
  int stages, tensor, data;
} setting;

static sl_graph *build(const setting *s) {
  char *words[] = {"--layers", "8",       "--width", "64",      "--heads", "4", "--context",
                   "32",       "--vocab", "128",     "--batch", "16",      NULL};
  const sl_model *const *m = sli_models;
  while (strcmp((*m)->name, s->model)) m++;
  sl_args *args;
  int used;
  CHECK(!sl_args_create((*m)->options, &args), "%s", sl_detail());
  for (char *const *w = words; *w; w += used)
    CHECK(!sl_args_take(args, 2, (char **)w, &used) && used, "option %s", *w);
  sl_graph *g =
      sl_graph_create(&(sl_graph_options){.microbatches = 4, .stages = s->stages, .no_data = true});
  CHECK(!(*m)->build(g, args), "%s", sl_detail());
  sl_args_destroy(args);
  return g;
}

static sl_status lower(sl_graph *g, const setting *s, const sl_home_options *home,
                       sl_lowered **out) {
  return sl_lower(g,
                  &(sl_lower_options){.parallel.stages = s->stages,
                                      .parallel.tensor = s->tensor,
                                      .parallel.data = s->data,
                                      .schedule.name = s->schedule,
                                      .memory.shard = s->shard,
                                      .memory.recompute = s->recompute,
                                      .memory.homes = *home,
                                      .simulation.hardware = &hardware,
                                      .devices = {.kind = "timed"}},
                  out);
}

/* Lowers a graph again from homes `from` to homes `to`. Returns whether these homes have a plan. */
static bool same_plan(const setting *s, size_t from, size_t to) {
  sl_graph *first = build(s), *anew = build(s);
  sl_lowered *base = NULL, *again = NULL, *plain = NULL;
  if (lower(first, s, &homes[from], &base)) {
    sl_graph_destroy(first), sl_graph_destroy(anew);
    return false;
  }
  sl_status status = sli_lower_again(base, &homes[to], &again),
            want = lower(anew, s, &homes[to], &plain);
  CHECK(status == want, "%s, %d stages, homes %zu after %zu: status %d, not %d", s->model,
        s->stages, to, from, status, want);
  if (!want)
    CHECK(sli_plan_hash(sl_lowered_plan(again)) == sl_lowered_plan(plain)->hash,
          "%s, %d stages, %s, homes %zu after %zu: another plan", s->model, s->stages, s->recompute,
          to, from);
  sl_lowered_destroy(again), sl_lowered_destroy(base), sl_lowered_destroy(plain);
  sl_graph_destroy(first), sl_graph_destroy(anew);
  return !want;
}

static void plans_are_those_of_new_graphs(void) {
  static const setting settings[] = {
      {"gpt", "1f1b", "nothing", "none", 1, 1, 1},
      {"gpt", "gpipe", "nothing", "none", 2, 1, 1},
      {"llama", "gpipe", "optimizer", "full", 2, 1, 2},
      {"llama", "zb-h1", "gradients", "selective", 2, 2, 2},
      {"gpt", "interleaved", "nothing", "full@h.2", 2, 2, 1},
  };
  int plans = 0;
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    for (size_t pair = 0; pair < 9; pair++) plans += same_plan(&settings[i], pair / 3, pair % 3);
  CHECK(plans >= 30, "only %d plans were compared", plans);
}

int main(void) {
  RUN(plans_are_those_of_new_graphs);
  return 0;
}
