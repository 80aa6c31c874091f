/* SPDX-License-Identifier: Apache-2.0 */
/* Sequence parallelism learns what one device learns, for GPT and LLaMA. Grids have data, sequence,
 * tensor and stage axes, with pieces, recomputation and shards; positions and heads need not divide
 * evenly. On one layout the bits do not depend on schedule, timing and processes. Attention
 * exchanges exactly the expected bytes, by heads or around a ring, and zigzag rings balance the
 * work of all devices.
 * labels: numbers more */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/grids.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { STEPS = GRID_STEPS, FEW_STEPS = 3 };
/* Stride through the cases. */
#define LESS test_many(1, 8, TEST_SANITIZED ? 8 : 1)

#define WORDS(...) \
  (char *[]) { __VA_ARGS__, NULL }

/* ---- bytes --------------------------------------------------------------------------------- */

typedef struct llama_shape {
  int layers, width, heads, kv_heads, context, batch;
} llama_shape;

/* One row of 256 tokens, 2 layers of width 64 with 4 query heads and 2 key/value heads. */
static const llama_shape test_model = {2, 64, 4, 2, 256, 1};

typedef struct llama_words {
  char number[6][16];
  char *of[16];
} llama_words;

static grid_model llama(const llama_shape *s, llama_words *w, int microbatches, int pieces) {
  static char *const names[] = {"--layers",   "--width",   "--heads",
                                "--kv-heads", "--context", "--batch"};
  const int values[] = {s->layers, s->width, s->heads, s->kv_heads, s->context, s->batch};
  for (int i = 0; i < 6; i++) {
    snprintf(w->number[i], sizeof w->number[i], "%d", values[i]);
    w->of[2 * i] = names[i];
    w->of[2 * i + 1] = w->number[i];
  }
  w->of[12] = NULL;
  return (grid_model){"llama", w->of, microbatches, pieces};
}

/* Returns the bytes of a kind that a step moves as planned, and checks the moved bytes if it is
 * run. */
static uint64_t moved(const llama_shape *s, const grid *g, int pieces, sl_traffic traffic,
                      bool run) {
  llama_words w;
  grid_model m = llama(s, &w, 1, pieces);
  lowered_model x;
  grid_lower(&x, &m, g, NULL);
  uint64_t(*to)[SL_TRAFFIC_COUNT] = sli_calloc((size_t)x.plan->ndevices, sizeof *to), sum = 0;
  sl_plan_moved(x.plan, to);
  for (int32_t d = 0; d < x.plan->ndevices; d++) sum += to[d][traffic];
  free(to);
  lowered_model_fini(&x);
  if (!run) return sum;
  grid given = *g;
  given.steps = 2;
  grid_losses l = grid_train(&m, &given);
  CHECK(l.counts.moved_bytes[traffic] == 2 * sum, "a step moves %llu bytes, planned are %llu",
        (unsigned long long)l.counts.moved_bytes[traffic] / 2, (unsigned long long)sum);
  return sum;
}

/* Returns the positions of run r; the last runs are longer. */
static int run_length(int context, int r, int runs) {
  return context / runs + (r >= runs - context % runs);
}

/* Returns the values moved when each device gets its share of `units` for the positions of all
 * other devices. */
static uint64_t all_to_all(int context, int units, int unit, int P) {
  uint64_t sum = 0;
  for (int m = 0; m < P; m++) {
    int own = run_length(context, m, P);
    sum += (uint64_t)(units * (m + 1) / P - units * m / P) * (uint64_t)(context - own);
  }
  return sum * (uint64_t)unit;
}

/* Returns the key/value heads as sent: where there are fewer than devices, each is repeated until
 * there are enough and the groups divide evenly. */
static int heads_sent(const llama_shape *s, int P) {
  int times = 1;
  while (s->kv_heads * times < P || s->heads / s->kv_heads % times) times++;
  return s->kv_heads * times;
}

/* Returns the bytes of a layer, one direction: q, k, v one way and o the other. Units are key/value
 * heads. */
static uint64_t heads_bytes(const llama_shape *s, int P) {
  int d = s->width / s->heads, kv_heads = heads_sent(s, P), group = s->heads / kv_heads;
  uint64_t there = all_to_all(s->context, kv_heads, (group + 2) * d, P);
  uint64_t back = 0;
  for (int m = 0; m < P; m++) {
    int own = run_length(s->context, m, P);
    int units = kv_heads * (m + 1) / P - kv_heads * m / P;
    back += (uint64_t)own * (uint64_t)((kv_heads - units) * group * d);
  }
  return (there + back) * (uint64_t)s->batch * sizeof(float);
}

static void heads_exchange_what_they_must(void) {
  static const llama_shape shapes[] = {
      {1, 36, 6, 3, 25, 2}, {2, 40, 5, 5, 11, 3}, {1, 32, 8, 1, 8, 1}, {3, 24, 3, 3, 17, 2}};
  grid g = {.sequence = 2, .attention = "heads"};
  CHECK(moved(&test_model, &g, 1, SL_TRAFFIC_SEQUENCE, true) == 393216, "there and back");
  g.recompute = "full";
  CHECK(moved(&test_model, &g, 1, SL_TRAFFIC_SEQUENCE, true) == 589824, "there, again, and back");
  CHECK(heads_bytes(&test_model, 2) * 2 * 2 == 393216, "as the formula says");
  for (size_t i = 0; i < SLI_COUNT(shapes); i++)
    for (int P = 2; P <= shapes[i].heads; P++)
      for (int processes = 1; processes <= P; processes += P - 1) {
        g = (grid){.sequence = P, .attention = "heads", .processes = processes};
        uint64_t want = 2 * (uint64_t)shapes[i].layers * heads_bytes(&shapes[i], P);
        uint64_t got = moved(&shapes[i], &g, 1, SL_TRAFFIC_SEQUENCE, false);
        CHECK(got == want, "shape %zu on %d devices: %llu bytes, not %llu", i, P,
              (unsigned long long)got, (unsigned long long)want);
      }
}

/* Returns the bytes of a layer's keys and values that go around the ring once: each run goes to all
 * devices with later positions. */
static uint64_t ring_bytes(const llama_shape *s, int P, bool zigzag) {
  uint64_t positions = 0;
  for (int m = 0; m < P; m++) {
    int others = zigzag ? P - 1 : P - 1 - m;
    positions += (uint64_t)others * run_length(s->context, m, zigzag ? 2 * P : P);
    if (zigzag) positions += (uint64_t)m * run_length(s->context, 2 * P - 1 - m, 2 * P);
  }
  return positions * 2 * (uint64_t)(s->width / s->heads * s->kv_heads * s->batch) * sizeof(float);
}

static void chunks_go_around_as_far_as_they_are_seen(void) {
  static const llama_shape shapes[] = {
      {2, 64, 4, 2, 256, 1}, {1, 40, 5, 1, 35, 3}, {1, 32, 4, 4, 17, 2}};
  CHECK(3 * 2 * ring_bytes(&test_model, 2, true) == 294912, "as the formula says");
  for (size_t i = 0; i < SLI_COUNT(shapes); i++)
    for (int c = 0; c < 12; c++) {
      int P = c % 3 == 0 ? 2 : c % 3 == 1 ? 3 : 4, processes = c / 6 ? P : 1;
      bool zigzag = c / 3 % 2;
      grid g = {.sequence = P,
                .attention = "ring",
                .positions = zigzag ? "zigzag" : "contiguous",
                .processes = processes};
      uint64_t want = 3 * (uint64_t)shapes[i].layers * ring_bytes(&shapes[i], P, zigzag);
      uint64_t got = moved(&shapes[i], &g, 1, SL_TRAFFIC_SEQUENCE, !c);
      CHECK(got == want, "shape %zu on %d devices in %d processes, %s: %llu bytes, not %llu", i, P,
            processes, g.positions, (unsigned long long)got, (unsigned long long)want);
    }
}

/* In pieces: all keys and values go to all devices once forward, and a summand of each gradient
 * from all devices once backward; recomputation sends nothing. Other processes get slots as long as
 * the longest piece. */
static uint64_t pieces_bytes(const llama_shape *s, int P, int pieces, bool apart) {
  uint64_t rows = (uint64_t)(s->width / s->heads * s->kv_heads * 2 * s->batch) * sizeof(float);
  int longest = (s->context + pieces - 1) / pieces;
  return 2 * (uint64_t)(P - 1) * (uint64_t)(apart ? pieces * longest : s->context) * rows;
}

static void pieces_go_to_all_once(void) {
  static const llama_shape shapes[] = {
      {2, 64, 4, 2, 256, 1}, {1, 40, 5, 1, 67, 3}, {1, 32, 4, 4, 50, 2}};
  for (size_t i = 0; i < SLI_COUNT(shapes); i++)
    for (int c = (int)i; c < 24; c += 1 + 2 * LESS) {
      int P = 2 + c % 3, pieces = 2 + c % 4, processes = c / 6 % 2 ? P : 1;
      grid g = {.sequence = P,
                .attention = "ring",
                .positions = c / 3 % 2 ? "zigzag" : "contiguous",
                .processes = processes,
                .recompute = c / 12 ? "full" : NULL};
      uint64_t want =
          (uint64_t)shapes[i].layers * pieces_bytes(&shapes[i], P, pieces, processes > 1);
      uint64_t got = moved(&shapes[i], &g, pieces, SL_TRAFFIC_SEQUENCE, !c && !i);
      CHECK(got == want,
            "shape %zu in %d pieces on %d devices in %d processes, %s: %llu bytes, not %llu", i,
            pieces, P, processes, g.positions, (unsigned long long)got, (unsigned long long)want);
    }
}

/* Returns the part of these bytes that moves in the first step of the ring. */
static uint64_t first_step_bytes(const llama_shape *s, int P, bool zigzag) {
  uint64_t positions = 0;
  for (int m = 0; m < P; m++) {
    int from = zigzag ? (m + 1) % P : m - 1;
    if (from >= 0) positions += run_length(s->context, from, zigzag ? 2 * P : P);
    if (zigzag && from > m) positions += run_length(s->context, 2 * P - 1 - from, 2 * P);
  }
  return positions * 2 * (uint64_t)(s->width / s->heads * s->kv_heads * s->batch) * sizeof(float);
}

/* With recomputation the chunks go around the ring once more, except in the first step, which also
 * serves the gradients. */
static void chunks_go_around_again(void) {
  for (int c = 0; c < 8; c++) {
    int P = 2 + c % 4 / 2, processes = c / 4 ? P : 1;
    grid g = {.sequence = P,
              .attention = "ring",
              .positions = c % 2 ? "zigzag" : "contiguous",
              .recompute = "full",
              .processes = processes};
    uint64_t layer =
        4 * ring_bytes(&test_model, P, c % 2) - first_step_bytes(&test_model, P, c % 2);
    uint64_t got = moved(&test_model, &g, 1, SL_TRAFFIC_SEQUENCE, false);
    CHECK(got == 2 * layer, "%s on %d devices in %d processes: %llu bytes, not %llu", g.positions,
          P, processes, (unsigned long long)got, (unsigned long long)(2 * layer));
  }
  CHECK(ring_bytes(&test_model, 2, true) == first_step_bytes(&test_model, 2, true),
        "there is but one");
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Returns the activation bytes that the first device keeps; checks that the plan finishes. */
static uint64_t kept(int layers, const grid *g) {
  llama_shape shape = test_model;
  shape.layers = layers;
  llama_words w;
  grid_model m = llama(&shape, &w, 1, 1);
  lowered_model x;
  grid_lower(&x, &m, g, NULL);
  char name[GRID_TEXT];
  CHECK(!sl_plan_prove(x.plan), "%s, %d layers: %s", grid_format(name, &m, g), layers, sl_detail());
  uint64_t bytes = x.plan->devices[0].room[SL_SPACE_DEVICE].used_bytes[SL_MEMORY_ACTIVATIONS];
  lowered_model_fini(&x);
  return bytes;
}

/* With full recomputation a block keeps its input and the gradient of it; everything else takes
 * turns in the same slots. */
static void recompute_keeps_what_blocks_read(void) {
  static const char *const attentions[] = {"heads", "ring"};
  for (int i = 0; i < 4; i++) {
    grid g = {
        .sequence = 2, .attention = attentions[i % 2], .recompute = "full", .processes = 1 + i / 2};
    uint64_t a_block = (kept(10, &g) - kept(4, &g)) / 6, read = 256 / 2 * 64 * sizeof(float);
    CHECK(a_block >= read && a_block < 3 * read, "%s in %d processes: %llu bytes a block of %llu",
          g.attention, g.processes, (unsigned long long)a_block, (unsigned long long)read);
  }
}

/* An actor that recomputes reads parameters for which others in the same lane wait. */
static void gathered_parameters_have_slots_enough(void) {
  static const char *const grains[] = {"layer", "pass"};
  for (int i = 0; i < 6; i++) {
    grid g = {.sequence = 2,
              .attention = i % 3 ? "heads" : "ring",
              .recompute = "full",
              .shard = "parameters",
              .grain = grains[i % 2]};
    kept(3, &g);
  }
}

/* Returns the mean of the devices' attention work divided by the largest. */
static double efficiency(int P, const char *positions) {
  const llama_shape shape = {1, 32, 1, 1, 2048, 1};
  llama_words w;
  grid_model m = llama(&shape, &w, 1, 1);
  grid g = {.sequence = P, .attention = "ring", .positions = positions};
  lowered_model x;
  grid_lower(&x, &m, &g, NULL);
  double *of = sli_calloc((size_t)P, sizeof *of), sum = 0, most = 0;
  for (int32_t a = 0; a < x.plan->nactors; a++) {
    const sl_program *p = x.plan->actors[a].program;
    for (int c = 0; p && c < p->ncalls; c++) {
      const sl_program_call *call = &p->calls[c];
      double flops = 0, bytes;
      if (!strncmp(call->op->name, "attention_step", 14))
        call->op->cost(&call->attrs, call->nin, call->in_type, call->out_type, &flops, &bytes);
      of[x.plan->queues[x.plan->actors[a].queue].device] += flops;
    }
  }
  for (int d = 0; d < P; d++) {
    sum += of[d];
    most = fmax(most, of[d]);
  }
  free(of);
  lowered_model_fini(&x);
  return sum / P / most;
}

static void zigzag_gives_all_as_much_to_do(void) {
  for (int P = 2; P <= 8; P *= 2) {
    double want = (P / 2.0) / (P - 0.5), got = efficiency(P, "contiguous");
    CHECK(fabs(got - want) < 0.01, "contiguous on %d devices: %.4f, not %.4f", P, got, want);
    CHECK(efficiency(P, "zigzag") > 0.999, "zigzag on %d devices: %.4f", P,
          efficiency(P, "zigzag"));
  }
}

/* ---- against one device ---------------------------------------------------------------------- */

static const grid_model models[] = {
    {"llama",
     WORDS("--layers", "2", "--width", "36", "--heads", "6", "--kv-heads", "3", "--ffn", "50",
           "--context", "13", "--vocab", "247", "--batch", "6"),
     2, 1},
    {"gpt",
     WORDS("--layers", "2", "--width", "30", "--heads", "3", "--context", "11", "--vocab", "251",
           "--batch", "6", "--document-end", "10"),
     2, 1},
    {"llama",
     WORDS("--layers", "1", "--width", "48", "--heads", "6", "--tied", "--context", "257",
           "--window", "40", "--batch", "2"),
     1, 1},
    {"gpt",
     WORDS("--layers", "2", "--width", "32", "--heads", "4", "--context", "16", "--batch", "4"), 2,
     3},
};

static const grid layouts[] = {
    {.sequence = 2, .attention = "heads"},
    {.sequence = 3, .attention = "heads"},
    {.sequence = 5, .attention = "heads"},
    {.sequence = 4, .attention = "ring"},
    {.sequence = 3, .attention = "ring", .positions = "contiguous"},
    {.sequence = 2, .tensor = 2, .attention = "ring", .recompute = "full"},
    {.data = 2, .sequence = 2, .tensor = 2, .attention = "ring", .stages = 2, .schedule = "zb-v"},
    {.sequence = 2, .tensor = 2, .attention = "heads"},
    {.data = 2, .sequence = 2},
    {.sequence = 2, .recompute = "full"},
    {.sequence = 2, .stages = 2, .schedule = "zb-v"},
    {.sequence = 3, .shard = "optimizer", .grain = "pass"},
    {.data = 2, .sequence = 2, .shard = "gradients"},
    {.sequence = 2, .shard = "parameters", .recompute = "full"},
    {.data = 2,
     .sequence = 2,
     .tensor = 2,
     .stages = 2,
     .shard = "parameters",
     .schedule = "zb-h1"},
};

static bool has_word(const grid_model *m, const char *option, const char *value) {
  for (int i = 0; m->words[i]; i++)
    if (!strcmp(m->words[i], option)) return !strcmp(m->words[i + 1], value);
  return false;
}

/* A device has one run of each piece, in zigzag two. Schedules need several layers. By heads, each
 * device has at least one query head. */
static bool fits(const grid_model *m, const grid *g) {
  bool by_heads = g->attention && !strcmp(g->attention, "heads");
  bool contiguous = g->positions && !strcmp(g->positions, "contiguous");
  if (m->pieces > 1 && g->sequence > 2 && !by_heads && !contiguous) return false;
  if (g->schedule && has_word(m, "--layers", "1")) return false;
  return !by_heads || g->sequence * SLI_MAX(g->tensor, 1) <= 3 || has_word(m, "--heads", "6");
}

static void compare(const grid_model *m, const grid *g, const grid_losses *one,
                    const grid_losses *all) {
  char name[GRID_TEXT];
  for (int i = 0; i < all->count; i++) {
    CHECK(fabs(all->loss[i] - one->loss[i]) <= 1e-6 * fabs(one->loss[i]),
          "%s, step %d: loss %.9g, "
          "not %.9g",
          grid_format(name, m, g), i, all->loss[i], one->loss[i]);
    CHECK(fabs(all->norm[i] - one->norm[i]) <= 1e-6 * fabs(one->norm[i]),
          "%s, step %d: norm %.9g, "
          "not %.9g",
          grid_format(name, m, g), i, all->norm[i], one->norm[i]);
  }
}

static void learn(const grid_model *m, grid g, const grid_losses *one) {
  if (!fits(m, &g)) return;
  g.steps = STEPS;
  grid_losses all = grid_train(m, &g);
  compare(m, &g, one, &all);
}

/* Tests a few of the layouts for each model, or all. */
static void sequences_learn_what_one_device_learns(void) {
  bool all = seeds_times() > 1;
  for (size_t i = 0; i < SLI_COUNT(models); i += (size_t)test_many(1, 2, 1)) {
    grid_losses one = grid_train(&models[i], &(grid){.steps = STEPS});
    for (size_t l = all ? 0 : i; l < SLI_COUNT(layouts); l += all ? 1 : 5 * (size_t)LESS)
      learn(&models[i], layouts[l], &one);
  }
}

/* Tests data, sequence, tensor, pieces and stages in all combinations of one and two; with few
 * seeds one combination. */
static void all_axes_together(void) {
  static const char *const shards[] = {NULL, "optimizer", "gradients", "parameters"};
  for (int i = seeds_times() > 1 ? 0 : 95; i < 96; i++) {
    int c = i % 32;
    grid_model m = models[i / 32];
    m.pieces = 1 + c / 8 % 2;
    grid g = {.data = 1 + c % 2,
              .sequence = 2,
              .tensor = 1 + c / 2 % 2,
              .stages = 1 + c / 16,
              .attention = c / 4 % 2 ? "heads" : NULL,
              .shard = c % 2 ? shards[i / 2 % 4] : NULL};
    grid_losses one = grid_train(&models[i / 32], &(grid){.steps = STEPS});
    learn(&m, g, &one);
  }
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void same_bits(const grid_model *m, const grid *g, const grid_losses *want) {
  char name[GRID_TEXT];
  grid_losses got = grid_train(m, g);
  for (int i = 0; i < got.count; i++)
    CHECK(got.loss[i] == want->loss[i] && got.norm[i] == want->norm[i],
          "%s, step %d: loss %a, not %a", grid_format(name, m, g), i, got.loss[i], want->loss[i]);
}

static void bits_do_not_depend_on_when_and_where(void) {
  const grid base = {
      .data = 2, .sequence = 2, .stages = 2, .shard = "gradients", .steps = FEW_STEPS};
  static const char *const schedules[] = {"gpipe", "zb-h1", "zb-v", "interleaved"};
  for (int i = 0; i < 4; i += LESS) {
    const grid_model *m = &models[i == 2 ? 0 : i];
    grid g = base;
    if (i < 3) g.attention = i % 2 ? "heads" : "ring";
    grid_losses want = grid_train(m, &g);
    g.schedule = schedules[i];
    g.workers = i % 3;
    g.jitter_seed = (uint64_t)i + 1;
    same_bits(m, &g, &want);
    g.processes = i + 1;
    g.recompute = i % 2 ? "full" : NULL;
    same_bits(m, &g, &want);
  }
}

/* Pieces whose keys and values are gathered, with positions that do not divide evenly. */
static void pieces_learn_and_keep_their_bits(void) {
  const grid_model m = {"llama",
                        WORDS("--layers", "2", "--width", "36", "--heads", "6", "--kv-heads", "3",
                              "--ffn", "50", "--context", "41", "--vocab", "247", "--batch", "4"),
                        2, 3};
  const grid contiguous = {
      .data = 2, .sequence = 3, .attention = "ring", .positions = "contiguous"};
  grid g = {.sequence = 2, .tensor = 3, .stages = 2, .attention = "ring", .steps = STEPS};
  grid_losses one = grid_train(&m, &(grid){.steps = STEPS}), want = grid_train(&m, &g);
  compare(&m, &g, &one, &want);
  learn(&m, contiguous, &one);
  want.count = g.steps = FEW_STEPS;
  for (int i = 0; i<3; i += LESS> 1 ? 2 : 1) {
    static const char *const schedules[] = {"seq1f1b", "gpipe", "zb-h1"};
    g.schedule = schedules[i];
    g.jitter_seed = (uint64_t)i + 1;
    g.processes = 1 << i;
    g.recompute = i ? "full" : NULL;
    same_bits(&m, &g, &want);
  }
}

int main(void) {
  RUN(heads_exchange_what_they_must);
  RUN(chunks_go_around_as_far_as_they_are_seen);
  RUN(chunks_go_around_again);
  RUN(pieces_go_to_all_once);
  RUN(recompute_keeps_what_blocks_read);
  RUN(gathered_parameters_have_slots_enough);
  RUN(zigzag_gives_all_as_much_to_do);
  RUN(sequences_learn_what_one_device_learns);
  RUN(all_axes_together);
  RUN(pieces_learn_and_keep_their_bits);
  RUN(bits_do_not_depend_on_when_and_where);
  return 0;
}
