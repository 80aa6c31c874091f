/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts come from the longest earlier match. Repetitive answers take fewer ticks and keep their
 * tokens. Drafts that do not pay, judged by acceptance and tick times, are paused and retried
 * later. Models with states refuse drafts. A draft model identical to the model is always right.
 * Another draft model drafts what it would answer after the same tokens, whatever was wrong before,
 * and answers keep their tokens.
 * labels: random */
#include "serve/lookup.h"
#include "serve/serve.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/session.h"

/* ---- lookup ---------------------------------------------------------------------------------- */

enum { TEXT = 300, DRAFTED = 5, LEAST = 2 };

/* Finds the longest match by comparing with every position; among equal ones the newest. */
static int look(const int32_t *tokens, int count, int *length) {
  int best = 0;
  *length = 0;
  for (int end = count - 1; end >= LEAST; end--) {
    int n = 0;
    while (n < end && n < SLI_LOOKUP_LONGEST && tokens[end - 1 - n] == tokens[count - 1 - n]) n++;
    if (n >= LEAST && n > *length) *length = n, best = end;
  }
  return best;
}

static void matches_are_the_longest(uint64_t seed) {
  rng d = {.key = seed};
  int32_t tokens[TEXT + DRAFTED], out[DRAFTED];
  uint32_t letters = 3 + rng_below(&d, 20);
  sli_lookup *l = sli_lookup_create();
  int found = 0;
  for (int i = 0; i < TEXT; i++) tokens[i] = (int32_t)rng_below(&d, letters);
  for (int n = 1; n <= TEXT; n += 1 + (int)rng_below(&d, 5)) {
    int length, want, from = look(tokens, n, &want);
    int got = sli_lookup_find(l, tokens, n, LEAST, DRAFTED, out, &length);
    CHECK(got == (from ? DRAFTED : 0) && (!from || length == want),
          "a match of %d behind %d tokens, not %d, seed %llu", length, n, want,
          (unsigned long long)seed);
    for (int i = 0; i < got && from + i < n; i++)
      CHECK(out[i] == tokens[from + i], "token %d of a draft behind %d, seed %llu", i, n,
            (unsigned long long)seed);
    found += from > 0;
  }
  CHECK(found, "texts of few letters repeat themselves");
  sli_lookup_destroy(l);
}

static void a_period_goes_on(void) {
  static const int32_t tokens[] = {1, 2, 3, 1, 2, 3, 1, 2}, want[] = {3, 1, 2, 3, 1, 2};
  int32_t out[6];
  int length;
  sli_lookup *l = sli_lookup_create();
  CHECK(sli_lookup_find(l, tokens, 8, 2, 6, out, &length) == 6 && length == 5, "five match");
  CHECK(!memcmp(out, want, sizeof want), "and go on behind the end");
  CHECK(!sli_lookup_find(l, tokens, 8, 6, 6, out, &length), "no six do");
  sli_lookup_destroy(l);
}

/* ---- whether drafts pay -----------------------------------------------------------------------
 */

static int worth(sl_session *s, const request *r, int n) {
  double tokens = 1;
  return sli_drafts_worth(s, r, n, 1, &tokens);
}

static void note(sl_session *s, request *r, int drafted, int right, int times) {
  for (int i = 0; i < times; i++) {
    r->draft.count = drafted;
    sli_drafts_note(s, r, right);
  }
}

static void drafts_are_made_as_long_as_they_pay(void) {
  static sl_session s;
  request r = {.draft.match = 2}, far = {.draft.match = 40};
  CHECK(!worth(&s, &r, 4), "no tick is measured");
  for (int i = 0; i < 50; i++) sli_drafts_time(&s.speculation.drafts, 1, 1);
  CHECK(worth(&s, &r, 4) == 4, "one is, so that longer ones are tried");
  for (int i = 0; i < 50; i++) sli_drafts_time(&s.speculation.drafts, 5, 1.5);
  CHECK(worth(&s, &r, 4) == 4, "ticks of five rows take little longer");
  note(&s, &r, 4, 0, 50);
  CHECK(!worth(&s, &r, 4), "but nothing was right");
  CHECK(worth(&s, &far, 4) == 4, "which says nothing about long matches");
  int skipped = 0;
  while (!worth(&s, &r, 4)) skipped++;
  CHECK(skipped > 50 && skipped < 1000, "it is tried again after %d", skipped);
  note(&s, &r, 4, 4, 500);
  for (int i = 0; i < 100; i++) sli_drafts_time(&s.speculation.drafts, 5, 6);
  CHECK(!worth(&s, &r, 4), "all are right, but a tick of five takes six times as long");
  CHECK(s.stats.rounds == 550 && s.stats.drafted == 2200, "and is counted");
}

/* Asking a draft model costs time as well. */
static void drafting_pays_too(void) {
  static sl_session s = {.speculation.drafter = &sli_drafter_model,
                         .options.speculation.tokens = 4};
  request r = {.how.max_tokens = 100, .text.most = 100};
  part p = {.request = &r};
  draft d = {.part = &p, .most = 4};
  const load l = {.rows = 1, .picks = 1};
  for (int i = 0; i < 50; i++) sli_drafts_time(&s.speculation.drafts, 1, 1);
  for (int i = 0; i < 50; i++) sli_drafts_time(&s.speculation.drafts, 5, 1.1);
  sli_drafts_limit(&s, 1, &d, &l, 60);
  CHECK(!d.most, "the first ticks have no drafts");
  s.speculation.drafts.occasions = 5;
  d.most = 4;
  sli_drafts_limit(&s, 1, &d, &l, 60);
  CHECK(d.most == 4, "nothing is known of how long it takes");
  s.speculation.drafts.drafting[1] = (sli_draft_time){0.2, 8};
  note(&s, &r, 4, 2, 50);
  sli_drafts_limit(&s, 1, &d, &l, 60);
  CHECK(d.most == 2, "a fifth of a tick for each is worth two that are often right, not %d",
        d.most);
  s.speculation.drafts.drafting[1] = (sli_draft_time){1, 8};
  int skipped = -1;
  do {
    d.most = 4;
    sli_drafts_limit(&s, 1, &d, &l, 60);
    skipped++;
  } while (!d.most);
  CHECK(skipped > 50 && skipped < 1000, "as long as a tick is too long, tried again after %d",
        skipped);
  d.most = 4;
  s.speculation.drafts.drafting[1] = (sli_draft_time){0};
  sli_drafts_limit(&s, 1, &d, &l, 3);
  CHECK(d.most <= 3, "no more than there are rows for");
  s.options.speculation.always = true;
  d.most = 4;
  sli_drafts_limit(&s, 1, &d, &l, 2);
  CHECK(d.most == 2, "also where it need not pay");
}

/* ---- in sessions -------------------------------------------------------------------------------
 */

static char *const small[] = {"--layers", "2",         "--width", "32", "--heads",
                              "4",        "--context", "256",     NULL};
enum { TOKENS = 200 };

static uint64_t write_greedily(served *s, const sl_speculation *how, int32_t *out) {
  static const int32_t prompt[] = {3, 1, 4, 1, 5};
  sl_session_options options = served_options(s);
  options.speculation = *how;
  served_open(s, &options);
  sl_request r = {.prompt = prompt, .nprompt = 5, .max_tokens = TOKENS, .logprobs = 3};
  uint64_t id;
  CHECK(!sl_session_submit(s->session, &r, &id), "%s", sl_detail());
  for (sl_session_event e; (e = served_next(s->session)).kind == SL_EVENT_TOKEN;) {
    CHECK(e.top[0].token == e.token, "the likeliest is told with its own token");
    out[e.place] = e.token;
  }
  sl_session_stats stats = sl_session_stat(s->session);
  CHECK(stats.tokens == TOKENS && stats.accepted <= stats.drafted, "tokens are counted");
  CHECK(stats.ticks + stats.accepted == TOKENS, "%llu ticks, and %llu of drafts",
        (unsigned long long)stats.ticks, (unsigned long long)stats.accepted);
  sl_session_destroy(s->session);
  return stats.ticks;
}

static void what_repeats_itself_takes_fewer_ticks(void) {
  static int32_t plain[TOKENS], drafted[TOKENS];
  served s = {0};
  served_model(&s, "gpt", small);
  uint64_t ticks = write_greedily(&s, &(sl_speculation){0}, plain);
  uint64_t fewer = write_greedily(&s, &(sl_speculation){.tokens = 6, .always = true}, drafted);
  CHECK(!memcmp(plain, drafted, sizeof plain), "the same tokens");
  CHECK(ticks == TOKENS && fewer < TOKENS / 2, "%llu ticks", (unsigned long long)fewer);
  write_greedily(&s, &(sl_speculation){.tokens = 6}, drafted);
  CHECK(!memcmp(plain, drafted, sizeof plain), "the same tokens where it must pay");
  sl_args_destroy(s.args);
}

/* ---- draft models ------------------------------------------------------------------------------
 */

enum { WAYS = 5, PLAIN = 3, EVERY = 5, LENGTH = 5, PROMPT = 70 };

static sl_status load_others(void *ctx, const sl_lowered *lowered, sl_runtime *rt) {
  (void)ctx;
  return sl_params_init(lowered, rt, 7 + 1);
}

/* A constraint: the sum of two neighbouring tokens in an answer is a multiple of EVERY. */
static bool neighbours_allow(void *ctx, int n, const int32_t *drafted, uint32_t *allowed) {
  int32_t last = n ? drafted[n - 1] : *(const int32_t *)ctx;
  for (int32_t v = (EVERY - last % EVERY) % EVERY; v < 256; v += EVERY)
    allowed[v / 32] |= UINT32_C(1) << v % 32;
  return true;
}

static bool neighbours_take(void *ctx, int32_t token) {
  *(int32_t *)ctx = token;
  return false;
}

/* Returns a kind of request: greedy, sampled, with penalties, or with a constraint. */
static sl_request way_of(int way, const int32_t *prompt, int64_t n, int64_t tokens) {
  static const sl_bias bias = {65, 3};
  return (sl_request){.prompt = prompt,
                      .nprompt = n,
                      .max_tokens = tokens,
                      .logprobs = -1,
                      .temperature = way ? 0.9f : 0,
                      .top_k = way > 1 ? 40 : 0,
                      .seed = 11 + (uint64_t)way,
                      .repetition_penalty = way == 3 ? 1.3f : 0,
                      .frequency_penalty = way == 3 ? 0.4f : 0,
                      .bias = &bias,
                      .nbias = way == 3};
}

/* Sends the first `ways` kinds of requests concurrently; returns the final counts. */
static sl_session_stats ask_all(served *s, const sl_session_options *options, int ways,
                                int32_t (*out)[TOKENS]) {
  static int32_t prompt[PROMPT];
  int32_t last[WAYS] = {0};
  for (int i = 0; i < PROMPT; i++) prompt[i] = i * 7 % 256;
  served_open(s, options);
  for (int w = 0; w < ways; w++) {
    sl_request r = way_of(w, prompt, PROMPT, TOKENS - PROMPT);
    r.user = out[w];
    if (w > 3) r.constraint = (sl_constraint){neighbours_allow, neighbours_take, &last[w]};
    uint64_t id;
    memcpy(out[w], prompt, sizeof prompt);
    CHECK(!sl_session_submit(s->session, &r, &id), "%s", sl_detail());
  }
  for (int ended = 0; ended < ways;) {
    sl_session_event e = served_next(s->session);
    ended += e.kind == SL_EVENT_END;
    if (e.kind == SL_EVENT_TOKEN) ((int32_t *)e.user)[PROMPT + e.place] = e.token;
  }
  sl_session_stats stats = sl_session_stat(s->session);
  sl_session_destroy(s->session);
  return stats;
}

static void the_model_itself_is_always_right(void) {
  static int32_t plain[WAYS][TOKENS], drafted[WAYS][TOKENS];
  served s = {0};
  served_model(&s, "gpt", small);
  sl_session_options options = served_options(&s), draft = options;
  options.penalties = options.constraints = true;
  ask_all(&s, &options, WAYS, plain);
  options.speculation = (sl_speculation){.tokens = LENGTH, .always = true, .draft = &draft};
  sl_session_stats x = ask_all(&s, &options, WAYS, drafted);
  CHECK(!memcmp(plain, drafted, sizeof plain), "the same tokens");
  CHECK(x.accepted == x.drafted && x.checked == x.drafted, "%llu of %llu are right",
        (unsigned long long)x.accepted, (unsigned long long)x.drafted);
  CHECK(x.rounds <= WAYS * (TOKENS - PROMPT + LENGTH) / (LENGTH + 1), "in %llu drafts",
        (unsigned long long)x.rounds);
  options.rows = 12;
  x = ask_all(&s, &options, WAYS, drafted);
  CHECK(!memcmp(plain, drafted, sizeof plain), "the same tokens in small ticks");
  CHECK(x.accepted == x.drafted && x.accepted > TOKENS, "%llu of %llu are right in small ticks",
        (unsigned long long)x.accepted, (unsigned long long)x.drafted);
  options.speculation.always = false;
  ask_all(&s, &options, WAYS, drafted);
  CHECK(!memcmp(plain, drafted, sizeof plain), "the same tokens where it must pay");
  sl_args_destroy(s.args);
}

/* Counts the tokens of an answer that the draft model would draft after the first `count`. */
static int count_alike(sl_session *s, int way, const int32_t *tokens, int64_t count, int most) {
  sl_request r = way_of(way, tokens, count, most);
  uint64_t id;
  int same = 0;
  CHECK(!sl_session_submit(s, &r, &id), "%s", sl_detail());
  for (sl_session_event e; (e = served_next(s)).kind == SL_EVENT_TOKEN;)
    same += same == e.place && e.token == tokens[count + e.place];
  return same;
}

/* Penalties are left out: they count tokens of the answer, which a new request has in its
 * prompt. */
static void another_model_drafts_what_it_answers(void) {
  static int32_t plain[PLAIN][TOKENS], drafted[PLAIN][TOKENS];
  served s = {0};
  served_model(&s, "gpt", small);
  sl_session_options options = served_options(&s), draft = options;
  options.rows = 24;
  draft.load = load_others;
  ask_all(&s, &options, PLAIN, plain);
  options.speculation = (sl_speculation){.tokens = LENGTH, .always = true, .draft = &draft};
  sl_session_stats x = ask_all(&s, &options, PLAIN, drafted);
  CHECK(!memcmp(plain, drafted, sizeof plain), "the same tokens");
  served_open(&s, &draft);
  uint64_t right = 0;
  for (int w = 0; w < PLAIN; w++)
    for (int64_t at = PROMPT + 1, n; at < TOKENS; at += n + 1) {
      int most = (int)SLI_MIN(LENGTH, TOKENS - at - 1);
      n = most ? count_alike(s.session, w, plain[w], at, most) : 0;
      right += (uint64_t)n;
    }
  CHECK(right == x.accepted && right && x.accepted < x.drafted, "%llu of %llu are right, not %llu",
        (unsigned long long)x.accepted, (unsigned long long)x.drafted, (unsigned long long)right);
  served_close(&s);
}

static sl_status load_nan(void *ctx, const sl_lowered *lowered, sl_runtime *rt) {
  const sl_plan *plan = sl_lowered_plan(lowered);
  sl_status status = served_load(ctx, lowered, rt);
  for (int32_t r = 0; r < plan->nregs && !status; r++) {
    const sl_register *reg = &plan->regs[r];
    if (reg->memory != SL_MEMORY_PARAMETERS) continue;
    char *bits = malloc(reg->slot_bytes);
    memset(bits, 0xff, reg->slot_bytes);
    status = sl_runtime_write(rt, r, 0, 0, reg->slot_bytes, bits);
    free(bits);
  }
  return status;
}

/* A draft model with non-finite logits drafts nothing; sessions may end while theirs is
 * drafting. */
static void answers_do_without(void) {
  static int32_t plain[PLAIN][TOKENS], drafted[PLAIN][TOKENS];
  served s = {0};
  served_model(&s, "gpt", small);
  sl_session_options options = served_options(&s), draft = options;
  ask_all(&s, &options, PLAIN, plain);
  draft.load = load_nan;
  options.speculation = (sl_speculation){.tokens = LENGTH, .always = true, .draft = &draft};
  sl_session_stats x = ask_all(&s, &options, PLAIN, drafted);
  CHECK(!memcmp(plain, drafted, sizeof plain) && !x.drafted, "the same tokens without drafts");
  draft.load = served_load;
  for (int i = 0; i < 10; i++) {
    served_open(&s, &options);
    sl_request r = way_of(0, plain[0], PROMPT, TOKENS - PROMPT);
    uint64_t id;
    CHECK(!sl_session_submit(s.session, &r, &id), "%s", sl_detail());
    for (int n = 0; n < i; n++) served_next(s.session);
    CHECK(!sl_session_destroy(s.session), "%s", sl_detail());
  }
  sl_args_destroy(s.args);
}

static void refused(const char *model, char *const *words, const sl_speculation *how,
                    const char *says) {
  served s = {0};
  sl_session *none = NULL;
  served_model(&s, model, words);
  sl_session_options options = served_options(&s);
  options.speculation = *how;
  CHECK(sl_session_create(&options, &none) && strstr(sl_detail(), says), "%s: %s", says,
        sl_detail());
  sl_args_destroy(s.args);
}

static void wrong_settings_are_refused(void) {
  static char *const others[] = {"--layers",  "1",  "--width", "32",  "--heads", "2",
                                 "--context", "64", "--vocab", "200", NULL};
  served d = {0};
  served_model(&d, "gpt", others);
  sl_session_options draft = served_options(&d);
  refused("gpt", small, &(sl_speculation){.tokens = 2, .draft = &draft},
          "the vocabularies differ: model gpt has 200 tokens, model gpt has 256");
  sl_args_destroy(d.args);
  refused("gpt", small, &(sl_speculation){.tokens = 17}, "17 draft tokens");
  refused("gpt", small, &(sl_speculation){.tokens = -1}, "-1 draft tokens");
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 20);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(matches_are_the_longest, seed);
  RUN(a_period_goes_on);
  RUN(drafts_are_made_as_long_as_they_pay);
  RUN(drafting_pays_too);
  RUN(what_repeats_itself_takes_fewer_ticks);
  RUN(the_model_itself_is_always_right);
  RUN(another_model_drafts_what_it_answers);
  RUN(answers_do_without);
  RUN(wrong_settings_are_refused);
  return 0;
}
