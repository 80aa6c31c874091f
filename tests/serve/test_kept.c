/* SPDX-License-Identifier: Apache-2.0 */
/* If a prompt returns after its pages were reused, they are copied back from host memory or disk,
 * as far as the configured room goes. Copied pages have the bits of computed ones. The least
 * recently used pages are evicted first. */
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/nameless.h"
#include "tests/support/session.h"

static char *const words[] = {"--layers",  "3",          "--width", "48",      "--heads",
                              "6",         "--kv-heads", "2",       "--vocab", "97",
                              "--context", "320",        NULL};
enum { MOST = 320, PAGE = SL_SESSION_PAGE, LONG = 300, FULL = 4, TEXTS = 6 };
enum { PAGE_BYTES = 2 * 16 * PAGE * 4 * 3 }; /* keys and values, two heads of 8, three layers */
enum { DISK_PAGE = 4096 };

typedef struct outcome {
  int64_t cached;
  int32_t tokens[MOST];
  uint64_t hashes[MOST];
} outcome;

static outcome ask(sl_session *s, const int32_t *prompt, int64_t n) {
  outcome x = {0};
  uint64_t id;
  CHECK(
      !sl_session_submit(
          s, &(sl_request){.prompt = prompt, .nprompt = n, .max_tokens = 12, .logprobs = -1}, &id),
      "%s", sl_detail());
  for (sl_session_event e; (e = served_next(s)).kind == SL_EVENT_TOKEN;) {
    x.cached = e.cached;
    x.tokens[e.place] = e.token;
    x.hashes[e.place] = e.hash;
  }
  return x;
}

/* Returns a different text for each `kind`. */
static const int32_t *text(int kind) {
  static int32_t of[TEXTS][MOST];
  for (int i = 0; i < MOST; i++) of[kind][i] = (i * i + kind * (i + 1)) % 97;
  return of[kind];
}

static void same(const outcome *a, const outcome *b, const char *what) {
  CHECK(!memcmp(a->tokens, b->tokens, sizeof a->tokens) &&
            !memcmp(a->hashes, b->hashes, sizeof a->hashes),
        "%s", what);
}

static sl_session_options options_with(const served *s, size_t pages, sl_space space) {
  sl_session_options o = served_options(s);
  size_t bytes = (PAGE_BYTES + DISK_PAGE - 1) / DISK_PAGE * DISK_PAGE;
  o.pages = FULL + 2;
  o.rows = 40;
  o.kept = (sl_kept_pages){.bytes = pages * bytes, .space = space};
  return o;
}

/* Two texts alternate in a cache with room for one. */
static void what_comes_back_is_copied(served *s, const sl_session_options *o) {
  served_open(s, o);
  outcome first[2];
  for (int i = 0; i < 2; i++) first[i] = ask(s->session, text(i), LONG);
  for (int n = 0; n < 6; n++) {
    outcome again = ask(s->session, text(n % 2), LONG);
    CHECK(again.cached >= FULL * PAGE, "%lld tokens are there", (long long)again.cached);
    same(&again, &first[n % 2], "and give the same bits");
  }
  sl_session_stats stats = sl_session_stat(s->session);
  CHECK(stats.pages_read >= 6 && stats.pages_written >= FULL, "%llu are read, %llu written",
        (unsigned long long)stats.pages_read, (unsigned long long)stats.pages_written);
  CHECK(stats.pages_written < 4 * FULL, "what is there is not written again");
  sl_session_destroy(s->session);
}

/* A prompt reuses kept pages of another prompt up to the first different token. */
static void beginnings_are_shared(served *s, const sl_session_options *o) {
  int32_t other[MOST];
  memcpy(other, text(0), sizeof other);
  other[2 * PAGE + 5]++;
  served_open(s, o);
  outcome plain = ask(s->session, other, LONG);
  sl_session_destroy(s->session);
  served_open(s, o);
  ask(s->session, text(0), LONG);
  ask(s->session, text(1), LONG);
  outcome x = ask(s->session, other, LONG);
  CHECK(x.cached == 2 * PAGE, "%lld", (long long)x.cached);
  same(&x, &plain, "with the bits of a computed one");
  sl_session_destroy(s->session);
}

/* There is room for the pages of two texts: the third replaces the first. */
static void those_unused_for_longest_go_first(served *s, sl_space space) {
  sl_session_options o = options_with(s, 2 * FULL, space);
  served_open(s, &o);
  for (int i = 0; i < 5; i++) ask(s->session, text(i), LONG);
  CHECK(sl_session_stat(s->session).pages_kept == 2 * FULL, "the room is full");
  CHECK(!ask(s->session, text(0), LONG).cached, "the first is gone");
  CHECK(ask(s->session, text(4), LONG).cached, "the last is there");
  sl_session_destroy(s->session);
}

/* Pages whose bits flipped on disk are not used: they are computed again, with the same bits, and
 * kept once more. */
static void damaged_pages_are_computed_again(served *s) {
  sl_session_options o = options_with(s, 100, SL_SPACE_DISK);
  served_open(s, &o);
  outcome first = ask(s->session, text(0), LONG);
  ask(s->session, text(1), LONG);
  nameless_flip();
  outcome again = ask(s->session, text(0), LONG);
  CHECK(again.cached < FULL * PAGE, "%lld tokens came from damaged pages", (long long)again.cached);
  same(&again, &first, "with the bits of the first");
  ask(s->session, text(2), LONG);
  again = ask(s->session, text(0), LONG);
  CHECK(again.cached >= FULL * PAGE, "the pages are kept once more");
  same(&again, &first, "with the same bits");
  sl_session_destroy(s->session);
}

static void refused(const char *model, char *const *with, size_t pages, const char *says) {
  served s = {0};
  sl_session *none = NULL;
  served_model(&s, model, with);
  sl_session_options o = options_with(&s, pages, SL_SPACE_HOST);
  if (!pages) o.kept.bytes = 1;
  CHECK(sl_session_create(&o, &none) && strstr(sl_detail(), says), "%s: %s", says, sl_detail());
  sl_args_destroy(s.args);
}

int main(void) {
  static char *const states[] = {"--layers", "2",         "--width", "32", "--heads",
                                 "2",        "--context", "64",      NULL};
  static const sl_space spaces[] = {SL_SPACE_HOST, SL_SPACE_DISK};
  served s = {0};
  served_model(&s, "llama", words);
  for (size_t i = 0; i < SLI_COUNT(spaces); i++) {
    sl_session_options o = options_with(&s, 100, spaces[i]);
    RUN(what_comes_back_is_copied, &s, &o);
    o.lower.parallel.stages = 3;
    RUN(what_comes_back_is_copied, &s, &o);
    RUN(beginnings_are_shared, &s, &o);
    RUN(those_unused_for_longest_go_first, &s, spaces[i]);
  }
  RUN(damaged_pages_are_computed_again, &s);
  s.kv = SL_STORAGE_BF16;
  sl_session_options o = options_with(&s, 100, SL_SPACE_HOST);
  o.lower.parallel.tensor = 2;
  RUN(what_comes_back_is_copied, &s, &o);
  sl_args_destroy(s.args);
  RUN(refused, "llama", words, 0, "too few for a page");
  RUN(refused, "hybrid", states, 100, "hybrid has no pages that requests can share");
  return 0;
}
