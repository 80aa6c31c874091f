/* SPDX-License-Identifier: Apache-2.0 */
/* `actorrun status [--json] [PID]`: status of running jobs. */
#ifndef SLUICE_TOOLS_ACTORRUN_CTL_STATUS_H
#define SLUICE_TOOLS_ACTORRUN_CTL_STATUS_H

#include <stdbool.h>
#include <stdio.h>

struct cJSON;

/* Runs the words after status. Returns the exit status. */
int status_main(int argc, char **argv);

/* Layout of the text: its width in columns, and whether it is coloured. */
typedef struct status_style {
  int width;
  bool colour;
} status_style;
/* Formats a job's answer to request_status as text of a limited width: as a short block or in
 * full. */
void status_show(const struct cJSON *job, bool all, const status_style *style, FILE *out);

#endif
