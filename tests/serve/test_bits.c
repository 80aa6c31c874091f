/* SPDX-License-Identifier: Apache-2.0 */
/* A request has the same logits, bit for bit, alone and in any batch. Settings vary: rows per tick,
 * stages, tensor-parallel devices, threads, weights in memory or on disk, other requests,
 * preemption, cancellation, changed limits. Prefixes vary as well: shared pages, and states that
 * other requests have left. Models vary, too: spiking layers, experts whose capacity must drop no
 * row, sink tokens, chunked positions, quantized weights or KV cache, and right and wrong drafts,
 * also from a draft model. Only preempted rows are computed twice, and shared rows never.
 * labels: random more first */
#include "tests/support/batches.h"
#include "tests/support/seeds.h"

enum { SEEDS = TEST_SANITIZED ? 1 : 5, SETTINGS = TEST_SANITIZED ? 3 : 4 };
enum { ENOUGH = 10 };

/* Keeps weights on disk, with one or two blocks in memory. */
static void from_disk(sl_session_options *o, rng *d) {
  static const sl_home disk = {.name = "weights", .space = SL_SPACE_DISK};
  static const sl_quota quotas[] = {{"weights", SL_NONE, 1}, {"weights", SL_NONE, 2}};
  o->lower.parallel.stages = 1;
  o->lower.memory.homes = (sl_home_options){.count = 1, .homes = &disk};
  o->lower.memory.nquotas = 1;
  o->lower.memory.quotas = &quotas[rng_below(d, 2)];
}

static uint64_t preemptions, shared, accepted;

/* Sends random requests and counts preemptions, accepted drafts and shared rows. */
static void ask(const served *s, const setting *x, random_request *q, const token_stream *alone,
                rng *d) {
  sl_session_stats stats = batches_ask(s, x, q, alone, d);
  preemptions += stats.preemptions;
  accepted += stats.accepted;
  shared += stats.rows_shared;
}

static void each_batch_gives_the_same_bits(const char *model, char *const *words, uint64_t seed) {
  served s = {0};
  random_request q[REQUESTS];
  token_stream alone[REQUESTS] = {0};
  rng d = {.key = seed};
  s.dtype = seed % 3 ? SL_F32 : SL_BF16;
  s.kv = seed % 4 < 2 ? SL_STORAGE_BF16 : SL_STORAGE_F32;
  served_model(&s, model, words);
  for (int i = 0; i < batches_count(); i++) batches_think(&q[i], &d);
  batches_ask_alone(&s, q, alone);
  for (int n = 0; n < (served_on_cpus() ? SETTINGS : 1); n++) {
    setting x = batches_draw(&s, &d);
    if (!n) batches_short_of_pages(&x.options);
    batches_draft(&s, &x.options, &d);
    if (words == batches_sinks) x.options.speculation.draft = NULL; /* refused */
    if (n == 1 && seed == 1) x.options.lower.parallel.tensor = 2;
    if (n == 2 && seed % 3 == 1) from_disk(&x.options, &d);
    batches_say(&s, &x, seed);
    ask(&s, &x, q, alone, &d);
  }
  sl_args_destroy(s.args);
}

/* Experts take the rows that training would drop: the answers are those without a capacity
 * limit. */
static void no_row_is_dropped(void) {
  char *const *words[] = {batches_experts, batches_dropping};
  static token_stream of[2][REQUESTS];
  for (int m = 0; m < 2; m++) {
    served s = {0};
    random_request q[REQUESTS];
    rng d = {.key = 1};
    served_model(&s, "qwen-moe", words[m]);
    for (int i = 0; i < REQUESTS; i++) batches_think(&q[i], &d);
    batches_ask_alone(&s, q, of[m]);
    sl_args_destroy(s.args);
  }
  for (int i = 0; i < REQUESTS; i++)
    CHECK(of[0][i].count == of[1][i].count &&
              !memcmp(of[0][i].hashes, of[1][i].hashes, sizeof of[0][i].hashes),
          "request %d has other bits with a limit", i);
}

static bool same_files(const char *a, const char *b) {
  FILE *x = fopen(a, "r"), *y = fopen(b, "r");
  int c = 0;
  CHECK(x && y, "%s and %s are there", a, b);
  while (c != EOF && (c = getc(x)) == getc(y)) {}
  fclose(x);
  fclose(y);
  return c == EOF;
}

/* Families of dense models, which differ by options of llama. */
static char *const *const families[] = {batches_gemma3, batches_olmo2, batches_phi3, batches_qwen3,
                                        batches_dual};

static char *const *const hybrids[] = {batches_spiking, batches_hybrid, batches_side_by_side,
                                       batches_sinks};

/* A replayed log is logged again unchanged and gives the same bits: pages are shared and freed at
 * the same ticks, and the same requests are cancelled. */
static void a_log_is_followed(const char *model, char *const *words, uint64_t seed) {
  served s = {0};
  random_request q[REQUESTS];
  token_stream alone[REQUESTS] = {0};
  rng d = {.key = 77 + seed};
  served_model(&s, model, words);
  for (int i = 0; i < REQUESTS; i++) batches_think(&q[i], &d);
  batches_ask_alone(&s, q, alone);
  setting x = {.options = served_options(&s), .cancelled = (int)rng_below(&d, REQUESTS)};
  x.options.constraints = true;
  batches_short_of_pages(&x.options);
  batches_draft(&s, &x.options, &d);
  x.options.log = "ticks.log";
  ask(&s, &x, q, alone, &d);
  x.options.log = "again.log";
  x.options.replay = "ticks.log";
  x.options.lower.parallel.stages = 2;
  x.options.groups = 3;
  ask(&s, &x, q, alone, &d);
  CHECK(same_files("ticks.log", "again.log"), "ticks take the same again, seed %llu",
        (unsigned long long)seed);
  sl_args_destroy(s.args);
}

/* A case for each model: --only MODEL. */
#define BITS(model, words, seed) RUN_AS(model, each_batch_gives_the_same_bits(model, words, seed))

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, SEEDS);
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    if (seed % 2) BITS("gpt", batches_gpt, seed);
    else BITS("decoder", batches_indexed, seed);
    BITS("hybrid", hybrids[seed % SLI_COUNT(hybrids)], seed);
    if (seed % 2) BITS("mamba2", batches_mamba2, seed);
    else BITS("decoder", batches_kimi, seed);
    BITS("qwen-moe", seed % 2 ? batches_experts : batches_dropping, seed);
    BITS("qwen3-next", seed % 2 ? batches_qwen3_next : batches_qwen3_next_dense, seed);
    if (seed % 2) BITS("gpt-oss", batches_gpt_oss, seed);
    else BITS("deepseek", batches_deepseek, seed);
  }
  if (served_on_cpus()) RUN(no_row_is_dropped);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    BITS("llama", families[seed % SLI_COUNT(families)], seed);
  for (uint64_t seed = s.first; seed < s.end && served_on_cpus(); seed++)
    RUN(a_log_is_followed, seed % 2 ? "llama" : "hybrid", seed % 2 ? batches_llama : batches_hybrid,
        seed);
  CHECK((preemptions && shared && accepted) || seeds_count(s) < ENOUGH,
        "some have given up their pages, some shared others', and some drafts were right");
  return 0;
}
