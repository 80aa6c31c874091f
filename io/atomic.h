/* Files that appear whole or not at all. */
#ifndef SLUICE_IO_ATOMIC_H
#define SLUICE_IO_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <sluice/status.h>

/* A file being written. Bytes go to PATH.tmp.RANDOM beside it; commit syncs them
 * to the disk and renames, so PATH holds either its old contents or all of the
 * new ones, whatever fails and whenever. A PATH that is not a regular file (a
 * device, a pipe) is written directly; a symbolic link is followed. */
typedef struct sli_atomic_file {
  FILE *stream;    /* for printing; errors are found by commit */
  char *path;      /* as the user wrote it, for messages */
  char *target;    /* where the rename goes */
  char *temporary; /* NULL: written directly */
  bool hashed;     /* count and hash what sli_atomic_write is given */
  uint64_t bytes, hash; /* FNV-1a */
} sli_atomic_file;

/* SL_E_IO with the file's name. */
sl_status sli_atomic_open(const char *path, sli_atomic_file *out);
sl_status sli_atomic_write(sli_atomic_file *file, const void *data, size_t bytes);
/* Ends the file, for good or ill: after an error the old file is untouched and
 * the temporary is gone. */
sl_status sli_atomic_commit(sli_atomic_file *file);
/* Gives up: as if nothing had been opened. */
void sli_atomic_abandon(sli_atomic_file *file);

/* A whole file: `text`, and the end of its last line. */
sl_status sli_atomic_text(const char *path, const char *text);

/* Can `path` be written? Tried now, so that an hour of work is not lost to a
 * missing directory. SL_E_USAGE with the name. */
sl_status sli_atomic_check(const char *path);
/* The same of files in a folder, which is made if need be, though not what it lies in. */
sl_status sli_atomic_check_folder(const char *path);

/* A name is on the disk once its folder is: of an open one, and of the one that a path lies in. False, with errno: it
 * could not be written there. */
bool sli_sync_folder(int fd);
bool sli_sync_folder_of(const char *path);

#endif
