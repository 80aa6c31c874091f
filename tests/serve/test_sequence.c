/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that share the rows of a tick (--sequence): logits have the bits of one device, whatever
 * the batch, the stages and the devices that share tensors besides. Each device has its heads'
 * part of the pages and all weights. Too few heads and uneven rows are refused by name.
 * labels: random more */
#include "tests/support/batches.h"
#include "tests/support/seeds.h"

enum { SEEDS = TEST_SANITIZED ? 1 : 2 };

typedef struct shared_model {
  const char *name;
  char *const *words;
  int most; /* key heads */
} shared_model;

static const shared_model models[] = {
    {"gpt", batches_gpt, 3},           {"llama", batches_llama, 2},
    {"hybrid", batches_hybrid, 2},     {"mamba2", batches_mamba2, 3},
    {"llama", batches_gemma3, 2},      {"qwen3-next", batches_qwen3_next_dense, 2},
    {"gpt-oss", batches_gpt_oss, 2},   {"qwen-moe", batches_experts, 2},
    {"deepseek", batches_deepseek, 4}, {"decoder", batches_kimi, 3},
    {"llama", batches_dual, 2},        {"hybrid", batches_sinks, 2},
    {"hybrid", batches_spiking, 2},    {"llama", batches_phi3, 2}};

static void shares(sl_session_options *o, const shared_model *m, rng *d) {
  sl_parallel_options *p = &o->lower.parallel;
  p->tensor = 1;
  p->stages = 1 + (int)rng_below(d, 2);
  p->sequence = 2 + (int)rng_below(d, (uint32_t)m->most - 1);
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

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, SEEDS);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    for (size_t m = 0; m < SLI_COUNT(models); m++)
      RUN_AS(models[m].name, has_the_bits_of_one_device(&models[m], seed));
  return 0;
}
