/* SPDX-License-Identifier: Apache-2.0 */
/* Atomic file writes: a file appears complete or not at all. */
#ifndef SLUICE_IO_ATOMIC_H
#define SLUICE_IO_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <sluice/status.h>

/* A file being written. Bytes go to PATH.tmp.RANDOM beside it; commit syncs them to disk and
 * renames the file. PATH therefore holds either its old contents or all of the new ones, whatever
 * fails. A PATH that is not a regular file (a device, a pipe) is written directly; a symbolic link
 * is followed. */
typedef struct sli_atomic_file {
  FILE *stream;         /* stream for printing; commit reports its errors */
  char *path;           /* path as the user wrote it, for messages */
  char *target;         /* destination of the rename */
  char *temporary;      /* NULL: written directly */
  bool hashed;          /* counts and hashes the bytes of sli_atomic_write */
  uint64_t bytes, hash; /* FNV-1a */
} sli_atomic_file;

/* Opens a file for writing. SL_E_IO names the file. */
sl_status sli_atomic_open(const char *path, sli_atomic_file *out);
sl_status sli_atomic_write(sli_atomic_file *file, const void *data, size_t bytes);
/* Completes the file. After an error the old file is untouched and the temporary is removed. */
sl_status sli_atomic_commit(sli_atomic_file *file);
/* Discards the file; the old one stays. */
void sli_atomic_abandon(sli_atomic_file *file);

/* Writes a whole file: `text` and a final newline. */
sl_status sli_atomic_text(const char *path, const char *text);

/* Checks that `path` can be written, so that an hour of work is not lost to a missing directory.
 * SL_E_USAGE names the file. */
sl_status sli_atomic_check(const char *path);
/* Checks that files can be written in a folder; makes the folder, but not its parents. */
sl_status sli_atomic_check_folder(const char *path);

/* Opens a path for writing with more flags of open(), without waiting for the reader of a pipe: one
 * that nobody reads is an error. Returns -1, with errno, on failure. */
int sli_open_writable(const char *path, int flags);

/* Sync a folder, which makes the names in it durable: an open folder, or the parent of a path.
 * Return false, with errno, on failure. */
bool sli_sync_folder(int fd);
bool sli_sync_folder_of(const char *path);

#endif
