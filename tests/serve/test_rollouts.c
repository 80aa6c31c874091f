/* SPDX-License-Identifier: Apache-2.0 */
/* Rollouts: in each training step, a session in the same plan answers with the parameters from the
 * start of the step. Its logits equal those of a separate session with these weights, bit for bit,
 * for any stages, devices, microbatches, schedules and timing of training. Training has the same
 * bits as without rollouts. Answers that need more ticks than a step has end with the step.
 * labels: random more */
#include "tests/support/batches.h"
#include "tests/support/schedules.h"
#include "tests/support/seeds.h"

enum { SEEDS = TEST_SANITIZED ? 2 : 6, STEPS = 3, MOST_WORDS = 48, ENOUGH = 200 };

/* A run: its requests, and the answers in each step. */
typedef struct run {
  const char *name;
  char *const *words;
  random_request requests[REQUESTS];
  token_stream answers[STEPS][REQUESTS];
  sl_end ends[STEPS][REQUESTS];
  uint64_t first[STEPS]; /* id of each step's first request */
  sl_session *session;
  double losses[STEPS];
  int step;
} run;

static sl_status load_file(void *path, const sl_lowered *lowered, sl_runtime *rt) {
  return sl_weights_load(path, lowered, rt);
}

/* ---- rollouts ------------------------------------------------------------------------------- */

static void begin(void *ctx, int64_t step) {
  run *x = ctx;
  CHECK(step == x->step++ && step < STEPS, "steps begin in order");
  for (int i = 0; i < REQUESTS; i++) {
    uint64_t id;
    sl_request q = x->requests[i].how;
    q.salt = (uint64_t)step;
    CHECK(!sl_session_submit(x->session, &q, &id), "%s", sl_detail());
    if (!i) x->first[step] = id;
  }
}

static void take(void *ctx, const sl_session_event *e) {
  run *x = ctx;
  int step = (int)((e->id - x->first[0]) / REQUESTS), i = (int)((e->id - x->first[0]) % REQUESTS);
  CHECK(step >= 0 && step < x->step, "an answer belongs to a step");
  note(&x->answers[step][i], e);
  if (e->kind == SL_EVENT_END) x->ends[step][i] = e->end;
}

/* ---- training -------------------------------------------------------------------------------- */

static void on_step(void *ctx, const sl_step_report *r) {
  run *x = ctx;
  x->losses[r->step] = r->loss;
}

static char **training_words(const run *x) {
  static char *words[MOST_WORDS] = {"--batch",  "12", "--lr",   "1e-2",
                                    "--warmup", "0",  "--data", "rollouts.u16"};
  int n = 8;
  for (int i = 0; x->words[i]; i++) words[n++] = x->words[i];
  words[n] = NULL;
  return words;
}

static void save(const char *path, const sl_lowered *lowered, sl_runtime *rt) {
  sl_job *alone = NULL;
  CHECK(!sl_job_open(NULL, &alone) && !sl_weights_save(path, lowered, rt, alone), "%s",
        sl_detail());
  sl_job_close(alone);
}

/* Trains `steps` steps from the initial values, and saves the weights. */
static void train(run *x, const sl_lower_options *how, int microbatches, int steps, uint64_t jitter,
                  const char *path) {
  sl_lower_options options = *how;
  options.report = (sl_report_options){.on_step = on_step, .ctx = x};
  options.devices.kind = "cpu";
  lowered_model m;
  CHECK(!lowered_model_init(&m, x->name, training_words(x), microbatches, 1, &options), "%s",
        sl_detail());
  CHECK(!sl_plan_prove(m.plan), "%s", sl_detail());
  sl_runtime *rt;
  const sl_runtime_options run_options = {
      .watchdog_seconds = 60, .jitter_seed = jitter, .jitter_ns = jitter ? 20000 : 0};
  CHECK(!sl_runtime_create(m.plan, &run_options, &rt), "%s", sl_detail());
  sl_lowered_attach(m.lowered, rt);
  CHECK(!sl_params_init(m.lowered, rt, 7), "%s", sl_detail());
  CHECK(!sl_runtime_run(rt, steps), "%s", sl_detail());
  save(path, m.lowered, rt);
  sl_runtime_destroy(rt);
  lowered_model_fini(&m);
}

static void train_with_rollouts(run *x, const served *s, rng *d, int ticks) {
  static const int parts[] = {1, 2, 4};
  static const char *const schedules[] = {"1f1b", "gpipe", "zb-h1"};
  sl_session_options o = served_options(s);
  sl_lower_options how = {.parallel.stages = 1 + (int)rng_below(d, 3),
                          .parallel.data = 1 + (int)rng_below(d, 2),
                          .schedule.name = schedules[rng_below(d, 3)],
                          .memory.recompute = rng_below(d, 2) ? "full" : NULL};
  o.lower.parallel.stages = how.parallel.stages;
  o.rows = 20 + (int64_t)rng_below(d, 40);
  o.sequences = REQUESTS;
  o.groups = 1 + (int)rng_below(d, 3);
  int microbatches = parts[rng_below(d, 3)];
  printf("  stages %d, data %d, microbatches %d, %s, rows %lld, groups %d, ticks %d\n",
         how.parallel.stages, how.parallel.data, microbatches, how.schedule.name, (long long)o.rows,
         o.groups, ticks);
  const sl_session_steps steps = {.ticks = ticks, .begin = begin, .note = take, .ctx = x};
  CHECK(!sl_session_embed(&o, &steps, &how.rollouts, &x->session), "%s", sl_detail());
  uint64_t jitter = rng_below(d, 2) ? 1 + rng_below(d, 1000) : 0;
  train(x, &how, microbatches, STEPS, jitter, "with.safetensors");
  CHECK(x->step == STEPS, "every step has had rollouts");
  sl_session_destroy(x->session);
  how.rollouts = (sl_rollout_options){0};
  double with[STEPS];
  memcpy(with, x->losses, sizeof with);
  train(x, &how, microbatches, STEPS, 0, "without.safetensors");
  for (int i = 0; i < STEPS; i++)
    CHECK(with[i] == x->losses[i], "step %d: loss %.17g, and %.17g without", i, with[i],
          x->losses[i]);
  how = (sl_lower_options){.parallel.stages = how.parallel.stages,
                           .parallel.data = how.parallel.data,
                           .schedule.name = how.schedule.name,
                           .memory.recompute = how.memory.recompute};
  train(x, &how, microbatches, STEPS - 1, 0, "before.safetensors");
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* Compares a step's answers with those of a separate session with these weights. */
static void compare_step(const run *x, served *s, int step, const char *weights, bool whole) {
  token_stream alone[REQUESTS] = {0};
  sl_session_options o = served_options(s);
  if (weights) o.load = load_file, o.load_ctx = (void *)weights;
  served one = *s;
  served_open(&one, &o);
  for (int i = 0; i < REQUESTS; i++) {
    uint64_t id;
    CHECK(!sl_session_submit(one.session, &x->requests[i].how, &id), "%s", sl_detail());
    while (!alone[i].ended) {
      sl_session_event e = served_next(one.session);
      note(&alone[i], &e);
    }
    const token_stream *a = &x->answers[step][i], *b = &alone[i];
    CHECK(a->ended, "answer %d of step %d has ended", i, step);
    bool cut = x->ends[step][i] == SL_END_CANCELLED;
    CHECK(cut ? !whole && a->count < b->count : a->count == b->count,
          "answer %d of step %d: %d of %d", i, step, a->count, b->count);
    for (int t = 0; t < a->count; t++)
      CHECK(a->tokens[t] == b->tokens[t] && a->hashes[t] == b->hashes[t],
            "token %d of answer %d of step %d: %d, alone %d", t, i, step, a->tokens[t],
            b->tokens[t]);
  }
  sl_session_destroy(one.session);
}

static void answers_are_those_of_a_session(const char *model, char *const *words, uint64_t seed) {
  served s = {0};
  run x = {.name = model, .words = words};
  rng d = {.key = seed};
  uint16_t tokens[REQUESTS * CONTEXT + 1];
  for (size_t i = 0; i < SLI_COUNT(tokens); i++) tokens[i] = (uint16_t)(rng_below(&d, 10) * i % 97);
  FILE *f = fopen("rollouts.u16", "wb");
  CHECK(f && fwrite(tokens, sizeof tokens, 1, f) == 1 && !fclose(f), "rollouts.u16");
  served_model(&s, model, words);
  for (int i = 0; i < REQUESTS; i++) batches_think(&x.requests[i], &d);
  bool whole = seed % 3;
  train_with_rollouts(&x, &s, &d, whole ? ENOUGH : 10 + (int)rng_below(&d, 30));
  compare_step(&x, &s, 0, NULL, whole);
  compare_step(&x, &s, STEPS - 1, "before.safetensors", whole);
  sl_args_destroy(s.args);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, SEEDS);
  static char *const *const words[] = {batches_gpt, batches_llama, batches_hybrid, batches_mamba2};
  static const char *const models[] = {"gpt", "llama", "hybrid", "mamba2"};
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN(answers_are_those_of_a_session, models[seed % 4], words[seed % 4], seed);
  return 0;
}
