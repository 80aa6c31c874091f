/* Small files, whole; and what tells a large one from another. */
#ifndef SLUICE_IO_FILE_H
#define SLUICE_IO_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

/* The file's bytes and a zero behind them; the caller's to free(). SL_E_INPUT names it. */
sl_status sli_file_read(const char *path, char **out);
/* The same of files that may hold zeros: how many bytes there are. */
sl_status sli_file_read_bytes(const char *path, char **out, size_t *bytes);

/* Hands over each line of a file, from 1 on, with a zero in place of its end, until one is refused. SL_E_INPUT names a file
 * that cannot be read to its end. */
typedef sl_status sli_line_reader(void *ctx, int line, char *text, size_t length);
sl_status sli_file_lines(const char *path, sli_line_reader *read, void *ctx);

/* Maps a regular file to be read; an empty one is NULL. munmap() ends that. SL_E_INPUT names it. */
sl_status sli_file_map(const char *path, void **out, size_t *bytes);

/* SL_E_INPUT, naming the file, if it begins as one that git-lfs has put in another's place. */
sl_status sli_file_check(const char *path, const void *begin, size_t bytes);

/* A hash (FNV-1a) of bytes, or, where they are many, of parts from all over them, the first and
 * the last included: quick at any size, and not to be fooled by what happens to files. */
uint64_t sli_hash_samples(const void *bytes, size_t size);

/* The size of a file and the hash of what it holds. SL_E_INPUT names it. */
sl_status sli_file_fingerprint(const char *path, uint64_t *bytes, uint64_t *hash);

#endif
