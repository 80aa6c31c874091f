/* Which cores the devices get. */
#ifndef SLUICE_TOOLS_COMMON_MACHINE_H
#define SLUICE_TOOLS_COMMON_MACHINE_H

#include <sluice/placement.h>

#include "tools/common_settings.h"

typedef struct machine {
  sl_machine *machine;
  sl_placement *placement;
} machine;

/* Places the settings' devices, filling in their thread count if it was left
 * open. Devices that are not CPUs need no cores. */
sl_status machine_place(settings *s, machine *out);
void machine_fini(machine *m);

#endif
