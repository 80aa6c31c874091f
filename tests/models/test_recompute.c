/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputation does not change a bit of what is learned, wherever stages and devices cut the
 * model. The activations kept are those documented: of a fully recomputed block, its input.
 * labels: unthreaded numbers */
#include <string.h>

#include "base/base.h"
#include "tests/support/actors_plans.h"
#include "tests/support/grids.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { WIDTH = 64, HEADS = 4, CONTEXT = 16, ROWS = 2 * CONTEXT /* of a microbatch */ };

static const char *const hows[] = {"none", "selective", "full"};

/* ---- bits ------------------------------------------------------------------------------- */

static void same_bits(const grid_model *m, grid g) {
  g.steps = 3;
  grid_losses kept = grid_train(m, &g);
  for (int i = 1; i < 3; i++) {
    g.recompute = hows[i];
    grid_losses again = grid_train(m, &g);
    grid_same_bits(m, &g, &kept, &again);
  }
}

static void losses_have_the_same_bits(void) {
  static char *const gpt[] = {"--layers",  "4",  "--width", "32", "--heads", "4",
                              "--context", "16", "--batch", "8",  NULL};
  static char *const llama[] = {"--layers", "4",          "--width", "32",        "--heads",
                                "4",        "--kv-heads", "2",       "--context", "16",
                                "--batch",  "8",          NULL};
  static const grid grids[] = {
      {.data = 1, .tensor = 1},
      {.data = 1, .tensor = 1, .stages = 4, .jitter_seed = 1},
      {.data = 1, .tensor = 1, .stages = 2, .schedule = "zb-h1"},
      {.data = 1, .tensor = 1, .stages = 2, .schedule = "v-half", .workers = 1},
      {.data = 2, .tensor = 1, .stages = 2},
      {.data = 2, .tensor = 1, .shard = "parameters"},
      {.data = 1, .tensor = 2},
      {.data = 2, .tensor = 2, .shard = "gradients", .grain = "pass"},
      {.data = 1, .tensor = 2, .grain = "layer", .stages = 2, .processes = 2}};
  const grid_model models[] = {
      {"gpt", gpt, 4, 1}, {"llama", llama, 4, 1}, {"gpt", gpt, 2, 2}, {"llama", llama, 2, 2}};
  for (size_t m = 0; m < SLI_COUNT(models); m++)
    for (size_t i = 0; i < SLI_COUNT(grids); i++) same_bits(&models[m], grids[i]);
}

/* ---- bytes ------------------------------------------------------------------------------ */

static size_t activations(int layers, const char *how) {
  char text[16];
  snprintf(text, sizeof text, "%d", layers);
  char *const words[] = {"--layers",  text, "--width", "64", "--heads", "4",
                         "--context", "16", "--batch", "4",  NULL};
  const grid_model m = {"gpt", words, 2, 1};
  const grid g = {.data = 1, .tensor = 1, .recompute = how};
  grid_losses losses = {.most = 1};
  lowered_model x;
  grid_lower(&x, &m, &g, &losses);
  size_t bytes = sl_plan_memory(x.plan, 0, SL_MEMORY_ACTIVATIONS);
  lowered_model_fini(&x);
  return bytes;
}

/* Activations that one more block keeps, as arrays of the model's width. Always: its input;
 * queries, keys and values; the attention output and its log-sums; the inputs of the second norm
 * and of GELU. Without recomputation also the outputs and statistics of both norms, and GELU's
 * output. */
static void a_block_keeps_what_is_said(void) {
  const size_t array = (size_t)ROWS * WIDTH * sizeof(float), row = ROWS * sizeof(float);
  const size_t logarithms = HEADS * row;
  const size_t want[] = {16 * array + logarithms + 4 * row, 10 * array + logarithms, array};
  const size_t squares = 12 * 64; /* squared norms of its 12 parameters' gradients, always kept */
  for (int i = 0; i < 3; i++) {
    size_t more = activations(4, hows[i]) - activations(3, hows[i]) - squares;
    CHECK(more == want[i], "recompute %s: a block keeps %zu bytes, not %zu", hows[i], more,
          want[i]);
  }
}

/* Returns the bytes of a slot of the only register with this quota name, in a GPT cut in two
 * pieces. */
static size_t slot_bytes(int layers, const char *name) {
  char text[16];
  snprintf(text, sizeof text, "%d", layers);
  char *const words[] = {"--layers",  text, "--width", "64", "--heads", "4",
                         "--context", "16", "--batch", "4",  NULL};
  const grid_model m = {"gpt", words, 2, 2};
  const grid g = {.data = 1, .tensor = 1, .recompute = "full"};
  grid_losses losses = {.most = 1};
  lowered_model x;
  grid_lower(&x, &m, &g, &losses);
  size_t bytes = 0;
  for (int32_t i = 0; i < x.plan->nregs; i++)
    if (!strcmp(x.plan->regs[i].quota_name, name)) bytes = x.plan->regs[i].slot_bytes;
  lowered_model_fini(&x);
  CHECK(bytes, "no register answers to %s", name);
  return bytes;
}

/* With sequences in pieces, one more block keeps the input of a piece and, per microbatch, a record
 * of keys and values forward and one of their gradients backward. */
static void a_piece_of_a_block_keeps_its_input(void) {
  const size_t array = (size_t)ROWS * WIDTH * sizeof(float);
  static const char *const names[] = {"act.b", "kv", "kv.grad"};
  const size_t want[] = {array / 2, 2 * array, 2 * array};
  for (int i = 0; i < 3; i++) {
    size_t more = slot_bytes(4, names[i]) - slot_bytes(3, names[i]);
    CHECK(more == want[i], "a block has %zu bytes of %s, not %zu", more, names[i], want[i]);
  }
}

/* ---- on random grids ---------------------------------------------------------------------- */

/* Returns the memory of all devices, or 0 if the grid is refused. */
static size_t memory_of_grid(const grid_model *m, grid g, const char *how) {
  grid_losses losses = {.most = 1};
  lowered_model x;
  size_t bytes = 0;
  g.recompute = how;
  grid_lower(&x, m, &g, &losses);
  for (int32_t d = 0; d < x.plan->ndevices; d++) bytes += sl_device_bytes(&x.plan->devices[d]);
  lowered_model_fini(&x);
  return bytes;
}

/* Full recomputation takes less memory than none, whatever devices exchange within a block: what
 * blocks pass on between exchanges shares slots. */
static void a_random_grid_takes_less(uint64_t seed) {
  static const char *const names[] = {"gpt", "llama", "mixtral", "gpt-oss", "deepseek", "mamba2"};
  static char *const plain[] = {"--layers", "6", "--width", "32", "--heads", "4", NULL};
  static char *const heads[] = {"--head-dim", "8", "--state", "6", NULL};
  static char *const experts[] = {"--experts", "4", "--expert-ffn", "24", NULL};
  char *words[24] = {"--context", "32", "--batch", "24"};
  int count = 4, which = random_below(&seed, SLI_COUNT(names));
  char *const *const more[] = {plain, which >= 2 && which <= 4 ? experts : plain,
                               which == 5 ? heads : plain};
  for (int i = 0; i < 3; i++)
    for (int k = 0; more[i][k] && (i == 0 || more[i] != plain); k++) words[count++] = more[i][k];
  const grid_model m = {names[which], words, 1 << random_below(&seed, 3), 1};
  grid g = {.data = 1 + random_below(&seed, 3), .tensor = 1 + random_below(&seed, 2)};
  if (which >= 2 && which <= 4 && g.data > 1 && random_below(&seed, 2)) g.experts = g.data;
  if (random_below(&seed, 2)) g.stages = 2, g.schedule = random_below(&seed, 2) ? "zb-h1" : "1f1b";
  size_t kept = memory_of_grid(&m, g, "none"), again = memory_of_grid(&m, g, "full");
  char name[GRID_TEXT];
  CHECK(again <= kept, "%s: %zu bytes with full recomputation, %zu without",
        grid_format(name, &m, &g), again, kept);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 40);
  RUN(a_block_keeps_what_is_said);
  RUN(a_piece_of_a_block_keeps_its_input);
  RUN(losses_have_the_same_bits);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN_AS("random_grids", a_random_grid_takes_less(seed));
  return 0;
}
