/* SPDX-License-Identifier: Apache-2.0 */
/* With exact arithmetic, a session reports the same log-probabilities as the forward pass of
 * training computes for the same tokens, bit for bit. The session varies batches, prompt chunks,
 * stages, threads and preemption; training varies devices, microbatches and stages. Weights are
 * trained first. Without exact arithmetic some differ. SLUICE_SMOLLM2 may name a GGUF file of
 * SmolLM2, which is then tested too.
 * labels: random more */
#include "tests/support/batches.h"
#include "tests/support/schedules.h"
#include "tests/support/seeds.h"

enum { SEEDS = TEST_SANITIZED ? 2 : 6, SETTINGS = TEST_SANITIZED ? 2 : 3, GRIDS = SETTINGS };
enum { ENOUGH = 3, MOST_WORDS = 48 };

static char *const smollm2[] = {"--layers",   "30",     "--width",   "576",  "--heads", "9",
                                "--kv-heads", "3",      "--ffn",     "1536", "--vocab", "49152",
                                "--theta",    "100000", "--context", "200",  "--tied",  NULL};

/* A model with its weights, requests and answers. */
typedef struct subject {
  const char *name;
  char *const *words;
  char *weights;
  bool exact;
  random_request requests[REQUESTS];
  int count[REQUESTS];
  int32_t tokens[REQUESTS][MOST];
  float logprobs[REQUESTS][MOST];
  float trained[REQUESTS][CONTEXT];
} subject;

static uint64_t preempted, compared;

static sl_status load_file(void *path, const sl_lowered *lowered, sl_runtime *rt) {
  return sl_weights_load(path, lowered, rt);
}

/* ---- training ----------------------------------------------------------------------------------
 */

static void take_logprobs(void *ctx, const sl_logprobs_report *r) {
  subject *x = ctx;
  CHECK(r->rows == REQUESTS && r->length == CONTEXT, "rows of the batch");
  if (!r->step) memcpy(x->trained, r->logprobs, sizeof x->trained);
}

static void save(const subject *x, const sl_lowered *lowered, sl_runtime *rt) {
  sl_job *alone = NULL;
  CHECK(!sl_job_open(NULL, &alone) && !sl_weights_save(x->weights, lowered, rt, alone), "%s",
        sl_detail());
  sl_job_close(alone);
}

/* Trains some steps on the token file and saves the weights; starts from random values unless
 * `loads`. */
static void train(subject *x, const char *data, const sl_lower_options *how, int microbatches,
                  int steps, bool loads) {
  char *words[MOST_WORDS] = {"--batch", "12", "--lr", "1e-2", "--warmup", "0", "--data"};
  int n = 7;
  words[n++] = (char *)data;
  for (int i = 0; x->words[i]; i++) words[n++] = x->words[i];
  sl_lower_options options = *how;
  options.numbers.exact = x->exact;
  options.report = (sl_report_options){.on_logprobs = take_logprobs, .ctx = x};
  options.devices.kind = "cpu";
  lowered_model m;
  CHECK(!lowered_model_init(&m, x->name, words, microbatches, 1, &options), "%s", sl_detail());
  CHECK(!sl_plan_prove(m.plan), "%s", sl_detail());
  sl_runtime *rt;
  CHECK(!sl_runtime_create(m.plan, &(sl_runtime_options){.watchdog_seconds = 60}, &rt), "%s",
        sl_detail());
  sl_lowered_attach(m.lowered, rt);
  CHECK(!(loads ? load_file(x->weights, m.lowered, rt) : sl_params_init(m.lowered, rt, 7)), "%s",
        sl_detail());
  CHECK(!sl_runtime_run(rt, steps), "%s", sl_detail());
  if (!loads) save(x, m.lowered, rt);
  sl_runtime_destroy(rt);
  lowered_model_fini(&m);
}

static void write_tokens(const char *path, const uint16_t *tokens, size_t count) {
  FILE *f = fopen(path, "wb");
  CHECK(f && fwrite(tokens, sizeof *tokens, count, f) == count && !fclose(f), "%s", path);
}

static void make_weights(subject *x, uint64_t seed) {
  uint16_t tokens[REQUESTS * CONTEXT + 1];
  rng d = {.key = 100 + seed};
  for (size_t i = 0; i < SLI_COUNT(tokens); i++) tokens[i] = (uint16_t)(rng_below(&d, 10) * i % 97);
  write_tokens("before.u16", tokens, SLI_COUNT(tokens));
  train(x, "before.u16", &(sl_lower_options){.parallel.stages = 1}, 1, 3, false);
}

/* ---- serving -----------------------------------------------------------------------------------
 */

static void take_event(subject *x, int i, const sl_session_event *e) {
  if (e->kind != SL_EVENT_TOKEN) return;
  CHECK(e->place == x->count[i] && e->place < MOST, "tokens come in order");
  x->tokens[i][e->place] = e->token;
  x->logprobs[i][x->count[i]++] = e->logprob;
}

static void serve(subject *x, const sl_session_options *given) {
  sl_session_options options = *given;
  sl_session *session;
  uint64_t id, first = 0;
  options.lower.numbers.exact = x->exact;
  options.load = load_file;
  options.load_ctx = x->weights;
  CHECK(!sl_session_create(&options, &session), "%s", sl_detail());
  memset(x->count, 0, sizeof x->count);
  for (int i = 0; i < REQUESTS; i++) {
    CHECK(!sl_session_submit(session, &x->requests[i].how, &id), "%s", sl_detail());
    if (!i) first = id;
  }
  for (int ended = 0; ended < REQUESTS;) {
    sl_session_event e = served_next(session);
    take_event(x, (int)(e.id - first), &e);
    ended += e.kind == SL_EVENT_END;
  }
  preempted += sl_session_stat(session).preemptions;
  sl_session_destroy(session);
}

/* ---- both --------------------------------------------------------------------------------------
 */

/* Writes a row per request: prompt, answer, zeros. */
static void write_answers(const subject *x) {
  uint16_t tokens[REQUESTS * CONTEXT + 1] = {0};
  for (int i = 0; i < REQUESTS; i++) {
    uint16_t *row = tokens + (size_t)i * CONTEXT;
    int64_t n = x->requests[i].how.nprompt;
    for (int64_t t = 0; t < n; t++) row[t] = (uint16_t)x->requests[i].prompt[t];
    for (int t = 0; t < x->count[i]; t++) row[n + t] = (uint16_t)x->tokens[i][t];
  }
  write_tokens("after.u16", tokens, SLI_COUNT(tokens));
}

/* Returns how many log-probabilities differ in their bits. */
static int count_differing(const subject *x) {
  int differ = 0;
  for (int i = 0; i < REQUESTS; i++)
    for (int t = 0; t < x->count[i]; t++, compared++)
      differ += x->logprobs[i][t] != x->trained[i][x->requests[i].how.nprompt - 1 + t];
  return differ;
}

static void try_grid(subject *x, rng *d) {
  static const int devices[] = {1, 2, 3}, parts[] = {1, 2, 4};
  sl_lower_options how = {.parallel.data = devices[rng_below(d, 3)],
                          .parallel.stages = 1 + (int)rng_below(d, 2),
                          .parallel.tensor = 1 + (int)rng_below(d, 2),
                          .memory.recompute = rng_below(d, 2) ? "full" : NULL,
                          .devices.threads = 1 + (int)rng_below(d, 2)};
  int microbatches = parts[rng_below(d, 3)];
  if (how.parallel.data == 2 && microbatches == 4) microbatches = 2;
  train(x, "after.u16", &how, microbatches, 1, true);
  int differ = count_differing(x);
  CHECK(!differ, "%s, %d x %d devices, %d stages, %d microbatches: %d log-probabilities differ",
        x->name, how.parallel.data, how.parallel.tensor, how.parallel.stages, microbatches, differ);
}

static void draw_requests(subject *x, rng *d) {
  for (int i = 0; i < REQUESTS; i++) {
    batches_think(&x->requests[i], d);
    x->requests[i].how.prompt = x->requests[i].prompt;
    x->requests[i].how.logprobs = 0;
  }
}

static void training_tells_what_was_served(const char *name, char *const *words, uint64_t seed) {
  served s = {.dtype = SL_F32, .kv = SL_STORAGE_F32};
  subject *x = sli_calloc(1, sizeof *x);
  rng d = {.key = seed};
  *x = (subject){.name = name, .words = words, .weights = "exact.safetensors", .exact = true};
  served_model(&s, name, words);
  make_weights(x, seed);
  draw_requests(x, &d);
  for (int n = 0; n < SETTINGS; n++) {
    setting how = batches_draw(&s, &d);
    if (!n) batches_short_of_pages(&how.options);
    if (!n) how.options.lower.parallel.stages = 2;
    batches_say(&s, &how, seed);
    serve(x, &how.options);
    write_answers(x);
    try_grid(x, &d);
  }
  free(x);
  sl_args_destroy(s.args);
}

/* Without exact arithmetic some must differ, otherwise the comparison proves nothing. */
static void others_differ(void) {
  served s = {.dtype = SL_F32, .kv = SL_STORAGE_F32};
  subject *x = sli_calloc(1, sizeof *x);
  rng d = {.key = 5};
  *x = (subject){.name = "gpt", .words = batches_gpt, .weights = "exact.safetensors"};
  served_model(&s, x->name, x->words);
  make_weights(x, 5);
  draw_requests(x, &d);
  sl_session_options options = served_options(&s);
  serve(x, &options);
  write_answers(x);
  train(x, "after.u16", &(sl_lower_options){.parallel.stages = 1}, 1, 1, true);
  CHECK(count_differing(x), "without exact numbers sums have another order in serving");
  free(x);
  sl_args_destroy(s.args);
}

static void smollm2_too(char *path) {
  served s = {.dtype = SL_F32, .kv = SL_STORAGE_F32};
  subject *x = sli_calloc(1, sizeof *x);
  rng d = {.key = 9};
  *x = (subject){.name = "llama", .words = smollm2, .weights = path, .exact = true};
  served_model(&s, x->name, x->words);
  draw_requests(x, &d);
  sl_session_options options = served_options(&s);
  batches_short_of_pages(&options);
  options.lower.parallel.stages = 2;
  serve(x, &options);
  write_answers(x);
  train(x, "after.u16", &(sl_lower_options){.parallel.data = 2, .parallel.stages = 2}, 3, 1, true);
  CHECK(!count_differing(x), "of SmolLM2 %d log-probabilities differ", count_differing(x));
  free(x);
  sl_args_destroy(s.args);
}

/* ---- refused combinations ----------------------------------------------------------------------
 */

static void refused(sl_session_options *o, const char *text) {
  sl_session *session;
  o->lower.numbers.exact = true;
  CHECK(sl_session_create(o, &session) == SL_E_UNSUPPORTED && strstr(sl_detail(), text),
        "%s, not: %s", text, sl_detail());
}

static void what_rounds_is_refused(void) {
  served s = {.dtype = SL_F32, .kv = SL_STORAGE_F32};
  served_model(&s, "gpt", batches_gpt);
  sl_session_options kv = served_options(&s), dtype = kv;
  kv.kv = SL_STORAGE_BF16;
  refused(&kv, "numbers.exact: not supported with keys and values in bf16");
  dtype.lower.numbers.dtype = SL_BF16;
  refused(&dtype, "numbers.exact: not supported with numbers.dtype bf16");
  sl_args_destroy(s.args);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    char *const *words;
  } models[] = {{"gpt", batches_gpt},          {"llama", batches_llama},
                {"hybrid", batches_hybrid},    {"mamba2", batches_mamba2},
                {"qwen-moe", batches_experts}, {"qwen3-next", batches_qwen3_next}};
  seeds s = seeds_of(argc, argv, 1, SEEDS);
  char *path = getenv("SLUICE_SMOLLM2");
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN(training_tells_what_was_served, models[seed % SLI_COUNT(models)].name,
        models[seed % SLI_COUNT(models)].words, seed);
  RUN(others_differ);
  RUN(what_rounds_is_refused);
  if (path) RUN(smollm2_too, path);
  CHECK((preempted && compared > 1000) || seeds_count(s) < ENOUGH,
        "some have given up their pages");
  printf("%llu log-probabilities, %llu preemptions\n", (unsigned long long)compared,
         (unsigned long long)preempted);
  return 0;
}
