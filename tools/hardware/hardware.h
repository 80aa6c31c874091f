/* SPDX-License-Identifier: Apache-2.0 */
/* Modelled hardware: one file per machine type describes its devices and links. */
#ifndef SLUICE_TOOLS_HARDWARE_HARDWARE_H
#define SLUICE_TOOLS_HARDWARE_HARDWARE_H

#include <stdbool.h>

#include <sluice/hardware.h>
#include <sluice/lower.h>

#include "base/base.h"
#include "tools/hardware/profile.h"

/* Returns the path of the file that actortune machine wrote for this machine: --machine here. With
 * `whole`, returns the file for one device with all cores: --machine here-whole. */
void hardware_here(char *path, size_t size, bool whole);

/* Reads the machine `word`: a file, or the name of a shipped file without .json. The rate is that
 * of `type` ("f32", "bf16", "fp8"); arrays are in the arena. `serves`: for a served graph (member
 * "serving"). *spread is the distance of the median step from the fastest when measured; 0 if not
 * given. SL_E_INPUT names file and field. */
sl_status hardware_read(const char *word, const char *type, bool serves, sli_arena *arena,
                        sl_hardware *out, double *spread);

/* Returns whether the machine was busy during measurement, so that predictions may differ from
 * runs. */
bool hardware_is_rough(double spread);
/* Warns if --machine `word` was measured on a busy machine. */
void hardware_warn(const char *word, double spread);

#endif
