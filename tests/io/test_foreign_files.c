/* SPDX-License-Identifier: Apache-2.0 */
/* A file that somebody else named is a regular file of bounded length, or is refused at once. A
 * file that grows during a run has whole records only, and a lost one is reported.
 * labels: unthreaded */
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/tempdir.h"
#include "io/atomic.h"
#include "io/file.h"
#include "io/gguf/gguf.h"
#include "io/journal.h"
#include "io/json.h"
#include "tests/support/test.h"

static sli_tempdir place;

static void write_text(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  CHECK(file && fputs(text, file) >= 0 && !fclose(file), "%s is written", path);
}

/* ---- reading -------------------------------------------------------------------------------- */

static sl_status take_none(void *ctx, int line, char *text, size_t length) {
  (void)ctx, (void)line, (void)text, (void)length;
  return SL_OK;
}

static void check_unreadable(const char *path) {
  char *text, head[4];
  size_t bytes;
  void *map;
  FILE *stream;
  sli_json doc;
  CHECK(sli_file_read(path, &text) == SL_E_INPUT, "%s is refused", path);
  CHECK(strstr(sl_detail(), path), "%s names %s", sl_detail(), path);
  CHECK(sli_file_map(path, &map, &bytes) == SL_E_INPUT, "%s is not mapped", path);
  CHECK(sli_file_lines(path, take_none, NULL) == SL_E_INPUT, "%s has no lines", path);
  CHECK(sli_file_stream(path, &stream) == SL_E_INPUT, "%s is no stream", path);
  CHECK(sli_json_open(path, &doc) == SL_E_INPUT, "%s is not JSON", path);
  CHECK(sli_file_probe(path) == SL_E_INPUT, "%s does not open", path);
  CHECK(!sli_file_begin(path, head, sizeof head) && !sli_gguf_is(path), "%s has no begin", path);
}

static void only_regular_files_open(void) {
  char *pipe = sli_tempdir_path(&place, "pipe");
  CHECK(!mkfifo(pipe, 0600), "a pipe");
  check_unreadable(pipe);
  check_unreadable("/dev/zero");
  check_unreadable("/dev/tty");
  check_unreadable(place.folder);
  check_unreadable("/nowhere");
  sli_atomic_file file;
  CHECK(sli_atomic_open(pipe, &file) == SL_E_IO, "nobody reads the pipe");
  sli_journal *j;
  CHECK(sli_journal_create(pipe, &j) == SL_E_IO, "nobody reads the pipe");
  free(pipe);
}

static void long_files_are_refused(void) {
  char *path = sli_tempdir_path(&place, "long"), *text;
  size_t bytes;
  FILE *stream;
  write_text(path, "12345");
  CHECK(!sli_file_read_within(path, 5, &text, &bytes) && bytes == 5 && !strcmp(text, "12345"),
        "five bytes");
  free(text);
  CHECK(sli_file_read_within(path, 4, &text, &bytes) == SL_E_INPUT, "more than four bytes");
  CHECK(strstr(sl_detail(), "longer than 4 bytes"), "%s", sl_detail());
  CHECK(!truncate(path, (off_t)1 << 42), "a sparse file");
  CHECK(sli_file_read(path, &text) == SL_E_INPUT, "a file of terabytes is not read whole");
  CHECK(sli_file_stream(path, &stream) == SL_E_INPUT, "nor as a stream");
  CHECK(sli_file_lines(path, take_none, NULL) == SL_E_INPUT, "nor as one line");
  CHECK(strstr(sl_detail(), "line 1 is longer"), "%s", sl_detail());
  free(path);
}

static sl_status join(void *ctx, int line, char *text, size_t length) {
  char *to = ctx;
  size_t used = strlen(to);
  snprintf(to + used, 64 - used, "%d:%s:%zu|", line, text, length);
  return SL_OK;
}

static void lines_are_numbered(void) {
  char *path = sli_tempdir_path(&place, "lines"), all[64] = "";
  write_text(path, "a\n\nbc");
  CHECK(!sli_file_lines(path, join, all) && !strcmp(all, "1:a:1|2::0|3:bc:2|"), "%s", all);
  free(path);
}

/* A file of another user, opened with the rights of the server, must not appear in a message. */
static void contents_are_not_quoted(void) {
  char *path = sli_tempdir_path(&place, "adapter_config.json");
  sli_json doc;
  write_text(path, "root:secret:1\n");
  CHECK(sli_json_open(path, &doc) == SL_E_INPUT, "not JSON");
  CHECK(!strstr(sl_detail(), "secret") && !strstr(sl_detail(), "root"), "%s", sl_detail());
  free(path);
}

/* ---- writing -------------------------------------------------------------------------------- */

static void check_text(const char *path, const char *want) {
  char *text;
  CHECK(!sli_file_read(path, &text), "%s", sl_detail());
  CHECK(!strcmp(text, want), "\"%s\", not \"%s\"", text, want);
  free(text);
}

static sl_status put(sli_journal *j, const char *text) {
  fputs(text, sli_journal_stream(j));
  return sli_journal_end(j);
}

static void records_are_appended(void) {
  char *path = sli_tempdir_path(&place, "records");
  sli_journal *j;
  CHECK(!sli_journal_create(path, &j) && !put(j, "longer\n") && !put(j, "b\n"), "%s", sl_detail());
  check_text(path, "longer\nb\n");
  CHECK(!sli_journal_close(j), "%s", sl_detail());
  write_text(path, "a\ncut");
  CHECK(!sli_journal_append(path, &j) && !put(j, "b\n") && !sli_journal_close(j), "%s",
        sl_detail());
  check_text(path, "a\nb\n");
  CHECK(!sli_journal_continue(path, 2, &j) && !put(j, "c\n") && !sli_journal_close(j), "%s",
        sl_detail());
  check_text(path, "a\nc\n");
  free(path);
}

static void lost_records_are_reported(void) {
  char *path = sli_tempdir_path(&place, "limited");
  struct rlimit old, small;
  sli_journal *j;
  CHECK(!sli_journal_create("/dev/full", &j) && put(j, "a\n") == SL_E_IO, "/dev/full");
  CHECK(sli_journal_close(j) == SL_E_IO && strstr(sl_detail(), "/dev/full"), "%s", sl_detail());
  getrlimit(RLIMIT_FSIZE, &old);
  small = (struct rlimit){8, old.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  CHECK(!setrlimit(RLIMIT_FSIZE, &small), "a limit");
  CHECK(!sli_journal_create(path, &j) && !put(j, "first\n"), "%s", sl_detail());
  CHECK(put(j, "second\n") == SL_E_IO && put(j, "3\n") == SL_E_IO, "lost, and none follows");
  sli_journal_retry(j);
  CHECK(!put(j, "4\n"), "%s", sl_detail());
  CHECK(sli_journal_close(j) == SL_E_IO, "a loss is reported at the end");
  setrlimit(RLIMIT_FSIZE, &old);
  check_text(path, "first\n4\n");
  free(path);
}

int main(void) {
  CHECK(!sli_tempdir_open(NULL, &place), "%s", sl_detail());
  only_regular_files_open();
  long_files_are_refused();
  lines_are_numbered();
  contents_are_not_quoted();
  records_are_appended();
  lost_records_are_reported();
  sli_tempdir_close(&place);
  return 0;
}
