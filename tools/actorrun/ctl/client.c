/* SPDX-License-Identifier: Apache-2.0 */
/* Client of a run: `actorrun ctl`, and the requests of `actorrun status`. A request is one line;
 * the answer is text until the end. */
#include "tools/actorrun/ctl/client.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/memory.h"
#include "tools/cli/cli.h"
#include "tools/control/control.h"

sl_status client_pid(const char *word, pid_t *out) {
  char *end;
  errno = 0;
  long pid = strtol(word, &end, 10);
  if (errno || *end || end == word || pid <= 0 || pid > INT_MAX)
    return sl_fail(SL_E_USAGE, "%s: not a process id", word);
  *out = (pid_t)pid;
  return SL_OK;
}

/* Connects to a listening descendant of a process. `actorrun -n 4` starts the processes that run
 * the job, and may itself be the child of the process that the user knows. */
static sl_status connect_below(pid_t parent, int depth, int *out) {
  char *path = sli_format("/proc/%ld/task/%ld/children", (long)parent, (long)parent);
  FILE *children = depth ? fopen(path, "re") : NULL;
  free(path);
  int pid;
  sl_status status = SL_E_INPUT;
  while (children && status && fscanf(children, "%d", &pid) == 1)
    if ((status = socket_connect(pid, out))) status = connect_below(pid, depth - 1, out);
  if (children) fclose(children);
  return status;
}

static sl_status connect_to(pid_t pid, int *out) {
  if (!socket_connect(pid, out)) return SL_OK;
  char *text = sli_strdup(sl_detail()); /* the error about the PID that the user gave */
  sl_status status = connect_below(pid, 4, out);
  if (status) sl_fail(SL_E_INPUT, "%s", text);
  free(text);
  return status;
}

static char *read_all(FILE *stream) {
  char *text = NULL, part[4096];
  size_t bytes = 0;
  FILE *all = sli_memory_stream(&text, &bytes);
  for (size_t n; (n = fread(part, 1, sizeof part, stream));) fwrite(part, 1, n, all);
  fclose(all);
  return text;
}

/* Returns the status that corresponds to an exit status. */
static sl_status as_status(int exit_status) {
  return exit_status == 2 ? SL_E_INPUT : exit_status == 3 ? SL_E_STUCK : SL_E_PEER;
}

sl_status client_ask(pid_t pid, const char *request, int seconds, char **out) {
  int fd, exit_status, used = 0;
  sl_status status = connect_to(pid, &fd);
  if (status) return status;
  struct timeval patience = {seconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  FILE *stream = fdopen(fd, "r");
  SLI_CHECK(stream, "no stream for a socket");
  char *line = sli_format("%s\n", request);
  /* A run that is ending may have closed the connection. Then there is nothing to read either. */
  (void)!send(fd, line, strlen(line), MSG_NOSIGNAL);
  free(line);
  char *text = read_all(stream);
  fclose(stream);
  if (!*text) {
    status = sl_fail(SL_E_PEER, "process %ld does not answer: it is stopped, or its run is ending",
                     (long)pid);
  } else if (sscanf(text, "error %d %n", &exit_status, &used) == 1 && used) {
    size_t n = strlen(text);
    if (text[n - 1] == '\n') text[n - 1] = 0;
    status = sl_fail(as_status(exit_status), "%s", text + used);
  }
  if (status) free(text);
  else *out = text;
  return status;
}

char *client_plain(const char *text) {
  size_t room = 4 * strlen(text) + 1; /* length with every byte as \xNN */
  return sli_escape(sli_calloc(1, room), room, text);
}

/* Makes a path absolute, because the run may have another working directory. */
static char *from_here(const char *path) {
  char here[PATH_MAX];
  bool known = *path != '/' && strcmp(path, "off") && getcwd(here, sizeof here);
  return known ? sli_format("%s/%s", here, path) : sli_strdup(path);
}

static const sl_option options[] = {{"help", SL_OPTION_FLAG, "0", "show this", 0, 0}, {0}};
static const manual_command command = {
    .name = "actorrun ctl",
    .usage =
        "actorrun ctl PID quota [NAME[@STAGE]=N]\n"
        "actorrun ctl PID trace [FILE | off]",
    .purpose =
        "Shows or changes the quotas of a running job or server; or records a trace\n"
        "from now until off, and writes it to FILE. PID may be any process of a job,\n"
        "or the actorrun that started it; all processes make the change, or none.",
    .options = options,
    .words = "quota trace"};

int client_main_ctl(int argc, char **argv) {
  pid_t pid = 0;
  bool asked = argc == 1 && !strcmp(argv[0], "--help");
  if (manual_command_asked(&command, argc, argv)) return outputs_end("actorrun", SL_OK, 0);
  if (argc < 2 || client_pid(argv[0], &pid)) {
    manual_command_help(&command, asked ? stdout : stderr);
    return outputs_end("actorrun", SL_OK, asked ? 0 : 2);
  }
  char *request = sli_strdup(argv[1]), *answer;
  bool traces = !strcmp(request, "trace");
  for (int i = 2; i < argc; i++) {
    char *word = traces ? from_here(argv[i]) : sli_strdup(argv[i]);
    char *longer = sli_format("%s %s", request, word);
    free(request);
    free(word);
    request = longer;
  }
  sl_status status = client_ask(pid, request, 10, &answer);
  free(request);
  if (status) return outputs_end("actorrun", status, 0);
  char *plain = client_plain(answer);
  fputs(plain, stdout);
  free(plain);
  free(answer);
  return outputs_end("actorrun", SL_OK, 0);
}
