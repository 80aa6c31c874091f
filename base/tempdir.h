/* A folder for the temporary files of a process, which do not outlive it for long: whoever makes
 * such a folder next removes those of processes that were killed. */
#ifndef SLUICE_BASE_TEMPDIR_H
#define SLUICE_BASE_TEMPDIR_H

#include <sluice/status.h>

typedef struct sli_tempdir {
  char *folder; /* its whole path */
  int lock;     /* held as long as the folder is in use */
} sli_tempdir;

/* Makes a folder in `base`; NULL: in $TMPDIR, or in /tmp. */
sl_status sli_tempdir_open(const char *base, sli_tempdir *out);
/* The path of a file in it; the caller's to free. */
char *sli_tempdir_path(const sli_tempdir *s, const char *name);
/* Removes the folder with all files in it. */
void sli_tempdir_close(sli_tempdir *s);

#endif
