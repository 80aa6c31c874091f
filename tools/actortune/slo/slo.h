/* SPDX-License-Identifier: Apache-2.0 */
/* actortune serve, for main.c. */
#ifndef SLUICE_TOOLS_ACTORTUNE_SLO_SLO_H
#define SLUICE_TOOLS_ACTORTUNE_SLO_SLO_H

#include <stdbool.h>

/* Returns whether --slo is given. */
bool slo_asked(int argc, char **argv);
int slo_main(int argc, char **argv);

#endif
