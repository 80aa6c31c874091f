/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the control plane in jobs of a few processes, some forked and killed, some inside this
 * process.
 *
 * needs: zeromq */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/control/control.h"
#include "tests/support/comm_node.h"
#include "tests/support/test.h"

enum { PATIENCE_MS = 20000 };

static char key[SLI_CONTROL_KEY_CHARS + 1];
static node nodes[8];

static sli_control_options options_of(int process, int nprocesses, const char *endpoint) {
  return (sli_control_options){.process = process,
                               .nprocesses = nprocesses,
                               .endpoint = endpoint,
                               .job = "test",
                               .key = key,
                               .join_ms = PATIENCE_MS,
                               .lost_ms = 10000};
}

static void open_with(node *n, sli_control_options options) {
  sl_status status = node_open(n, &options);
  CHECK(!status, "process %d opens: %s", options.process, sl_detail());
}

static void open_job(int count, const char *endpoint) {
  open_with(&nodes[0], options_of(0, count, endpoint));
  for (int k = 1; k < count; k++)
    open_with(&nodes[k], options_of(k, count, sli_control_endpoint(nodes[0].control)));
}

static void join_job(int count) {
  for (int k = 0; k < count; k++)
    CHECK(!sli_control_join(nodes[k].control), "process %d joins: %s", k, sl_detail());
}

static void close_job(int count) {
  uint64_t start = sli_now_ns();
  for (int k = 0; k < count; k++) node_close(&nodes[k]);
  double seconds = (double)(sli_now_ns() - start) * 1e-9;
  CHECK(seconds < 1.0 * count + 5, "closing does not hang: %.1f s", seconds);
}

static void check_not_aborted(int count) {
  for (int k = 0; k < count; k++)
    CHECK(!nodes[k].aborts, "process %d was aborted: %s", k, nodes[k].text);
}

/* ---- processes that die ---------------------------------------------------------- */

enum { FAMILY = 4 };

typedef struct report {
  int process, culprit, aborts;
  uint64_t aborted_ns;
  char text[256];
} report;

/* A member process: joins, sends to all from time to time, and reports the end. */
static void live(int process, const char *endpoint, int ready_fd, int report_fd) {
  static node n;
  sli_control_options options = options_of(process, FAMILY, endpoint);
  options.lost_ms = 0; /* the default */
  CHECK(!node_open(&n, &options), "process %d opens: %s", process, sl_detail());
  if (process == 0) {
    char text[64] = "";
    snprintf(text, sizeof text, "%s", sli_control_endpoint(n.control));
    CHECK(write(ready_fd, text, sizeof text) == sizeof text, "the endpoint is told");
  }
  CHECK(!sli_control_join(n.control), "process %d joins: %s", process, sl_detail());
  CHECK(!sli_control_meet(n.control, "begin", NULL, 0, NULL), "process %d begins: %s", process,
        sl_detail());
  if (process == 0) CHECK(write(ready_fd, "", 1) == 1, "the start is told");
  uint64_t number = 0;
  while (!node_wait_abort(&n, 10)) {
    for (int k = 0; k < FAMILY; k++)
      if (k != process) node_send(&n, k, number);
    number++;
  }
  usleep(100000); /* a second call would come within this time */
  report r = {process, n.culprit, n.aborts, n.aborted_ns, ""};
  snprintf(r.text, sizeof r.text, "%.255s", n.text);
  CHECK(write(report_fd, &r, sizeof r) == sizeof r, "process %d reports", process);
  node_close(&n);
  _exit(0);
}

static void read_all(int fd, void *out, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t count = read(fd, (char *)out + done, bytes - done);
    CHECK(count > 0, "a child tells what is expected");
    done += (size_t)count;
  }
}

static pid_t spawn(int process, const char *endpoint, const int ready[2], const int reports[2]) {
  pid_t pid = fork();
  CHECK(pid >= 0, "fork works");
  if (pid) return pid;
  close(ready[0]);
  close(reports[0]);
  live(process, endpoint, ready[1], reports[1]);
  return 0;
}

static void check_reports(int fd, int victim, uint64_t struck_ns, const char *what) {
  double worst = 0;
  for (int i = 0; i < FAMILY - 1; i++) {
    report r;
    read_all(fd, &r, sizeof r);
    double seconds = (double)(int64_t)(r.aborted_ns - struck_ns) * 1e-9;
    char name[32];
    snprintf(name, sizeof name, "process %d ", victim);
    worst = SLI_MAX(worst, seconds);
    CHECK(r.aborts == 1, "%s: process %d is told once, not %d times", what, r.process, r.aborts);
    CHECK(r.culprit == victim, "%s: process %d blames %d, not %d: %s", what, r.process, victim,
          r.culprit, r.text);
    CHECK(strstr(r.text, name) && strstr(r.text, "host"), "%s: the text names it: %s", what,
          r.text);
    CHECK(seconds < 2.5, "%s: process %d notices within 2.5 s, not %.2f", what, r.process, seconds);
  }
  printf("%s of process %d: noticed everywhere after %.2f s\n", what, victim, worst);
}

static void check_victim(int victim, int signal, const char *what) {
  int ready[2], reports[2];
  pid_t pids[FAMILY];
  char endpoint[64], started;
  CHECK(!pipe(ready) && !pipe(reports), "there are pipes");
  fflush(NULL);
  pids[0] = spawn(0, "127.0.0.1:0", ready, reports);
  read_all(ready[0], endpoint, sizeof endpoint);
  for (int k = 1; k < FAMILY; k++) pids[k] = spawn(k, endpoint, ready, reports);
  read_all(ready[0], &started, 1);
  usleep(200000);
  close(ready[1]);
  close(reports[1]);
  uint64_t struck_ns = sli_now_ns();
  kill(pids[victim], signal);
  check_reports(reports[0], victim, struck_ns, what);
  kill(pids[victim], SIGKILL);
  for (int k = 0; k < FAMILY; k++) {
    int status;
    CHECK(waitpid(pids[k], &status, 0) == pids[k], "the child is there");
    CHECK(k == victim || status == 0, "%s: process %d ends well", what, k);
  }
  close(ready[0]);
  close(reports[0]);
}

static void test_the_dead_and_the_silent_are_noticed_by_all(void) {
  check_victim(2, SIGKILL, "SIGKILL");
  check_victim(0, SIGKILL, "SIGKILL");
  check_victim(3, SIGSTOP, "SIGSTOP");
  check_victim(0, SIGSTOP, "SIGSTOP");
}

/* ---- starved processes --------------------------------------------------------------- */

enum { SHORT_MS = 800, BUSY_MS = 175, STOPPED_MS = 920 };

static sli_control_options hasty(int process, const char *endpoint) {
  sli_control_options options = options_of(process, 2, endpoint);
  options.heartbeat_ms = 100;
  options.lost_ms = SHORT_MS;
  return options;
}

/* A member that sends nothing on its own and runs until it is killed. */
noreturn static void attend(int ready_fd) {
  static node n;
  char endpoint[64];
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if the test fails */
  read_all(ready_fd, endpoint, sizeof endpoint);
  sli_control_options options = hasty(1, endpoint);
  CHECK(!node_open(&n, &options) && !sli_control_join(n.control), "it joins: %s", sl_detail());
  for (;;) pause();
}

/* Keeps this process's control thread busy almost all the time, for `ms` milliseconds. */
static void be_busy(node *n, int ms) {
  uint64_t until = sli_now_ns() + (uint64_t)ms * 1000000;
  pthread_mutex_lock(&n->lock);
  int words = n->nwords;
  pthread_mutex_unlock(&n->lock);
  while (sli_now_ns() < until && !node_wait_abort(n, 0)) {
    sli_control_say(n->control, 0, "busy", NULL, 0);
    node_wait_words(n, ++words, n->word_ms);
  }
}

/* A process that hardly runs cannot tell whether others are silent: it counts only part of a
 * silence, but still some of it. */
static void test_who_hardly_runs_does_not_blame_others_at_once(void) {
  int ready[2];
  char endpoint[64] = "";
  CHECK(!pipe(ready), "there is a pipe");
  fflush(NULL);
  pid_t pid = fork();
  CHECK(pid >= 0, "fork works");
  if (!pid) attend(ready[0]);
  node *n = &nodes[0];
  open_with(n, hasty(0, "127.0.0.1:0"));
  n->word_ms = BUSY_MS;
  snprintf(endpoint, sizeof endpoint, "%s", sli_control_endpoint(n->control));
  CHECK(write(ready[1], endpoint, sizeof endpoint) == sizeof endpoint, "the endpoint is told");
  CHECK(!sli_control_join(n->control), "both join: %s", sl_detail());
  be_busy(n, SHORT_MS);
  kill(pid, SIGSTOP);
  be_busy(n, STOPPED_MS);
  CHECK(!node_wait_abort(n, 0), "a busy process blames the other: %s", n->text);
  uint64_t quiet_ns = sli_now_ns();
  CHECK(node_wait_abort(n, 5000), "one that is no longer busy notices");
  printf("SIGSTOP seen by a busy process: not for %.2f s, then after %.2f s\n", STOPPED_MS * 1e-3,
         (double)(n->aborted_ns - quiet_ns) * 1e-9);
  kill(pid, SIGKILL);
  CHECK(waitpid(pid, NULL, 0) == pid, "the child is there");
  node_close(n);
  close(ready[0]);
  close(ready[1]);
}

/* ---- words and meetings ---------------------------------------------------------- */

static uint8_t *make_data(size_t bytes, uint64_t seed) {
  uint8_t *data = malloc(bytes + 1);
  for (size_t i = 0; i < bytes; i++) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    data[i] = (uint8_t)(seed >> 56);
  }
  return data;
}

static void test_words_reach_whom_they_should_in_one_order(void) {
  enum { COUNT = 3, BIG = 5 << 20 };
  uint8_t *big = make_data(BIG, 7);
  open_job(COUNT, "127.0.0.1:0");
  join_job(COUNT);
  for (int k = 0; k < COUNT; k++) {
    sli_control_say(nodes[k].control, -1, "small", &k, sizeof k);
    sli_control_say(nodes[k].control, -1, "big", big, BIG);
    sli_control_say(nodes[k].control, (k + 1) % COUNT, "neighbour", NULL, 0);
    sli_control_say(nodes[k].control, k, "self", "x", 1);
  }
  for (int k = 0; k < COUNT; k++)
    CHECK(node_wait_words(&nodes[k], 2 * COUNT + 2, PATIENCE_MS), "all words reach %d", k);
  for (int k = 0; k < COUNT; k++) {
    int last[COUNT] = {0}, all[2] = {0, 0};
    for (int i = 0; i < nodes[k].nwords; i++) {
      const node_word *w = &nodes[k].words[i];
      int rank = !strcmp(w->word, "small")       ? 1
                 : !strcmp(w->word, "big")       ? 2
                 : !strcmp(w->word, "neighbour") ? 3
                                                 : 4;
      CHECK(rank > last[w->from], "%d hears what %d says in order", k, w->from);
      last[w->from] = rank;
      if (rank == 2)
        CHECK(w->bytes == BIG && w->hash == sli_hash(SLI_HASH_SEED, big, BIG),
              "5 MiB from %d are whole at %d", w->from, k);
      if (rank == 3) CHECK((w->from + 1) % COUNT == k && !w->bytes, "a word for one reaches one");
      if (rank == 4) CHECK(w->from == k && w->bytes == 1, "one's own word comes back");
      if (rank > 2) continue;
      while (strcmp(nodes[0].words[all[1]].word, "small") &&
             strcmp(nodes[0].words[all[1]].word, "big"))
        all[1]++;
      CHECK(!memcmp(&nodes[0].words[all[1]++], w, sizeof *w), "words to all come in one order");
    }
    CHECK(nodes[k].nwords == 2 * COUNT + 2, "no more words at %d", k);
  }
  check_not_aborted(COUNT);
  close_job(COUNT);
  free(big);
}

typedef struct guest {
  node *n;
  const char *word;
  const void *data;
  size_t bytes;
  sl_status status;
  char text[256];
  sli_control_blob *blobs;
} guest;

static void *meet(void *ctx) {
  guest *g = ctx;
  g->status = sli_control_meet(g->n->control, g->word, g->data, g->bytes, &g->blobs);
  snprintf(g->text, sizeof g->text, "%.255s", sl_detail());
  return NULL;
}

static void test_process_0_gets_everybodys_data_when_all_meet(void) {
  enum { COUNT = 3, BIG = 5 << 20 };
  uint8_t *big = make_data(BIG + COUNT, 11);
  open_job(COUNT, "127.0.0.1:0");
  join_job(COUNT);
  for (int round = 0; round < 3; round++) {
    pthread_t threads[COUNT];
    guest guests[COUNT];
    for (int k = 0; k < COUNT; k++) {
      size_t bytes = round == 0 ? (size_t)(BIG + k) : round == 1 ? 0 : (size_t)k;
      guests[k] = (guest){.n = &nodes[k], .word = "here", .data = big + k, .bytes = bytes};
      CHECK(!pthread_create(&threads[k], NULL, meet, &guests[k]), "there are threads");
    }
    for (int k = 0; k < COUNT; k++) pthread_join(threads[k], NULL);
    for (int k = 0; k < COUNT; k++) {
      CHECK(!guests[k].status, "process %d meets: %s", k, guests[k].text);
      CHECK(k == 0 || !guests[k].blobs, "only process 0 gets data");
      const sli_control_blob *blob = &guests[0].blobs[k];
      CHECK(blob->bytes == guests[k].bytes, "the data of %d has its length", k);
      CHECK(!blob->bytes || !memcmp(blob->data, big + k, blob->bytes), "and is whole");
    }
    for (int k = 0; k < COUNT; k++) free(guests[0].blobs[k].data);
    free(guests[0].blobs);
  }
  check_not_aborted(COUNT);
  close_job(COUNT);
  free(big);
}

static void test_what_is_too_long_to_say_is_an_error(void) {
  enum { TOO_LONG = (64 << 20) + 1 };
  char *data = calloc(TOO_LONG, 1);
  open_with(&nodes[0], options_of(0, 1, "127.0.0.1:0"));
  CHECK(sli_control_say(nodes[0].control, 0, "long", data, TOO_LONG) == SL_E_USAGE &&
            strstr(sl_detail(), "long"),
        "a word: %s", sl_detail());
  CHECK(sli_control_meet(nodes[0].control, "long", data, TOO_LONG, NULL) == SL_E_USAGE &&
            strstr(sl_detail(), "long"),
        "a meeting: %s", sl_detail());
  node_close(&nodes[0]);
  free(data);
}

static void test_who_leaves_is_not_waited_for(void) {
  open_job(3, "127.0.0.1:0");
  join_job(3);
  guest g = {.n = &nodes[1], .word = "late"};
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, meet, &g), "there are threads");
  node_close(&nodes[2]);
  pthread_join(thread, NULL);
  CHECK(g.status == SL_E_PEER && strstr(g.text, "process 2 "), "it names who left: %s", g.text);
  node_close(&nodes[0]);
  node_close(&nodes[1]);
}

/* ---- the end ------------------------------------------------------------------- */

static void test_an_abort_reaches_all_once_with_its_reason(void) {
  for (int culprit = 0; culprit < 3; culprit += 2) {
    open_job(3, "127.0.0.1:0");
    join_job(3);
    guest g = {.n = &nodes[1], .word = "never"};
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, meet, &g), "there are threads");
    sli_control_abort(nodes[culprit].control, "the disk is full");
    sli_control_abort(nodes[culprit].control, "and again");
    pthread_join(thread, NULL);
    CHECK(g.status == SL_E_PEER && strstr(g.text, "the disk is full"), "who meets: %s", g.text);
    for (int k = 0; k < 3; k++)
      CHECK(node_wait_abort(&nodes[k], PATIENCE_MS), "process %d is told", k);
    close_job(3);
    for (int k = 0; k < 3; k++) {
      CHECK(nodes[k].aborts == 1, "process %d is told once", k);
      CHECK(nodes[k].culprit == culprit && strstr(nodes[k].text, "the disk is full"),
            "process %d knows why: %d, %s", k, nodes[k].culprit, nodes[k].text);
    }
  }
}

static void test_closing_never_hangs(void) {
  open_with(&nodes[0], options_of(1, 2, "127.0.0.1:9")); /* nobody listens there */
  close_job(1);
  open_with(&nodes[0], options_of(0, 2, "127.0.0.1:0")); /* nobody connects */
  close_job(1);
  open_with(&nodes[0], options_of(1, 2, "no.such.host.invalid:9"));
  close_job(1);
}

/* ---- processes that do not belong ------------------------------------------------ */

/* Process 1 differs as `other` says: all processes fail with `text`. */
static void check_disagreement(sli_control_options other, const char *text) {
  open_with(&nodes[0], options_of(0, 3, "127.0.0.1:0"));
  other.endpoint = sli_control_endpoint(nodes[0].control);
  open_with(&nodes[1], options_of(2, 3, other.endpoint));
  usleep(50000);
  open_with(&nodes[2], other);
  for (int k = 0; k < 3; k++) {
    sl_status status = sli_control_join(nodes[k].control);
    CHECK(status == SL_E_INPUT, "all refuse to start, also node %d: %s", k, sl_status_text(status));
    CHECK(strstr(sl_detail(), text), "node %d says \"%s\": %s", k, text, sl_detail());
    CHECK(!nodes[k].aborts, "join says it, nobody else");
  }
  close_job(3);
}

static void test_who_disagrees_is_named_everywhere(void) {
  check_disagreement(options_of(2, 3, ""), "two processes call themselves 2");
  check_disagreement(options_of(1, 4, ""), "expects 4 processes");
  check_disagreement(options_of(3, 5, ""), "expects 5 processes");
}

/* A wrong process that arrives before the job is complete is refused, and only that one. */
static void check_astray(sli_control_options other, const char *text) {
  open_with(&nodes[0], options_of(0, 2, "127.0.0.1:0"));
  other.endpoint = sli_control_endpoint(nodes[0].control);
  other.join_ms = 800;
  open_with(&nodes[2], other);
  CHECK(sli_control_join(nodes[2].control) != SL_OK, "he does not get in");
  CHECK(strstr(sl_detail(), text), "he is told \"%s\": %s", text, sl_detail());
  open_with(&nodes[1], options_of(1, 2, other.endpoint));
  join_job(2);
  CHECK(sli_control_count(nodes[0].control).refused > 0, "he is counted");
  node_send(&nodes[1], 0, 0);
  CHECK(node_wait_numbers(&nodes[0], 1, PATIENCE_MS), "the job lives");
  node_close(&nodes[2]);
  check_not_aborted(2);
  close_job(2);
}

static void test_who_is_astray_is_refused_and_harms_nothing(void) {
  char other_key[SLI_CONTROL_KEY_CHARS + 1];
  sli_control_make_key(other_key);
  sli_control_options other = options_of(1, 2, "");
  other.key = other_key;
  check_astray(other, "rejects this job's key");
  other = options_of(1, 2, "");
  other.job = "another";
  check_astray(other, "belongs to job another, but this is test");
  other = options_of(1, 2, "");
  other.incarnation = 3;
  check_astray(other, "has incarnation 3, but job test has 0");
}

static void test_who_comes_after_the_start_harms_nothing(void) {
  open_job(2, "127.0.0.1:0");
  join_job(2);
  open_with(&nodes[2], options_of(1, 2, sli_control_endpoint(nodes[0].control)));
  CHECK(sli_control_join(nodes[2].control) == SL_E_INPUT, "he is refused");
  CHECK(strstr(sl_detail(), "comes too late"), "he is told why: %s", sl_detail());
  node_close(&nodes[2]);
  node_send(&nodes[1], 0, 0);
  node_send(&nodes[0], 1, 0);
  CHECK(node_wait_numbers(&nodes[0], 1, PATIENCE_MS), "the job lives");
  CHECK(node_wait_numbers(&nodes[1], 1, PATIENCE_MS), "the job lives");
  check_not_aborted(2);
  close_job(2);
}

static void test_who_is_missing_is_named(void) {
  sli_control_options options = options_of(0, 4, "127.0.0.1:0");
  options.join_ms = 600;
  open_with(&nodes[0], options);
  open_with(&nodes[1], options_of(2, 4, sli_control_endpoint(nodes[0].control)));
  for (int k = 0; k < 2; k++) {
    CHECK(sli_control_join(nodes[k].control) == SL_E_PEER, "nobody starts");
    CHECK(strstr(sl_detail(), "processes 1, 3 have not joined"), "node %d: %s", k, sl_detail());
  }
  close_job(2);
}

static void test_wrong_options_are_refused(void) {
  sli_control_options options = options_of(0, 1, "here");
  CHECK(node_open(&nodes[0], &options) == SL_E_USAGE && strstr(sl_detail(), "HOST:PORT"),
        "an endpoint has a port: %s", sl_detail());
  options = options_of(0, 1, "127.0.0.1:0");
  options.key = "short";
  CHECK(node_open(&nodes[0], &options) == SL_E_USAGE && strstr(sl_detail(), "key"),
        "a key has its length: %s", sl_detail());
  open_with(&nodes[0], options_of(0, 1, "127.0.0.1:0"));
  options = options_of(0, 1, sli_control_endpoint(nodes[0].control));
  CHECK(node_open(&nodes[1], &options) == SL_E_IO && strstr(sl_detail(), options.endpoint),
        "a port is taken once: %s", sl_detail());
  CHECK(!sli_control_join(nodes[0].control), "alone is a job too");
  close_job(1);
}

/* ---- clocks ---------------------------------------------------------------------- */

static void test_process_0_may_start_last(void) {
  char endpoint[64];
  open_with(&nodes[0], options_of(0, 1, "127.0.0.1:0"));
  snprintf(endpoint, sizeof endpoint, "%s", sli_control_endpoint(nodes[0].control));
  node_close(&nodes[0]);
  for (int k = 1; k < 3; k++) open_with(&nodes[k], options_of(k, 3, endpoint));
  usleep(600000);
  open_with(&nodes[0], options_of(0, 3, endpoint));
  join_job(3);
  close_job(3);
}

typedef struct sharing {
  int self;
  const char *text;
  sli_control_blob *blobs;
} sharing;

static void *share(void *arg) {
  sharing *s = arg;
  CHECK(!sli_control_share(nodes[s->self].control, "all", s->text, strlen(s->text), &s->blobs),
        "%s", sl_detail());
  return NULL;
}

static void test_what_is_shared_all_get(void) {
  sharing all[] = {{0, "alpha", NULL}, {1, "", NULL}, {2, "a longer one", NULL}};
  pthread_t threads[3];
  char host[SLI_CONTROL_HOST_CHARS];
  for (int k = 0; k < 3; k++)
    open_with(&nodes[k],
              options_of(k, 3, k ? sli_control_endpoint(nodes[0].control) : "127.0.0.1:0"));
  join_job(3);
  for (int k = 0; k < 3; k++) pthread_create(&threads[k], NULL, share, &all[k]);
  for (int k = 0; k < 3; k++) pthread_join(threads[k], NULL);
  for (int k = 0; k < 3; k++)
    for (int of = 0; of < 3; of++) {
      const sli_control_blob *b = &all[k].blobs[of];
      CHECK(b->bytes == strlen(all[of].text) && !memcmp(b->data, all[of].text, b->bytes),
            "%d gets what %d shares", k, of);
      sli_control_host_of(nodes[k].control, of, host);
      CHECK(k == of || !strcmp(host, "127.0.0.1"), "%d finds %d at %s", k, of, host);
      free(b->data);
    }
  for (int k = 0; k < 3; k++) {
    const char *here = sli_control_here(nodes[k].control);
    CHECK(k ? !strcmp(here, "127.0.0.1") : !here, "%d listens where it reaches process 0", k);
    free(all[k].blobs);
  }
  close_job(3);
}

/* All processes share one machine and one clock, so the scheduler causes any error. */
static void test_clock_offsets_are_near_nothing_on_one_machine(void) {
  for (int k = 0; k < 3; k++) {
    const char *endpoint = k ? sli_control_endpoint(nodes[0].control) : "127.0.0.1:0";
    sli_control_options options = options_of(k, 3, endpoint);
    options.heartbeat_ms = 100;
    open_with(&nodes[k], options);
  }
  join_job(3);
  usleep(500000);
  for (int k = 0; k < 3; k++)
    for (int of = 0; of < 3; of++) {
      int64_t offset_ns = sli_control_clock_offset(nodes[k].control, of);
      CHECK(llabs(offset_ns) < 20000000, "%d takes the clock of %d to be %lld ns ahead", k, of,
            (long long)offset_ns);
      CHECK(k != of || !offset_ns, "a clock agrees with itself");
    }
  printf("clock of process 1 less that of 0: %lld ns\n",
         (long long)sli_control_clock_offset(nodes[0].control, 1));
  close_job(3);
}

static void test_keys_follow_secret_and_job(void) {
  char a[SLI_CONTROL_KEY_CHARS + 1], b[SLI_CONTROL_KEY_CHARS + 1];
  sli_control_derive_key("secret", 6, "job", a);
  sli_control_derive_key("secret", 6, "job", b);
  CHECK(!strcmp(a, b) && strlen(a) == SLI_CONTROL_KEY_CHARS, "the same give the same");
  sli_control_derive_key("secret", 6, "other", b);
  CHECK(strcmp(a, b), "another job has another key");
  sli_control_derive_key("secres", 6, "job", b);
  CHECK(strcmp(a, b), "another secret gives another key");
  sli_control_make_key(a);
  sli_control_make_key(b);
  CHECK(strcmp(a, b), "fresh keys differ");
}

int main(void) {
  sli_control_make_key(key);
  RUN(test_the_dead_and_the_silent_are_noticed_by_all);    /* forks: before any threads exist */
  RUN(test_who_hardly_runs_does_not_blame_others_at_once); /* forks, too */
  RUN(test_keys_follow_secret_and_job);
  RUN(test_wrong_options_are_refused);
  RUN(test_words_reach_whom_they_should_in_one_order);
  RUN(test_process_0_gets_everybodys_data_when_all_meet);
  RUN(test_what_is_too_long_to_say_is_an_error);
  RUN(test_who_leaves_is_not_waited_for);
  RUN(test_an_abort_reaches_all_once_with_its_reason);
  RUN(test_closing_never_hangs);
  RUN(test_who_disagrees_is_named_everywhere);
  RUN(test_who_is_astray_is_refused_and_harms_nothing);
  RUN(test_who_comes_after_the_start_harms_nothing);
  RUN(test_who_is_missing_is_named);
  RUN(test_process_0_may_start_last);
  RUN(test_what_is_shared_all_get);
  RUN(test_clock_offsets_are_near_nothing_on_one_machine);
  return 0;
}
