/* SPDX-License-Identifier: Apache-2.0 */
/* Small files as a whole; mapping and fingerprints of large ones. */
#ifndef SLUICE_IO_FILE_H
#define SLUICE_IO_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

/* Reads a file, with a zero behind it; the caller's to free(). SL_E_INPUT names it. */
sl_status sli_file_read(const char *path, char **out);
/* Reads a file that may contain zeros, and its length. */
sl_status sli_file_read_bytes(const char *path, char **out, size_t *bytes);

/* Passes each line of a file, from 1 on, with a zero in place of its newline, until the reader
 * fails. SL_E_INPUT names a file that cannot be read to its end. */
typedef sl_status sli_line_reader(void *ctx, int line, char *text, size_t length);
sl_status sli_file_lines(const char *path, sli_line_reader *read, void *ctx);

/* Maps a regular file for reading; *out is NULL if it is empty. Release with munmap().
 * SL_E_INPUT names it. */
sl_status sli_file_map(const char *path, void **out, size_t *bytes);

/* Rejects a git-lfs pointer file in place of the real one: SL_E_INPUT names the file. */
sl_status sli_file_check(const char *path, const void *begin, size_t bytes);

/* Hashes bytes (FNV-1a); of large files only samples from all over them, including the first and
 * last bytes. Fast at any size, and good enough to detect the usual changes of files. */
uint64_t sli_hash_samples(const void *bytes, size_t size);

/* Returns the size and sampled hash of a file. SL_E_INPUT names it. */
sl_status sli_file_fingerprint(const char *path, uint64_t *bytes, uint64_t *hash);

#endif
