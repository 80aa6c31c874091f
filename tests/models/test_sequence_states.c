/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that split positions and exchange states of linear attention learn what one device
 * learns, for a hybrid and Mamba-2. Grids have data, sequence, tensor and stage axes, with pieces,
 * recomputation and shards; several processes give the same bits. The devices exchange exactly the
 * expected bytes, at any sequence length.
 * labels: numbers more */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/grids.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { STEPS = GRID_STEPS / 2, FEW_STEPS = 3 };

#define WORDS(...) \
  (char *[]) { __VA_ARGS__, NULL }

/* ---- bytes --------------------------------------------------------------------------------- */

/* A model of linear attention only: sizes of a state, its gates, and the number of states. */
typedef struct states_model {
  const char *name;
  char *words[24];
  int layers, batch, heads, dk, dv, gates;
} states_model;

/* Channels of a convolution, and rows that a device reads from its neighbour. */
enum { MAMBA_CHANNELS = 64 + 2 * 2 * 12, MAMBA_ROWS = 3 };

static const states_model bytes_of[] = {
    {"hybrid",
     {"--softmax-every", "0", "--layers", "2", "--width", "48", "--heads", "6", "--kv-heads", "3",
      "--batch", "2"},
     2,
     2,
     3,
     8,
     8,
     8},
    {"hybrid",
     {"--softmax-every", "0", "--layers", "1", "--width", "32", "--heads", "2", "--batch", "3"},
     1,
     3,
     2,
     16,
     16,
     16},
    {"mamba2",
     {"--layers", "2", "--width", "32", "--head-dim", "8", "--groups", "2", "--state", "12",
      "--batch", "2"},
     2,
     2,
     8,
     12,
     8,
     1},
};

/* Returns the planned bytes that the devices exchange along the sequence in a step. */
static uint64_t moved(const states_model *of, char *context, const char *states, int devices,
                      int pieces, int processes) {
  char *words[28] = {"--context", context};
  for (int i = 0; of->words[i]; i++) words[i + 2] = of->words[i];
  grid_model m = {of->name, words, 1, pieces};
  grid g = {.sequence = devices, .attention = "heads", .states = states, .processes = processes};
  lowered_model x;
  grid_lower(&x, &m, &g, NULL);
  uint64_t(*to)[SL_TRAFFIC_COUNT] = sli_calloc((size_t)x.plan->ndevices, sizeof *to), sum = 0;
  sl_plan_moved(x.plan, to);
  for (int32_t d = 0; d < x.plan->ndevices; d++) sum += to[d][SL_TRAFFIC_SEQUENCE];
  free(to);
  lowered_model_fini(&x);
  return sum;
}

/* Each device has one record forward and one backward; later devices read the first, earlier
 * devices the second. With pieces, all other devices read both in each piece. */
static uint64_t records_bytes(const states_model *of, int devices, int pieces) {
  uint64_t record = (uint64_t)(of->batch * of->heads * (of->dk * of->dv + of->gates));
  uint64_t readers = (uint64_t)(pieces > 1 ? 2 * pieces : 1) * (uint64_t)(devices * (devices - 1));
  return (uint64_t)of->layers * record * readers * sizeof(float);
}

/* A convolution has two rules: one reads rows before the device's own, like the call, the other
 * rows behind them. In pieces the first device also reads the last one's rows. */
static uint64_t near_bytes(const states_model *of, int devices, int pieces) {
  if (strcmp(of->name, "mamba2")) return 0;
  uint64_t readers = (uint64_t)(pieces > 1 ? devices * pieces : devices - 1);
  return (uint64_t)(of->layers * of->batch * MAMBA_ROWS * MAMBA_CHANNELS) * 2 * readers *
         sizeof(float);
}

static void states_are_exchanged_to_the_byte(void) {
  char *const contexts[] = {"24", "96", "480"};
  for (size_t i = 0; i < SLI_COUNT(bytes_of); i++)
    for (int c = 0; c < 12; c++) {
      const states_model *of = &bytes_of[i];
      int devices = 2 + c / 3 % 2, pieces = 1 + c / 6, processes = c % 2 ? devices : 1;
      uint64_t want = records_bytes(of, devices, pieces) + near_bytes(of, devices, pieces);
      uint64_t got = moved(of, contexts[c % 3], "exchange", devices, pieces, processes);
      CHECK(got == want, "model %zu, %s positions, %d pieces on %d devices: %llu bytes, not %llu",
            i, contexts[c % 3], pieces, devices, (unsigned long long)got, (unsigned long long)want);
    }
}

/* By default, states are exchanged where that costs less. */
static void the_way_that_costs_less_is_taken(void) {
  const states_model *of = &bytes_of[0];
  CHECK(moved(of, "480", NULL, 2, 1, 1) == records_bytes(of, 2, 1), "of long sequences, states");
  CHECK(moved(of, "4", NULL, 2, 1, 1) == moved(of, "4", "heads", 2, 1, 1), "of short ones, heads");
  CHECK(moved(of, "480", "heads", 2, 1, 1) > 4 * records_bytes(of, 2, 1), "heads grow");
}

/* ---- against one device ---------------------------------------------------------------------- */

static const grid_model models[] = {
    {"hybrid",
     WORDS("--layers", "2", "--width", "36", "--heads", "6", "--kv-heads", "3", "--ffn", "50",
           "--context", "37", "--vocab", "247", "--batch", "6", "--document-end", "10"),
     2, 1},
    {"mamba2",
     WORDS("--layers", "2", "--width", "32", "--head-dim", "8", "--groups", "2", "--state", "12",
           "--context", "41", "--vocab", "247", "--batch", "6"),
     2, 1},
    {"hybrid",
     WORDS("--layers", "2", "--width", "32", "--heads", "2", "--ffn", "50", "--context", "40",
           "--vocab", "247", "--batch", "6", "--side-by-side", "--gates", "keys"),
     2, 2},
    {"mamba2",
     WORDS("--layers", "2", "--width", "32", "--head-dim", "8", "--groups", "2", "--state", "12",
           "--context", "40", "--vocab", "247", "--batch", "6"),
     2, 3},
};

static const grid layouts[] = {
    {.sequence = 2},
    {.sequence = 4},
    {.sequence = 2, .recompute = "full"},
    {.sequence = 3, .attention = "ring"},
    {.data = 2, .sequence = 2, .shard = "parameters"},
    {.sequence = 2, .tensor = 2},
    {.sequence = 2, .stages = 2, .schedule = "zb-h1", .processes = 2},
    {.sequence = 2, .processes = 2},
    {.data = 2, .sequence = 2, .tensor = 2, .stages = 2, .shard = "gradients"},
};

static void compare(const grid_model *m, const grid *g, const grid_losses *one,
                    const grid_losses *all) {
  char name[GRID_TEXT];
  for (int i = 0; i < all->count; i++)
    CHECK(fabs(all->loss[i] - one->loss[i]) <= 1e-6 * fabs(one->loss[i]) &&
              fabs(all->norm[i] - one->norm[i]) <= 1e-6 * fabs(one->norm[i]),
          "%s, step %d: loss %.9g and norm %.9g, not %.9g and %.9g", grid_format(name, m, g), i,
          all->loss[i], all->norm[i], one->loss[i], one->norm[i]);
}

/* Trains on a layout, exchanging states or heads, and compares the losses. */
static void learn(const grid_model *m, grid g, const char *states, const grid_losses *one) {
  bool ring = g.sequence * SLI_MAX(g.tensor, 1) > 2;
  g.steps = STEPS;
  g.states = states;
  if (!g.attention) g.attention = ring ? "ring" : "heads";
  grid_losses all = grid_train(m, &g);
  compare(m, &g, one, &all);
}

static grid_losses learn_alone(grid_model m) {
  m.pieces = 1;
  return grid_train(&m, &(grid){.steps = STEPS});
}

/* Tests each layout with some of the models, or all. */
static void devices_learn_what_one_device_learns(void) {
  size_t by = seeds_times() > 1 ? 1 : (size_t)test_many(2, 2, 4);
  for (size_t i = 0; i < SLI_COUNT(models); i++) {
    grid_losses one = learn_alone(models[i]);
    for (size_t l = i % by; l < SLI_COUNT(layouts); l += by)
      learn(&models[i], layouts[l], "exchange", &one);
  }
}

/* Heads are not split like positions: no two runs per device in zigzag, and no longer parts at the
 * end. */
static void heads_are_no_positions(void) {
  const grid zigzag = {.sequence = 2, .attention = "ring", .positions = "zigzag"};
  const grid_model six = {"mamba2",
                          WORDS("--layers", "1", "--width", "24", "--head-dim", "8", "--groups",
                                "6", "--state", "4", "--context", "40", "--batch", "2"),
                          1, 1};
  grid_losses one = learn_alone(models[0]), of_six = learn_alone(six);
  learn(&models[0], zigzag, "heads", &one);
  learn(&six, (grid){.sequence = 4, .attention = "heads"}, "heads", &of_six);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void bits_do_not_depend_on_when_and_where(void) {
  static const char *const schedules[] = {"gpipe", "zb-h1", "seq1f1b", "zb-v"};
  for (int i = 0; i < 4; i++) {
    const grid_model *m = &models[i];
    grid g = {.sequence = 2, .stages = 2, .attention = "heads", .states = "exchange"};
    g.steps = FEW_STEPS;
    grid_losses want = grid_train(m, &g);
    g.schedule = schedules[i];
    g.jitter_seed = (uint64_t)i + 1;
    g.processes = 1 + i;
    g.recompute = i % 2 ? "full" : NULL;
    grid_losses got = grid_train(m, &g);
    char name[GRID_TEXT];
    for (int s = 0; s < got.count; s++)
      CHECK(got.loss[s] == want.loss[s] && got.norm[s] == want.norm[s],
            "%s, step %d: loss %a, not %a", grid_format(name, m, &g), s, got.loss[s], want.loss[s]);
  }
}

int main(void) {
  RUN(states_are_exchanged_to_the_byte);
  RUN(the_way_that_costs_less_is_taken);
  RUN(devices_learn_what_one_device_learns);
  RUN(heads_are_no_positions);
  RUN(bits_do_not_depend_on_when_and_where);
  return 0;
}
