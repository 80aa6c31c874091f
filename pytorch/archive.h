/* SPDX-License-Identifier: Apache-2.0 */
/* The zip archive of an exported program (.pt2). It is untrusted: every length is checked, and a
 * pickle inside is never opened. */
#ifndef SLUICE_PYTORCH_ARCHIVE_H
#define SLUICE_PYTORCH_ARCHIVE_H

#include <stddef.h>

#include <sluice/status.h>

typedef struct sli_archive sli_archive;

/* Opens an archive. SL_E_INPUT names the file and what is wrong with it. */
sl_status sli_archive_open(const char *path, sli_archive **out);
void sli_archive_close(sli_archive *a);
const char *sli_archive_path(const sli_archive *a);
/* Finds an entry by its path below the archive's top folder; *bytes is its size. Returns false if
 * it is absent. */
int sli_archive_has(const sli_archive *a, const char *name, size_t *bytes);
/* Reads an entry of at most `most` bytes. The caller frees *out, which ends with an additional zero
 * byte. */
sl_status sli_archive_read(sli_archive *a, const char *name, size_t most, char **out,
                           size_t *bytes);

/* Reads `count` bytes of an entry, starting at byte `first`. Any thread. */
sl_status sli_archive_part(sli_archive *a, const char *name, size_t first, size_t count, void *out);
/* Reads an entry to its end, and compares its checksum. */
sl_status sli_archive_verify(sli_archive *a, const char *name);
/* Returns the checksum stored for an entry, or 0 if there is none. */
unsigned sli_archive_checksum(const sli_archive *a, const char *name);

#endif
