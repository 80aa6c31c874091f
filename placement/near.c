/* SPDX-License-Identifier: Apache-2.0 */
/* Selects cores near each GPU for the threads that drive GPUs.
 *
 * All commands and copies of a GPU go through the part of the machine that it is attached to, a
 * NUMA node or a package. The GPU's thread gets the core of that part that drives the fewest
 * GPUs. */
#include "placement/placement.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static bool is_empty(const sl_machine *machine, hwloc_obj_t part) {
  int first, end;
  sli_machine_range(machine, part, &first, &end);
  return first == end;
}

/* Returns the part that contains all processors near a PCI device according to sysfs, or NULL. */
static hwloc_obj_t ask_system(const sl_machine *machine, const char *pci) {
  char path[128] = "/sys/bus/pci/devices/", list[4096] = "";
  size_t at = strlen(path);
  for (; *pci && at < 60; pci++) path[at++] = (char)tolower((unsigned char)*pci);
  snprintf(path + at, sizeof path - at, "/local_cpulist");
  FILE *file = hwloc_topology_is_thissystem(machine->topology) ? fopen(path, "r") : NULL;
  bool found = file && fgets(list, sizeof list, file);
  if (file) fclose(file);
  if (!found) return NULL;
  hwloc_bitmap_t near = hwloc_bitmap_alloc();
  hwloc_bitmap_list_sscanf(near, list);
  hwloc_bitmap_and(near, near, hwloc_topology_get_topology_cpuset(machine->topology));
  hwloc_obj_t part =
      hwloc_bitmap_iszero(near) ? NULL : hwloc_get_obj_covering_cpuset(machine->topology, near);
  hwloc_bitmap_free(near);
  return part;
}

/* Returns the part of the machine that a PCI device is attached to, or the whole machine if
 * unknown. */
static hwloc_obj_t part_of(const sl_machine *machine, const char *pci) {
  hwloc_obj_t device = pci ? hwloc_get_pcidev_by_busidstring(machine->topology, pci) : NULL;
  hwloc_obj_t part = device ? hwloc_get_non_io_ancestor_obj(machine->topology, device)
                     : pci  ? ask_system(machine, pci)
                            : NULL;
  while (part && (hwloc_obj_type_is_memory(part->type) || is_empty(machine, part)))
    part = part->parent;
  return part ? part : hwloc_get_root_obj(machine->topology);
}

static int least_used(const sl_machine *machine, hwloc_obj_t part, const int *used) {
  int first, end;
  sli_machine_range(machine, part, &first, &end);
  int best = first;
  for (int core = first; core < end; core++)
    if (used[core] < used[best]) best = core;
  return best;
}

sl_status sl_placement_create_near(const sl_machine *machine, int devices, const char *const *pci,
                                   sl_placement **out) {
  if (devices < 1 || devices > 1 << 20)
    return sl_fail(SL_E_USAGE, "cannot place %d devices: must be from 1 to 1048576", devices);
  sl_placement *p = sli_calloc(1, sizeof *p);
  int *used = sli_calloc((size_t)machine->ncores, sizeof *used);
  *p = (sl_placement){.machine = machine,
                      .devices = devices,
                      .threads = 1,
                      .core = sli_calloc((size_t)devices, sizeof *p->core),
                      .pci = sli_calloc((size_t)devices, sizeof *p->pci)};
  for (int d = 0; d < devices; d++) {
    p->pci[d] = sli_strdup(pci[d] ? pci[d] : "");
    p->core[d] = least_used(machine, part_of(machine, pci[d]), used);
    p->shared |= used[p->core[d]]++ > 0;
  }
  free(used);
  *out = p;
  return SL_OK;
}
