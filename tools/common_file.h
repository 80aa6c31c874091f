/* Small files, whole. */
#ifndef SLUICE_TOOLS_COMMON_FILE_H
#define SLUICE_TOOLS_COMMON_FILE_H

#include <sluice/status.h>

/* The file's bytes and a zero behind them; the caller's to free(). */
sl_status file_read(const char *path, char **out);

#endif
