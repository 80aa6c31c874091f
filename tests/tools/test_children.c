/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher tells each process its place and its share of the cores, prints output line by line,
 * and forwards each of the user's signals once. When one process fails the launcher ends the others
 * and names the culprit. The processes here are shells.
 * labels: unthreaded */
#include "tools/launch/children.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "placement/share.h"
#include "tests/support/test.h"

enum { MOST_PROCESSES = 4, PATIENCE_SECONDS = 600 };

static char folder[] = "/tmp/test_tools_children.XXXXXX";
static const char key[] = "0123456789abcdefghij0123456789abcdefghij";

/* ---- a separate launcher ------------------------------------------------------------------- */

typedef struct launched {
  pid_t pid;
  int answer; /* pipe that delivers the children_end */
} launched;

static const char *in_folder(const char *name) {
  static char paths[4][128];
  static int turn;
  char *path = paths[turn++ % 4];
  snprintf(path, 128, "%s/%s", folder, name);
  return path;
}

static void redirect(const char *name, int to) {
  int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  CHECK(fd >= 0 && dup2(fd, to) == to, "%s: %m", name);
  close(fd);
}

/* Prelude of each script. `ended N` waits until process N has been reaped, `stopped N` until it is
 * stopped or has been killed for that, `ready N` until it has said so. */
#define EVENTS                                                                                  \
  "pid() { until [ -s $D/$1.pid ]; do sleep 0.01; done; cat $D/$1.pid; }; "                     \
  "ended() { p=$(pid $1); while kill -0 $p 2>/dev/null; do sleep 0.01; done; }; "               \
  "is_stopped() { grep -qs 'State:.T' /proc/$1/status; }; "                                     \
  "stopped() { p=$(pid $1); while [ -d /proc/$p ] && ! is_stopped $p; do sleep 0.01; done; }; " \
  "ready() { until [ -e $D/$1.ready ]; do sleep 0.01; done; }; "                                \
  "say_ready() { : >$D/$SLUICE_PROCESS.ready; }; "                                              \
  "process() { [ $SLUICE_PROCESS = $1 ]; }; echo $$ >$D/$SLUICE_PROCESS.pid; "

static void forget(int count) {
  unlink(in_folder("out"));
  unlink(in_folder("err"));
  for (int i = 0; i < count; i++) {
    char name[32];
    snprintf(name, sizeof name, "%d.pid", i);
    unlink(in_folder(name));
    snprintf(name, sizeof name, "%d.ready", i);
    unlink(in_folder(name));
  }
}

/* Runs `script` in `count` processes; the files "out" and "err" receive their output. */
static launched begin_with_grace(int grace_ms, const char *script, int count) {
  int ends[2];
  CHECK(!pipe(ends), "pipe: %m");
  forget(MOST_PROCESSES);
  pid_t pid = fork();
  CHECK(pid >= 0, "fork: %m");
  if (pid) {
    close(ends[1]);
    return (launched){pid, ends[0]};
  }
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  redirect("out", STDOUT_FILENO);
  redirect("err", STDERR_FILENO);
  char *argv[] = {"/bin/sh", "-c", sli_format(EVENTS "%s", script), NULL};
  setenv("D", folder, 1);
  setenv("SLUICE_KEY", "stale", 1);
  children_options options = {.tool = "actorrun",
                              .argv = argv,
                              .count = count,
                              .first = 0,
                              .total = count,
                              .endpoint = "127.0.0.1:4711",
                              .job = "job-1",
                              .key = key,
                              .incarnation = 2,
                              .grace_ms = grace_ms};
  children_end end = children_run(&options);
  _exit(write(ends[1], &end, sizeof end) != sizeof end);
}

/* The grace period is so long that every process ends by itself, however busy the machine is. */
static launched begin(const char *script, int count) {
  return begin_with_grace(1000 * PATIENCE_SECONDS, script, count);
}

static children_end finish(launched l) {
  children_end end;
  int status;
  CHECK(waitpid(l.pid, &status, 0) == l.pid && !status, "the launcher failed: %x", status);
  CHECK(read(l.answer, &end, sizeof end) == sizeof end, "the launcher came to no end");
  close(l.answer);
  return end;
}

static char *said(const char *name) {
  static char texts[2][1 << 20];
  static int turn;
  char *text = texts[turn++ % 2];
  FILE *file = fopen(in_folder(name), "r");
  CHECK(file, "%s: %m", name);
  text[fread(text, 1, sizeof texts[0] - 1, file)] = 0;
  fclose(file);
  return text;
}

static int count_text(const char *text, const char *what) {
  int n = 0;
  for (; (text = strstr(text, what)); text += strlen(what)) n++;
  return n;
}

static void wait_for_count(const char *text, int n) {
  for (int i = 0; i < 100 * PATIENCE_SECONDS; i++, usleep(10000))
    if (access(in_folder("out"), F_OK) == 0 && count_text(said("out"), text) >= n) return;
  CHECK(0, "not %d times %s: %s", n, text, said("out"));
}

/* ---- places ------------------------------------------------------------------------------ */

static void each_is_told_its_place(void) {
  children_end end = finish(begin(
      "echo $SLUICE_PROCESS of $SLUICE_PROCESSES, $SLUICE_LOCAL of $SLUICE_LOCALS, "
      "$SLUICE_ENDPOINT $SLUICE_JOB $SLUICE_INCARNATION${SLUICE_KEY-} $(cat $SLUICE_KEY_FILE)",
      3));
  CHECK(end.status == 0 && end.culprit == -1, "all is well: status %d", end.status);
  const char *out = said("out");
  for (int i = 0; i < 3; i++) {
    char line[200], head[16] = "";
    if (i) snprintf(head, sizeof head, "[%d] ", i);
    snprintf(line, sizeof line, "%s%d of 3, %d of 3, 127.0.0.1:4711 job-1 2 %s\n", head, i, i, key);
    CHECK(strstr(out, line), "%s is missing in\n%s", line, out);
  }
  CHECK(!*said("err"), "nothing else: %s", said("err"));
}

static void the_key_shows_nowhere(void) {
  finish(begin("cat /proc/$$/cmdline; cat /proc/$$/environ", 2));
  CHECK(!count_text(said("out"), key), "neither on the command line nor in the environment");
}

static void shares_of_cores_are_even_and_disjoint(void) {
  for (int cores = 1; cores < 40; cores++)
    for (int parts = 1; parts < 40; parts++) {
      int at = 0, first, end, least = cores / parts, used[40] = {0};
      for (int part = 0; part < parts; part++) {
        sli_share_range(cores, part, parts, &first, &end);
        CHECK(first >= 0 && end <= cores && first < end, "%d: [%d, %d)", cores, first, end);
        for (int c = first; c < end; c++) used[c]++;
        CHECK(cores == 1 || !part || first != at - 1 || cores >= parts,
              "parts %d and %d of %d have the same of %d cores", part - 1, part, parts, cores);
        if (cores < parts) {
          at = end;
          continue;
        }
        CHECK(first == at && end - first - least <= 1, "%d in %d: [%d, %d)", cores, parts, first,
              end);
        at = end;
      }
      for (int c = 0; c < cores; c++)
        CHECK(cores < parts ? used[c] > 0 && used[c] <= parts / cores + 1 : used[c] == 1,
              "%d in %d: core %d %d times", cores, parts, c, used[c]);
    }
}

static void processes_have_cores_of_their_own(void) {
  sl_machine *machine;
  CHECK(!sl_machine_create(NULL, &machine), "%s", sl_detail());
  int cores = sl_machine_cores(machine);
  sl_machine_destroy(machine);
  finish(begin("grep Cpus_allowed: /proc/self/status", 2));
  char *out = said("out"), a[256] = "", b[256] = "";
  CHECK(sscanf(strstr(out, "[1]") == out ? strchr(out, '\n') : out, " Cpus_allowed: %255s", a) == 1,
        "%s", out);
  CHECK(sscanf(strstr(out, "[1]"), "[1] Cpus_allowed: %255s", b) == 1, "%s", out);
  CHECK((strcmp(a, b) != 0) == (cores > 1), "%d cores: %s and %s", cores, a, b);
}

/* ---- lines ------------------------------------------------------------------------------- */

static void lines_are_whole_and_in_order(void) {
  enum { PROCESSES = 4, LINES = 300 };
  int next[PROCESSES] = {0}, lines = 0;
  finish(
      begin("i=0; while [ $i -lt 300 ]; do printf 'left '; printf \"$i right\\n\"; "
            "printf 'low ' >&2; echo $i >&2; i=$((i+1)); done",
            PROCESSES));
  for (char *save, *line = strtok_r(said("out"), "\n", &save); line;
       line = strtok_r(NULL, "\n", &save), lines++) {
    int process = 0, i, used = 0;
    if (*line == '[') CHECK(sscanf(line, "[%d] %n", &process, &used) == 1, "%s", line);
    char expected[64];
    CHECK(sscanf(line + used, "left %d right", &i) == 1, "torn: %s", line);
    snprintf(expected, sizeof expected, "left %d right", next[process]++);
    CHECK(!strcmp(line + used, expected), "%s is not %s", line, expected);
  }
  CHECK(lines == PROCESSES * LINES, "%d lines", lines);
  CHECK(count_text(said("err"), "low ") == PROCESSES * LINES, "standard error too");
  CHECK(count_text(said("err"), "\n[1] low ") + count_text(said("err"), "\n[3] low ") >= 598,
        "with the process's number");
}

static void the_first_ones_words_are_unchanged(void) {
  finish(begin("process 0 && printf 'a\\n\\n b\\tc\\rd'; process 1 && ended 0 && printf end; true",
               2));
  const char *out = said("out");
  CHECK(strstr(out, "a\n\n b\tc\rd") && strstr(out, "[1] end\n"), "%s", out);
}

static void what_several_say_is_shown_once(void) {
  children_end end = finish(begin("echo 'actorrun: x: no such file' >&2; exit 2", 4));
  CHECK(end.status == 2 && end.said && !end.signal, "status %d", end.status);
  CHECK(!strcmp(said("err"), "actorrun: x: no such file\n"), "once, by all: %s", said("err"));
  end =
      finish(begin("process 0 && exit 0; process 2 && echo 'actorrun: disk full' >&2 && exit 1; "
                   "ended 2; echo 'actorrun: 2 is gone' >&2; exit 1",
                   4));
  CHECK(end.status == 1 && end.culprit == 2 && !end.said, "culprit %d", end.culprit);
  CHECK(strstr(said("err"), "[2] actorrun: disk full\n"), "%s", said("err"));
  CHECK(strstr(said("err"), "[1,3] actorrun: 2 is gone\n") ||
            strstr(said("err"), "[3,1] actorrun: 2 is gone\n"),
        "%s", said("err"));
}

/* ---- ends -------------------------------------------------------------------------------- */

static void the_first_that_fails_gives_the_status(void) {
  static const int statuses[][2] = {{1, 1}, {2, 2}, {3, 3}, {7, 1}, {127, 1}};
  for (size_t i = 0; i < SLI_COUNT(statuses); i++) {
    char script[100];
    snprintf(script, sizeof script, "process 1 && exit %d; ended 1; exit 0", statuses[i][0]);
    children_end end = finish(begin(script, 3));
    CHECK(end.status == statuses[i][1] && end.culprit == 1 && !end.signal, "%d gives %d",
          statuses[i][0], end.status);
  }
}

static void a_reason_counts_before_what_follows_from_it(void) {
  for (int code = 2; code <= 3; code++) {
    char script[100];
    snprintf(script, sizeof script, "process 1 && ended 0 && ended 2 && exit %d; exit 1", code);
    children_end end = finish(begin(script, 3));
    CHECK(end.status == code && end.culprit == 1 && !end.signal, "%d gives %d, of process %d", code,
          end.status, end.culprit);
  }
}

static void a_killed_one_is_the_culprit(void) {
  children_end end =
      finish(begin("process 2 && ended 0 && kill -9 $$; process 0 && exit 1; "
                   "ended 2; exit 1",
                   3));
  CHECK(end.culprit == 2 && end.signal == SIGKILL && end.status == 1, "culprit %d, signal %d",
        end.culprit, end.signal);
}

/* A stopped process cannot receive a request to end, so it is killed without grace. */
static void a_stopped_one_is_killed_at_once(void) {
  uint64_t start = sli_now_ns();
  children_end end = finish(begin("process 1 && kill -STOP $$; stopped 1; exit 1", 3));
  CHECK(end.culprit == 1 && end.stopped && !end.signal && end.status == 1, "culprit %d",
        end.culprit);
  CHECK(sli_now_ns() - start < PATIENCE_SECONDS * UINT64_C(500000000), "no grace is given");
}

/* The others may wait for the stopped process without noticing, because they have not met yet. The
 * launcher gives it no grace. */
static void one_that_stays_stopped_fails(void) {
  uint64_t start = sli_now_ns();
  children_end end = finish(begin("process 1 && kill -STOP $$; exec sleep 1000", 3));
  double seconds = (double)(sli_now_ns() - start) * 1e-9;
  CHECK(end.culprit == 1 && end.stopped && end.status == 1, "culprit %d", end.culprit);
  CHECK(seconds > 1.9 && seconds < PATIENCE_SECONDS / 2, "it ended after %.1f s", seconds);
}

static void the_others_are_asked_and_then_killed(void) {
  uint64_t start = sli_now_ns();
  CHECK(!mkfifo(in_folder("never"), 0600), "mkfifo: %m");
  children_end end = finish(begin_with_grace(
      300,
      "process 0 && ready 1 && ready 2 && exit 3; process 1 && trap 'echo asked; exit 0' TERM; "
      "process 2 && trap '' TERM; say_ready; exec 3<>$D/never; while true; do read line <&3; done",
      4));
  unlink(in_folder("never"));
  double seconds = (double)(sli_now_ns() - start) * 1e-9;
  CHECK(end.status == 3 && end.culprit == 0 && !end.signal, "status %d", end.status);
  CHECK(strstr(said("out"), "[1] asked"), "SIGTERM came first: %s", said("out"));
  CHECK(seconds > 0.4 && seconds < PATIENCE_SECONDS, "then SIGKILL, after %.1f s", seconds);
}

static void a_program_that_is_not_there_is_named(void) {
  int ends[2];
  CHECK(!pipe(ends), "pipe: %m");
  pid_t pid = fork();
  if (!pid) {
    redirect("err", STDERR_FILENO);
    char *argv[] = {"/nowhere/program", NULL};
    children_options o = {.tool = "actorrun",
                          .argv = argv,
                          .count = 2,
                          .total = 2,
                          .endpoint = "",
                          .job = "",
                          .key = key,
                          .grace_ms = 1000 * PATIENCE_SECONDS};
    _exit(children_run(&o).status);
  }
  int status;
  CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 1, "status %d", status);
  CHECK(!strcmp(said("err"), "actorrun: cannot run /nowhere/program: No such file or directory\n"),
        "%s", said("err"));
}

/* ---- signals ----------------------------------------------------------------------------- */

#define COUNT_SIGNALS "n=0; trap 'n=$((n+1)); echo signal' INT TERM; echo ready; "

/* Returns false if the two signals were too far apart, because another process had the core. */
static bool signal_twice(launched l) {
  enum { MOMENT_NS = 150 * 1000 * 1000 };
  uint64_t start = sli_now_ns();
  kill(l.pid, SIGINT);
  usleep(20000);
  kill(l.pid, SIGINT);
  return sli_now_ns() - start < MOMENT_NS;
}

static void two_signals_of_one_moment_are_one(void) {
  children_end end;
  for (bool moment = false; !moment;) {
    launched l = begin(COUNT_SIGNALS "while [ $n = 0 ]; do sleep 0.05; done; sleep 0.5; exit 0", 3);
    wait_for_count("ready\n", 3);
    moment = signal_twice(l);
    end = finish(l);
  }
  CHECK(end.status == 0 && end.interrupted == SIGINT && !end.killed, "status %d", end.status);
  CHECK(count_text(said("out"), "signal\n") == 3, "each got it once: %s", said("out"));
}

static void a_second_signal_kills(void) {
  launched l = begin(COUNT_SIGNALS "while true; do sleep 0.05; done", 2);
  wait_for_count("ready\n", 2);
  kill(l.pid, SIGTERM);
  wait_for_count("signal\n", 2);
  siginfo_t ended = {0};
  while (!ended.si_pid) { /* repeats: a launcher without a core may take two signals for one */
    usleep(250000);
    kill(l.pid, SIGTERM);
    usleep(250000);
    CHECK(!waitid(P_PID, (id_t)l.pid, &ended, WEXITED | WNOHANG | WNOWAIT), "waitid: %m");
  }
  children_end end = finish(l);
  CHECK(end.killed && end.interrupted == SIGTERM, "it was the user");
}

static bool is_alive(pid_t pid) {
  char path[64], text[512] = "";
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *file = fopen(path, "r");
  if (!file) return false;
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  char *state = strrchr(text, ')');
  return state && state[2] != 'Z';
}

static void none_outlives_a_killed_launcher(void) {
  launched l = begin("echo pid $$; exec sleep 1000", 3);
  pid_t pids[3];
  wait_for_count("pid ", 3);
  const char *at = said("out");
  for (int i = 0; i < 3; i++, at++) {
    at = strstr(at, "pid ");
    CHECK(at && sscanf(at, "pid %d", &pids[i]) == 1 && is_alive(pids[i]), "process %d runs", i);
  }
  kill(l.pid, SIGKILL);
  int status, alive = 3;
  waitpid(l.pid, &status, 0);
  for (int i = 0; i < 100 * PATIENCE_SECONDS && alive; i++, usleep(10000))
    alive = is_alive(pids[0]) + is_alive(pids[1]) + is_alive(pids[2]);
  CHECK(!alive, "%d are still there", alive);
  close(l.answer);
}

int main(void) {
  CHECK(mkdtemp(folder), "%s: %m", folder);
  RUN(each_is_told_its_place);
  RUN(the_key_shows_nowhere);
  RUN(shares_of_cores_are_even_and_disjoint);
  RUN(processes_have_cores_of_their_own);
  RUN(lines_are_whole_and_in_order);
  RUN(the_first_ones_words_are_unchanged);
  RUN(what_several_say_is_shown_once);
  RUN(the_first_that_fails_gives_the_status);
  RUN(a_reason_counts_before_what_follows_from_it);
  RUN(a_killed_one_is_the_culprit);
  RUN(a_stopped_one_is_killed_at_once);
  RUN(one_that_stays_stopped_fails);
  RUN(the_others_are_asked_and_then_killed);
  RUN(a_program_that_is_not_there_is_named);
  RUN(two_signals_of_one_moment_are_one);
  RUN(a_second_signal_kills);
  RUN(none_outlives_a_killed_launcher);
  forget(MOST_PROCESSES);
  return rmdir(folder) != 0;
}
