/* Modelled hardware: a file per machine type says what its devices and links
 * can do. */
#ifndef SLUICE_TOOLS_COMMON_HARDWARE_H
#define SLUICE_TOOLS_COMMON_HARDWARE_H

#include <stdbool.h>

#include <sluice/hardware.h>
#include <sluice/lower.h>

#include "base/base.h"

/* Of the machine at hand, as actortune machine leaves it: --machine here; or of one device with all of its
 * cores: --machine here-whole. */
void hardware_here(char *path, size_t size, bool whole);

/* `word` is a file, or the name of one that is shipped, without .json. The hardware's rate is that of `dtype`; its
 * arrays are in the arena. *spread: how far the median step was from the fastest when it was measured; 0: not said.
 * SL_E_INPUT names file and field. */
sl_status hardware_read(const char *word, sl_dtype dtype, sli_arena *arena, sl_hardware *out, double *spread);

/* Was the machine busy meanwhile, so that what is predicted is not what runs take? */
bool hardware_is_rough(double spread);
/* Says so of --machine `word`. */
void hardware_warn(const char *word, double spread);

#endif
