/* SPDX-License-Identifier: Apache-2.0 */
/* Stages on grids of devices learn what one device learns. Over 20 steps of GPT and LLaMA the
 * losses match a single device within rounding, also where rows, heads, widths and vocabularies do
 * not divide evenly. On one layout the losses are the same bit for bit for any schedule, workers,
 * timing and processes.
 * labels: numbers first more */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/grids.h"
#include "tests/support/test.h"

/* Stride through the cases. */
#define LESS ((size_t)test_many(2, 24, TEST_SANITIZED ? 10 : 1))

#define WORDS(...) \
  (char *[]) { __VA_ARGS__, NULL }

static const struct {
  const char *what;
  grid_model model;
} models[] = {
    {"all even",
     {"gpt",
      WORDS("--layers", "2", "--width", "32", "--heads", "4", "--context", "12", "--batch", "8"), 2,
      1}},
    {"nothing even",
     {"gpt",
      WORDS("--layers", "2", "--width", "30", "--heads", "5", "--context", "11", "--vocab", "251",
            "--batch", "10"),
      2, 1}},
    {"grouped queries",
     {"llama",
      WORDS("--layers", "2", "--width", "36", "--heads", "6", "--kv-heads", "3", "--ffn", "50",
            "--context", "13", "--vocab", "247", "--batch", "10"),
      2, 1}},
    {"tied",
     {"llama",
      WORDS("--layers", "2", "--width", "32", "--heads", "4", "--kv-heads", "4", "--ffn", "43",
            "--tied", "--context", "8", "--vocab", "255", "--batch", "8"),
      2, 1}},
};

/* ---- against one device ------------------------------------------------------------------ */

static double furthest; /* largest relative difference of all losses */

static void compare(const grid_model *m, const grid *g, const grid_losses *one,
                    const grid_losses *all, double within) {
  char name[GRID_TEXT];
  for (int i = 0; i < all->count; i++) {
    furthest = fmax(furthest, fabs(all->loss[i] / one->loss[i] - 1));
    CHECK(fabs(all->loss[i] - one->loss[i]) <= within * fabs(one->loss[i]),
          "%s, step %d: loss %.9g, not %.9g", grid_format(name, m, g), i, all->loss[i],
          one->loss[i]);
    CHECK(fabs(all->norm[i] - one->norm[i]) <= 10 * within * fabs(one->norm[i]),
          "%s, step %d: norm %.9g, not %.9g", grid_format(name, m, g), i, all->norm[i],
          one->norm[i]);
  }
}

static const grid layouts[] = {
    {.data = 2},
    {.data = 3},
    {.data = 4},
    {.data = 2, .shard = "optimizer"},
    {.data = 4, .shard = "optimizer"},
    {.data = 2, .shard = "gradients"},
    {.data = 3, .shard = "gradients"},
    {.data = 2, .shard = "parameters"},
    {.data = 3, .shard = "parameters"},
    {.data = 4, .shard = "parameters"},
    {.data = 2, .shard = "parameters", .grain = "pass"},
    {.tensor = 2},
    {.tensor = 3},
    {.tensor = 2, .grain = "layer"},
    {.data = 2, .tensor = 2},
    {.data = 2, .tensor = 2, .shard = "optimizer"},
    {.data = 3, .tensor = 2, .shard = "gradients"},
    {.data = 2, .tensor = 3, .shard = "parameters"},
    {.data = 2, .tensor = 2, .stages = 2},
    {.data = 2, .tensor = 2, .stages = 2, .shard = "optimizer", .schedule = "zb-v"},
    {.data = 2, .tensor = 2, .stages = 2, .shard = "gradients", .schedule = "interleaved"},
    {.data = 2, .tensor = 2, .stages = 2, .shard = "parameters", .schedule = "zb-h1"},
    {.stages = 3, .barriers = 1},
    {.stages = 2, .barriers = 2},
    {.data = 2,
     .tensor = 2,
     .stages = 2,
     .barriers = 1,
     .shard = "parameters",
     .schedule = "zb-h1"},
    {.data = 2, .tensor = 2, .stages = 2, .barriers = 1, .shard = "gradients", .recompute = "full"},
};

/* Tests each model on half of the layouts; similar models get different halves. */
static int close_to_one_device(void) {
  int cases = 0;
  for (size_t i = 0; i < SLI_COUNT(models); i++) {
    const grid_model *m = &models[i].model;
    grid_losses one = grid_train(m, &(grid){0});
    CHECK(GRID_STEPS < 20 || one.loss[GRID_STEPS - 1] < 0.99 * one.loss[0],
          "%s learns: %g, then %g", m->name, one.loss[0], one.loss[GRID_STEPS - 1]);
    for (size_t l = i % 2; l < SLI_COUNT(layouts); l += 2 * LESS, cases++) {
      grid_losses all = grid_train(m, &layouts[l]);
      compare(m, &layouts[l], &one, &all, 1e-6);
    }
  }
  return cases;
}

/* ---- with given signatures ------------------------------------------------------------------ */

/* Pairs of matrices, split by columns and by rows, and split vocabularies. */
static const sl_given_sbp gpt_pairs[] = {
    {"transformer.wte.weight", 1, {SL_SPLIT, 0}},
    {"transformer.h.0.attn.c_attn.weight", 1, {SL_SPLIT, 1}},
    {"transformer.h.0.attn.c_proj.weight", 1, {SL_SPLIT, 0}},
    {"transformer.h.0.mlp.c_fc.weight", 1, {SL_SPLIT, 1}},
    {"transformer.h.0.mlp.c_proj.weight", 1, {SL_SPLIT, 0}},
    {"transformer.h.1.attn.c_attn.weight", 1, {SL_SPLIT, 1}},
    {"transformer.h.1.attn.c_proj.weight", 1, {SL_SPLIT, 0}},
    {"transformer.h.1.mlp.c_fc.weight", 1, {SL_SPLIT, 1}},
    {"transformer.h.1.mlp.c_proj.weight", 1, {SL_SPLIT, 0}},
    {"head/linear.1", 1, {SL_SPLIT, 2}},
    /* Norms and residuals split along the sequence. */
    {"h.0/layernorm.1", 1, {SL_SPLIT, 1}},
    {"h.0/add.1", 1, {SL_SPLIT, 1}},
    {"h.0/layernorm.2", 1, {SL_SPLIT, 1}},
    {"h.0/add.2", 1, {SL_SPLIT, 1}},
};

static const sl_given_sbp llama_pairs[] = {
    {"model.embed_tokens.weight", 1, {SL_SPLIT, 0}},
    {"model.layers.0.self_attn.q_proj.weight", 1, {SL_SPLIT, 0}},
    {"model.layers.0.self_attn.k_proj.weight", 1, {SL_SPLIT, 0}},
    {"model.layers.0.self_attn.v_proj.weight", 1, {SL_SPLIT, 0}},
    {"model.layers.0.self_attn.o_proj.weight", 1, {SL_SPLIT, 1}},
    {"model.layers.0.mlp.gate_proj.weight", 1, {SL_SPLIT, 0}},
    {"model.layers.0.mlp.up_proj.weight", 1, {SL_SPLIT, 0}},
    {"model.layers.0.mlp.down_proj.weight", 1, {SL_SPLIT, 1}},
    {"head/linear.1", 1, {SL_SPLIT, 2}},
    {"h.1/rmsnorm.1", 1, {SL_SPLIT, 1}},
    {"h.1/rmsnorm.2", 1, {SL_SPLIT, 1}},
    /* A weight that every device has whole. */
    {"model.layers.1.mlp.gate_proj.weight", 1, {SL_BROADCAST, 0}},
};

static int close_as_given(void) {
  static const grid shapes[] = {
      {.tensor = 2}, {.tensor = 3}, {.tensor = 2, .data = 2, .stages = 2}};
  int cases = 0;
  for (size_t i = 0; i < SLI_COUNT(models); i++) {
    const grid_model *m = &models[i].model;
    grid_losses one = grid_train(m, &(grid){0});
    bool gpt = !strcmp(m->name, "gpt");
    for (size_t s = i % LESS; s < SLI_COUNT(shapes); s += LESS) {
      grid g = shapes[s];
      g.given = gpt ? gpt_pairs : llama_pairs;
      g.ngiven = (int)(gpt ? SLI_COUNT(gpt_pairs) : SLI_COUNT(llama_pairs));
      grid_losses all = grid_train(m, &g);
      compare(m, &g, &one, &all, 1e-6);
      cases++;
    }
  }
  return cases;
}

/* ---- bit for bit --------------------------------------------------------------------------- */

enum { FEW_STEPS = 5 };

static void same_bits(const grid_model *m, const grid *g, const grid_losses *want) {
  char name[GRID_TEXT];
  grid_losses got = grid_train(m, g);
  for (int i = 0; i < got.count; i++)
    CHECK(got.loss[i] == want->loss[i] && got.norm[i] == want->norm[i],
          "%s, step %d: loss %a and norm %a, not %a and %a", grid_format(name, m, g), i,
          got.loss[i], got.norm[i], want->loss[i], want->norm[i]);
}

static const grid equal_layouts[] = {
    {.data = 2, .tensor = 2, .stages = 2},
    {.data = 2, .stages = 2, .shard = "optimizer"},
    {.data = 3, .stages = 2, .shard = "gradients"},
    {.data = 2, .stages = 2, .shard = "parameters"},
    {.data = 2, .tensor = 2, .stages = 2, .shard = "parameters"},
    {.tensor = 2, .stages = 2},
};

/* Cycles through workers and timings along with the schedules. */
static int same_in_every_schedule(void) {
  static const char *const schedules[] = {"1f1b",  "gpipe", "interleaved", "zb-h1",
                                          "zb-h2", "zb-v",  "v-half"};
  static const int workers[] = {0, 1, 3};
  int cases = 0;
  for (size_t l = 0; l < SLI_COUNT(equal_layouts); l++) {
    const grid_model *m = &models[l % SLI_COUNT(models)].model;
    grid g = equal_layouts[l];
    g.steps = FEW_STEPS;
    grid_losses want = grid_train(m, &g);
    for (size_t s = l % LESS; s < SLI_COUNT(schedules); s += LESS, cases++) {
      g.schedule = schedules[s];
      g.workers = workers[(s + l) % SLI_COUNT(workers)];
      g.grain = s % 2 ? "pass" : "layer";
      g.jitter_seed = s + l;
      same_bits(m, &g, &want);
    }
  }
  return cases;
}

/* Tests sequences in pieces. */
static int same_in_pieces(void) {
  int cases = 0;
  for (size_t i = 0; i < SLI_COUNT(models); i++) {
    grid_model m = models[i].model;
    m.pieces = 3;
    grid_losses one = grid_train(&m, &(grid){0});
    for (size_t l = i % LESS; l < SLI_COUNT(equal_layouts); l += 2 * LESS) {
      grid g = equal_layouts[l];
      g.schedule = "seq1f1b";
      grid_losses want = grid_train(&m, &g);
      compare(&m, &g, &one, &want, 1e-6);
      g.steps = FEW_STEPS;
      g.workers = 1;
      g.jitter_seed = l + 1;
      same_bits(&m, &g, &want);
      g.schedule = "gpipe";
      g.workers = 2;
      same_bits(&m, &g, &want);
      cases += 2;
    }
  }
  return cases;
}

/* Each process gets neighbouring devices, also where the devices do not divide evenly. */
static int same_over_processes(void) {
  static const int processes[] = {2, 4, 3, 5};
  int cases = 0;
  for (size_t l = 0; l < SLI_COUNT(equal_layouts); l++) {
    const grid_model *m = &models[(l + 1) % SLI_COUNT(models)].model;
    grid g = equal_layouts[l];
    g.steps = FEW_STEPS;
    grid_losses want = grid_train(m, &g);
    int devices = SLI_MAX(g.data, 1) * SLI_MAX(g.tensor, 1) * g.stages;
    for (size_t p = l % LESS; p < SLI_COUNT(processes); p += LESS) {
      g.processes = processes[p];
      g.jitter_seed = p % 2 ? l + p : 0;
      g.schedule = p % 2 ? "zb-v" : "1f1b";
      if (g.processes > devices) continue;
      same_bits(m, &g, &want);
      cases++;
    }
  }
  return cases;
}

/* Tensors that cross to the next stage in parts are the same tensors. */
static int same_over_boundaries(void) {
  static const grid crossings[] = {
      {.tensor = 2, .stages = 2},
      {.tensor = 3, .stages = 2, .schedule = "interleaved", .recompute = "full"},
      {.tensor = 2, .stages = 3, .schedule = "zb-h1", .recompute = "whole"},
      {.tensor = 2, .stages = 2, .schedule = "zb-v", .processes = 4},
      {.tensor = 2, .data = 2, .stages = 2, .shard = "parameters", .processes = 3},
      {.tensor = 3, .stages = 2, .recompute = "selective", .grain = "layer", .processes = 2},
      {.tensor = 2, .sequence = 2, .stages = 2, .shard = "gradients"},
      {.tensor = 2, .stages = 2, .barriers = 2, .recompute = "whole", .processes = 2},
  };
  static gpt_lying whole, split;
  int cases = 0;
  gpt_lie_in_pairs(&whole, (sl_sbp){SL_BROADCAST, 0});
  gpt_lie_in_pairs(&split, (sl_sbp){SL_SPLIT, 1});
  for (size_t i = 0; i < 2 * SLI_COUNT(crossings); i++) {
    grid_model m = models[i % 2].model;
    grid g = crossings[i / 2];
    const gpt_lying *l = i % 4 == 2 ? &split : &whole;
    g.given = g.barriers ? NULL : l->all;
    g.ngiven = g.barriers ? 0 : l->n;
    m.pieces = g.barriers || g.recompute ? 1 : 1 + (int)(i % 3);
    g.steps = FEW_STEPS;
    grid_losses want = grid_train(&m, &g);
    g.boundary = "scattered";
    g.jitter_seed = i;
    same_bits(&m, &g, &want);
    cases++;
  }
  return cases;
}

int main(void) {
  int crossed = 0;
  int close = 0, schedules = 0, pieces = 0, processes = 0;
  RUN_AS("close_to_one_device", close += close_to_one_device());
  RUN_AS("close_as_given", close += close_as_given());
  RUN_AS("same_in_every_schedule", schedules = same_in_every_schedule());
  RUN_AS("same_in_pieces", pieces = same_in_pieces());
  RUN_AS("same_over_processes", processes = same_over_processes());
  RUN_AS("same_over_boundaries", crossed = same_over_boundaries());
  printf(
      "%d grids within %.1e of one device; the same bits in %d other schedules, %d with pieces, "
      "%d over processes, %d over boundaries\n",
      close, furthest, schedules, pieces, processes, crossed);
  return 0;
}
