/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/control/socket.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/control/control.h"

static void directory_name(char *path, size_t size) {
  const char *run = getenv("XDG_RUNTIME_DIR"), *tmp = getenv("TMPDIR");
  if (run && *run) snprintf(path, size, "%s/sluice", run);
  else snprintf(path, size, "%s/sluice-%u", tmp && *tmp ? tmp : "/tmp", (unsigned)getuid());
}

static sl_status address_of(pid_t pid, struct sockaddr_un *out) {
  char directory[512];
  directory_name(directory, sizeof directory);
  *out = (struct sockaddr_un){.sun_family = AF_UNIX};
  int n = snprintf(out->sun_path, sizeof out->sun_path, "%s/%ld", directory, (long)pid);
  if (n < 0 || (size_t)n >= sizeof out->sun_path)
    return sl_fail(SL_E_UNSUPPORTED, "%s/%ld: path is too long for a socket", directory, (long)pid);
  return SL_OK;
}

/* Checks that the listener belongs to the same user: in a directory that others may write to,
 * anyone could listen. */
static sl_status check_peer(int fd, pid_t pid) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == getuid()) return SL_OK;
  return sl_fail(SL_E_INPUT, "process %ld belongs to another user", (long)pid);
}

/* Refuses a directory that belongs to another user or that others may enter. */
static sl_status check_directory(bool make) {
  char directory[512];
  struct stat st;
  directory_name(directory, sizeof directory);
  if (make && mkdir(directory, 0700) && errno != EEXIST)
    return sl_fail(SL_E_IO, "%s: %m", directory);
  if (lstat(directory, &st)) return sl_fail(SL_E_IO, "%s: %m", directory);
  if (!S_ISDIR(st.st_mode) || st.st_uid != getuid() || (st.st_mode & 077))
    return sl_fail(SL_E_IO, "%s: not a directory that only this user can access", directory);
  return SL_OK;
}

sl_status socket_connect(pid_t pid, int *out) {
  struct sockaddr_un address;
  sl_status status = check_directory(false);
  if (!status) status = address_of(pid, &address);
  if (status)
    return sl_fail(SL_E_INPUT, "this user has no run with process id %ld (%s)", (long)pid,
                   sl_detail());
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) {
    sl_fail(SL_E_INPUT, "this user has no run with process id %ld (%m)", (long)pid);
    if (fd >= 0) close(fd);
    return SL_E_INPUT;
  }
  status = check_peer(fd, pid);
  if (status) close(fd);
  else *out = fd;
  return status;
}

static int by_pid(const void *a, const void *b) {
  pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;
  return (x > y) - (x < y);
}

/* Returns whether nobody listens at an address. The process id alone proves nothing: the process
 * may be in another container. */
static bool is_deaf(const struct sockaddr_un *address) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  bool deaf = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) &&
              errno == ECONNREFUSED;
  if (fd >= 0) close(fd);
  return deaf;
}

/* Removes the socket of a process that was killed. Returns true if it removed one. */
static bool is_gone(pid_t pid) {
  struct sockaddr_un address;
  if (!kill(pid, 0) || errno != ESRCH) return false;
  if (!address_of(pid, &address) && is_deaf(&address)) unlink(address.sun_path);
  return true;
}

size_t socket_list(pid_t **out) {
  char directory[512];
  directory_name(directory, sizeof directory);
  pid_t *pids = NULL;
  size_t n = 0, capacity = 0;
  DIR *all = check_directory(false) ? NULL : opendir(directory);
  for (struct dirent *e; all && (e = readdir(all));) {
    char *end;
    long pid = strtol(e->d_name, &end, 10);
    if (*end || end == e->d_name || pid <= 0 || is_gone((pid_t)pid)) continue;
    SLI_GROW(pids, n, capacity);
    pids[n++] = (pid_t)pid;
  }
  if (all) closedir(all);
  if (n) qsort(pids, n, sizeof *pids, by_pid);
  *out = pids;
  return n;
}

/* Removes the sockets of all dead processes. */
static void sweep(void) {
  pid_t *pids;
  socket_list(&pids);
  free(pids);
}

sl_status socket_listen(char path[108], int *out) {
  struct sockaddr_un address;
  sl_status status = check_directory(true);
  if (!status) sweep();
  if (!status) status = address_of(getpid(), &address);
  if (status) return status;
  unlink(address.sun_path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 8)) {
    status = sl_fail(SL_E_IO, "%s: %m", address.sun_path);
    if (fd >= 0) close(fd);
    return status;
  }
  memcpy(path, address.sun_path, sizeof address.sun_path);
  *out = fd;
  return SL_OK;
}
