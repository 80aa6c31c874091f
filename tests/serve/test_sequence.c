/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that share the rows of a tick (--sequence): logits have the bits of one device, whatever
 * the batch, the stages and the devices that share tensors besides. Each device has its heads'
 * part of the pages and all weights. Too few heads and uneven rows are refused by name.
 * labels: random more */
#include "tests/support/batches.h"
#include "tests/support/seeds.h"

enum { SEEDS = 1 };

typedef struct shared_model {
  const char *name;
  char *const *words;
  int most; /* key heads */
} shared_model;

static char *const wide[] = {"--layers",  "2",          "--width", "64",      "--heads",
                             "8",         "--kv-heads", "4",       "--vocab", "97",
                             "--context", "200",        NULL};

static const shared_model models[] = {{"gpt", batches_gpt, 3},
                                      {"llama", batches_llama, 2},
                                      {"hybrid", batches_hybrid, 2},
                                      {"mamba2", batches_mamba2, 3},
                                      {"llama", batches_gemma3, 2},
                                      {"qwen3-next", batches_qwen3_next_dense, 2},
                                      {"gpt-oss", batches_gpt_oss, 2},
                                      {"qwen-moe", batches_experts, 2},
                                      {"deepseek", batches_deepseek, 4},
                                      {"decoder", batches_kimi, 3},
                                      {"llama", batches_dual, 2},
                                      {"hybrid", batches_sinks, 2},
                                      {"hybrid", batches_spiking, 2},
                                      {"llama", batches_phi3, 2},
                                      {"llama", wide, 4}};

static void shares(sl_session_options *o, const shared_model *m, rng *d) {
  sl_parallel_options *p = &o->lower.parallel;
  p->tensor = 1 + (m->most > 3 && rng_below(d, 2));
  p->stages = 1 + (int)rng_below(d, 2);
  p->sequence = 2 + (int)rng_below(d, (uint32_t)(m->most / p->tensor) - 1);
  o->rows += p->sequence - o->rows % p->sequence;
}

static void has_the_bits_of_one_device(const shared_model *m, uint64_t seed) {
  served s = {.dtype = seed % 3 ? SL_F32 : SL_BF16,
              .kv = seed % 4 < 2 ? SL_STORAGE_BF16 : SL_STORAGE_F32};
  random_request q[REQUESTS];
  token_stream alone[REQUESTS] = {0};
  rng d = {.key = 900 + seed};
  served_model(&s, m->name, m->words);
  for (int i = 0; i < batches_count(); i++) batches_think(&q[i], &d);
  batches_ask_alone(&s, q, alone);
  for (int n = 0; n < 2; n++) {
    setting x = batches_draw(&s, &d);
    if (n) batches_short_of_pages(&x.options);
    batches_draft(&s, &x.options, &d);
    if (m->words == batches_sinks) x.options.speculation.draft = NULL; /* refused */
    shares(&x.options, m, &d);
    printf("sequence %d: ", x.options.lower.parallel.sequence);
    batches_say(&s, &x, seed);
    batches_ask(&s, &x, q, alone, &d);
  }
  sl_args_destroy(s.args);
}

/* Bytes of a plan: pages and weights by device, and what devices that share rows read. */
typedef struct planned {
  size_t pages[2], weights[2];
  uint64_t moved;
} planned;

static planned plan_of(char *layers, char *width, int sequence, int64_t rows) {
  char *const words[] = {"--layers", layers, "--width",   width, "--heads", "6", "--kv-heads", "2",
                         "--vocab",  "97",   "--context", "200", NULL};
  served s = {0};
  planned sum = {{0}, {0}, 0};
  served_model(&s, "llama", words);
  sl_session_options o = served_options(&s);
  o.rows = rows;
  o.pages = 4;
  o.lower.parallel.sequence = sequence;
  served_open(&s, &o);
  const sl_plan *plan = sl_session_about(s.session).plan;
  for (int32_t r = 0; r < plan->nregs; r++) {
    const sl_register *reg = &plan->regs[r];
    if (!strncmp(reg->name, "cache", 5)) sum.pages[reg->device] += reg->slot_bytes;
    if (reg->memory == SL_MEMORY_PARAMETERS) sum.weights[reg->device] += reg->slot_bytes;
  }
  uint64_t to[2][SL_TRAFFIC_COUNT] = {{0}};
  sl_plan_moved(plan, to);
  for (int d = 0; d < sequence; d++) sum.moved += to[d][SL_TRAFFIC_SEQUENCE];
  served_close(&s);
  return sum;
}

/* Returns what two blocks more read of each other's device. */
static uint64_t of_two_blocks(char *width, int64_t rows) {
  return plan_of("4", width, 2, rows).moved - plan_of("2", width, 2, rows).moved;
}

/* Each of two devices sends half of its half of queries (48 numbers), keys, values (16 each) and
 * outputs. The second also reads the batch, in each block: twice the width moves as much more. */
static void moves_heads_and_rows(void) {
  enum { ROWS = 24, LAYER = (int)sizeof(float) * ROWS / 2 * (2 * 48 + 2 * 16) };
  planned one = plan_of("2", "48", 1, ROWS), two = plan_of("2", "48", 2, ROWS);
  uint64_t moved = of_two_blocks("96", ROWS) - of_two_blocks("48", ROWS);
  CHECK(moved == 2 * LAYER, "two blocks move %llu bytes, not %d", (unsigned long long)moved,
        2 * LAYER);
  for (int d = 0; d < 2; d++)
    CHECK(one.pages[0] && one.pages[0] == 2 * two.pages[d],
          "device %d has pages of %zu bytes, not half of %zu", d, two.pages[d], one.pages[0]);
  size_t end = sizeof(float) * 97 * 48; /* the classifier, which one device has */
  CHECK(two.weights[0] == one.weights[0], "the first device has all weights: %zu bytes, not %zu",
        two.weights[0], one.weights[0]);
  CHECK(two.weights[1] < one.weights[0] && two.weights[1] + 2 * end > one.weights[0],
        "the second has %zu bytes of weights, all but the classifier of %zu", two.weights[1],
        one.weights[0]);
}

static void is_refused(const char *model, char *const *words, int sequence, int64_t rows,
                       const char *why) {
  served s = {0};
  served_model(&s, model, words);
  sl_session_options o = served_options(&s);
  sl_session_info info;
  o.rows = rows;
  o.lower.parallel.sequence = sequence;
  CHECK(sl_session_check(&o, &info), "%s with %d devices is refused", model, sequence);
  CHECK(strstr(sl_detail(), why), "%s: %s", why, sl_detail());
  sl_args_destroy(s.args);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, SEEDS);
  size_t count = served_on_cpus() ? SLI_COUNT(models) : 3; /* emulated GPUs are slow */
  for (uint64_t seed = s.first; seed < s.end; seed++)
    for (size_t m = 0; m < count; m++)
      RUN_AS(models[m].name, has_the_bits_of_one_device(&models[m], seed));
  if (s.first > 1) return 0;
  RUN(moves_heads_and_rows);
  RUN(is_refused, "llama", batches_llama, 3, 30, "it has 2 key heads");
  RUN(is_refused, "gpt", batches_gpt, 4, 32, "it has 3 query heads");
  RUN(is_refused, "gpt", batches_gpt, 3, 31, "31 rows cannot be shared evenly");
  return 0;
}
