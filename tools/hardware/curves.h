/* SPDX-License-Identifier: Apache-2.0 */
/* Measured curves of a machine file: durations of single ops, exchanges and links, in addition to
 * overall rates. */
#ifndef SLUICE_TOOLS_HARDWARE_CURVES_H
#define SLUICE_TOOLS_HARDWARE_CURVES_H

#include <sluice/hardware.h>
#include <sluice/status.h>

#include "base/base.h"
#include "base/json.h"

/* Members of a machine file; NULL: absent. */
typedef struct curves_parts {
  const cJSON *curves, *rows, *exchange, *process_link; /* objects */
  const cJSON *links;                                   /* an array */
} curves_parts;

/* Reads the curves into `out`, in arrays of the arena. `flops` is the peak rate. SL_E_INPUT
 * names file and field. */
sl_status curves_read(const sli_json *doc, const curves_parts *parts, double flops,
                      sli_arena *arena, sl_hardware *out);

#endif
