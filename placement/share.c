#include "placement/share.h"

#include "base/base.h"
#include "placement/placement.h"

void sli_share_range(int cores, int part, int parts, int *first, int *end) {
  SLI_CHECK(cores > 0 && part >= 0 && part < parts, "part %d of %d", part, parts);
  *first = (int)((int64_t)cores * part / parts);
  *end = cores < parts ? *first + 1 : (int)((int64_t)cores * (part + 1) / parts);
}

void sli_share_take(const sl_machine *machine, int part, int parts) {
  int first, end;
  sli_share_range(machine->ncores, part, parts, &first, &end);
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  for (int core = first; set && core < end; core++)
    hwloc_bitmap_or(set, set, machine->cores[core]->cpuset);
  if (set) hwloc_set_cpubind(machine->topology, set, HWLOC_CPUBIND_PROCESS);
  hwloc_bitmap_free(set);
}
