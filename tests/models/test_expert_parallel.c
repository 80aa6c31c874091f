/* SPDX-License-Identifier: Apache-2.0 */
/* Experts sharded over the data-parallel devices, or over these and the tensor-parallel devices,
 * learn what one device learns. On one layout the bits do not depend on schedule, timing and
 * processes. The bytes of rows that travel to experts and back follow exactly from the ids, and an
 * expert may get no rows in a tick or in a whole step.
 * labels: numbers random more */
#include <math.h>
#include <string.h>

#include <sluice/ops.h>
#include <sluice/sluice.h>

#include "base/base.h"
#include "tests/support/grids.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

#define WORDS(...) \
  (char *[]) { __VA_ARGS__, NULL }

/* ---- the shipped model -------------------------------------------------------------------- */

enum { FEW_STEPS = 3 };
enum { SEEDS = TEST_SANITIZED ? 1 : 2 };
#define EACH test_many(2, 6, TEST_SANITIZED ? 6 : 1)
#define MORE (size_t) test_many(1, 4, TEST_SANITIZED ? 2 : 1)

static char **const words =
    WORDS("--layers", "2", "--width", "16", "--heads", "2", "--context", "6", "--batch", "8",
          "--experts", "6", "--top-k", "2", "--expert-ffn", "8");

static void check_near(const grid_losses *got, const grid_losses *want, const grid_model *m,
                       const grid *g) {
  char name[GRID_TEXT];
  for (int s = 0; s < got->count; s++) {
    double loss = fabs(got->loss[s] / want->loss[s] - 1),
           norm = fabs(got->norm[s] / want->norm[s] - 1);
    CHECK(loss < 1e-6 && norm < 1e-4, "%s: step %d: loss %.9g, not %.9g, norm %.7g, not %.7g",
          grid_format(name, m, g), s, got->loss[s], want->loss[s], got->norm[s], want->norm[s]);
  }
}

static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1", "interleaved", "zb-v", "seq1f1b"};

/* Returns the grid with a random schedule, timing, processes and workers. */
static grid another(const grid *like, uint64_t seed) {
  grid g = *like;
  g.stages = 2;
  g.schedule = schedules[seed % SLI_COUNT(schedules)];
  g.jitter_seed = seed;
  g.processes = 1 + (int)(seed % 4);
  return g;
}

static const grid grids[] = {{.data = 4, .experts = 1},
                             {.data = 4, .experts = 2},
                             {.data = 4, .experts = 4},
                             {.data = 2, .tensor = 2, .experts = 4}};

static void losses_are_those_of_one_device(void) {
  const grid_model m = {"mixtral", words, 2, 1};
  grid one = {.steps = FEW_STEPS};
  grid_losses alone = grid_train(&m, &one);
  uint64_t seed = 1;
  for (size_t k = 0; k < SLI_COUNT(grids); k++) {
    grid g = grids[k];
    g.steps = FEW_STEPS;
    grid_losses first = grid_train(&m, &g);
    check_near(&first, &alone, &m, &g);
    for (int i = 0; i < (g.experts > 1 ? (int)SLI_COUNT(schedules) : 1);
         i += EACH, seed += EACH - 1) {
      grid other = another(&g, seed++);
      grid_losses again = grid_train(&m, &other);
      grid_same_bits(&m, &other, &first, &again);
    }
  }
}

/* Expert parallelism combines with all other sharding, cutting and recomputation. */
static void it_goes_with_everything(void) {
  static const grid all[] = {
      {.data = 2, .experts = 2, .tensor = 2, .shard = "gradients"},
      {.data = 2, .experts = 2, .sequence = 2, .recompute = "full", .processes = 4},
      {.data = 4, .experts = 2, .shard = "parameters", .processes = 2},
      {.data = 4, .experts = 2, .sequence = 2, .shard = "optimizer", .grain = "pass"},
      {.tensor = 2, .experts = 2, .processes = 2},
      {.data = 2,
       .tensor = 2,
       .experts = 2,
       .expert_tensor = 1,
       .shard = "gradients",
       .processes = 3},
      {.sequence = 2, .tensor = 2, .experts = 2, .recompute = "full", .shard = "parameters"},
      {.tensor = 4, .experts = 2, .recompute = "selective", .processes = 4},
      {.data = 2, .tensor = 3, .experts = 6, .grain = "pass"},
      {.data = 3, .experts = 3, .recompute = "whole", .stages = 2, .processes = 3},
  };
  const grid_model m = {"mixtral", words, 2, 1};
  grid one = {.steps = FEW_STEPS};
  grid_losses alone = grid_train(&m, &one);
  for (size_t i = 0; i < SLI_COUNT(all); i += MORE) {
    grid g = all[i];
    g.steps = FEW_STEPS;
    grid_losses got = grid_train(&m, &g);
    check_near(&got, &alone, &m, &g);
  }
}

/* ---- random grids ---------------------------------------------------------------------------- */

static int pick(uint64_t *rng, int n) {
  *rng = *rng * 6364136223846793005u + 1442695040888963407u;
  return (int)((*rng >> 33) % (uint64_t)n);
}

static int any_processes(const grid *g, uint64_t *rng) {
  int devices = g->stages * g->data * SLI_MAX(g->sequence, 1) * SLI_MAX(g->tensor, 1);
  return 1 + pick(rng, SLI_MIN(devices, 4));
}

static grid any_grid(uint64_t *rng) {
  static const char *const shards[] = {NULL, "optimizer", "gradients", "parameters"};
  static const char *const recomputes[] = {NULL, "selective", "full", "whole"};
  grid g = {.steps = FEW_STEPS, .experts = 2 + pick(rng, 2)};
  g.data = g.experts * (g.experts == 2 ? 1 + pick(rng, 2) : 1);
  g.sequence = g.data < 4 ? 1 + pick(rng, 2) : 1;
  g.tensor = g.data * g.sequence < 4 ? 1 + pick(rng, 2) : 1;
  g.expert_tensor = g.tensor > 1 ? pick(rng, 2) : 0;
  if (g.expert_tensor && g.experts < 3) g.experts *= 1 + pick(rng, 2);
  g.stages = 1 + pick(rng, 2);
  g.schedule = schedules[pick(rng, SLI_COUNT(schedules))];
  g.shard = shards[pick(rng, 4)];
  g.recompute = recomputes[pick(rng, 4)];
  g.processes = any_processes(&g, rng);
  g.jitter_seed = (uint64_t)pick(rng, 1 << 20);
  return g;
}

/* Tests one random case: it learns what one device learns, and a different run of it has the same
 * bits. */
static void any_grid_learns_the_same(uint64_t seed) {
  uint64_t rng = seed;
  char of[4][8];
  const int numbers[] = {3 + pick(&rng, 5), 1 + pick(&rng, 3), 2 + pick(&rng, 9), pick(&rng, 3)};
  for (int i = 0; i < 4; i++)
    snprintf(of[i], sizeof of[i], "%d", i == 3 ? 2 * numbers[i] : numbers[i]);
  const bool shared = pick(&rng, 2);
  const grid_model m = {shared ? "qwen-moe" : "mixtral",
                        WORDS("--layers", "2", "--width", "16", "--heads", "2", "--context", "6",
                              "--batch", "8", "--experts", of[0], "--top-k", of[1], "--expert-ffn",
                              of[2], "--z-loss", "0.1", shared ? "--shared-ffn" : NULL, of[3]),
                        2, 1};
  grid one = {.steps = FEW_STEPS}, g = any_grid(&rng), other = g;
  grid_losses alone = grid_train(&m, &one), got = grid_train(&m, &g);
  check_near(&got, &alone, &m, &g);
  other.schedule = schedules[pick(&rng, SLI_COUNT(schedules))];
  other.stages = 1 + pick(&rng, 2);
  other.processes = any_processes(&other, &rng);
  other.jitter_seed++;
  grid_losses again = grid_train(&m, &other);
  grid_same_bits(&m, &other, &got, &again);
}

/* ---- a model whose data routes the rows ------------------------------------------------------ */

enum {
  ROWS = 4,
  TOKENS = 8,
  WIDTH = 12,
  INNER = 8,
  EXPERTS = 8,
  K = 2,
  LAYERS = 2,
  MICROBATCHES = 2,
  STEPS = 4
};

typedef int32_t expert_of(int64_t tick, int64_t token, int j);

/* Each source sends equally many tokens to each expert. */
static int32_t evenly(int64_t tick, int64_t token, int j) {
  return (int32_t)((token + tick + j * EXPERTS / K) % EXPERTS);
}

/* Odd ticks use only the first half of the experts, the second step only the first two, the third
 * step none. */
static int32_t unevenly(int64_t tick, int64_t token, int j) {
  int64_t step = tick / MICROBATCHES;
  if (step == 2) return -1;
  if (step == 1) return j;
  return (int32_t)((token * 5 + j) % (tick % 2 ? EXPERTS / 2 : EXPERTS));
}

static float number_of(int64_t tick, int64_t i) {
  return (float)((tick * 37 + i * 29) % 61) / 30.0f - 1;
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  expert_of *to = *(expert_of **)ctx;
  for (int64_t i = 0; out[0] && i < ROWS * TOKENS * WIDTH; i++)
    ((float *)out[0])[i] = number_of(tick->number, i);
  for (int64_t i = 0; out[1] && i < ROWS * TOKENS * K; i++)
    ((int32_t *)out[1])[i] = to(tick->number, i / K, (int)(i % K));
  for (int64_t i = 0; out[2] && i < ROWS * TOKENS * K; i++)
    ((float *)out[2])[i] = 0.5f + 0.1f * (float)(i % 3);
}

static const sl_type types[] = {{SL_F32, 3, {ROWS, TOKENS, WIDTH}},
                                {SL_I32, 3, {ROWS, TOKENS, K}},
                                {SL_F32, 3, {ROWS, TOKENS, K}}};

static sl_tensor *layer(sl_graph *g, int i, sl_tensor *x, sl_tensor *ids, sl_tensor *weights) {
  sl_tensor *up = sl_param(g, SL_TYPE(SL_F32, EXPERTS, INNER, WIDTH), SL_NORMAL(0.3f), "up.%d", i);
  sl_tensor *down =
      sl_param(g, SL_TYPE(SL_F32, EXPERTS, WIDTH, INNER), SL_NORMAL(0.3f), "down.%d", i);
  sl_tensor *gate =
      sl_param(g, SL_TYPE(SL_F32, EXPERTS, WIDTH, WIDTH), SL_NORMAL(0.3f), "gate.%d", i);
  sl_tensor *y = sl_gelu(g, sl_grouped_linear(g, x, ids, up));
  y = sl_combine(g,
                 sl_mul(g, sl_grouped_linear(g, y, ids, down), sl_grouped_linear(g, x, ids, gate)),
                 weights);
  return sl_add(g, y, sl_gelu(g, x)); /* a path that all rows take, too */
}

static void build(sl_graph *g, const sl_source *source) {
  sl_tensor *data[3];
  sl_data(g, source, data);
  sl_block(g, "before");
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, WIDTH, WIDTH), SL_NORMAL(0.4f), "w");
  sl_tensor *x = sl_linear(g, data[0], w, NULL);
  for (int i = 0; i < LAYERS; i++) {
    sl_block(g, "h.%d", i);
    x = layer(g, i, x, data[1], data[2]);
  }
  sl_train(g, sl_mse(g, x, data[0]), &(sl_optimizer){.lr = 1e-2f});
}

typedef struct outcome {
  double loss[STEPS], norm[STEPS];
  uint64_t bytes;
} outcome;

static void take_step(void *ctx, const sl_step_report *report) {
  ((outcome *)ctx)->loss[report->step] = report->loss;
  ((outcome *)ctx)->norm[report->step] = report->grad_norm;
}

/* Trains on D data-parallel devices with T tensor-parallel devices each. */
static outcome train(expert_of *to, int D, int T, int experts, double room) {
  outcome o = {{0}, {0}, 0};
  const sl_source source = {.nout = 3, .types = types, .fill = fill, .ctx = &to};
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES});
  build(g, &source);
  sl_lower_options options = {.parallel.data = D,
                              .parallel.tensor = T,
                              .experts.parallel = experts,
                              .experts.rows = room,
                              .experts.tensor = T > 1,
                              .devices = {.kind = "cpu", .threads = 1},
                              .report.on_step = take_step,
                              .report.ctx = &o};
  sl_lowered *lowered;
  CHECK(!sl_lower(g, &options, &lowered), "%s", sl_detail());
  const sl_plan *plan = sl_lowered_plan(lowered);
  sl_runtime *rt;
  sl_runtime_options how = {
      .check = true, .jitter_seed = 3, .jitter_ns = 2000, .watchdog_seconds = 20};
  CHECK(!sl_plan_prove(plan) && !sl_runtime_create(plan, &how, &rt), "%s", sl_detail());
  sl_lowered_attach(lowered, rt);
  sl_params_init(lowered, rt, 1);
  CHECK(!sl_runtime_run(rt, STEPS), "%s", sl_detail());
  o.bytes = sl_runtime_count(rt).moved_bytes[SL_TRAFFIC_EXPERT];
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
  return o;
}

static void check_same(const outcome *got, const outcome *want, int experts) {
  for (int s = 0; s < STEPS; s++)
    CHECK(fabs(got->loss[s] / want->loss[s] - 1) < 1e-6 &&
              fabs(got->norm[s] / want->norm[s] - 1) < 1e-5,
          "experts on %d: step %d: loss %.9g, not %.9g, norm %.7g, not %.7g", experts, s,
          got->loss[s], want->loss[s], got->norm[s], want->norm[s]);
}

/* A step moves 4 L M tokens k h values of four bytes, less the part that stays on each device. */
static void even_rows_move_what_they_must(void) {
  outcome whole = train(evenly, 4, 1, 1, 0);
  for (int i = 0; i < 5; i++) {
    int experts = i % 2 ? 4 : 2, T = i / 2 ? 2 : 1, D = i / 2 == 2 ? 1 : 4 / T;
    outcome o = train(evenly, D, T, experts, 1); /* an even share of room suffices */
    uint64_t step = 4ull * LAYERS * MICROBATCHES * ROWS * TOKENS * K * WIDTH * 4;
    uint64_t want = STEPS * step * (uint64_t)(experts - 1) / (uint64_t)experts;
    CHECK(o.bytes == want, "experts on %d: %llu bytes, not %llu", experts,
          (unsigned long long)o.bytes, (unsigned long long)want);
    check_same(&o, &whole, experts);
  }
}

/* The expected duration of a firing follows the expected rows, not the room reserved for them. */
static void room_is_not_what_is_expected(void) {
  const sl_hardware hardware = {.flops_per_second = 1e9, .bytes_per_second = 1e9};
  static const double rooms[] = {0, 1, 1.5};
  double *seconds[SLI_COUNT(rooms)] = {NULL};
  for (size_t i = 0; i < SLI_COUNT(rooms); i++) {
    grid_losses none = {.most = 1};
    expert_of *to = evenly;
    const sl_source source = {.nout = 3, .types = types, .fill = fill, .ctx = &to};
    sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES});
    build(g, &source);
    sl_lower_options options = {.parallel.data = 4,
                                .experts.parallel = 4,
                                .experts.rows = rooms[i],
                                .simulation.hardware = &hardware,
                                .devices = {.kind = "cpu", .threads = 1},
                                .report.on_step = take_step,
                                .report.ctx = &none};
    sl_lowered *lowered;
    CHECK(!sl_lower(g, &options, &lowered), "%s", sl_detail());
    const sl_plan *plan = sl_lowered_plan(lowered);
    seconds[i] = calloc((size_t)plan->nactors, sizeof(double));
    for (int32_t a = 0; a < plan->nactors; a++) {
      seconds[i][a] = plan->actors[a].seconds;
      CHECK(seconds[i][a] == seconds[0][a], "room %g: actor %s takes %g s, not %g", rooms[i],
            plan->actors[a].name, seconds[i][a], seconds[0][a]);
    }
    sl_lowered_destroy(lowered);
    sl_graph_destroy(g);
  }
  for (size_t i = 0; i < SLI_COUNT(rooms); i++) free(seconds[i]);
}

/* Lowers a model with flat tokens, as given or reshaped to rows and positions where the experts
 * are. */
static sl_status lower_flat(bool reshaped) {
  static const sl_type flat[] = {{SL_F32, 2, {ROWS * TOKENS, WIDTH}},
                                 {SL_I32, 2, {ROWS * TOKENS, K}},
                                 {SL_F32, 2, {ROWS * TOKENS, K}}};
  expert_of *to = evenly;
  const sl_source source = {.nout = 3, .types = flat, .fill = fill, .ctx = &to};
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES});
  sl_tensor *data[3];
  sl_data(g, &source, data);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, EXPERTS, WIDTH, WIDTH), SL_NORMAL(0.3f), "w");
  sl_tensor *x = reshaped ? sl_reshape(g, data[0], ROWS, TOKENS, WIDTH) : data[0];
  sl_tensor *ids = reshaped ? sl_reshape(g, data[1], ROWS, TOKENS, K) : data[1];
  sl_tensor *weights = reshaped ? sl_reshape(g, data[2], ROWS, TOKENS, K) : data[2];
  sl_tensor *y = sl_combine(g, sl_grouped_linear(g, x, ids, w), weights);
  sl_train(g, sl_mse(g, y, x), &(sl_optimizer){.lr = 1e-2f});
  sl_lower_options options = {
      .parallel.data = 2, .experts.parallel = 2, .devices = {.kind = "cpu", .threads = 1}};
  sl_lowered *lowered = NULL;
  sl_status status = sl_lower(g, &options, &lowered);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
  return status;
}

static void ids_in_a_row_are_refused_with_the_way_out(void) {
  CHECK(lower_flat(false) == SL_E_USAGE && strstr(sl_detail(), "have all tokens in one dim") &&
            strstr(sl_detail(), "sl_reshape"),
        "%s", sl_detail());
  CHECK(!lower_flat(true), "%s", sl_detail());
}

static void experts_may_be_empty(void) {
  outcome whole = train(unevenly, 4, 1, 1, 0);
  for (int i = 0; i < 4; i++) {
    int experts = i % 2 ? 4 : 2, T = i / 2 ? 2 : 1;
    outcome o = train(unevenly, 4 / T, T, experts, 0);
    check_same(&o, &whole, experts);
  }
}

int main(int argc, char **argv) {
  const seeds s = seeds_of(argc, argv, 1, SEEDS);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(any_grid_learns_the_same, seed);
  RUN(even_rows_move_what_they_must);
  RUN(experts_may_be_empty);
  RUN(room_is_not_what_is_expected);
  RUN(ids_in_a_row_are_refused_with_the_way_out);
  RUN(losses_are_those_of_one_device);
  RUN(it_goes_with_everything);
  return 0;
}
