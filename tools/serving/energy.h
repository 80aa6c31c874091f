/* SPDX-License-Identifier: Apache-2.0 */
/* Energy of modelled devices. */
#ifndef SLUICE_TOOLS_SERVING_ENERGY_H
#define SLUICE_TOOLS_SERVING_ENERGY_H

#include <stdbool.h>

#include <sluice/hardware.h>

/* Returns whether the hardware has watts. */
bool energy_is_known(const sl_hardware *h);
/* Returns the joules of a device that computes for `busy` of these seconds; 0 if not known. */
double energy_joules(const sl_hardware *h, double seconds, double busy);
/* Formats joules with a unit: "12.3 kJ". */
const char *energy_text(char out[32], double joules);

#endif
