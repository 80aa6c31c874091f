/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/launch/launch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "comm/control/control.h"
#include "tools/cli/cli.h"
#include "tools/launch/children.h"

/* ---- options ----------------------------------------------------------------------------- */

/* Options that are not passed to the processes. */
static const char *const ours[] = {"processes", "restarts",      "nnodes",
                                   "node-rank", "rdzv-endpoint", "rdzv-id"};

static bool is_ours(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(ours); i++)
    if (!strcmp(ours[i], name)) return true;
  return false;
}

static int number(const settings *s, const char *name) { return (int)sl_arg_int(s->run, name); }

sl_status launch_check(const settings *s) {
  static const char *const need_place[] = {"nnodes", "node-rank", "rdzv-id"};
  const char *endpoint = settings_text(s, "rdzv-endpoint");
  for (size_t i = 0; i < SLI_COUNT(need_place); i++)
    if (sl_arg_given(s->run, need_place[i], 0) && !endpoint)
      return sl_fail(
          SL_E_USAGE,
          "--%s: needs --rdzv-endpoint HOST:PORT, on the host of --node-rank 0, where the hosts meet",
          need_place[i]);
  if (number(s, "node-rank") >= number(s, "nnodes"))
    return sl_fail(SL_E_USAGE, "--node-rank %d: with --nnodes %d it must be between 0 and %d",
                   number(s, "node-rank"), number(s, "nnodes"), number(s, "nnodes") - 1);
  if (endpoint && sli_cluster_check_endpoint("--rdzv-endpoint", endpoint)) return SL_E_USAGE;
  const char *id = settings_text(s, "rdzv-id");
  if (id && strlen(id) >= sizeof((sli_cluster *)0)->job)
    return sl_fail(SL_E_USAGE, "--rdzv-id %s: longer than %zu characters", id,
                   sizeof((sli_cluster *)0)->job - 1);
  return SL_OK;
}

int launch_lost_ms(const settings *s) {
  return (int)(1000 * sl_arg_float(s->run, "heartbeat-timeout"));
}

/* Returns the given option that implies starting processes, or NULL if there is none. */
static const char *who_asks(const settings *s) {
  if (number(s, "processes") > 1) return "processes";
  if (settings_text(s, "rdzv-endpoint")) return "rdzv-endpoint";
  return number(s, "restarts") ? "restarts" : NULL;
}

static sl_status launch_refuse(const char *option, const sli_cluster *cluster) {
  if (!strcmp(option, "restarts"))
    return sl_fail(
        SL_E_USAGE,
        "--restarts: %s started this process and the %d others of its job, and only it can restart them",
        cluster->starter, cluster->nprocesses - 1);
  return sl_fail(SL_E_USAGE, "--%s: this is already process %d of the %d that %s started", option,
                 cluster->process, cluster->nprocesses, cluster->starter);
}

/* ---- command lines ----------------------------------------------------------------------- */

/* Builds the command line of every process. */
static sl_status make_words(const settings *s, const char *again, words *out) {
  char self[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n < 0) return sl_fail(SL_E_IO, "cannot find the path of this program: %s", strerror(errno));
  words_add(out, "%.*s", (int)n, self);
  for (const sl_option *o = s->options; o->name; o++)
    if (!is_ours(o->name)) words_run(s, o, out);
  if (again) words_add(out, "%s", again);
  words_model(s, out);
  return SL_OK;
}

/* ---- meeting point ----------------------------------------------------------------------- */

typedef struct meeting {
  char endpoint[256], job[64], key[48];
  int port; /* a socket that reserves the endpoint's port; -1 if none */
} meeting;

static void launch_leave(meeting *m) {
  if (m->port >= 0) close(m->port);
  explicit_bzero(m, sizeof *m);
}

/* Reserves a port of this host for process 0 to listen on. A bound socket that does not listen
 * keeps it: the system does not hand such a port to a process that asks for any free port. Process
 * 0, which names the port, can still bind it because both sockets allow address reuse (socket(7),
 * SO_REUSEADDR). */
static sl_status take_port(meeting *m) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int yes = 1;
  m->port = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool good = m->port >= 0 &&
              setsockopt(m->port, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
              bind(m->port, (struct sockaddr *)&address, size) == 0 &&
              getsockname(m->port, (struct sockaddr *)&address, &size) == 0;
  if (!good) return sl_fail(SL_E_IO, "no port for the processes to meet: %s", strerror(errno));
  snprintf(m->endpoint, sizeof m->endpoint, "127.0.0.1:%d", ntohs(address.sin_port));
  return SL_OK;
}

/* Sets up a meeting point known only to processes of this host. */
static sl_status meet_here(meeting *m) {
  sl_status status = take_port(m);
  if (status) return status;
  snprintf(m->job, sizeof m->job, "sluice-%ld-%llx", (long)getpid(),
           (unsigned long long)sli_now_ns());
  return sli_control_make_key(m->key);
}

static sl_status meet(const settings *s, meeting *m) {
  const char *endpoint = settings_text(s, "rdzv-endpoint"), *id = settings_text(s, "rdzv-id");
  if (!endpoint) return meet_here(m);
  snprintf(m->endpoint, sizeof m->endpoint, "%s", endpoint);
  snprintf(m->job, sizeof m->job, "%s", id ? id : endpoint);
  return sli_cluster_key((const char *(*)(const char *))getenv, m->job, m->key);
}

/* ---- running ----------------------------------------------------------------------------- */

/* Raises the limit of open files to two pipes per process and some more. */
static sl_status reserve_pipes(int count) {
  size_t got;
  char *what = sli_format("starting %d processes takes", count);
  sl_status status = sli_descriptors_reserve(what, 2 * (size_t)count + 12, 0, &got);
  free(what);
  return status;
}

static sl_status run_once(const settings *s, int incarnation, const launch_again *again,
                          children_end *end) {
  meeting m = {.port = -1};
  words w = {0};
  int count = number(s, "processes");
  sl_status status = reserve_pipes(count);
  if (!status) status = meet(s, &m);
  if (!status) status = make_words(s, incarnation ? again->option : NULL, &w);
  if (!status)
    *end = children_run(&(children_options){.tool = s->tool->name,
                                            .argv = w.items,
                                            .count = count,
                                            .first = count * number(s, "node-rank"),
                                            .total = count * number(s, "nnodes"),
                                            .endpoint = m.endpoint,
                                            .job = m.job,
                                            .key = m.key,
                                            .incarnation = incarnation,
                                            .stopped_ms = launch_lost_ms(s) + 500});
  launch_leave(&m);
  words_fini(&w);
  return status;
}

static void tell(const char *tool, const children_end *end) {
  if (end->signal)
    fprintf(stderr, "%s: process %d was killed by signal %d (%s)\n", tool, end->culprit,
            end->signal, strsignal(end->signal));
  else if (end->stopped)
    fprintf(stderr, "%s: process %d was stopped (SIGSTOP) and is killed\n", tool, end->culprit);
  else if (end->culprit >= 0 && !end->said)
    fprintf(stderr, "%s: process %d ended with status %d\n", tool, end->culprit, end->status);
}

/* Ends this process with the user's signal, as if it had run alone. */
static void pass_on(const children_end *end) {
  if (!end->killed && (!end->interrupted || end->signal != end->interrupted)) return;
  signal(end->interrupted, SIG_DFL);
  raise(end->interrupted);
}

static sl_status run_again_and_again(const settings *s, const launch_again *again,
                                     int *exit_status) {
  int restarts = number(s, "restarts");
  for (int incarnation = 0;; incarnation++) {
    children_end end;
    sl_status status = run_once(s, incarnation, again, &end);
    if (status) return status;
    pass_on(&end);
    tell(s->tool->name, &end);
    *exit_status = end.status;
    if (!end.status && end.lost)
      return sl_fail(SL_E_IO, "writing the standard output failed: %s", strerror(end.lost));
    if (end.status != 1 || end.interrupted || incarnation == restarts) return SL_OK;
    fprintf(stderr, "%s: restarting, %d of %d%s\n", s->tool->name, incarnation + 1, restarts,
            again->from);
  }
}

sl_status launch_run(const settings *s, const sli_cluster *cluster, const launch_again *again,
                     bool *launched, int *exit_status) {
  const char *option = who_asks(s);
  *launched = false;
  if (!option) return SL_OK;
  if (cluster->nprocesses > 1) return launch_refuse(option, cluster);
  *launched = true;
  return run_again_and_again(s, again, exit_status);
}
