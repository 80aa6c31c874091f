/* SPDX-License-Identifier: Apache-2.0 */
/* Each folder holds a file that its process keeps locked, so a folder whose lock is free has no
 * owner. A cleaner takes the lock before it removes the folder. A process that makes a folder
 * checks, once it has the lock, that the folder still exists: it may have been removed in
 * between. */
#include "base/tempdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define PREFIX "sluice-scratch-"
static const char lock_name[] = "lock";

/* Removes a folder and its files. The lock file goes last, since without it the folder has no
 * owner. */
static void remove_folder(int folder, const char *path) {
  int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *files = again < 0 ? NULL : fdopendir(again);
  for (struct dirent *file; files && (file = readdir(files));)
    if (strcmp(file->d_name, lock_name)) unlinkat(folder, file->d_name, 0); /* fails for . and .. */
  if (files) closedir(files);
  unlinkat(folder, lock_name, 0);
  rmdir(path);
}

static bool is_ours(int folder) {
  struct stat s;
  return !fstat(folder, &s) && s.st_uid == geteuid();
}

static void sweep_folder(const char *path) {
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return;
  int lock = is_ours(folder)
                 ? openat(folder, lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)
                 : -1;
  if (lock >= 0 && !flock(lock, LOCK_EX | LOCK_NB)) remove_folder(folder, path);
  if (lock >= 0) close(lock);
  close(folder);
}

/* Removes the folders of processes that have ended. */
static void sweep(const char *base) {
  DIR *all = opendir(base);
  for (struct dirent *one; all && (one = readdir(all));) {
    if (strncmp(one->d_name, PREFIX, strlen(PREFIX))) continue;
    char *path = sli_format("%s/%s", base, one->d_name);
    sweep_folder(path);
    free(path);
  }
  if (all) closedir(all);
}

/* Takes the lock of a new folder. Returns -1 if another process has already removed the folder. */
static int take_lock(const char *folder) {
  char *path = sli_format("%s/%s", folder, lock_name);
  struct stat s;
  int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  free(path);
  if (lock < 0) return -1;
  while (flock(lock, LOCK_EX) && errno == EINTR) {}
  if (!fstat(lock, &s) && s.st_nlink) return lock;
  close(lock);
  return -1;
}

static sl_status make_folder(const char *base, sli_tempdir *out) {
  enum { TRIES = 100 };
  for (int i = 0; i < TRIES; i++) {
    char *folder = sli_format("%s/" PREFIX "XXXXXX", base);
    bool made = mkdtemp(folder) != NULL;
    int error = errno, lock = made ? take_lock(folder) : -1;
    if (lock >= 0) {
      *out = (sli_tempdir){folder, lock};
      return SL_OK;
    }
    free(folder);
    if (!made) return sl_fail(SL_E_IO, "cannot make a folder in %s: %s", base, strerror(error));
  }
  return sl_fail(SL_E_IO, "cannot create a folder in %s: folders vanish there", base);
}

sl_status sli_tempdir_open(const char *where, sli_tempdir *out) {
  const char *named = where ? where : getenv("TMPDIR");
  if (!named || !*named) named = "/tmp";
  char *base = realpath(named, NULL);
  if (!base)
    return sl_fail(SL_E_IO, "no folder for temporary files, %s: %s", named, strerror(errno));
  sweep(base);
  sl_status status = make_folder(base, out);
  free(base);
  return status;
}

char *sli_tempdir_path(const sli_tempdir *s, const char *name) {
  return sli_format("%s/%s", s->folder, name);
}

void sli_tempdir_close(sli_tempdir *s) {
  int folder = open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    remove_folder(folder, s->folder);
    close(folder);
  }
  close(s->lock);
  free(s->folder);
  *s = (sli_tempdir){.lock = -1};
}
