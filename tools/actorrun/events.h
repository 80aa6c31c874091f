/* SPDX-License-Identifier: Apache-2.0 */
/* TensorBoard event files, as far as curves need them. */
#ifndef SLUICE_TOOLS_ACTORRUN_EVENTS_H
#define SLUICE_TOOLS_ACTORRUN_EVENTS_H

#include <stdint.h>
#include <stdio.h>

/* Writes the first record of a file. */
void events_begin(FILE *file, double wall_seconds);
/* Writes one value of one curve. */
void events_scalar(FILE *file, double wall_seconds, int64_t step, const char *name, double value);

#endif
