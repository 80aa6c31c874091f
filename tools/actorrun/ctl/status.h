/* `actorrun status [--json] [PID]`: what running jobs are at, seen from outside. */
#ifndef SLUICE_TOOLS_ACTORRUN_STATUS_H
#define SLUICE_TOOLS_ACTORRUN_STATUS_H

#include <stdbool.h>
#include <stdio.h>

struct cJSON;

/* The words behind status. Returns the exit status. */
int status_main(int argc, char **argv);

/* A job, as request_status tells of it, as text no wider than that: a short block or
 * all. */
typedef struct status_style {
  int width;
  bool colour;
} status_style;
void status_show(const struct cJSON *job, bool all, const status_style *style, FILE *out);

#endif
