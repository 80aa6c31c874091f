/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, reading, mapping and fingerprinting files that a user or a stranger names. */
#ifndef SLUICE_IO_FILE_H
#define SLUICE_IO_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <sluice/status.h>

/* Opens a file for reading and returns its length. Every path that a user or a stranger names is
 * opened here: only a regular file opens, so a pipe cannot make the program wait and a device
 * cannot feed it forever. SL_E_INPUT names the file. */
sl_status sli_file_open(const char *path, int *fd, size_t *bytes);
/* Opens a file of at most SLI_FILE_MOST bytes as a stream, for reading line by line. */
sl_status sli_file_stream(const char *path, FILE **out);
/* Checks that a file opens, before a library that takes only its path opens it. */
sl_status sli_file_probe(const char *path);
/* Reads the first bytes of a file; returns how many, 0 if it does not open. */
size_t sli_file_begin(const char *path, void *out, size_t size);

enum {
  SLI_FILE_MOST = 1 << 30, /* longest file that is read whole */
  SLI_FILE_LINE = 64 << 20 /* longest line */
};

/* Reads a file and appends a zero; the caller frees it. SL_E_INPUT names the file. */
sl_status sli_file_read(const char *path, char **out);
/* Reads a file that may contain zeros, and returns its length. */
sl_status sli_file_read_bytes(const char *path, char **out, size_t *bytes);
/* Reads a file of at most `most` bytes; a longer one is an error. */
sl_status sli_file_read_within(const char *path, size_t most, char **out, size_t *bytes);

/* Passes each line of a file, numbered from 1, with a zero in place of its newline, until the
 * reader fails. SL_E_INPUT names a file that cannot be read to its end. */
typedef sl_status sli_line_reader(void *ctx, int line, char *text, size_t length);
sl_status sli_file_lines(const char *path, sli_line_reader *read, void *ctx);

/* Maps a regular file for reading; *out is NULL if it is empty. Release it with munmap().
 * SL_E_INPUT names the file. */
sl_status sli_file_map(const char *path, void **out, size_t *bytes);

/* Rejects a git-lfs pointer file in place of the real file. SL_E_INPUT names the file. */
sl_status sli_file_check(const char *path, const void *begin, size_t bytes);

/* Hashes bytes (FNV-1a); of large files only samples spread over the whole file, including the
 * first and last bytes. Fast at any size, and good enough to detect the usual changes of files. */
uint64_t sli_hash_samples(const void *bytes, size_t size);

/* Returns the folder of Sluice's caches, $XDG_CACHE_HOME/sluice or ~/.cache/sluice; NULL without a
 * home. The caller frees it. */
char *sli_file_cache(void);
/* Makes the folders of a path, as far as possible. */
void sli_file_make_folders(char *path);

/* Returns the size and sampled hash of a file. SL_E_INPUT names the file. */
sl_status sli_file_fingerprint(const char *path, uint64_t *bytes, uint64_t *hash);

#endif
