/* SPDX-License-Identifier: Apache-2.0 */
/* Weights kept in memory in their GGUF format give the same logits as in f32 within 1e-5, with the
 * same bits on any number of stages and tensor-parallel devices. They take the same room as in the
 * file; bf16 takes half of f32. */
#include <math.h>
#include <stdlib.h>

#include "tests/support/session.h"

static char *const tiny[] = {"--layers",   "2",  "--width", "32",    "--heads", "4",
                             "--kv-heads", "2",  "--ffn",   "64",    "--vocab", "256",
                             "--context",  "64", "--theta", "20000", NULL};
enum { MOST = 20 };

static sl_status load_file(void *path, const sl_lowered *lowered, sl_runtime *rt) {
  return sl_weights_load(path, lowered, rt);
}

static int64_t parameter_bytes(const sl_plan *plan) {
  int64_t bytes = 0;
  for (int32_t r = 0; r < plan->nregs; r++)
    if (plan->regs[r].memory == SL_MEMORY_PARAMETERS) bytes += (int64_t)plan->regs[r].slot_bytes;
  return bytes;
}

/* A token of an answer, its log-probability, and a hash of its logits. */
typedef struct told {
  int32_t token;
  float logprob;
  uint64_t hash;
} told;

/* Stores the tokens of an answer; returns the bytes of the parameters. */
static int64_t ask(served *s, char *path, const char *stored, sl_dtype dtype, int stages,
                   int tensor, told *out) {
  int32_t prompt[30];
  for (int i = 0; i < 30; i++) prompt[i] = i * 7 % 90;
  sl_session_options options = served_options(s);
  options.load = load_file;
  options.load_ctx = path;
  options.stored = stored;
  options.lower.numbers.dtype = dtype;
  options.lower.parallel.stages = stages;
  options.lower.parallel.tensor = tensor;
  served_open(s, &options);
  uint64_t id;
  memset(out, 0, MOST * sizeof *out);
  CHECK(!sl_session_submit(s->session,
                           &(sl_request){.prompt = prompt, .nprompt = 30, .max_tokens = MOST}, &id),
        "%s", sl_detail());
  for (sl_session_event e; (e = served_next(s->session)).kind == SL_EVENT_TOKEN;)
    out[e.place] = (told){e.token, e.logprob, e.hash};
  int64_t bytes = parameter_bytes(sl_session_about(s->session).plan);
  sl_session_destroy(s->session);
  return bytes;
}

static void check_close(const told *a, const told *b) {
  for (int i = 0; i < MOST; i++)
    CHECK(a[i].token == b[i].token && fabsf(a[i].logprob - b[i].logprob) < 1e-5f,
          "token %d: %d of %g, in f32 %d of %g", i, b[i].token, (double)b[i].logprob, a[i].token,
          (double)a[i].logprob);
}

static bool same_hashes(const told *a, const told *b) {
  int i = 0;
  while (i < MOST && a[i].hash == b[i].hash) i++;
  return i == MOST;
}

int main(void) {
  char *path = sli_format("%s/tests/reference/gguf/tiny.gguf", getenv("SLUICE_SOURCE"));
  served s = {0};
  told plain[MOST], stored[2][MOST], rounded[MOST];
  served_model(&s, "llama", tiny);
  int64_t all = ask(&s, path, NULL, SL_F32, 1, 1, plain);
  for (int stages = 1; stages <= 2; stages++) {
    int64_t bytes = ask(&s, path, path, SL_F32, stages, 1, stored[stages - 1]);
    check_close(plain, stored[stages - 1]);
    CHECK(bytes < all / 2, "%d stages: %lld bytes, in f32 %lld", stages, (long long)bytes,
          (long long)all);
  }
  CHECK(same_hashes(stored[0], stored[1]), "the logits of two stages are those of one");
  for (int tensor = 2; tensor <= 3; tensor++) { /* the parts cut groups of rows */
    ask(&s, path, path, SL_F32, 1, tensor, stored[1]);
    CHECK(same_hashes(stored[0], stored[1]), "the logits of %d devices are those of one", tensor);
  }
  int64_t half = ask(&s, path, NULL, SL_BF16, 1, 1, rounded);
  CHECK(half < all * 6 / 10 && !same_hashes(plain, rounded), "bf16 rounds");
  sl_args_destroy(s.args);
  free(path);
  return 0;
}
