/* SPDX-License-Identifier: Apache-2.0 */
/* The zip archive of an exported program (.pt2). Untrusted: every length is checked, and a pickle
 * inside is never opened. */
#ifndef SLUICE_PYTORCH_ARCHIVE_H
#define SLUICE_PYTORCH_ARCHIVE_H

#include <stddef.h>

#include <sluice/status.h>

typedef struct sli_archive sli_archive;

/* Opens an archive. SL_E_INPUT names the file and what is wrong with it. */
sl_status sli_archive_open(const char *path, sli_archive **out);
void sli_archive_close(sli_archive *a);
const char *sli_archive_path(const sli_archive *a);
/* Finds an entry by its path below the archive's only folder; *bytes: its size. False: absent. */
int sli_archive_has(const sli_archive *a, const char *name, size_t *bytes);
/* Reads an entry of at most `most` bytes; *out is the caller's to free(), and ends with a zero byte
 * that does not count. */
sl_status sli_archive_read(sli_archive *a, const char *name, size_t most, char **out,
                           size_t *bytes);

/* Reads `count` bytes of an entry from `first` on; any thread. */
sl_status sli_archive_part(sli_archive *a, const char *name, size_t first, size_t count, void *out);
/* Returns the checksum that the archive states for an entry; 0: none. */
unsigned sli_archive_checksum(const sli_archive *a, const char *name);

#endif
