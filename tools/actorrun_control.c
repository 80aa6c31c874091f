/* The control socket of a run, and `actorrun ctl`, which talks to it.
 *
 * A run listens on a Unix socket of its user, in a directory nobody else may
 * enter; its name is the process id. A request is one line, the answer is text,
 * and the connection ends: `quota act.b@1=3` changes a quota, `quota` shows all
 * that can be changed. The thread below is the only one that changes quotas. */
#include "tools/actorrun_control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void socket_directory(char *path, size_t size) {
  const char *run = getenv("XDG_RUNTIME_DIR"), *tmp = getenv("TMPDIR");
  if (run && *run) snprintf(path, size, "%s/sluice", run);
  else snprintf(path, size, "%s/sluice-%u", tmp && *tmp ? tmp : "/tmp", (unsigned)getuid());
}

static sl_status socket_address(const char *pid, struct sockaddr_un *out) {
  char directory[512];
  socket_directory(directory, sizeof directory);
  *out = (struct sockaddr_un){.sun_family = AF_UNIX};
  int n = snprintf(out->sun_path, sizeof out->sun_path, "%s/%s", directory, pid);
  if (n < 0 || (size_t)n >= sizeof out->sun_path)
    return sl_fail(SL_E_UNSUPPORTED, "%s/%s: too long for a socket", directory, pid);
  return SL_OK;
}

/* The directory is ours and closed to others, or it is not used. */
static sl_status make_directory(void) {
  char directory[512];
  struct stat st;
  socket_directory(directory, sizeof directory);
  if (mkdir(directory, 0700) && errno != EEXIST) return sl_fail(SL_E_IO, "%s: %m", directory);
  if (lstat(directory, &st)) return sl_fail(SL_E_IO, "%s: %m", directory);
  if (!S_ISDIR(st.st_mode) || st.st_uid != getuid() || (st.st_mode & 077))
    return sl_fail(SL_E_IO, "%s: not a directory of this user alone", directory);
  return SL_OK;
}

/* ---- the run's side -------------------------------------------------------------- */

struct control {
  pthread_t thread;
  int listener, stop; /* stop: an eventfd */
  struct sockaddr_un address;
  const sl_lowered *lowered;
  sl_runtime *rt;
};

static void show_quotas(const struct control *c, FILE *out) {
  const sl_plan *plan = sl_lowered_plan(c->lowered);
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    if (r->quota_most && r->producer != SL_NONE)
      fprintf(out, "%-12s %d of at most %d slots\n", r->name, sl_runtime_quota(c->rt, i),
              r->quota_most);
  }
}

static sl_status change_quota(const struct control *c, const char *text, FILE *out) {
  char name[64];
  sl_quota quota = {.name = name, .stage = SL_NONE};
  int used = 0;
  if (sscanf(text, "%63[a-z.]@%d=%d%n", name, &quota.stage, &quota.slots, &used) != 3 &&
      (quota.stage = SL_NONE, sscanf(text, "%63[a-z.]=%d%n", name, &quota.slots, &used) != 2))
    return sl_fail(SL_E_USAGE, "%s: not NAME=N or NAME@STAGE=N", text);
  if (text[used]) return sl_fail(SL_E_USAGE, "%s: more than NAME@STAGE=N", text);
  sl_status status = sl_lowered_set_quota(c->lowered, c->rt, &quota);
  if (!status) fprintf(out, "%s\n", text);
  return status;
}

static void answer(const struct control *c, char *line, FILE *out) {
  line[strcspn(line, "\r\n")] = 0;
  sl_status status = SL_OK;
  if (!strcmp(line, "quota")) show_quotas(c, out);
  else if (!strncmp(line, "quota ", 6)) status = change_quota(c, line + 6, out);
  else status = sl_fail(SL_E_USAGE, "%s: quota and quota NAME@STAGE=N are known", line);
  if (status) fprintf(out, "error %d %s\n", sl_status_exit(status), sl_detail());
}

static void serve(const struct control *c, int fd) {
  struct timeval patience = {2, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  FILE *stream = fdopen(fd, "r+");
  if (!stream) {
    close(fd);
    return;
  }
  char line[256];
  if (fgets(line, sizeof line, stream)) answer(c, line, stream);
  fclose(stream);
}

static void *control_main(void *arg) {
  const struct control *c = arg;
  for (;;) {
    struct pollfd fds[] = {{c->listener, POLLIN, 0}, {c->stop, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return NULL;
    if (fds[1].revents) return NULL;
    if (!(fds[0].revents & POLLIN)) continue;
    int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) serve(c, fd);
  }
}

static sl_status open_listener(struct control *c) {
  char pid[32];
  snprintf(pid, sizeof pid, "%ld", (long)getpid());
  sl_status status = make_directory();
  if (!status) status = socket_address(pid, &c->address);
  if (status) return status;
  unlink(c->address.sun_path);
  c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  c->stop = eventfd(0, EFD_CLOEXEC);
  if (c->listener < 0 || c->stop < 0 ||
      bind(c->listener, (struct sockaddr *)&c->address, sizeof c->address) ||
      listen(c->listener, 8))
    return sl_fail(SL_E_IO, "%s: %m", c->address.sun_path);
  return SL_OK;
}

sl_status control_open(const sl_lowered *lowered, sl_runtime *rt, control **out) {
  control *c = sli_calloc(1, sizeof *c);
  c->lowered = lowered;
  c->rt = rt;
  c->listener = c->stop = -1;
  sl_status status = open_listener(c);
  if (!status && pthread_create(&c->thread, NULL, control_main, c))
    status = sl_fail(SL_E_MEMORY, "cannot start the control thread");
  if (!status) {
    *out = c;
    return SL_OK;
  }
  c->thread = 0;
  control_close(c);
  return status;
}

void control_close(control *c) {
  if (!c) return;
  uint64_t one = 1;
  if (c->thread && write(c->stop, &one, sizeof one) == sizeof one) pthread_join(c->thread, NULL);
  if (c->listener >= 0) {
    close(c->listener);
    unlink(c->address.sun_path);
  }
  if (c->stop >= 0) close(c->stop);
  free(c);
}

/* ---- the other side ------------------------------------------------------------------ */

static sl_status connect_to(const char *pid, int *out) {
  struct sockaddr_un address;
  sl_status status = socket_address(pid, &address);
  if (status) return status;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) {
    sl_fail(SL_E_INPUT, "no run of this user with process id %s listens (%m)", pid);
    if (fd >= 0) close(fd);
    return SL_E_INPUT;
  }
  *out = fd;
  return SL_OK;
}

/* Prints the answer, or returns the error it holds as this tool's exit status. */
static int print_answer(FILE *stream) {
  char line[4096];
  int status = 0, used;
  while (fgets(line, sizeof line, stream)) {
    if (!status && sscanf(line, "error %d %n", &status, &used) == 1)
      fprintf(stderr, "actorrun: %s", line + used);
    else fputs(line, status ? stderr : stdout);
  }
  return status;
}

int control_main_ctl(int argc, char **argv) {
  if (argc < 2 || strspn(argv[0], "0123456789") != strlen(argv[0])) {
    fprintf(stderr, "Usage: actorrun ctl PID quota [NAME[@STAGE]=N]\n\n"
                    "Shows or changes the quotas of a run while it goes on.\n");
    return 2;
  }
  int fd;
  sl_status status = connect_to(argv[0], &fd);
  if (status) {
    fprintf(stderr, "actorrun: %s\n", sl_detail());
    return sl_status_exit(status);
  }
  FILE *stream = fdopen(fd, "r+");
  SLI_CHECK(stream, "no stream for a socket");
  for (int i = 1; i < argc; i++) fprintf(stream, "%s%s", argv[i], i + 1 < argc ? " " : "\n");
  fflush(stream);
  int result = print_answer(stream);
  fclose(stream);
  return result;
}
