/* SPDX-License-Identifier: Apache-2.0 */
/* TensorBoard's event files, to the extent that curves need. */
#ifndef SLUICE_TOOLS_ACTORRUN_EVENTS_H
#define SLUICE_TOOLS_ACTORRUN_EVENTS_H

#include <stdint.h>
#include <stdio.h>

/* Writes the record that a file begins with. */
void events_begin(FILE *file, double wall_seconds);
/* Writes one value of one curve. */
void events_scalar(FILE *file, double wall_seconds, int64_t step, const char *name, double value);

#endif
