/* Cores for the threads that drive GPUs: near them.
 *
 * A GPU hangs from a part of the machine, a NUMA node or a package, through which all it
 * is told and all that is copied to it goes. Who drives it gets a core of that part: one
 * that drives none yet, while there are any. */
#include "placement/placement.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* The part of the machine that a PCI device hangs from; all of it where it is unknown. */
static hwloc_obj_t part_of(const sl_machine *machine, const char *pci) {
  hwloc_obj_t device = pci ? hwloc_get_pcidev_by_busidstring(machine->topology, pci) : NULL;
  hwloc_obj_t part = device ? hwloc_get_non_io_ancestor_obj(machine->topology, device) : NULL;
  int first, end;
  while (part && hwloc_obj_type_is_memory(part->type)) part = part->parent;
  if (part) sli_machine_range(machine, part, &first, &end);
  return part && first < end ? part : hwloc_get_root_obj(machine->topology);
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
    return sl_fail(SL_E_USAGE, "cannot place %d devices: 1 or more, and not that many", devices);
  sl_placement *p = sli_calloc(1, sizeof *p);
  int *used = sli_calloc((size_t)machine->ncores, sizeof *used);
  *p = (sl_placement){.machine = machine, .devices = devices, .threads = 1,
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
