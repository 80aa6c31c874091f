/* SPDX-License-Identifier: Apache-2.0 */
/* Tests waiting times, in ticks. A cancelled request returns its pages within two ticks. While a
 * prompt of 8,000 tokens is processed, every running answer gets a token in each tick, or in each
 * G-th tick with G ticks in flight. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/session.h"

static char *const small[] = {"--layers", "1",  "--width",   "16",   "--heads", "2",
                              "--vocab",  "61", "--context", "8192", NULL};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LONG = 2000 };
#else
enum { LONG = 8000 };
#endif
enum { OTHERS = 3, TOKENS = 1500, PAGES = 200 };

static int32_t prompt[LONG];

static uint64_t submit(sl_session *s, int64_t length, int64_t tokens) {
  uint64_t id;
  sl_request r = {.prompt = prompt, .nprompt = length, .max_tokens = tokens, .logprobs = -1};
  CHECK(!sl_session_submit(s, &r, &id), "%s", sl_detail());
  return id;
}

/* One answer gets a token in each tick and so counts ticks; the other still processes its
 * prompt. */
static void what_hangs_up_gives_its_pages_back(sl_session *s) {
  uint64_t counts = submit(s, 1, 2000), hung_up;
  sl_session_event e = served_next(s);
  hung_up = submit(s, LONG, 10);
  while (sl_session_stat(s).running < 2) e = served_next(s);
  sl_session_cancel(s, hung_up);
  int64_t ticks = (int64_t)sl_session_stat(s).tokens; /* at most this many at the cancellation */
  while (e.id != hung_up) {
    CHECK(e.kind == SL_EVENT_TOKEN, "it goes on");
    CHECK(e.place < ticks + 2, "its pages are free after tick %lld, of %lld", (long long)e.place,
          (long long)ticks);
    e = served_next(s);
  }
  CHECK(e.kind == SL_EVENT_END && e.end == SL_END_CANCELLED, "it has ended");
  CHECK(sl_session_stat(s).pages_used <= 1 + 2000 / SL_SESSION_PAGE, "and has no pages");
  sl_session_cancel(s, counts);
  while (served_next(s).kind != SL_EVENT_END) {}
  CHECK(!sl_session_stat(s).pages_used, "nobody has any");
}

/* Returns whether a tick's line has a row of the request. */
static bool has_row(const char *line, uint64_t request) {
  int used;
  unsigned long long id;
  long long from, rows;
  for (; sscanf(line, " %llu:%lld+%lld%n", &id, &from, &rows, &used) == 3; line += used)
    if (id == request) return true;
  return false;
}

/* The other requests came before the long one and outlast its prompt, unless it was submitted
 * late. */
static void check_log(const char *path, uint64_t long_one, int groups) {
  char line[4096];
  FILE *log = fopen(path, "r");
  CHECK(log, "there is a log");
  int chunks = 0, rows[OTHERS] = {0}, waits[OTHERS] = {0};
  while (fgets(line, sizeof line, log)) {
    chunks += has_row(line, long_one);
    for (int i = 0; i < OTHERS; i++) {
      bool has = has_row(line, long_one - 1 - (uint64_t)i),
           waiting = !has && chunks && rows[i] < TOKENS;
      rows[i] += has;
      waits[i] = waiting ? waits[i] + 1 : 0;
      CHECK(waits[i] < groups, "answer %d waits %d ticks, at part %d of the prompt", i, waits[i],
            chunks);
    }
    if (chunks >= LONG / 64) break;
  }
  fclose(log);
  CHECK(chunks >= LONG / 64, "%d parts of the prompt", chunks);
}

static void nobody_waits_for_a_long_prompt(sl_session *s, const char *path) {
  int told = 0;
  for (int i = 0; i < OTHERS; i++) submit(s, 1, TOKENS);
  while (told < OTHERS) told += served_next(s).place == 0;
  uint64_t long_one = submit(s, LONG, 1);
  while (served_next(s).id != long_one) {}
  CHECK(!sl_session_drain(s, -1), "all end");
  check_log(path, long_one, sl_session_about(s).groups);
}

int main(void) {
  char path[] = "ticks-XXXXXX";
  int file = mkstemp(path);
  CHECK(file >= 0, "a file for the log");
  close(file);
  for (int i = 0; i < LONG; i++) prompt[i] = i % 61;
  served s = {0};
  served_model(&s, "gpt", small);
  sl_session_options options = served_options(&s);
  options.hash = false;
  options.pages = PAGES;
  options.rows = 64;
  served_open(&s, &options);
  RUN(what_hangs_up_gives_its_pages_back, s.session);
  sl_session_destroy(s.session);
  options.log = path;
  served_open(&s, &options);
  RUN(nobody_waits_for_a_long_prompt, s.session, path);
  sl_session_destroy(s.session);
  options.lower.parallel.stages = 2;
  options.groups = 3;
  served_open(&s, &options);
  RUN(nobody_waits_for_a_long_prompt, s.session, path);
  served_close(&s);
  unlink(path);
  return 0;
}
