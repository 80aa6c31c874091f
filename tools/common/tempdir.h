/* A folder for the temporary files of a process, which do not outlive it for long: whoever makes
 * such a folder next removes those of processes that were killed. */
#ifndef SLUICE_TOOLS_COMMON_TEMPDIR_H
#define SLUICE_TOOLS_COMMON_TEMPDIR_H

#include <sluice/status.h>

typedef struct tempdir {
  char *folder; /* its whole path */
  int lock;     /* held as long as the folder is in use */
} tempdir;

/* Makes a folder in $TMPDIR, or in /tmp. */
sl_status tempdir_open(tempdir *out);
/* The path of a file in it; the caller's to free. */
char *tempdir_path(const tempdir *s, const char *name);
/* Removes the folder with all files in it. */
void tempdir_close(tempdir *s);

#endif
