/* SPDX-License-Identifier: Apache-2.0 */
/* Penalties, biases and min_tokens choose the same tokens as a plain reference in Python
 * (tests/reference/penalties.json). With them, an answer has the same tokens alone, in a batch, and
 * after preemption. Stop tokens appear only when allowed.
 * labels: smoke */
#include <cjson/cJSON.h>
#include <math.h>

#include <sluice/batch.h>

#include "io/file.h"
#include "ops/ops.h"
#include "serve/serve.h"
#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"
#include "tests/support/session.h"

/* ---- against a reference --------------------------------------------------------------------- */

enum { MOST = 64 };

static const cJSON *member(const cJSON *of, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(of, name);
}

static float number(const cJSON *of, const char *name) {
  return (float)member(of, name)->valuedouble;
}

static int tokens_of(const cJSON *of, const char *name, int32_t *out) {
  const cJSON *each;
  int n = 0;
  cJSON_ArrayForEach(each, member(of, name)) {
    CHECK(n < MOST, "few tokens");
    out[n++] = each->valueint;
  }
  return n;
}

static int biases_of(const cJSON *of, sl_bias *out) {
  const cJSON *each;
  int n = 0;
  cJSON_ArrayForEach(each, member(of, "bias")) out[n++] =
      (sl_bias){atoi(each->string), (float)each->valuedouble};
  return n;
}

typedef struct sampler {
  kernel k;
  sl_batch *batch;
  int vocabulary;
} sampler;

static sampler make_sampler(int vocabulary) {
  int64_t ints = (int64_t)(sl_batch_bytes(1, 1, 1, 1) + MOST * sizeof(sl_batch_edit)) / 4;
  const sl_type in[] = {SL_TYPE(SL_F32, 1, 1, vocabulary), SL_TYPE(SL_I32, ints)};
  sampler s = {.k = kernel_create(&sl_op_sample, (sl_attrs){.sampling.words = MOST}, 2, in, 1),
               .vocabulary = vocabulary};
  s.batch = s.k.in[1];
  *s.batch = (sl_batch){.rows = 1,
                        .sequences = 1,
                        .picks = 1,
                        .most_rows = 1,
                        .most_sequences = 1,
                        .most_picks = 1,
                        .pages = 1,
                        .most_edits = MOST};
  *(int32_t *)sl_batch_sequence_of(s.batch) = *(int32_t *)sl_batch_pick(s.batch) =
      *(int32_t *)sl_batch_given(s.batch) = 0;
  return s;
}

static int32_t choose(sampler *s, const cJSON *one) {
  int32_t prompt[MOST], answer[MOST], stop[MOST];
  sl_bias bias[MOST];
  sl_request q = {.prompt = prompt,
                  .nprompt = tokens_of(one, "prompt", prompt),
                  .stop = stop,
                  .nstop = tokens_of(one, "stop", stop),
                  .bias = bias,
                  .nbias = biases_of(one, bias),
                  .min_tokens = member(one, "min_tokens")->valueint,
                  .repetition_penalty = number(one, "repetition"),
                  .presence_penalty = number(one, "presence"),
                  .frequency_penalty = number(one, "frequency")};
  int nanswer = tokens_of(one, "answer", answer);
  sli_edits *edits = sli_edits_create(&q);
  for (int i = 0; i < nanswer && edits; i++) sli_edits_note(edits, answer[i]);
  CHECK(!edits || sli_edits_count(edits) <= s->vocabulary, "one edit for each token");
  sl_batch_sequence how = {.logprobs = -1};
  if (edits)
    how.edits = (int32_t)sli_edits_write(edits, nanswer, 0, NULL,
                                         (sl_batch_edit *)sl_batch_edits(s->batch));
  *(sl_batch_sequence *)sl_batch_settings(s->batch) = how;
  float *logits = s->k.in[0];
  for (int v = 0; v < s->vocabulary; v++)
    logits[v] = (float)cJSON_GetArrayItem(member(one, "logits"), v)->valuedouble;
  kernel_run(&s->k, NULL);
  sli_edits_free(edits);
  return ((const sl_sampled *)s->k.out[0])->token;
}

static void tokens_are_those_of_the_reference(void) {
  char *path = sli_format("%s/tests/reference/penalties.json", getenv("SLUICE_SOURCE")), *text;
  CHECK(!sli_file_read(path, &text), "%s", sl_detail());
  cJSON *root = cJSON_Parse(text);
  const cJSON *one;
  sampler s = make_sampler(member(root, "vocabulary")->valueint);
  int n = 0;
  cJSON_ArrayForEach(one, member(root, "cases")) {
    int32_t got = choose(&s, one), want = member(one, "token")->valueint;
    CHECK(got == want, "case %d chooses %d and not %d", n, got, want);
    n++;
  }
  CHECK(n == 160, "%d cases", n);
  kernel_destroy(&s.k);
  cJSON_Delete(root);
  free(text);
  free(path);
}

/* ---- in a session ---------------------------------------------------------------------------- */

enum { REQUESTS = 12, TOKENS = 60, PROMPT = 60 };

static char *const small[] = {"--layers", "2",         "--width", "32", "--heads",
                              "4",        "--context", "192",     NULL};

typedef struct asked {
  sl_request q;
  int32_t prompt[PROMPT], stop[2];
  sl_bias bias[40];
} asked;

static void draw(asked *a, uint64_t seed) {
  rng d = {.key = seed};
  a->q = (sl_request){.prompt = a->prompt,
                      .nprompt = 1 + rng_below(&d, PROMPT),
                      .stop = a->stop,
                      .nstop = 2,
                      .bias = a->bias,
                      .nbias = (int)rng_below(&d, 2) * (int)rng_below(&d, 40),
                      .max_tokens = TOKENS,
                      .min_tokens = rng_below(&d, 3) ? 0 : rng_below(&d, TOKENS),
                      .temperature = rng_below(&d, 3) ? 1.3f : 0,
                      .min_p = rng_below(&d, 3) ? 0 : 0.2f,
                      .repetition_penalty = rng_below(&d, 2) ? 1.3f : 0,
                      .presence_penalty = rng_below(&d, 2) ? 0.5f : 0,
                      .frequency_penalty = rng_below(&d, 2) ? 0.25f : 0,
                      .seed = seed,
                      .logprobs = -1};
  for (int i = 0; i < PROMPT; i++) a->prompt[i] = (int32_t)rng_below(&d, 256);
  for (int i = 0; i < 2; i++) a->stop[i] = (int32_t)rng_below(&d, 256);
  for (int i = 0; i < 40; i++)
    a->bias[i] = (sl_bias){(int32_t)rng_below(&d, 7) + 7 * i % 256, (float)rng_below(&d, 9) - 4};
}

typedef struct answer {
  int32_t tokens[TOKENS];
  int64_t count;
} answer;

/* Sends requests [from, end) concurrently and collects their answers. */
static void answer_all(sl_session *s, int from, int end, answer *out) {
  static asked all[REQUESTS];
  uint64_t ids[REQUESTS];
  for (int i = from; i < end; i++) {
    draw(&all[i], (uint64_t)i + 1);
    out[i].count = 0;
    CHECK(!sl_session_submit(s, &all[i].q, &ids[i]), "%s", sl_detail());
  }
  for (int left = end - from; left;) {
    sl_session_event e = served_next(s);
    int i = from;
    while (ids[i] != e.id) i++;
    if (e.kind == SL_EVENT_TOKEN) out[i].tokens[out[i].count++] = e.token;
    else left--;
    CHECK(e.kind == SL_EVENT_TOKEN || e.end == SL_END_STOP || e.end == SL_END_LENGTH, "it ends");
  }
}

/* Few pages force preemption; many rows put all requests into one tick. */
static void answers_are_their_own(void) {
  served s = {0};
  answer alone[REQUESTS], together[REQUESTS];
  int n = served_on_cpus() ? REQUESTS : 8; /* emulated GPUs are slow */
  uint64_t preemptions = 0;
  served_model(&s, "gpt", small);
  for (int few = 0; few < 2; few++) {
    sl_session_options o = served_options(&s);
    o.penalties = true;
    o.admit = SL_ADMIT_RECOMPUTE;
    o.pages = few ? 5 : 0;
    o.rows = few ? 9 : 64;
    o.sequences = few ? 5 : 16;
    o.speculation = (sl_speculation){.tokens = few ? 3 : 6, .always = true};
    served_open(&s, &o);
    for (int i = 0; i < n && !few; i++) answer_all(s.session, i, i + 1, alone);
    answer_all(s.session, 0, n, together);
    for (int i = 0; i < n; i++)
      CHECK(together[i].count == alone[i].count &&
                !memcmp(together[i].tokens, alone[i].tokens,
                        (size_t)alone[i].count * sizeof *alone[i].tokens),
            "request %d has its own answer, %s", i, few ? "with few pages" : "beside others");
    preemptions = sl_session_stat(s.session).preemptions;
    sl_session_destroy(s.session);
  }
  CHECK(preemptions > (uint64_t)n / 3, "%d requests give up their pages", (int)preemptions);
  sl_args_destroy(s.args);
}

/* Makes the first token that comes without min_tokens a stop token: with min_tokens it comes only
 * after that many. */
static void stop_tokens_wait(sl_session *s) {
  static const int32_t prompt[] = {3, 1, 4};
  sl_request q = {.prompt = prompt, .nprompt = 3, .max_tokens = 30, .logprobs = -1};
  uint64_t id;
  int32_t first = -1, banned = 0;
  CHECK(!sl_session_submit(s, &q, &id), "%s", sl_detail());
  for (sl_session_event e; (e = served_next(s)).kind == SL_EVENT_TOKEN;)
    if (!e.place) first = e.token;
  q.stop = &first;
  q.nstop = 1;
  q.min_tokens = 7;
  CHECK(!sl_session_submit(s, &q, &id), "%s", sl_detail());
  for (sl_session_event e; (e = served_next(s)).kind == SL_EVENT_TOKEN;)
    banned += e.token == first && e.place < 7;
  CHECK(!banned, "it does not come before");
  const sl_bias never = {first, -INFINITY};
  q = (sl_request){
      .prompt = prompt, .nprompt = 3, .max_tokens = 30, .logprobs = -1, .bias = &never, .nbias = 1};
  CHECK(!sl_session_submit(s, &q, &id), "%s", sl_detail());
  for (sl_session_event e; (e = served_next(s)).kind == SL_EVENT_TOKEN;)
    CHECK(e.token != first, "a token that is banned");
}

static void refused(sl_session *s, const sl_request *q, const char *says) {
  uint64_t id;
  CHECK(sl_session_submit(s, q, &id) == SL_E_USAGE && strstr(sl_detail(), says), "%s: %s", says,
        sl_detail());
}

static void wrong_settings_are_refused(sl_session *s, sl_session *without) {
  static const int32_t prompt[] = {3};
  const sl_bias far = {256, 1}, infinite = {1, INFINITY};
  const sl_request good = {.prompt = prompt, .nprompt = 1, .max_tokens = 4};
  sl_request q = good;
  q.presence_penalty = NAN, refused(s, &q, "presence_penalty");
  q = good, q.repetition_penalty = -1, refused(s, &q, "repetition_penalty");
  q = good, q.min_p = 2, refused(s, &q, "min_p");
  q = good, q.min_tokens = 5, refused(s, &q, "min_tokens is 5");
  q = good, q.bias = &far, q.nbias = 1, refused(s, &q, "token 256");
  q = good, q.bias = &infinite, q.nbias = 1, refused(s, &q, "bias for token 1");
  q = good, q.frequency_penalty = 1, refused(without, &q, "does not support");
}

int main(void) {
  RUN(tokens_are_those_of_the_reference);
  RUN(answers_are_their_own);
  served s = {0};
  served_model(&s, "gpt", small);
  sl_session_options o = served_options(&s);
  sl_session *without;
  CHECK(!sl_session_create(&o, &without), "%s", sl_detail());
  o.penalties = true;
  served_open(&s, &o);
  RUN(stop_tokens_wait, s.session);
  RUN(wrong_settings_are_refused, s.session, without);
  sl_session_destroy(without);
  served_close(&s);
  return 0;
}
