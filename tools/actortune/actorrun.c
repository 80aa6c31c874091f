/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the actorrun beside this program. */
#include "tools/actortune/actortune.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tempdir.h"
#include "io/json.h"

extern char **environ;

static const char report_name[] = "report.json";

static char *beside_us(void) {
  char self[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[n > 0 ? n : 0] = 0;
  char *slash = strrchr(self, '/');
  if (slash) *slash = 0;
  return sli_format("%s/actorrun", self);
}

/* Starts a child with its output in a log, which the user sees only if it fails. */
static int spawn_and_wait(char **argv, const char *log, int *wait_status) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC,
                                   0600);
  pid_t pid;
  int error = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (!error)
    while (waitpid(pid, wait_status, 0) < 0 && errno == EINTR) {}
  return error;
}

/* Fails with the last line of the child's output, without the child's name. */
static sl_status child_failed(const char *what, const char *log, int wait_status) {
  static const sl_status kinds[] = {SL_E_IO, SL_E_IO, SL_E_INPUT, SL_E_BUDGET};
  char *text = NULL;
  int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 1;
  if (sli_file_read(log, &text)) text = sli_strdup("");
  for (size_t n = strlen(text); n && text[n - 1] == '\n';) text[--n] = 0;
  const char *last = strrchr(text, '\n');
  last = last ? last + 1 : text;
  if (!strncmp(last, "actorrun: ", 10)) last += 10;
  sl_status status = sl_fail(kinds[code < 4 ? code : 1], "%s with actorrun failed: %s", what,
                             *last ? last : "it said nothing");
  free(text);
  return status;
}

static sl_status run_in(const sli_tempdir *place, const words *w, const char *what) {
  char *program = beside_us(), *log = sli_tempdir_path(place, "log");
  char *report = sli_tempdir_path(place, report_name);
  char **argv = sli_calloc(w->count + 4, sizeof *argv);
  argv[0] = program;
  argv[1] = "--report";
  argv[2] = report;
  for (size_t i = 0; i < w->count; i++) argv[3 + i] = w->items[i];
  int wait_status = 0, error = spawn_and_wait(argv, log, &wait_status);
  sl_status status = SL_OK;
  if (error) status = sl_fail(SL_E_IO, "cannot run %s: %s", program, strerror(error));
  else if (interrupted()) status = sl_fail(SL_E_STOPPED, "%s was stopped", what);
  else if (wait_status) status = child_failed(what, log, wait_status);
  free(argv);
  free(report);
  free(log);
  free(program);
  return status;
}

static sl_status read_report(const sli_tempdir *place, sli_json *out) {
  char *path = sli_tempdir_path(place, report_name);
  sl_status status = sli_json_open(path, out);
  free(path);
  return status;
}

sl_status actorrun_run(const words *w, const char *what, sli_json *report) {
  sli_tempdir place;
  sl_status status = sli_tempdir_open(NULL, &place);
  if (status) return status;
  status = run_in(&place, w, what);
  if (!status) status = read_report(&place, report);
  sli_tempdir_close(&place);
  return status;
}
