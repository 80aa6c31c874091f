/* SPDX-License-Identifier: Apache-2.0 */
/* A folder for the temporary files of a process. The folder of a killed process is removed when
 * the next process makes one. */
#ifndef SLUICE_BASE_TEMPDIR_H
#define SLUICE_BASE_TEMPDIR_H

#include <sluice/status.h>

typedef struct sli_tempdir {
  char *folder; /* full path */
  int lock;     /* file lock, held as long as the folder is in use */
} sli_tempdir;

/* Makes a folder in `base`; if that is NULL, in $TMPDIR or /tmp. */
sl_status sli_tempdir_open(const char *base, sli_tempdir *out);
/* Returns the path of a file in the folder; the caller frees it with free(). */
char *sli_tempdir_path(const sli_tempdir *s, const char *name);
/* Removes the folder with all files in it. */
void sli_tempdir_close(sli_tempdir *s);

#endif
