/* Modelled hardware: a file per machine type says what its devices and links
 * can do. */
#ifndef SLUICE_TOOLS_COMMON_HARDWARE_H
#define SLUICE_TOOLS_COMMON_HARDWARE_H

#include <sluice/hardware.h>
#include <sluice/lower.h>

#include "base/base.h"

/* `word` is a file, or the name of one that is shipped, without .json. The
 * hardware's rate is that of `dtype`; its arrays are in the arena. SL_E_INPUT names file and field. */
/* Of the machine at hand, as actortune machine leaves it: --machine here. */
void hardware_here(char *path, size_t size);

sl_status hardware_read(const char *word, sl_dtype dtype, sli_arena *arena, sl_hardware *out);

#endif
