/* SPDX-License-Identifier: Apache-2.0 */
/* A model with states continues behind another request's pages where a state was saved: after a
 * prompt's last full page, and after each N-th page for a given N. The bits equal those of a
 * request computed whole. The least recently used states are evicted first. Sink tokens, with which
 * all requests begin, are computed once. */
#include "tests/support/session.h"

enum { CONTEXT = 256, PAGE = SL_SESSION_PAGE, LAYERS = 4, HEADS = 2, DIM = 16 };

static char *const hybrid[] = {"--layers", "4",  "--width",   "32",  "--heads", "2",
                               "--vocab",  "97", "--context", "256", NULL};
static char *const mamba2[] = {"--layers",  "2",       "--width", "32",      "--head-dim",
                               "8",         "--state", "10",      "--vocab", "97",
                               "--context", "256",     NULL};

typedef struct outcome {
  int64_t cached;
  int count;
  int32_t tokens[CONTEXT];
  uint64_t hashes[CONTEXT];
} outcome;

static uint64_t submit(sl_session *s, const int32_t *prompt, int64_t n, int64_t tokens) {
  uint64_t id;
  CHECK(!sl_session_submit(
            s, &(sl_request){.prompt = prompt, .nprompt = n, .max_tokens = tokens, .logprobs = -1},
            &id),
        "%s", sl_detail());
  return id;
}

static void await_ends(sl_session *s, int n, outcome *x) {
  for (int left = n; left;) {
    sl_session_event e = served_next(s);
    outcome *to = &x[n == 1 ? 0 : e.id % (uint64_t)n];
    to->cached = e.cached;
    left -= e.kind == SL_EVENT_END;
    if (e.kind == SL_EVENT_END) continue;
    to->hashes[to->count] = e.hash;
    to->tokens[to->count++] = e.token;
  }
}

static outcome ask(sl_session *s, const int32_t *prompt, int64_t n, int64_t tokens) {
  outcome x = {0};
  submit(s, prompt, n, tokens);
  await_ends(s, 1, &x);
  return x;
}

static bool are_equal(const outcome *a, const outcome *b) {
  return a->count == b->count && !memcmp(a->tokens, b->tokens, sizeof a->tokens) &&
         !memcmp(a->hashes, b->hashes, sizeof a->hashes);
}

/* Returns a different text for each `kind`. */
static const int32_t *text(int kind) {
  static int32_t of[8][CONTEXT];
  for (int i = 0; i < CONTEXT; i++) of[kind][i] = (i * i + kind * (i + 1)) % 97;
  return of[kind];
}

/* Returns the first 150 tokens of text 0, then different ones. */
static const int32_t *branch(void) {
  static int32_t of[CONTEXT];
  memcpy(of, text(0), sizeof of);
  of[150]++;
  return of;
}

static void a_prompt_is_found_again(sl_session *s) {
  outcome first = ask(s, text(0), 200, 20), again = ask(s, text(0), 200, 20);
  CHECK(!first.cached && again.cached == 3 * PAGE, "%lld and %lld", (long long)first.cached,
        (long long)again.cached);
  CHECK(are_equal(&first, &again), "with the same bits");
  CHECK(sl_session_stat(s).rows_shared == 3 * PAGE, "rows are counted");
  CHECK(sl_session_stat(s).states_kept == 1, "one state is kept");
  CHECK(!ask(s, branch(), 200, 1).cached, "no state is where the tokens differ");
  CHECK(!ask(s, text(0), 150, 1).cached, "nor before");
}

static void each_page_may_have_a_state(sl_session *s, const outcome *whole) {
  int32_t both[CONTEXT];
  ask(s, text(0), 200, 1);
  outcome other = ask(s, branch(), 200, 20);
  CHECK(other.cached == 2 * PAGE, "%lld", (long long)other.cached);
  CHECK(are_equal(&other, whole), "with the bits of a session without kept states");
  memcpy(both, text(1), sizeof both);
  outcome x = ask(s, text(1), 100, 100);
  memcpy(both + 100, x.tokens, 100 * sizeof *both);
  CHECK(ask(s, both, 200, 1).cached == 3 * PAGE, "an answer's pages have states");
}

/* Two concurrent requests both compute their common prefix. */
static void a_tick_reads_none_of_its_own(sl_session *s) {
  outcome x[2] = {{0}};
  submit(s, text(2), 100, 5);
  submit(s, text(2), 100, 5);
  await_ends(s, 2, x);
  CHECK(are_equal(&x[0], &x[1]), "the bits are the same");
}

static void states_unused_for_longest_go_first(sl_session *s) {
  ask(s, text(3), 100, 1);
  ask(s, text(4), 100, 1);
  CHECK(ask(s, text(3), 100, 1).cached == PAGE, "both are there");
  ask(s, text(5), 100, 1);
  CHECK(ask(s, text(3), 100, 1).cached == PAGE, "the one used last still is");
  CHECK(!ask(s, text(4), 100, 1).cached, "the other one is not");
}

static void pages_take_their_states_along(sl_session *s) {
  ask(s, text(3), 100, 1);
  for (int i = 4; i < 7; i++) ask(s, text(i), 200, 1);
  CHECK(ask(s, text(6), 200, 1).cached == 3 * PAGE, "the last one is there");
  CHECK(!ask(s, text(3), 100, 1).cached, "its page is another's now");
}

static void none_is_kept(sl_session *s) {
  ask(s, text(0), 200, 1);
  CHECK(!ask(s, text(0), 200, 1).cached && !sl_session_about(s).states, "it is computed again");
}

static outcome without_states(served *s, sl_session_options options) {
  options.states = -1;
  served_open(s, &options);
  outcome x = ask(s->session, branch(), 200, 20);
  RUN(none_is_kept, s->session);
  sl_session_destroy(s->session);
  return x;
}

static void of_model(const char *name, char *const *words) {
  served s = {0};
  served_model(&s, name, words);
  sl_session_options options = served_options(&s);
  options.rows = 256;
  outcome whole = without_states(&s, options);
  served_open(&s, &options);
  if (words == hybrid)
    CHECK(sl_session_about(s.session).state_bytes ==
              LAYERS / 2 * HEADS * DIM * DIM * (int64_t)sizeof(float),
          "%lld bytes", (long long)sl_session_about(s.session).state_bytes);
  RUN(a_prompt_is_found_again, s.session);
  RUN(a_tick_reads_none_of_its_own, s.session);
  sl_session_destroy(s.session);
  options.state_every = 1;
  served_open(&s, &options);
  RUN(each_page_may_have_a_state, s.session, &whole);
  sl_session_destroy(s.session);
  options.state_every = 8;
  options.states = 2;
  served_open(&s, &options);
  RUN(states_unused_for_longest_go_first, s.session);
  sl_session_destroy(s.session);
  options.states = 0;
  options.pages = 4;
  served_open(&s, &options);
  RUN(pages_take_their_states_along, s.session);
  served_close(&s);
}

/* Requests with different texts share the sink tokens: a page and the state behind it. */
static void sinks_are_computed_once(void) {
  static char *words[] = {"--layers",      "4",  "--width",  "32", "--heads",   "2",
                          "--vocab",       "97", "--window", "20", "--context", "256",
                          "--sink-tokens", "80", NULL};
  served s = {0};
  served_model(&s, "hybrid", words);
  sl_session_options options = served_options(&s);
  outcome x[2][2];
  for (int apart = 0; apart < 2; apart++) {
    options.prefixes = apart ? SL_PREFIXES_APART : SL_PREFIXES_SHARED;
    served_open(&s, &options);
    CHECK(sl_session_about(s.session).context == 256, "the context is that of texts");
    for (int i = 0; i < 2; i++) x[apart][i] = ask(s.session, text(i), 30, 226);
    CHECK(sl_session_stat(s.session).rows_shared == (apart ? 0 : PAGE), "%llu rows are shared",
          (unsigned long long)sl_session_stat(s.session).rows_shared);
    sl_session_destroy(s.session);
  }
  for (int i = 0; i < 2; i++)
    CHECK(x[0][i].count == 226 && !x[0][i].cached && are_equal(&x[0][i], &x[1][i]),
          "text %d has the bits that it has alone", i);
  served_open(&s, &options);
  CHECK(sl_session_submit(s.session,
                          &(sl_request){.prompt = text(0), .nprompt = 257, .max_tokens = 1},
                          &(uint64_t){0}) == SL_E_USAGE &&
            strstr(sl_detail(), "257 tokens, more than the context of 256"),
        "%s", sl_detail());
  served_close(&s);
}

int main(void) {
  RUN(sinks_are_computed_once);
  RUN(of_model, "hybrid", hybrid);
  RUN(of_model, "mamba2", mamba2);
  return 0;
}
