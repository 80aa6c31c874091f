/* What a machine file knows of single rows, exchanges and links, beyond its rates. */
#ifndef SLUICE_TOOLS_COMMON_CURVES_H
#define SLUICE_TOOLS_COMMON_CURVES_H

#include <sluice/hardware.h>
#include <sluice/status.h>

#include "base/base.h"
#include "base/json.h"

/* Members of a machine file; NULL: it has none. */
typedef struct curves_parts {
  const cJSON *curves, *rows, *exchange, *process_link; /* objects */
  const cJSON *links;                                   /* an array */
} curves_parts;

/* `flops` is the peak. Arrays are the arena's. SL_E_INPUT names file and field. */
sl_status curves_read(const sli_json *doc, const curves_parts *parts, double flops, sli_arena *arena, sl_hardware *out);

#endif
