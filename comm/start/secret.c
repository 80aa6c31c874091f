/* SPDX-License-Identifier: Apache-2.0 */
/* The key of a job.
 *
 * actorrun makes a new key for every job and passes it to the processes. Other launchers have no
 * key, and their environment variables, such as job numbers and addresses, are not secret. Each
 * user therefore has a secret, in a file that only the user can read. Every process derives the
 * job's key from the secret and the job's name. Anybody who can read the file can act as the user
 * anyway. Hosts with a shared home share the file. To other hosts the user copies it, or sets
 * SLUICE_SECRET_FILE. */
#include "comm/start/start.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/control/control.h"

typedef const char *getter(const char *name);

enum { SECRET_BYTES = 32, LEAST_BYTES = 16, MOST_BYTES = 4096 };

/* ---- reading --------------------------------------------------------------------------- */

/* Checks that only the user can read the file. */
static sl_status check_private(int fd, const char *path) {
  struct stat st;
  if (fstat(fd, &st)) return sl_fail(SL_E_INPUT, "cannot read %s: %s", path, strerror(errno));
  if (!S_ISREG(st.st_mode)) return sl_fail(SL_E_INPUT, "%s: not a regular file", path);
  if (st.st_uid != geteuid() && st.st_uid != 0)
    return sl_fail(SL_E_INPUT, "%s: belongs to another user", path);
  if (st.st_mode & 077) return sl_fail(SL_E_INPUT, "%s: others can read it; chmod 600 it", path);
  return SL_OK;
}

/* Reads a file of at most `size` bytes; a longer one is an error. SL_E_IO: the file does not
 * exist. */
static sl_status read_private(const char *path, char *out, size_t size, size_t *bytes) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make it wait */
  if (fd < 0)
    return sl_fail(errno == ENOENT ? SL_E_IO : SL_E_INPUT, "cannot read %s: %s", path,
                   strerror(errno));
  sl_status status = check_private(fd, path);
  ssize_t n = status ? 0 : pread(fd, out, size, 0);
  char more;
  if (n < 0) status = sl_fail(SL_E_INPUT, "cannot read %s: %s", path, strerror(errno));
  else if (!status && pread(fd, &more, 1, n) == 1)
    status = sl_fail(SL_E_INPUT, "%s: longer than %zu bytes", path, size);
  close(fd);
  if (!status) *bytes = (size_t)n;
  return status;
}

/* ---- given keys --------------------------------------------------------------------------- */

static sl_status take_key(const char *where, const char *text, size_t length, char key[48]) {
  static const char z85[] =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
      ".-:+=^!/*?&<>()[]{}@%$#";
  char copy[SLI_CONTROL_KEY_CHARS + 1] = "";
  if (length == SLI_CONTROL_KEY_CHARS) memcpy(copy, text, length);
  if (strspn(copy, z85) != SLI_CONTROL_KEY_CHARS)
    return sl_fail(SL_E_INPUT, "%s: not a key: must be %d characters of Z85", where,
                   SLI_CONTROL_KEY_CHARS);
  memcpy(key, copy, sizeof copy);
  return SL_OK;
}

static sl_status key_of_file(const char *path, char key[48]) {
  char text[SLI_CONTROL_KEY_CHARS + 2];
  size_t n;
  sl_status status = read_private(path, text, sizeof text, &n);
  if (status) return sl_fail(SL_E_INPUT, "SLUICE_KEY_FILE: %s", sl_detail());
  while (n && (text[n - 1] == '\n' || text[n - 1] == '\r')) n--;
  char *where = sli_format("SLUICE_KEY_FILE: %s", path);
  status = take_key(where, text, n, key);
  free(where);
  return status;
}

/* ---- user's secret ---------------------------------------------------------------------- */

static sl_status secret_path(getter *get, char **out, bool *own) {
  const char *given = get("SLUICE_SECRET_FILE"), *config = get("XDG_CONFIG_HOME"),
             *home = get("HOME");
  *own = !given || !*given;
  if (!*own) *out = sli_strdup(given);
  else if (config && *config == '/') *out = sli_format("%s/sluice/secret", config);
  else if (home && *home) *out = sli_format("%s/.config/sluice/secret", home);
  else
    return sl_fail(SL_E_INPUT,
                   "HOME is not set, so there is no secret for the job's key; give one with "
                   "SLUICE_SECRET_FILE=FILE");
  return SL_OK;
}

/* Makes all parent directories of a file. */
static sl_status make_directories(const char *path) {
  for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    char *directory = sli_format("%.*s", (int)(slash - path), path);
    sl_status status = SL_OK;
    if (mkdir(directory, 0700) && errno != EEXIST)
      status = sl_fail(SL_E_INPUT, "cannot make %s: %s", directory, strerror(errno));
    free(directory);
    if (status) return status;
  }
  return SL_OK;
}

static bool write_secret(int fd) {
  char secret[SECRET_BYTES];
  return getrandom(secret, sizeof secret, 0) == sizeof secret &&
         write(fd, secret, sizeof secret) == sizeof secret && fsync(fd) == 0;
}

/* Creates the secret: links a temporary file into place. The link fails if another process, perhaps
 * on another host, was first; that process's secret then counts. */
static sl_status make_secret(const char *path) {
  sl_status status = make_directories(path);
  if (status) return status;
  char *temporary = sli_format("%s.XXXXXX", path);
  int fd = mkstemp(temporary); /* mode 0600 */
  bool good = fd >= 0 && write_secret(fd);
  bool first = good && link(temporary, path) == 0;
  if (!good || (!first && errno != EEXIST))
    status = sl_fail(SL_E_INPUT, "cannot make the secret %s: %s", path, strerror(errno));
  if (fd >= 0) {
    close(fd);
    unlink(temporary);
  }
  free(temporary);
  if (first) sli_log("created the secret %s; hosts with a different home need a copy of it", path);
  return status;
}

static sl_status key_of_secret(const char *path, bool own, const char *job, char key[48]) {
  char secret[MOST_BYTES];
  size_t n = 0;
  sl_status status = read_private(path, secret, sizeof secret, &n);
  if (status == SL_E_IO && own) {
    status = make_secret(path);
    if (!status) status = read_private(path, secret, sizeof secret, &n);
  }
  if (!status && n < LEAST_BYTES)
    status = sl_fail(SL_E_INPUT, "%s: a secret must have at least %d bytes", path, LEAST_BYTES);
  if (status) return sl_fail(SL_E_INPUT, "%s%s", own ? "" : "SLUICE_SECRET_FILE: ", sl_detail());
  status = sli_control_derive_key(secret, n, job, key);
  explicit_bzero(secret, sizeof secret);
  return status;
}

sl_status sli_cluster_key(getter *get, const char *job, char key[48]) {
  const char *given = get("SLUICE_KEY"), *file = get("SLUICE_KEY_FILE");
  if (given && *given) return take_key("SLUICE_KEY", given, strlen(given), key);
  if (file && *file) return key_of_file(file, key);
  char *path = NULL;
  bool own = false;
  sl_status status = secret_path(get, &path, &own);
  if (status) return status;
  status = key_of_secret(path, own, job, key);
  free(path);
  return status;
}
