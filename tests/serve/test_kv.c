/* SPDX-License-Identifier: Apache-2.0 */
/* A KV cache in bf16 takes exactly half the memory of one in fp32, so twice as many pages fit by
 * default; one in Q8_0 takes 34 bytes for 32 numbers. Answers may differ, but stay close. An op
 * that keeps f32 is refused with an error that names it. */
#include <math.h>

#include "tests/support/session.h"

static char *const words[] = {"--layers",  "3",          "--width", "192",     "--heads",
                              "6",         "--kv-heads", "2",       "--vocab", "97",
                              "--context", "256",        NULL};
enum {
  PROMPT = 100,
  PAGES = 9,
  PAGE_NUMBERS = 3 * 2 * 2 * SL_SESSION_PAGE * 32
}; /* 3 layers, keys and values, 2 heads */

static size_t bytes_of(served *s, sl_storage kv) {
  sl_session_options options = served_options(s);
  options.kv = kv;
  options.pages = PAGES;
  served_open(s, &options);
  size_t bytes = sl_device_bytes(&sl_session_about(s->session).plan->devices[0]);
  sl_session_destroy(s->session);
  return bytes;
}

static void half_the_memory_to_the_byte(served *s) {
  size_t fp32 = bytes_of(s, SL_STORAGE_F32), bf16 = bytes_of(s, SL_STORAGE_BF16),
         q8_0 = bytes_of(s, SL_STORAGE_Q8_0), fp8 = bytes_of(s, SL_STORAGE_FP8),
         half = (size_t)PAGES * PAGE_NUMBERS * 2;
  CHECK(fp32 - bf16 == half, "%zu bytes, and %zu in bf16: %zu less, not %zu", fp32, bf16,
        fp32 - bf16, half);
  CHECK(fp32 - q8_0 == 2 * half - half / 64 * 34, "%zu bytes, and %zu in Q8_0", fp32, q8_0);
  CHECK(fp32 - fp8 == 2 * half - half / 2, "%zu bytes, and %zu in fp8", fp32, fp8);
}

static float first_logprob(served *s, sl_storage kv, uint64_t *hash) {
  int32_t prompt[PROMPT];
  uint64_t id;
  sl_session_options options = served_options(s);
  options.kv = kv;
  for (int i = 0; i < PROMPT; i++) prompt[i] = i * i % 97;
  served_open(s, &options);
  CHECK(!sl_session_submit(
            s->session, &(sl_request){.prompt = prompt, .nprompt = PROMPT, .max_tokens = 1}, &id),
        "%s", sl_detail());
  sl_session_event e = served_next(s->session);
  CHECK(e.kind == SL_EVENT_TOKEN, "it is answered");
  *hash = e.hash;
  sl_session_destroy(s->session);
  return e.logprob;
}

static void near_what_it_is_in_fp32(served *s) {
  uint64_t hashes[4];
  float fp32 = first_logprob(s, SL_STORAGE_F32, &hashes[0]),
        bf16 = first_logprob(s, SL_STORAGE_BF16, &hashes[1]),
        q8_0 = first_logprob(s, SL_STORAGE_Q8_0, &hashes[2]),
        fp8 = first_logprob(s, SL_STORAGE_FP8, &hashes[3]);
  CHECK(fabsf(fp32 - bf16) < 1e-3f, "%g and %g", (double)fp32, (double)bf16);
  CHECK(fabsf(fp32 - q8_0) < 5e-3f, "%g and, in Q8_0, %g", (double)fp32, (double)q8_0);
  CHECK(fabsf(fp32 - fp8) < 5e-2f, "%g and, in fp8, %g", (double)fp32, (double)fp8);
  CHECK(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[0] != hashes[3],
        "the logits are others");
}

/* ---- a user-defined op with a cache ---------------------------------------------------------- */

static sl_status same(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  out[0] = in[0];
  if (attrs->pages.count) out[1] = SL_TYPE(SL_F32, attrs->pages.count, 8);
  return SL_OK;
}

static void pass_on(const sl_call *call) {
  memcpy(call->out[0], call->in[0], sl_type_bytes(&call->in_type[0]));
}

static const sl_op remember_served = {.name = "remember_served",
                                      .min_in = 2,
                                      .max_in = 2,
                                      .nout = 2,
                                      .memory = &(const sl_op_memory){.updates = 2},
                                      .infer = same,
                                      .kernels = SL_CPU_KERNEL(pass_on),
                                      .rows = &(const sl_op_rows){.looks = 1, .follows = 1}};
static const sl_op remember = {.name = "remember",
                               .min_in = 1,
                               .max_in = 1,
                               .nout = 1,
                               .infer = same,
                               .kernels = SL_CPU_KERNEL(pass_on),
                               .serve = &(const sl_op_serve){.op = &remember_served}};

static sl_status build(sl_graph *g, const sl_args *args) {
  (void)args;
  sl_tensor *next, *ids = sl_tokens(g, "", 1, 64, 11, &next), *y = NULL;
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, 11, 8), SL_NORMAL(1), "table"),
            *x = sl_embedding(g, ids, table);
  sl_apply(g, &remember, NULL, 1, &x, 0, &y);
  sl_output(g, "logits", sl_linear(g, y, table, NULL));
  return sl_graph_status(g);
}
static const sl_option none[] = {{0}};
static const sl_model remembers = {.name = "remembers", .options = none, .build = build};

static void what_keeps_f32_is_refused(void) {
  served s = {.model = &remembers};
  sl_session_info about;
  CHECK(!sl_args_create(none, &s.args), "%s", sl_detail());
  sl_session_options options = served_options(&s);
  CHECK(!sl_session_check(&options, &about), "beside fp32 it is served: %s", sl_detail());
  options.kv = SL_STORAGE_BF16;
  CHECK(sl_session_check(&options, &about) == SL_E_UNSUPPORTED && strstr(sl_detail(), "remember") &&
            strstr(sl_detail(), "f32, not in bf16"),
        "%s", sl_detail());
  options.kv = SL_STORAGE_Q8_0;
  CHECK(sl_session_check(&options, &about) == SL_E_UNSUPPORTED &&
            strstr(sl_detail(), "f32, not in Q8_0"),
        "%s", sl_detail());
  options.kv = SL_STORAGE_FP8;
  CHECK(sl_session_check(&options, &about) == SL_E_UNSUPPORTED &&
            strstr(sl_detail(), "f32, not in fp8"),
        "%s", sl_detail());
  sl_args_destroy(s.args);
}

int main(void) {
  served s = {0};
  served_model(&s, "llama", words);
  RUN(half_the_memory_to_the_byte, &s);
  RUN(near_what_it_is_in_fp32, &s);
  RUN(what_keeps_f32_is_refused);
  sl_args_destroy(s.args);
  return 0;
}
