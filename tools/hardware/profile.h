/* SPDX-License-Identifier: Apache-2.0 */
/* Durations of ops measured by an earlier run: the "ops" of its report. */
#ifndef SLUICE_TOOLS_HARDWARE_PROFILE_H
#define SLUICE_TOOLS_HARDWARE_PROFILE_H

#include <sluice/status.h>

#include "base/json.h"

typedef struct profile profile;

/* Reads a profile. SL_E_INPUT names the file and the error. */
sl_status profile_read(const char *path, profile **out);
/* Makes a profile from a report in memory. */
sl_status profile_make(const sli_json *report, profile **out);
void profile_destroy(profile *p);

/* Returns the seconds of one call of an op, or -1 if it was not measured. Suits
 * sl_lower_options.op_seconds with the profile as ctx. */
double profile_seconds(void *profile, const char *name);

#endif
