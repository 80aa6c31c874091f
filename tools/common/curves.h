/* What a machine file knows of single rows, exchanges and links, beyond its rates. */
#ifndef SLUICE_TOOLS_COMMON_CURVES_H
#define SLUICE_TOOLS_COMMON_CURVES_H

#include <cjson/cJSON.h>

#include <sluice/hardware.h>
#include <sluice/status.h>

#include "base/base.h"

/* `curves`, `rows`, `exchange`, `links` and the numbers beside them, as far as they are there; out's
 * rates have been read, `flops` is the peak. Arrays are the arena's. Messages name file and field. */
sl_status curves_read(const char *path, const cJSON *root, double flops, sli_arena *arena,
                      sl_hardware *out);

#endif
