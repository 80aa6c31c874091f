/* A folder for the temporary files of a process, which do not outlive it for long: whoever makes
 * such a folder next removes those of processes that were killed. */
#ifndef SLUICE_TOOLS_COMMON_SCRATCH_H
#define SLUICE_TOOLS_COMMON_SCRATCH_H

#include <sluice/status.h>

typedef struct scratch {
  char *folder; /* its whole path */
  int lock;     /* held as long as the folder is in use */
} scratch;

/* Makes a folder in $TMPDIR, or in /tmp. */
sl_status scratch_open(scratch *out);
/* The path of a file in it; the caller's to free. */
char *scratch_path(const scratch *s, const char *name);
/* Removes the folder with all files in it. */
void scratch_close(scratch *s);

#endif
