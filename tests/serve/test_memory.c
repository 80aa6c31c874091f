/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose memory runs out gets SL_E_MEMORY from a call of the library, whatever allocation
 * the system refused, and goes on when there is memory again: training with a file of weights, a
 * session that answers, and a tokenizer. */
#include <stdatomic.h>
#include <unistd.h>

#include "base/memory.h"
#include "tests/support/session.h"
#include "tests/support/shipped.h"

/* Bytes that the system has left, and the one request that it refuses though it has enough. */
static _Atomic int64_t left, refused;
static _Atomic int64_t requests, taken;
static uint64_t answer; /* hash of the plan, or of the tokens */

/* Gives the system so much memory, and refuses a request. */
static void provide(int64_t bytes, int64_t request) {
  left = bytes;
  refused = request;
  requests = 0;
  taken = 0;
  answer = 0;
}

static bool take(void *ctx, size_t bytes) {
  (void)ctx;
  if (atomic_fetch_add(&requests, 1) == refused) return false;
  taken += (int64_t)bytes;
  if (atomic_fetch_sub(&left, (int64_t)bytes) >= (int64_t)bytes) return true;
  left += (int64_t)bytes;
  return false;
}

static void give(void *ctx, size_t bytes) {
  (void)ctx;
  left += (int64_t)bytes;
  taken -= (int64_t)bytes;
}

static const sli_allowance bound = {take, give, NULL};
#define ALL (INT64_MAX / 4)

/* ---- programs ------------------------------------------------------------------------------- */

static sl_status run_steps(const sl_lowered *lowered, sl_runtime *rt) {
  char path[] = "/tmp/sluice_memory_XXXXXX.safetensors";
  int file = mkstemps(path, 12);
  sl_job *alone = NULL;
  sl_lowered_attach((sl_lowered *)lowered, rt);
  sl_status status = sl_params_init(lowered, rt, 7);
  if (!status) status = sl_runtime_run(rt, 2);
  if (!status) status = sl_job_open(NULL, &alone);
  if (!status) status = sl_weights_save(path, lowered, rt, alone);
  if (!status) status = sl_weights_load(path, lowered, rt);
  if (alone) sl_job_close(alone);
  close(file);
  unlink(path);
  return status;
}

static sl_status train_model(sl_graph *g, const sl_args *args, const char *schedule) {
  const sl_model *const *m = sli_models;
  sl_lowered *lowered = NULL;
  sl_runtime *rt = NULL;
  while (strcmp((*m)->name, "gpt")) m++;
  sl_lower_options options = {.parallel.stages = 2, .schedule.name = schedule};
  sl_status status = sl_model_build(*m, g, args);
  if (!status) status = sl_lower(g, &options, &lowered);
  if (!status) status = sl_plan_prove(sl_lowered_plan(lowered));
  if (!status) status = sl_runtime_create(sl_lowered_plan(lowered), &(sl_runtime_options){0}, &rt);
  if (!status) status = run_steps(lowered, rt);
  if (!status) answer = sl_lowered_plan(lowered)->hash;
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  return status;
}

static sl_status train(const void *ctx) {
  char *text = shipped_text();
  char *words[] = {"--data", text,        "--layers", "2",       "--width", "16", "--heads",
                   "2",      "--context", "16",       "--batch", "4",       NULL};
  const sl_model *const *m = sli_models;
  sl_args *args;
  while (strcmp((*m)->name, "gpt")) m++;
  sl_status status = sl_args_create((*m)->options, &args);
  for (int used, i = 0; words[i] && !status; i += used)
    status = sl_args_take(args, words[i + 1] ? 2 : 1, words + i, &used);
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = 2});
  if (!status) status = train_model(g, args, ctx);
  sl_graph_destroy(g);
  sl_args_destroy(args);
  free(text);
  return status;
}

static sl_status serve(const void *ctx) {
  static const int32_t prompt[] = {3, 1, 4, 1, 5};
  served *s = (served *)ctx;
  sl_session_options options = served_options(s);
  uint64_t id, hash = SLI_HASH_SEED;
  SLI_TRY(sl_session_create(&options, &s->session));
  sl_request request = {.prompt = prompt, .nprompt = 5, .max_tokens = 8};
  sl_status status = sl_session_submit(s->session, &request, &id);
  for (sl_session_event e; !status;) {
    e = served_next(s->session);
    if (e.kind == SL_EVENT_TOKEN) hash = sli_hash_word(hash, (uint64_t)e.token);
    else if (e.end == SL_END_LENGTH) answer = hash;
    if (e.kind != SL_EVENT_TOKEN) break;
  }
  sl_status ended = sl_session_destroy(s->session);
  return status ? status : ended;
}

static sl_status encode(const void *ctx) {
  sl_tokenizer *t;
  int32_t *tokens;
  size_t count, bytes;
  SLI_TRY(sl_tokenizer_open(ctx, &t));
  char *text = sli_calloc(1, 1 << 16);
  memset(text, 'a', (1 << 16) - 1);
  sl_status status = sl_tokenizer_encode(t, text, strlen(text), true, &tokens, &count);
  free(text);
  if (!status) {
    answer = sli_hash(SLI_HASH_SEED, tokens, count * sizeof *tokens);
    free(sl_tokenizer_decode(t, tokens, count, true, &bytes));
    free(tokens);
  }
  sl_tokenizer_close(t);
  return status;
}

/* ---- claims --------------------------------------------------------------------------------- */

/* Runs a program with all memory; returns its answer. */
static uint64_t whole(sl_status (*program)(const void *ctx), const void *ctx) {
  provide(ALL, -1);
  sl_status status = program(ctx);
  CHECK(!status && answer, "with all memory: %s", sl_detail());
  return answer;
}

/* Lets memory end anywhere in a program, and come back. */
static void memory_ends(sl_status (*program)(const void *ctx), const void *ctx) {
  uint64_t expected = whole(program, ctx);
  int64_t all = taken, n = test_many(60, 20, 600), ended = 0;
  for (int64_t i = 0; i < n; i++) {
    provide(all * i / n, -1);
    sl_status status = program(ctx);
    CHECK(!status || status == SL_E_MEMORY, "%lld of %lld bytes: status %d: %s",
          (long long)(all * i / n), (long long)all, status, sl_detail());
    ended += status == SL_E_MEMORY;
    left = ALL;
    CHECK(!sli_memory_check(), "there is memory again: %s", sl_detail());
    if (i % 8 == 0) CHECK(whole(program, ctx) == expected, "the answer is the same again");
  }
  CHECK(ended > n / 2, "%lld of %lld runs end for lack of memory", (long long)ended, (long long)n);
}

/* Refuses a single request, after which the system has memory again: nothing changes. */
static void one_request_is_refused(sl_status (*program)(const void *ctx), const void *ctx) {
  uint64_t expected = whole(program, ctx);
  int64_t all = requests, step = SLI_MAX(all / test_many(60, 20, 600), 1);
  for (int64_t i = 0; i < all; i += step) {
    provide(ALL, i);
    sl_status status = program(ctx);
    CHECK(status == SL_E_MEMORY || (!status && answer == expected),
          "request %lld of %lld: status %d: %s", (long long)i, (long long)all, status, sl_detail());
  }
}

static void check_program(sl_status (*program)(const void *ctx), const void *ctx) {
  memory_ends(program, ctx);
  one_request_is_refused(program, ctx);
}

static void trained(const char *schedule) { check_program(train, schedule); }

static void served_model_answers(void) {
  static char *const small[] = {"--layers", "1",         "--width", "16", "--heads",
                                "2",        "--context", "32",      NULL};
  served s = {0};
  served_model(&s, "gpt", small);
  check_program(serve, &s);
  sl_args_destroy(s.args);
}

static void encoded(void) {
  char *path = sli_format("%s/tests/reference/tokenizers/qwen2.json", getenv("SLUICE_SOURCE"));
  check_program(encode, path);
  free(path);
}

int main(void) {
  sli_memory_bound = &bound;
  RUN(trained, "1f1b");
  RUN(trained, "auto");
  RUN(served_model_answers);
  RUN(encoded);
  return 0;
}
