/* SPDX-License-Identifier: Apache-2.0 */
/* Requests with equal beginnings share full pages up to the first different token, but never the
 * page of the last prompt token. Pages of answers are shared too, also within one tick. The least
 * recently used pages are evicted first. */
#include "tests/support/session.h"

static char *const words[] = {"--layers", "2",  "--width",   "32",  "--heads", "2",
                              "--vocab",  "97", "--context", "256", NULL};
enum { MOST = 256, PAGE = SL_SESSION_PAGE };

typedef struct outcome {
  int64_t cached;
  int count;
  int32_t tokens[MOST];
  uint64_t hash; /* logits of the first token */
} outcome;

static uint64_t submit(sl_session *s, const int32_t *prompt, int64_t n, int64_t tokens) {
  uint64_t id;
  CHECK(!sl_session_submit(
            s, &(sl_request){.prompt = prompt, .nprompt = n, .max_tokens = tokens, .logprobs = -1},
            &id),
        "%s", sl_detail());
  return id;
}

static outcome await_end(sl_session *s) {
  outcome x = {0};
  for (sl_session_event e = served_next(s);; e = served_next(s)) {
    x.cached = e.cached;
    if (e.kind == SL_EVENT_END) return x;
    if (!x.count) x.hash = e.hash;
    x.tokens[x.count++] = e.token;
  }
}

static outcome ask(sl_session *s, const int32_t *prompt, int64_t n, int64_t tokens) {
  submit(s, prompt, n, tokens);
  return await_end(s);
}

/* Returns a different text for each `kind`. */
static const int32_t *text(int kind) {
  static int32_t of[8][MOST];
  for (int i = 0; i < MOST; i++) of[kind][i] = (i * i + kind * (i + 1)) % 97;
  return of[kind];
}

static void full_pages_are_found(sl_session *s) {
  int32_t other[MOST];
  memcpy(other, text(0), sizeof other);
  other[70]++;
  outcome first = ask(s, text(0), 200, 10);
  CHECK(!first.cached, "nobody was there");
  outcome again = ask(s, text(0), 200, 10);
  CHECK(again.cached == 3 * PAGE, "%lld", (long long)again.cached);
  CHECK(again.hash == first.hash && !memcmp(again.tokens, first.tokens, sizeof first.tokens),
        "and the bits are the same");
  CHECK(ask(s, text(0), 150, 1).cached == 2 * PAGE, "a page that is not full is computed");
  CHECK(ask(s, text(0), 2 * PAGE, 1).cached == PAGE, "so is the last token, with its page");
  CHECK(ask(s, text(0), 2 * PAGE + 1, 1).cached == 2 * PAGE, "and none but it");
  CHECK(ask(s, other, 200, 1).cached == PAGE, "from where the tokens differ");
  CHECK(!ask(s, text(0) + 1, 200, 1).cached, "tokens that stand elsewhere are others");
  CHECK(!ask(s, text(0), 5, 1).cached, "nor has a short one any");
}

static void so_are_those_of_answers(sl_session *s) {
  int32_t both[MOST];
  memcpy(both, text(1), sizeof both);
  outcome x = ask(s, text(1), 100, 100);
  memcpy(both + 100, x.tokens, 100 * sizeof *both);
  CHECK(ask(s, both, 200, 1).cached == 3 * PAGE,
        "what was answered need not be computed in the next turn");
}

static void and_those_of_a_tick_under_way(sl_session *s) {
  uint64_t first = submit(s, text(2), 200, 1), second = submit(s, text(2), 200, 1), hashes[2] = {0};
  int64_t cached[2] = {0};
  for (int left = 2; left;) {
    sl_session_event e = served_next(s);
    CHECK(e.id == first || e.id == second, "these two");
    cached[e.id - first] = e.cached;
    if (e.kind == SL_EVENT_END) left--;
    else hashes[e.id - first] = e.hash;
  }
  CHECK(!cached[0] && cached[1] == 3 * PAGE, "%lld and %lld", (long long)cached[0],
        (long long)cached[1]);
  CHECK(hashes[0] == hashes[1], "and the bits are the same");
}

/* With four pages, each request takes two and leaves one that can be reused. */
static void those_unused_for_longest_go_first(sl_session *s) {
  enum { LONG = 100 };
  ask(s, text(3), LONG, 1);
  ask(s, text(4), LONG, 1);
  CHECK(ask(s, text(3), LONG, 1).cached == PAGE, "both are there");
  ask(s, text(5), LONG, 1);
  CHECK(ask(s, text(3), LONG, 1).cached == PAGE, "the one used last still is");
  CHECK(!ask(s, text(4), LONG, 1).cached, "the other one is not");
  CHECK(!sl_session_stat(s).pages_used, "nobody has any");
}

static void nothing_is_where_that_is_off(sl_session *s) {
  ask(s, text(0), 200, 1);
  CHECK(!ask(s, text(0), 200, 1).cached && !sl_session_stat(s).rows_shared, "it is computed again");
}

int main(void) {
  served s = {0};
  served_model(&s, "gpt", words);
  sl_session_options options = served_options(&s);
  options.rows = 256;
  served_open(&s, &options);
  RUN(full_pages_are_found, s.session);
  RUN(so_are_those_of_answers, s.session);
  RUN(and_those_of_a_tick_under_way, s.session);
  sl_session_destroy(s.session);
  options.pages = 4;
  served_open(&s, &options);
  RUN(those_unused_for_longest_go_first, s.session);
  sl_session_destroy(s.session);
  options.prefixes = SL_PREFIXES_APART;
  served_open(&s, &options);
  RUN(nothing_is_where_that_is_off, s.session);
  served_close(&s);
  return 0;
}
