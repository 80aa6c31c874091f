/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts come from the longest earlier match; answers that repeat themselves take fewer ticks, with
 * the same tokens; drafts that do not pay, by what is right and by what ticks take, are not made,
 * and are tried again later; models with states refuse them.
 * labels: random */
#include "serve/lookup.h"
#include "serve/serve.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/session.h"

/* ---- lookup ---------------------------------------------------------------------------------- */

enum { TEXT = 300, DRAFTED = 5, LEAST = 2 };

/* Finds the longest match, of equal ones the newest, by comparing with every place. */
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
    r->ndrafted = drafted;
    sli_drafts_note(s, r, right);
  }
}

static void drafts_are_made_as_long_as_they_pay(void) {
  static sl_session s;
  request r = {.match = 2}, far = {.match = 40};
  CHECK(!worth(&s, &r, 4), "no tick is measured");
  for (int i = 0; i < 50; i++) sli_drafts_time(&s.drafts, 1, 1);
  CHECK(worth(&s, &r, 4) == 4, "one is, so that longer ones are tried");
  for (int i = 0; i < 50; i++) sli_drafts_time(&s.drafts, 5, 1.5);
  CHECK(worth(&s, &r, 4) == 4, "ticks of five rows take little longer");
  note(&s, &r, 4, 0, 50);
  CHECK(!worth(&s, &r, 4), "but nothing was right");
  CHECK(worth(&s, &far, 4) == 4, "which says nothing about long matches");
  int skipped = 0;
  while (!worth(&s, &r, 4)) skipped++;
  CHECK(skipped > 50 && skipped < 1000, "it is tried again after %d", skipped);
  note(&s, &r, 4, 4, 500);
  for (int i = 0; i < 100; i++) sli_drafts_time(&s.drafts, 5, 6);
  CHECK(!worth(&s, &r, 4), "all are right, but a tick of five takes six times as long");
  CHECK(s.stats.rounds == 550 && s.stats.drafted == 2200, "and is counted");
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
  static char *const states[] = {"--layers", "2",         "--width", "32", "--heads",
                                 "2",        "--context", "64",      NULL};
  refused("hybrid", states, &(sl_speculation){.tokens = 2}, "hybrid keeps states");
  refused("gpt", small, &(sl_speculation){.tokens = 17}, "17 tokens of a draft");
  refused("gpt", small, &(sl_speculation){.tokens = -1}, "-1 tokens of a draft");
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 20);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(matches_are_the_longest, seed);
  RUN(a_period_goes_on);
  RUN(drafts_are_made_as_long_as_they_pay);
  RUN(what_repeats_itself_takes_fewer_ticks);
  RUN(wrong_settings_are_refused);
  return 0;
}
