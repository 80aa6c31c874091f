/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/share.h"

#include <sched.h>
#include <unistd.h>

#include "base/base.h"
#include "placement/placement.h"

void sli_share_range(int cores, int part, int parts, int *first, int *end) {
  SLI_CHECK(cores > 0 && part >= 0 && part < parts, "part %d of %d", part, parts);
  *first = cores < parts ? part % cores : (int)((int64_t)cores * part / parts);
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

/* Counts the processors of this computer and the processors that the process may use. */
static bool count_processors(long *all, long *mine) {
  cpu_set_t *set = CPU_ALLOC(SLI_MAX(*all = sysconf(_SC_NPROCESSORS_CONF), 1));
  size_t bytes = CPU_ALLOC_SIZE(SLI_MAX(*all, 1));
  bool good = set && !sched_getaffinity(0, bytes, set);
  *mine = good ? CPU_COUNT_S(bytes, set) : 0;
  CPU_FREE(set);
  return good;
}

void sli_share_take_among(int local, int nlocal) {
  long all, mine;
  if (nlocal < 2 || !count_processors(&all, &mine) || mine * nlocal <= all) return;
  sl_machine *machine;
  if (sl_machine_create(NULL, &machine)) return;
  sli_share_take(machine, local, nlocal);
  sl_machine_destroy(machine);
}
