/* Which cores the devices get. */
#ifndef SLUICE_TOOLS_COMMON_MACHINE_H
#define SLUICE_TOOLS_COMMON_MACHINE_H

#include <sluice/placement.h>

#include "tools/common/settings.h"

typedef struct machine {
  sl_machine *machine;
  sl_placement *placement; /* of this process's devices; NULL: they need no cores */
  int first;               /* of the devices of this process */
} machine;

/* Places those of the settings' devices that this process drives, filling in what the user left
 * open: their thread count, or which GPUs they are and how much memory they have left. Modelled
 * devices need no cores. */
sl_status machine_place(settings *s, machine *out);
/* The same for a plan that is only looked at: its GPUs need not be here. */
sl_status machine_imagine(settings *s, machine *out);
/* For sl_runtime_options.bind; `m` is the machine. */
void machine_bind(void *m, int device, int thread);
void machine_fini(machine *m);

#endif
