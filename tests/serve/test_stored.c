/* Weights that lie in memory as a GGUF file has them give the bits of logits that they give in f32, and take the room
 * that they take in the file; bf16 takes half. */
#include <stdlib.h>

#include "tests/support/session.h"

static char *const tiny[] = {"--layers", "2", "--width", "32", "--heads", "4", "--kv-heads", "2", "--ffn", "64", "--vocab", "256",
                             "--context", "64", "--theta", "20000", NULL};
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

/* Hashes of the logits of an answer; returns what the parameters take. */
static int64_t ask(served *s, char *path, const char *stored, sl_dtype dtype, int stages, uint64_t *hashes) {
  int32_t prompt[30];
  for (int i = 0; i < 30; i++) prompt[i] = i * 7 % 90;
  sl_session_options options = served_options(s);
  options.load = load_file;
  options.load_ctx = path;
  options.stored = stored;
  options.lower.dtype = dtype;
  options.lower.stages = stages;
  served_open(s, &options);
  uint64_t id;
  CHECK(!sl_session_submit(s->session, &(sl_request){.prompt = prompt, .nprompt = 30, .max_tokens = MOST}, &id), "%s",
        sl_detail());
  for (sl_session_event e; (e = served_next(s->session)).kind == SL_EVENT_TOKEN;) hashes[e.place] = e.hash;
  int64_t bytes = parameter_bytes(sl_session_about(s->session).plan);
  sl_session_destroy(s->session);
  return bytes;
}

int main(void) {
  char *path = sli_format("%s/tests/reference/gguf/tiny.gguf", getenv("SLUICE_SOURCE"));
  served s = {0};
  uint64_t plain[MOST], stored[MOST], rounded[MOST];
  served_model(&s, "llama", tiny);
  int64_t all = ask(&s, path, NULL, SL_F32, 1, plain);
  for (int stages = 1; stages <= 2; stages++) {
    memset(stored, 0, sizeof stored);
    int64_t bytes = ask(&s, path, path, SL_F32, stages, stored);
    CHECK(!memcmp(plain, stored, sizeof plain), "%d stages: the logits are those of f32", stages);
    CHECK(bytes < all / 2, "%d stages: %lld bytes, in f32 %lld", stages, (long long)bytes, (long long)all);
  }
  int64_t half = ask(&s, path, NULL, SL_BF16, 1, rounded);
  CHECK(half < all * 6 / 10 && memcmp(plain, rounded, sizeof plain), "bf16 rounds");
  sl_args_destroy(s.args);
  free(path);
  return 0;
}
