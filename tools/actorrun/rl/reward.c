/* SPDX-License-Identifier: Apache-2.0 */
/* Rewards: built-in functions, or an external program.
 *
 * The program reads one JSON line for each answer, and writes one line with a number for each, in
 * the same order. Answers arrive as they are generated, many before the first is rewarded. A
 * dedicated thread feeds the program and reads its output. A program that exits, takes too long or
 * writes anything else has failed. The run then ends. With --reward-failed drop, the next
 * unrewarded answer gets no reward, and the program is restarted for the remaining answers. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json_text.h"
#include "base/number.h"
#include "base/utf8.h"
#include "text/regex.h"
#include "tools/actorrun/rl/rl.h"

extern char **environ;

typedef struct pending {
  uint64_t id;
  int64_t step;
  char *line; /* input line for the program */
  size_t bytes;
} pending;

struct rl_rewards {
  const rl_prompts *prompts;
  sl_rollouts *rollouts;
  double (*built_in)(const rl_rewards *w, const sl_answer *answer, const char *text);
  const char *program, *pattern;
  int64_t length;
  double seconds; /* time limit for one reward */
  bool drops;
  /* used by the program's thread: */
  pthread_t thread;
  bool started;
  int wake; /* eventfd */
  pid_t pid;
  int in, out;   /* the program's standard input and output; -1: closed */
  size_t sent;   /* pending answers that were sent completely */
  size_t within; /* bytes sent of the next answer */
  char got[512]; /* an incomplete line of output */
  size_t ngot;
  pthread_mutex_t lock; /* guards the fields below */
  bool closing;
  uint64_t since_ns; /* when the oldest pending answer became the oldest */
  size_t count, capacity;
  pending *pending; /* [count] answers without a reward, oldest first */
};

/* ---- built in ------------------------------------------------------------------------------ */

static const char *trimmed(const char *text, size_t *bytes) {
  text += strspn(text, " \t\r\n");
  *bytes = strlen(text);
  while (*bytes && strchr(" \t\r\n", text[*bytes - 1])) --*bytes;
  return text;
}

/* Returns 1 if the answer equals the one in its prompt's line, apart from surrounding white
 * space. */
static double exact(const rl_rewards *rewards, const sl_answer *a, const char *text) {
  const char *wanted = rewards->prompts->prompts[a->prompt].answer;
  size_t n, m;
  text = trimmed(text, &n);
  wanted = trimmed(wanted, &m);
  return n == m && !memcmp(text, wanted, n);
}

/* Returns 1 if the expression matches the whole answer. */
static double regex(const rl_rewards *rewards, const sl_answer *a, const char *text) {
  bool is = false;
  (void)a;
  return sli_regex_is("--reward regex", rewards->pattern, text, &is) ? NAN : is;
}

/* Returns 1 for an answer of the wanted length in tokens, less in proportion to the deviation. */
static double length(const rl_rewards *rewards, const sl_answer *a, const char *text) {
  (void)text;
  return 1 - fmin(1, fabs((double)(a->count - rewards->length)) / (double)rewards->length);
}

static sl_status check_answers(const rl_rewards *rewards) {
  for (int64_t i = 0; i < rewards->prompts->count; i++)
    if (!rewards->prompts->prompts[i].answer)
      return sl_fail(SL_E_USAGE, "--reward exact: prompt %lld has no \"answer\"", (long long)i + 1);
  return SL_OK;
}

static sl_status choose(rl_rewards *rewards, const char *what) {
  bool is;
  if (!strcmp(what, "exact")) {
    rewards->built_in = exact;
    return check_answers(rewards);
  }
  if (!strncmp(what, "regex:", 6)) {
    rewards->built_in = regex;
    rewards->pattern = what + 6;
    return sli_regex_is("--reward regex", rewards->pattern, "", &is);
  }
  if (!strncmp(what, "length:", 7)) {
    rewards->built_in = length;
    char *end;
    rewards->length = strtoll(what + 7, &end, 10);
    if (*end || rewards->length < 1)
      return sl_fail(SL_E_USAGE, "--reward %s: N in length:N must be a whole number of tokens",
                     what);
    return SL_OK;
  }
  rewards->program = what;
  return SL_OK;
}

/* ---- the program --------------------------------------------------------------------------- */

static void begin_wait(rl_rewards *rewards) {
  pthread_mutex_lock(&rewards->lock);
  rewards->since_ns = sli_now_ns();
  pthread_mutex_unlock(&rewards->lock);
}

static sl_status start(rl_rewards *rewards) {
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
    return sl_fail(SL_E_IO, "--reward %s: cannot create a pipe: %s", rewards->program,
                   strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from[1], 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0); /* Ctrl-C goes to the run, which ends the program */
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  char *const words[] = {"sh", "-c", (char *)rewards->program, NULL};
  int error = posix_spawn(&rewards->pid, "/bin/sh", &actions, &attributes, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(to[0]);
  close(from[1]);
  rewards->in = to[1], rewards->out = from[0];
  rewards->sent = rewards->within = rewards->ngot = 0;
  begin_wait(rewards);
  if (error) {
    rewards->pid = 0;
    return sl_fail(SL_E_IO, "--reward %s: %s", rewards->program, strerror(error));
  }
  fcntl(rewards->in, F_SETFL, O_NONBLOCK);
  fcntl(rewards->out, F_SETFL, O_NONBLOCK);
  return SL_OK;
}

static void close_pipe(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

/* Waits up to a second for the program to end by itself. A program that closes its output and lives
 * on does not. */
static bool ends_itself(const rl_rewards *rewards) {
  enum { TRIES = 100, MS = 10 };
  for (int i = 0; i < TRIES; i++) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)rewards->pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
      return true;
    poll(NULL, 0, MS);
  }
  return false;
}

/* Ends the program and what it started. Returns its exit status, or -1 if it lived on after it had
 * closed its output. */
static int stop(rl_rewards *rewards, bool kills) {
  int how = 0;
  close_pipe(&rewards->in);
  close_pipe(&rewards->out);
  if (!rewards->pid) return 0;
  bool ended = kills || ends_itself(rewards);
  kill(-rewards->pid, SIGKILL);
  waitpid(rewards->pid, &how, 0);
  rewards->pid = 0;
  return ended ? how : -1;
}

/* ---- the thread ---------------------------------------------------------------------------- */

static size_t pending_count(rl_rewards *rewards) {
  pthread_mutex_lock(&rewards->lock);
  size_t n = rewards->count;
  pthread_mutex_unlock(&rewards->lock);
  return n;
}

/* Returns the oldest answer, and removes it if `takes`. */
static pending oldest(rl_rewards *rewards, bool takes) {
  pthread_mutex_lock(&rewards->lock);
  pending p = rewards->pending[0];
  if (takes) {
    free(p.line);
    memmove(rewards->pending, rewards->pending + 1, --rewards->count * sizeof *rewards->pending);
    rewards->since_ns = sli_now_ns();
  }
  pthread_mutex_unlock(&rewards->lock);
  p.line = NULL;
  if (!takes) return p;
  if (rewards->sent) rewards->sent--;
  return p;
}

/* Handles a failure of the program: ends the run, or drops the next answer. Returns false if the
 * run ends. */
static bool fail(rl_rewards *rewards, const char *why) {
  if (!pending_count(rewards)) return true; /* the program is restarted for the next answer */
  pending p = oldest(rewards, rewards->drops);
  if (rewards->drops) {
    sli_log("--reward %s %s: an answer of step %lld is dropped", rewards->program, why,
            (long long)p.step + 1);
    sl_rollouts_reward(rewards->rollouts, p.id, NAN);
    return true;
  }
  char *text = sli_format("--reward %s %s, for an answer of step %lld", rewards->program, why,
                          (long long)p.step + 1);
  sl_rollouts_fail(rewards->rollouts, SL_E_IO, text);
  free(text);
  return false;
}

static char *how_it_ended(int how) {
  if (how < 0) return sli_strdup("closed its output and did not end");
  return WIFSIGNALED(how) ? sli_format("was ended by signal %d", WTERMSIG(how))
                          : sli_format("ended with status %d", WEXITSTATUS(how));
}

static bool has_ended(rl_rewards *rewards) {
  char *why = how_it_ended(stop(rewards, false));
  bool good = fail(rewards, why);
  free(why);
  return good;
}

static bool has_failed(rl_rewards *rewards, const char *why) {
  stop(rewards, true);
  return fail(rewards, why);
}

/* Ends the run after a number without an answer: earlier ones may belong to other answers. */
static bool has_too_many(rl_rewards *rewards) {
  stop(rewards, true);
  char *text = sli_format(
      "--reward %s wrote more numbers than there were answers: it must write one for each line that "
      "it reads, and nothing else",
      rewards->program);
  sl_rollouts_fail(rewards->rollouts, SL_E_IO, text);
  free(text);
  return false;
}

/* Sends pending answers until the pipe is full. */
static void send_lines(rl_rewards *rewards) {
  pthread_mutex_lock(&rewards->lock);
  while (rewards->in >= 0 && rewards->sent < rewards->count) {
    const pending *p = &rewards->pending[rewards->sent];
    ssize_t n = write(rewards->in, p->line + rewards->within, p->bytes - rewards->within);
    if (n < 0) break; /* full or closed: reading will tell */
    rewards->within += (size_t)n;
    if (rewards->within < p->bytes) break;
    rewards->within = 0;
    rewards->sent++;
  }
  pthread_mutex_unlock(&rewards->lock);
}

/* Parses a line of the program's output as the reward of the oldest answer. */
static bool take_number(rl_rewards *rewards, char *line) {
  size_t n;
  const char *word = trimmed(line, &n);
  line[word - line + (ptrdiff_t)n] = 0;
  char *end;
  double reward = strtod(word, &end);
  if (!n || *end || !isfinite(reward)) {
    char *why = sli_format("wrote \"%.40s\" instead of a number", word);
    bool good = has_failed(rewards, why);
    free(why);
    return good;
  }
  if (!rewards->sent) return has_too_many(rewards);
  pending p = oldest(rewards, true);
  sl_rollouts_reward(rewards->rollouts, p.id, reward);
  return true;
}

/* Processes the complete lines of the output. Returns false if the run ends. */
static bool take_lines(rl_rewards *rewards) {
  char *end;
  while ((end = memchr(rewards->got, '\n', rewards->ngot))) {
    char line[sizeof rewards->got];
    size_t n = (size_t)(end - rewards->got);
    memcpy(line, rewards->got, n);
    line[n] = 0;
    rewards->ngot -= n + 1;
    memmove(rewards->got, end + 1, rewards->ngot);
    pid_t pid = rewards->pid;
    if (!take_number(rewards, line)) return false;
    if (rewards->pid != pid) return true; /* the remaining output is from a failed program */
  }
  return rewards->ngot < sizeof rewards->got ||
         has_failed(rewards, "wrote a line that is not a number");
}

static bool read_output(rl_rewards *rewards) {
  ssize_t n = read(rewards->out, rewards->got + rewards->ngot, sizeof rewards->got - rewards->ngot);
  if (n < 0) return errno == EAGAIN || errno == EINTR || has_ended(rewards);
  if (!n) return has_ended(rewards);
  rewards->ngot += (size_t)n;
  return take_lines(rewards);
}

/* Returns the milliseconds left until the oldest answer times out. */
static int left_ms(rl_rewards *rewards) {
  pthread_mutex_lock(&rewards->lock);
  double left = rewards->seconds - (double)(sli_now_ns() - rewards->since_ns) * 1e-9;
  pthread_mutex_unlock(&rewards->lock);
  return (int)fmin(fmax(ceil(left * 1e3), 0), 1e6);
}

static bool watch(rl_rewards *rewards) {
  size_t n = pending_count(rewards);
  if (n && !rewards->pid && start(rewards)) {
    sl_rollouts_fail(rewards->rollouts, SL_E_IO, sl_detail());
    return false;
  }
  if (rewards->pid) send_lines(rewards);
  bool sends = rewards->pid && rewards->in >= 0 && rewards->sent < n;
  struct pollfd fds[] = {{.fd = rewards->wake, .events = POLLIN},
                         {.fd = rewards->pid ? rewards->out : -1, .events = POLLIN},
                         {.fd = sends ? rewards->in : -1, .events = POLLOUT}};
  poll(fds, 3, n ? left_ms(rewards) : -1);
  eventfd_t drop;
  if (fds[0].revents) eventfd_read(rewards->wake, &drop);
  if (fds[2].revents & POLLERR)
    close_pipe(&rewards->in); /* it reads no more, but may still write */
  if (fds[1].revents) return read_output(rewards);
  if (!n || left_ms(rewards)) return true;
  char *why = sli_format("took more than %g seconds", rewards->seconds);
  bool good = has_failed(rewards, why);
  free(why);
  return good;
}

static bool is_closing(rl_rewards *rewards) {
  pthread_mutex_lock(&rewards->lock);
  bool closing = rewards->closing;
  pthread_mutex_unlock(&rewards->lock);
  return closing;
}

static void *run(void *arg) {
  rl_rewards *w = arg;
  sigset_t pipes;
  sigemptyset(&pipes);
  sigaddset(&pipes, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipes, NULL);
  while (!is_closing(w) && watch(w)) {}
  stop(w, true);
  return NULL;
}

/* ---- interface ----------------------------------------------------------------------------- */

static char *line_of(const rl_rewards *rewards, const sl_answer *a, const char *text) {
  const rl_prompt *p = &rewards->prompts->prompts[a->prompt];
  cJSON *line = cJSON_CreateObject();
  cJSON_AddNumberToObject(line, "step", (double)a->step + 1);
  cJSON_AddStringToObject(line, "prompt", p->text);
  cJSON_AddStringToObject(line, "answer", text);
  if (p->answer) cJSON_AddStringToObject(line, "expected", p->answer);
  if (p->data) cJSON_AddItemToObject(line, "data", cJSON_CreateRaw(p->data));
  cJSON_AddBoolToObject(line, "truncated", a->truncated);
  char *json = sli_json_mend(cJSON_PrintUnformatted(line)), *out = sli_format("%s\n", json);
  cJSON_free(json);
  cJSON_Delete(line);
  return out;
}

static void queue(rl_rewards *rewards, const sl_answer *a, const char *text) {
  char *line = line_of(rewards, a, text);
  pthread_mutex_lock(&rewards->lock);
  if (!rewards->count) rewards->since_ns = sli_now_ns();
  SLI_GROW(rewards->pending, rewards->count, rewards->capacity);
  rewards->pending[rewards->count++] =
      (pending){.id = a->id, .step = a->step, .line = line, .bytes = strlen(line)};
  pthread_mutex_unlock(&rewards->lock);
  eventfd_write(rewards->wake, 1);
}

void rl_rewards_take(void *ctx, const sl_answer *a) {
  rl_rewards *w = ctx;
  char *text = rl_answer_text(w->prompts, a);
  if (w->built_in) sl_rollouts_reward(w->rollouts, a->id, w->built_in(w, a, text));
  else queue(w, a, text);
  free(text);
}

static sl_status check_failed(const settings *s, bool *drops) {
  const char *what = sl_arg_text(s->run, "reward-failed");
  *drops = !strcmp(what, "drop");
  if (*drops || !strcmp(what, "end")) return SL_OK;
  return sl_fail(SL_E_USAGE, "--reward-failed %s: must be end or drop", what);
}

sl_status rl_rewards_open(const settings *s, const rl_prompts *prompts, rl_rewards **out) {
  rl_rewards *w = *out = sli_calloc(1, sizeof *w);
  *w = (rl_rewards){.prompts = prompts,
                    .seconds = sl_arg_float(s->run, "reward-seconds"),
                    .in = -1,
                    .out = -1,
                    .wake = -1};
  pthread_mutex_init(&w->lock, NULL);
  sl_status status = check_failed(s, &w->drops);
  if (!status) status = choose(w, settings_text(s, "reward"));
  return status;
}

/* Starts the program at the beginning of the run, so that an error shows before the first
 * answer. */
void rl_rewards_attach(rl_rewards *rewards, sl_rollouts *rollouts) {
  rewards->rollouts = rollouts;
  if (!rewards->program) return;
  rewards->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  rewards->started = !pthread_create(&rewards->thread, NULL, run, rewards);
  SLI_CHECK(rewards->started, "cannot start a thread for --reward");
}

void rl_rewards_close(rl_rewards *rewards) {
  if (!rewards) return;
  if (rewards->started) {
    pthread_mutex_lock(&rewards->lock);
    rewards->closing = true;
    pthread_mutex_unlock(&rewards->lock);
    eventfd_write(rewards->wake, 1);
    pthread_join(rewards->thread, NULL);
  }
  for (size_t i = 0; i < rewards->count; i++) free(rewards->pending[i].line);
  free(rewards->pending);
  if (rewards->wake >= 0) close(rewards->wake);
  pthread_mutex_destroy(&rewards->lock);
  free(rewards);
}
