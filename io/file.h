/* Small files, whole. */
#ifndef SLUICE_IO_FILE_H
#define SLUICE_IO_FILE_H

#include <sluice/status.h>

/* The file's bytes and a zero behind them; the caller's to free(). SL_E_INPUT names it. */
sl_status sli_file_read(const char *path, char **out);

#endif
