/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmarks the control plane.
 *
 *   bench_control                  runs all cases
 *   bench_control join [COUNT]     COUNT processes join a job
 *   bench_control words            latency and rate of messages between two processes
 *   bench_control flood [PER_S]    a process outside the job sends PER_S bad frames a second
 *
 * All processes are forked on this machine; encryption is on.
 *
 * needs: zeromq */
#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/comm_node.h"
#include "tests/support/test.h"

static char key[SLI_CONTROL_KEY_CHARS + 1];

static void row(const char *name, double value, const char *unit) {
  printf("%s\t%.4g\t%s\n", name, value, unit);
  fflush(stdout);
}

static sli_control_options options_of(int process, int nprocesses, const char *endpoint) {
  return (sli_control_options){.process = process,
                               .nprocesses = nprocesses,
                               .job = "bench",
                               .endpoint = endpoint,
                               .key = key,
                               .lost_ms = 20000};
}

static void read_all(int fd, void *out, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t count = read(fd, (char *)out + done, bytes - done);
    CHECK(count > 0, "a child answers");
    done += (size_t)count;
  }
}

static double seconds_since(uint64_t start_ns) { return (double)(sli_now_ns() - start_ns) * 1e-9; }

/* ---- join -------------------------------------------------------------------- */

/* Runs in a child: waits for process 0's endpoint, joins the job, and reports when it has. */
static void join_child(int process, int count, int endpoint_fd, int result_fd) {
  char endpoint[64];
  sli_control *control;
  read_all(endpoint_fd, endpoint, sizeof endpoint);
  sli_control_options options = options_of(process, count, endpoint);
  CHECK(!sli_control_open(&options, &control), "%s", sl_detail());
  CHECK(!sli_control_join(control), "%s", sl_detail());
  uint64_t joined_ns = sli_now_ns();
  CHECK(!sli_control_meet(control, "end", NULL, 0, NULL), "%s", sl_detail());
  CHECK(write(result_fd, &joined_ns, sizeof joined_ns) == sizeof joined_ns, "it reports");
  sli_control_close(control);
  _exit(0);
}

static void bench_join(int count) {
  int endpoints[2], results[2];
  char endpoint[64] = "", name[64];
  sli_control *control;
  CHECK(!pipe(endpoints) && !pipe(results), "there are pipes");
  for (int k = 1; k < count; k++)
    if (!fork()) join_child(k, count, endpoints[0], results[1]);
  uint64_t start_ns = sli_now_ns(), last_ns = 0;
  sli_control_options options = options_of(0, count, "127.0.0.1:0");
  CHECK(!sli_control_open(&options, &control), "%s", sl_detail());
  strncpy(endpoint, sli_control_endpoint(control), sizeof endpoint - 1);
  for (int k = 1; k < count; k++)
    CHECK(write(endpoints[1], endpoint, sizeof endpoint) == sizeof endpoint, "it is told");
  CHECK(!sli_control_join(control), "%s", sl_detail());
  CHECK(!sli_control_meet(control, "end", NULL, 0, NULL), "%s", sl_detail());
  double met = seconds_since(start_ns);
  for (int k = 1; k < count; k++) {
    uint64_t joined_ns;
    read_all(results[0], &joined_ns, sizeof joined_ns);
    last_ns = SLI_MAX(last_ns, joined_ns);
  }
  sli_control_close(control);
  while (wait(NULL) > 0) continue;
  snprintf(name, sizeof name, "join%d", count);
  row(name, (double)(last_ns - start_ns) * 1e-9, "s");
  snprintf(name, sizeof name, "join%d_and_meet", count);
  row(name, met, "s");
  close(endpoints[0]), close(endpoints[1]), close(results[0]), close(results[1]);
}

/* ---- words --------------------------------------------------------------------- */

enum { JOB = 3, TURNS = 5000, BURST = 100000 };

static node self;
/* messages expected so far; `self` also counts messages of the next case that arrive early */
static uint64_t awaited;

static void open_and_join(int process, const char *endpoint, int tell_fd) {
  sli_control_options options = options_of(process, JOB, endpoint);
  CHECK(!node_open(&self, &options), "%s", sl_detail());
  char text[64] = "";
  strncpy(text, sli_control_endpoint(self.control), sizeof text - 1);
  for (int k = 1; process == 0 && k < JOB; k++)
    CHECK(write(tell_fd, text, sizeof text) == sizeof text, "it is told");
  CHECK(!sli_control_join(self.control), "%s", sl_detail());
}

/* Exchanges TURNS round trips between processes a and b; other processes return at once. */
static void play(int process, int a, int b, const char *name) {
  uint64_t start_ns = sli_now_ns();
  if (process != a && process != b) return;
  int other = process == a ? b : a;
  for (uint64_t i = 0; i < TURNS; i++) {
    if (process == a) node_send(&self, other, self.next[other]);
    CHECK(node_wait_numbers(&self, ++awaited, 10000), "the word comes");
    if (process == b) node_send(&self, other, self.next[other] - 1);
  }
  if (process == a) row(name, seconds_since(start_ns) / TURNS / 2 * 1e6, "us");
}

static void pour(int process) {
  uint64_t start_ns = sli_now_ns();
  if (process == 1)
    for (uint64_t i = 0; i < BURST; i++) node_send(&self, 2, TURNS + i);
  if (process == 2) {
    CHECK(node_wait_numbers(&self, awaited + BURST, 60000), "all come");
    row("words", BURST / seconds_since(start_ns), "1/s");
  }
}

static void word_process(int process, const int endpoints[2]) {
  char endpoint[64] = "127.0.0.1:0";
  if (process) read_all(endpoints[0], endpoint, sizeof endpoint);
  open_and_join(process, endpoint, endpoints[1]);
  play(process, 1, 2, "one_way");
  CHECK(!sli_control_meet(self.control, "next", NULL, 0, NULL), "%s", sl_detail());
  play(process, 1, 0, "one_way_with_process_0");
  CHECK(!sli_control_meet(self.control, "next", NULL, 0, NULL), "%s", sl_detail());
  pour(process);
  CHECK(!sli_control_meet(self.control, "end", NULL, 0, NULL), "%s", sl_detail());
  node_close(&self);
  _exit(0);
}

static void bench_words(void) {
  int endpoints[2];
  CHECK(!pipe(endpoints), "there are pipes");
  for (int k = 0; k < JOB; k++)
    if (!fork()) word_process(k, endpoints);
  for (int status; wait(&status) > 0;) CHECK(!status, "the processes end well: %x", status);
  close(endpoints[0]), close(endpoints[1]);
}

/* ---- flood --------------------------------------------------------------------- */

/* Opens a connection per bad frame, because the receiver closes the connection after one. Over
 * loopback a connection is either established immediately or dropped. */
static void flood(int port, double per_second, int stop_fd) {
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct linger hard = {1, 0};
  uint8_t frame[64];
  uint64_t sent = 0, failed = 0, start_ns = sli_now_ns();
  struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
  while (poll(&stop, 1, 1) == 0) {
    for (double due = seconds_since(start_ns) * per_second; (double)sent < due; sent++) {
      int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      for (size_t i = 0; i < sizeof frame; i++) frame[i] = (uint8_t)rand();
      setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
      (void)!connect(fd, (struct sockaddr *)&to, sizeof to);
      if (send(fd, frame, sizeof frame, MSG_NOSIGNAL) < 0) failed++;
      close(fd);
    }
  }
  row("flood_tried", (double)sent / seconds_since(start_ns), "1/s");
  row("flood_connected", (double)(sent - failed) / seconds_since(start_ns), "1/s");
  _exit(0);
}

static double cpu_seconds(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
         (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* Makes a round trip to the other process every millisecond. */
static void idle_along(double seconds, double *share, double *late_us) {
  uint64_t start_ns = sli_now_ns(), turns = 0, base = self.total;
  double cpu = cpu_seconds(), waited = 0;
  while (seconds_since(start_ns) < seconds) {
    uint64_t turn_ns = sli_now_ns();
    node_send(&self, 1, self.next[1]);
    CHECK(node_wait_numbers(&self, base + ++turns, 10000), "the answer comes");
    waited += seconds_since(turn_ns);
    usleep(1000);
  }
  *share = (cpu_seconds() - cpu) / seconds_since(start_ns);
  *late_us = waited / (double)turns * 1e6;
}

static void echo(const char *endpoint) {
  sli_control_options options = options_of(1, 2, endpoint);
  CHECK(!node_open(&self, &options), "%s", sl_detail());
  CHECK(!sli_control_join(self.control), "%s", sl_detail());
  for (uint64_t i = 0; node_wait_numbers(&self, i + 1, 2000); i++) node_send(&self, 0, i);
  _exit(0);
}

static void bench_flood(double per_second) {
  int stop[2], endpoints[2], targets[2];
  char endpoint[64] = "";
  double quiet, flooded, quiet_us, flooded_us;
  CHECK(!pipe(stop) && !pipe(endpoints) && !pipe(targets), "there are pipes");
  if (!fork()) {
    read_all(endpoints[0], endpoint, sizeof endpoint);
    echo(endpoint);
  }
  pid_t stranger = fork();
  if (!stranger) {
    read_all(targets[0], endpoint, sizeof endpoint);
    flood(atoi(strrchr(endpoint, ':') + 1), per_second, stop[0]);
  }
  sli_control_options options = options_of(0, 2, "127.0.0.1:0");
  CHECK(!node_open(&self, &options), "%s", sl_detail());
  strncpy(endpoint, sli_control_endpoint(self.control), sizeof endpoint - 1);
  CHECK(write(endpoints[1], endpoint, sizeof endpoint) == sizeof endpoint, "it is told");
  CHECK(!sli_control_join(self.control), "%s", sl_detail());
  idle_along(3, &quiet, &quiet_us);
  CHECK(write(targets[1], endpoint, sizeof endpoint) == sizeof endpoint, "it is told");
  usleep(500000);
  uint64_t refused = sli_control_count(self.control).refused;
  idle_along(5, &flooded, &flooded_us);
  refused = sli_control_count(self.control).refused - refused;
  CHECK(write(stop[1], "", 1) == 1, "the stranger stops");
  waitpid(stranger, NULL, 0);
  node_close(&self);
  while (wait(NULL) > 0) continue;
  row("flood_refused", (double)refused / 5, "1/s");
  row("flood_cpu", 100 * (flooded - quiet), "% of a core");
  row("flood_round_trip_quiet", quiet_us, "us");
  row("flood_round_trip_flooded", flooded_us, "us");
  int fds[] = {stop[0], stop[1], endpoints[0], endpoints[1], targets[0], targets[1]};
  for (size_t i = 0; i < SLI_COUNT(fds); i++) close(fds[i]);
}

int main(int argc, char **argv) {
  const char *which = argc > 1 ? argv[1] : "all";
  bool all = !strcmp(which, "all");
  sli_control_make_key(key);
  if (all || !strcmp(which, "join")) bench_join(argc > 2 ? atoi(argv[2]) : 256);
  if (all || !strcmp(which, "words")) bench_words();
  if (all || !strcmp(which, "flood")) bench_flood(argc > 2 ? atof(argv[2]) : 10000);
  return 0;
}
