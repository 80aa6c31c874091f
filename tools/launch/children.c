/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that are started together and end together.
 *
 * Starting. A child learns its rank from the environment. It reads the job's key from an inherited
 * unnamed file, so the key is never visible to others. It gets its share of the cores, and a signal
 * from the kernel if the parent dies, so no child outlives the parent.
 *
 * Signals. Children are not in the parent's process group. Signals that a terminal, a shell or
 * timeout(1) sends to the group reach only the parent, which forwards them once. The first SIGINT
 * or SIGTERM asks the children to stop after the step; a second one kills. Two within a moment
 * count as one, because some tools signal both the process and its group. The parent may read a
 * signal long after it was sent, so the moment ends only when all signals pending at its end have
 * been read. Ctrl-Z stops all.
 *
 * Ends. When one process fails, the other processes notice by themselves. Those still running after
 * the grace time get SIGTERM, and SIGKILL a little later. A process stopped by someone's SIGSTOP is
 * killed at once in that case. If it stays stopped it counts as failed, and the other processes get
 * SIGTERM at once: it may not have joined the job yet, and they would wait for it. The job's status
 * is that of the process that failed first. A process killed by a signal that the parent did not
 * send is blamed before any process that only noticed. */
#include "tools/launch/children.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "placement/share.h"
#include "tools/launch/lines.h"

enum { GRACE_MS = 1000, KILL_MS = 300, DOUBLE_MS = 200, STOPPED_MS = 2000 };
enum { GRACE, ASKED, KILLED }; /* stages of ending the other processes after a failure */

typedef struct child {
  pid_t pid; /* 0 if it has ended */
  /* time of a SIGSTOP by someone else, after which it cannot end by itself; 0 if it runs */
  uint64_t stopped_ns;
  bool ours; /* the parent killed it because it was stopped */
  stream out, err;
} child;

typedef struct children {
  const children_options *options;
  sl_machine *machine; /* NULL if cores are not divided */
  int signals, key;    /* file descriptors */
  sigset_t mask;       /* signal mask to restore in children */
  int alive;
  child *all; /* [options->count] */
  lines lines;
  children_end end;
  int stage;
  bool failed;
  uint64_t due_ns; /* time of the next stage; 0: never */
  uint64_t interrupt_ns;
  bool moment_over; /* the first signal's moment is over: another signal kills */
} children;

/* ---- starting ---------------------------------------------------------------------------- */

static void set_number(const char *name, int v) {
  char text[16];
  snprintf(text, sizeof text, "%d", v);
  setenv(name, text, 1);
}

static void set_environment(const children *c, int i) {
  const children_options *o = c->options;
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", c->key);
  set_number("SLUICE_PROCESS", o->first + i);
  set_number("SLUICE_PROCESSES", o->total);
  set_number("SLUICE_LOCAL", i);
  set_number("SLUICE_LOCALS", o->count);
  set_number("SLUICE_INCARNATION", o->incarnation);
  setenv("SLUICE_ENDPOINT", o->endpoint, 1);
  setenv("SLUICE_JOB", o->job, 1);
  setenv("SLUICE_KEY_FILE", path, 1);
  setenv("SLUICE_BOUND", "1", 1); /* bound to this process's cores */
  unsetenv("SLUICE_KEY");
}

noreturn static void become(const children *c, int i, pid_t parent, int out, int err) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  sigprocmask(SIG_SETMASK, &c->mask, NULL);
  if (out >= 0) dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  fcntl(c->key, F_SETFD, 0);
  set_environment(c, i);
  if (c->machine) sli_share_take(c->machine, i, c->options->count);
  execv(c->options->argv[0], c->options->argv);
  fprintf(stderr, "%s: cannot run %s: %s\n", c->options->tool, c->options->argv[0],
          strerror(errno));
  _exit(1);
}

static bool open_pipe(stream *s, int *end, int process, int to) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) return false;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  *s = (stream){.from = ends[0], .to = to, .process = process, .errors = to == STDERR_FILENO};
  *end = ends[1];
  return true;
}

/* Starts child i. The first process keeps a terminal as its standard output, to draw on. */
static bool start(children *c, int i) {
  child *x = &c->all[i];
  int process = c->options->first + i, out = -1, err = -1;
  pid_t parent = getpid();
  bool good = (i == 0 && c->lines.live) || open_pipe(&x->out, &out, process, STDOUT_FILENO);
  good = good && open_pipe(&x->err, &err, process, STDERR_FILENO);
  pid_t pid = good ? fork() : -1;
  if (pid == 0) become(c, i, parent, out, err);
  if (pid < 0)
    fprintf(stderr, "%s: cannot start process %d: %s\n", c->options->tool, process,
            strerror(errno));
  if (out >= 0) close(out);
  if (err >= 0) close(err);
  x->pid = pid > 0 ? pid : 0;
  c->alive += pid > 0;
  return pid > 0;
}

static int make_key_file(const char *key) {
  int fd = memfd_create("sluice-key", MFD_CLOEXEC);
  size_t n = strlen(key);
  SLI_CHECK(fd >= 0 && !fchmod(fd, 0600) && write(fd, key, n) == (ssize_t)n,
            "cannot store the key of the job: %s", strerror(errno));
  return fd;
}

/* ---- ending ------------------------------------------------------------------------------ */

static void signal_all(const children *c, int signal_number) {
  for (int i = 0; i < c->options->count; i++)
    if (c->all[i].pid) kill(c->all[i].pid, signal_number);
}

static void end_others(children *c, int grace_ms) {
  if (c->failed) return;
  c->failed = true;
  c->stage = GRACE;
  c->due_ns = sli_now_ns() + (uint64_t)grace_ms * 1000000;
}

static void next_stage(children *c) {
  bool asked = c->stage == GRACE;
  signal_all(c, asked ? SIGTERM : SIGKILL);
  c->stage = asked ? ASKED : KILLED;
  c->due_ns = asked ? sli_now_ns() + UINT64_C(1000000) * KILL_MS : 0;
}

/* Returns whether a child died of a signal sent by neither the user nor the parent, before the job
 * was ending. */
static bool is_violent(const children *c, int i, int status) {
  return WIFSIGNALED(status) && !c->end.interrupted && c->stage == GRACE && !c->all[i].ours;
}

/* Returns whether an exit status is a cause. A process that only learns of another's failure exits
 * with 1. A bad input or plan is the cause even if it is reported later. */
static bool is_reason(const children *c, int i, int code) {
  return c->end.status == 1 && !c->end.signal && !c->end.stopped && !c->all[i].ours &&
         (code == 2 || code == 3);
}

/* Returns whether the user stopped the process before its last step. A process that fails to save
 * then reports that itself, and the others are stopping too. */
static bool is_as_asked(const children *c, int status) {
  return c->end.interrupted && !c->failed && WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

static void take_end(children *c, int i, int status) {
  children_end *end = &c->end;
  c->all[i].pid = 0;
  c->alive--;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  if (is_as_asked(c, status)) {
    if (!end->status) end->status = code;
    return;
  }
  if (end->culprit < 0 || (is_violent(c, i, status) && !end->signal) || is_reason(c, i, code)) {
    end->culprit = c->options->first + i;
    end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    end->status = code <= 3 ? code : 1;
  }
  end_others(c, c->options->grace_ms ? c->options->grace_ms : GRACE_MS);
}

/* Kills a stopped child and blames it: a process that failed earlier only noticed its silence. */
static void kill_stopped(children *c, int i) {
  c->all[i].ours = true;
  kill(c->all[i].pid, SIGKILL);
  if (c->end.signal || c->end.stopped) return;
  c->end.culprit = c->options->first + i;
  c->end.status = 1;
  c->end.stopped = true;
}

/* Returns whether a child is stopped but not yet killed for it. */
static bool is_held(const child *x) { return x->pid && x->stopped_ns && !x->ours; }

static uint64_t given_up_ns(const children *c, const child *x) {
  int stopped_ms = c->options->stopped_ms ? c->options->stopped_ms : STOPPED_MS;
  return x->stopped_ns + UINT64_C(1000000) * (uint64_t)stopped_ms;
}

static void take_news(children *c, int i) {
  child *x = &c->all[i];
  int status;
  while (x->pid && waitpid(x->pid, &status, WNOHANG | WUNTRACED | WCONTINUED) > 0) {
    if (WIFSTOPPED(status)) x->stopped_ns = sli_now_ns();
    else if (WIFCONTINUED(status)) x->stopped_ns = 0;
    else take_end(c, i, status);
  }
}

static void take_ends(children *c) {
  for (int i = 0; i < c->options->count; i++) take_news(c, i);
  for (int i = 0; i < c->options->count; i++)
    if (is_held(&c->all[i]) && (c->failed || sli_now_ns() >= given_up_ns(c, &c->all[i]))) {
      kill_stopped(c, i);
      end_others(c, 0); /* the other processes may be waiting for it to join */
    }
}

/* ---- the user's signals ------------------------------------------------------------------ */

static void interrupt(children *c, int signal_number) {
  if (!c->end.interrupted) {
    c->end.interrupted = signal_number;
    c->interrupt_ns = sli_now_ns();
    signal_all(c, signal_number);
  } else if (c->moment_over) {
    c->end.killed = true;
    signal_all(c, SIGKILL);
  }
}

static void pause_all(const children *c) {
  signal_all(c, SIGSTOP);
  raise(SIGSTOP);
  signal_all(c, SIGCONT);
}

static bool in_moment(const children *c) { return c->end.interrupted && !c->moment_over; }

static uint64_t moment_end_ns(const children *c) {
  return c->interrupt_ns + UINT64_C(1000000) * DOUBLE_MS;
}

static void take_signals(children *c) {
  struct signalfd_siginfo info;
  while (read(c->signals, &info, sizeof info) == sizeof info) {
    int n = (int)info.ssi_signo;
    if (n == SIGINT || n == SIGTERM) interrupt(c, n);
    else if (n == SIGTSTP) pause_all(c);
  }
  take_ends(c);
}

/* ---- the job ----------------------------------------------------------------------------- */

/* Returns the time of the next deadline, or 0 if there is none. */
static uint64_t due_ns(const children *c) {
  uint64_t due = c->due_ns;
  if (in_moment(c) && (!due || moment_end_ns(c) < due)) due = moment_end_ns(c);
  for (int i = 0; i < c->options->count; i++)
    if (is_held(&c->all[i]) && (!due || given_up_ns(c, &c->all[i]) < due))
      due = given_up_ns(c, &c->all[i]);
  return due;
}

/* Waits for signals, output or a deadline. */
static void wait_and_take(children *c, struct pollfd *polls) {
  int n = 0, count = c->options->count, wait_ms = -1;
  uint64_t now = sli_now_ns(), due = due_ns(c);
  polls[n++] = (struct pollfd){.fd = c->signals, .events = POLLIN};
  for (int i = 0; i < count; i++) {
    polls[n++] = (struct pollfd){.fd = c->all[i].out.from, .events = POLLIN};
    polls[n++] = (struct pollfd){.fd = c->all[i].err.from, .events = POLLIN};
  }
  if (due) wait_ms = due > now ? (int)((due - now) / 1000000 + 1) : 0;
  if (poll(polls, (nfds_t)n, wait_ms) < 0) return;
  for (int i = 0; i < count; i++) {
    if (polls[1 + 2 * i].revents) stream_pass(&c->all[i].out, &c->lines);
    if (polls[2 + 2 * i].revents) stream_pass(&c->all[i].err, &c->lines);
  }
  if (polls[0].revents) take_signals(c);
  else if (due) take_ends(c);
  if (in_moment(c) && now >= moment_end_ns(c)) c->moment_over = true;
  if (c->due_ns && sli_now_ns() >= c->due_ns) next_stage(c);
}

static void supervise(children *c) {
  struct pollfd *polls = sli_calloc(1 + 2 * (size_t)c->options->count, sizeof *polls);
  while (c->alive) wait_and_take(c, polls);
  free(polls);
  for (int i = 0; i < c->options->count; i++) {
    stream_end(&c->all[i].out, &c->lines);
    stream_end(&c->all[i].err, &c->lines);
  }
}

/* Receives signals through a file descriptor while children run. */
static void open_signals(children *c) {
  sigset_t set;
  static const int taken[] = {SIGCHLD, SIGINT, SIGTERM, SIGTSTP};
  sigemptyset(&set);
  for (size_t i = 0; i < SLI_COUNT(taken); i++) sigaddset(&set, taken[i]);
  sigprocmask(SIG_BLOCK, &set, &c->mask);
  c->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  SLI_CHECK(c->signals >= 0, "signalfd: %s", strerror(errno));
}

children_end children_run(const children_options *options) {
  children c = {.options = options, .end = {.culprit = -1}, .key = make_key_file(options->key)};
  c.all = sli_calloc((size_t)options->count, sizeof *c.all);
  for (int i = 0; i < options->count; i++) c.all[i].out.from = c.all[i].err.from = -1;
  if (options->count > 1) sl_machine_create(NULL, &c.machine);
  lines_init(&c.lines, options->tool, options->first);
  open_signals(&c);
  for (int i = 0; i < options->count; i++)
    if (!start(&c, i)) {
      c.end.culprit = options->first + i;
      c.end.status = 1;
      c.stage = ASKED; /* nothing waits for processes that never started */
      signal_all(&c, SIGKILL);
      break;
    }
  supervise(&c);
  lines_show(&c.lines);
  c.end.lost = c.lines.lost;
  c.end.said = lines_shared(&c.lines, c.end.culprit);
  lines_fini(&c.lines);
  close(c.signals);
  close(c.key);
  sigprocmask(SIG_SETMASK, &c.mask, NULL);
  sl_machine_destroy(c.machine);
  free(c.all);
  return c.end;
}
