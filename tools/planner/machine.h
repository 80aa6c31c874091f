/* SPDX-License-Identifier: Apache-2.0 */
/* Assignment of cores and GPUs to devices. */
#ifndef SLUICE_TOOLS_PLANNER_MACHINE_H
#define SLUICE_TOOLS_PLANNER_MACHINE_H

#include <sluice/placement.h>

#include "tools/cli/cli.h"

typedef struct machine {
  sl_machine *machine;
  sl_placement *placement; /* cores of this process's devices; NULL if they need none */
  int first;               /* first device of this process */
} machine;

/* Places the devices that this process drives, and fills in what the user left open: thread counts,
 * the GPUs to use, and their free memory. Modelled devices need no cores. */
sl_status machine_place(settings *s, machine *out);
/* Places devices for a plan that is only examined: its GPUs need not be present. */
sl_status machine_imagine(settings *s, machine *out);
/* Binds a device's thread, for sl_runtime_options.bind; `m` is the machine. */
void machine_bind(void *m, int device, int thread);
void machine_fini(machine *m);

#endif
