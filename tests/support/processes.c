/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/processes.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

typedef struct child {
  pid_t pid; /* 0 if it has ended */
  int up, down;
  bool said;
  process_blob blob;
} child;

static bool read_all(int fd, void *data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t got = read(fd, (char *)data + done, bytes - done);
    if (got <= 0) return false;
    done += (size_t)got;
  }
  return true;
}

static bool write_all(int fd, const void *data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t put = write(fd, (const char *)data + done, bytes - done);
    if (put <= 0) return false;
    done += (size_t)put;
  }
  return true;
}

static bool read_blob(int fd, process_blob *blob) {
  if (!read_all(fd, &blob->bytes, sizeof blob->bytes)) return false;
  blob->data = malloc(blob->bytes + 1);
  CHECK(blob->data, "memory for %zu bytes", blob->bytes);
  return read_all(fd, blob->data, blob->bytes);
}

static bool write_blob(int fd, const void *data, size_t bytes) {
  return write_all(fd, &bytes, sizeof bytes) && write_all(fd, data, bytes);
}

/* ---- in a child process -------------------------------------------------------------- */

static void read_blobs(process *p, process_blob *all) {
  for (int i = 0; i < p->n; i++)
    CHECK(read_blob(p->down, &all[i]), "process %d: no answer", p->self);
}

void process_exchange(process *p, const void *data, size_t bytes, process_blob *all) {
  CHECK(write_blob(p->up, data, bytes), "process %d: nobody listens", p->self);
  read_blobs(p, all);
}

void process_meet(process *p, void (*meanwhile)(void *arg), void *arg) {
  CHECK(write_blob(p->up, NULL, 0), "process %d: nobody listens", p->self);
  struct pollfd fd = {.fd = p->down, .events = POLLIN};
  while (poll(&fd, 1, meanwhile ? 0 : -1) == 0) meanwhile(arg);
  process_blob all[PROCESSES_MOST];
  read_blobs(p, all);
  for (int i = 0; i < p->n; i++) free(all[i].data);
}

/* ---- in the parent ------------------------------------------------------------------- */

static void start(child *children, int i, int n, void *shared, void (*main)(process *p)) {
  int up[2], down[2];
  CHECK(!pipe(up) && !pipe(down), "pipes");
  fflush(NULL);
  pid_t pid = fork();
  CHECK(pid >= 0, "fork");
  if (!pid) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int j = 0; j < i; j++) close(children[j].up), close(children[j].down);
    close(up[0]), close(down[1]);
    process p = {.self = i, .n = n, .shared = shared, .up = up[1], .down = down[0]};
    main(&p);
    close(p.up), close(p.down);
    exit(0);
  }
  close(up[1]), close(down[0]);
  children[i] = (child){.pid = pid, .up = up[0], .down = down[1]};
}

static bool reap(child *c) {
  int status;
  CHECK(waitpid(c->pid, &status, 0) == c->pid, "waitpid");
  c->pid = 0;
  if (status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) return true;
  fprintf(stderr, "a process ended with %s %d\n", WIFSIGNALED(status) ? "signal" : "status",
          WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return false;
}

/* Sends all data to all processes, once every live one has sent its own. */
static void answer(child *children, int n) {
  for (int i = 0; i < n; i++)
    if (children[i].pid && !children[i].said) return;
  for (int i = 0; i < n; i++) {
    for (int j = 0; children[i].pid && j < n; j++)
      write_blob(children[i].down, children[j].blob.data, children[j].blob.bytes);
  }
  for (int i = 0; i < n; i++) {
    free(children[i].blob.data);
    children[i].blob = (process_blob){0};
    children[i].said = false;
  }
}

static bool serve(child *children, int n) {
  bool well = true;
  for (int alive = n; alive;) {
    struct pollfd fds[PROCESSES_MOST];
    for (int i = 0; i < PROCESSES_MOST; i++)
      fds[i] = (struct pollfd){i < n && children[i].pid ? children[i].up : -1, POLLIN, 0};
    CHECK(poll(fds, PROCESSES_MOST, -1) > 0, "poll");
    for (int i = 0; i < n; i++) {
      if (!fds[i].revents) continue;
      children[i].said = read_blob(children[i].up, &children[i].blob);
      if (!children[i].said) well &= reap(&children[i]), alive--;
    }
    answer(children, n);
  }
  return well;
}

bool processes_run(int n, void (*main)(process *p)) {
  child children[PROCESSES_MOST];
  void *shared =
      mmap(NULL, PROCESSES_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(n <= PROCESSES_MOST && shared != MAP_FAILED, "%d processes", n);
  signal(SIGPIPE, SIG_IGN);
  for (int i = 0; i < n; i++) start(children, i, n, shared, main);
  bool well = serve(children, n);
  for (int i = 0; i < n; i++) close(children[i].up), close(children[i].down);
  munmap(shared, PROCESSES_SHARED_BYTES);
  return well;
}

int process_port(char endpoint[PROCESS_ENDPOINT_CHARS]) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int yes = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) &&
            !bind(fd, (struct sockaddr *)&address, size) &&
            !getsockname(fd, (struct sockaddr *)&address, &size),
        "a port");
  snprintf(endpoint, PROCESS_ENDPOINT_CHARS, "127.0.0.1:%d", ntohs(address.sin_port));
  return fd;
}
