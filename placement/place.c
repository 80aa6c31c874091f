/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: divides the row of cores among devices.
 *
 * Every device needs T cores that are close to each other. Devices adjacent in the pipeline should
 * be close too, because they communicate. A device that spans two NUMA nodes is the worst case, so
 * nodes come first: each node takes as many whole devices as fit, node after node. The same rule
 * applies down the tree inside a node, and then to devices that fit in no node. Each part (a
 * package, an L3, an L2) takes the whole devices that fit in it, and the level above uses the cores
 * left over in its parts.
 *
 * A node of c cores holds floor(c / T) whole devices, so filling all nodes leaves the smallest
 * possible number of devices across nodes. Finally devices are numbered along the row, so that
 * consecutive devices are adjacent.
 *
 * With more threads than cores, threads share cores. They are assigned to the cores round-robin,
 * which fixes their NUMA node, and may move among the cores of that node. Otherwise a core whose
 * devices all wait could not help another core that has two devices ready. */
#include "placement/placement.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

typedef struct filling {
  const sl_machine *machine;
  int threads; /* T */
  bool *taken; /* [ncores] */
  int *core;   /* [devices][T] */
  int placed;  /* number of devices placed */
} filling;

static int count_free(const filling *fill, hwloc_obj_t part) {
  int first, end, free_cores = 0;
  sli_machine_range(fill->machine, part, &first, &end);
  for (int i = first; i < end; i++) free_cores += !fill->taken[i];
  return free_cores;
}

/* Gives the next device the first T free cores of a part, which must have that many. */
static void placement_place_take(filling *fill, hwloc_obj_t part) {
  int first, end, *core = fill->core + fill->placed++ * fill->threads;
  sli_machine_range(fill->machine, part, &first, &end);
  for (int i = first, t = 0; t < fill->threads; i++) {
    SLI_CHECK(i < end, "a part of the machine ran out of cores");
    if (fill->taken[i]) continue;
    fill->taken[i] = true;
    core[t++] = i;
  }
}

/* Places up to `want` whole devices in a part, closest first. */
static int fill_part(filling *fill, hwloc_obj_t part, int want) {
  int room = SLI_MIN(want, count_free(fill, part) / fill->threads), left = room;
  if (room == 0) return 0;
  if (part->type != fill->machine->leaf)
    for (hwloc_obj_t child = part->first_child; child; child = child->next_sibling)
      left -= fill_part(fill, child, left);
  for (; left > 0; left--) placement_place_take(fill, part);
  return room;
}

/* Returns whether a node has cores. Memory without cores (an expander, a slow tier) is attached to
 * larger parts of the machine and is ignored here. */
static bool is_local(const sl_machine *machine, int node) {
  int first, end;
  sli_machine_range(machine, machine->locality[node], &first, &end);
  return first < end && machine->node[first] == node;
}

static int compare_devices(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b; /* compares first cores, which are distinct */
}

static void place_apart(sl_placement *placement) {
  const sl_machine *machine = placement->machine;
  filling fill = {machine, placement->threads, sli_calloc((size_t)machine->ncores, sizeof(bool)),
                  placement->core, 0};
  int left = placement->devices;
  for (int i = 0; i < machine->nnodes; i++)
    if (is_local(machine, i)) left -= fill_part(&fill, machine->locality[i], left);
  left -= fill_part(&fill, hwloc_get_root_obj(machine->topology), left);
  SLI_CHECK(left == 0, "%d of %d devices found no cores", left, placement->devices);
  qsort(placement->core, (size_t)placement->devices,
        (size_t)placement->threads * sizeof *placement->core, compare_devices);
  free(fill.taken);
}

static void place_in_turn(sl_placement *placement) {
  for (int i = 0; i < placement->devices * placement->threads; i++)
    placement->core[i] = i % placement->machine->ncores;
}

sl_status sl_placement_create(const sl_machine *machine, int devices, int threads,
                              sl_placement **out) {
  if (devices < 1 || threads < 1)
    return sl_fail(SL_E_USAGE, "cannot place %d devices of %d threads: both must be at least 1",
                   devices, threads);
  if (devices > (1 << 20) / threads)
    return sl_fail(SL_E_USAGE, "cannot place %d devices of %d threads: too many threads", devices,
                   threads);
  sl_placement *placement = sli_calloc(1, sizeof *placement);
  placement->machine = machine;
  placement->devices = devices;
  placement->threads = threads;
  placement->core = sli_calloc((size_t)devices * (size_t)threads, sizeof *placement->core);
  placement->shared = devices * threads > machine->ncores;
  if (placement->shared) place_in_turn(placement);
  else place_apart(placement);
  *out = placement;
  return SL_OK;
}

void sl_placement_destroy(sl_placement *placement) {
  if (!placement) return;
  for (int d = 0; placement->pci && d < placement->devices; d++) free(placement->pci[d]);
  free(placement->pci);
  free(placement->core);
  free(placement);
}

int sl_placement_default(const sl_machine *machine, int devices) {
  return SLI_MAX(1, machine->ncores / SLI_MAX(1, devices));
}

int sl_placement_core(const sl_placement *placement, int device, int thread) {
  SLI_CHECK(
      device >= 0 && device < placement->devices && thread >= 0 && thread < placement->threads,
      "thread %d of device %d was not placed", thread, device);
  return placement->core[device * placement->threads + thread];
}

bool sl_placement_shared(const sl_placement *placement) { return placement->shared; }

hwloc_const_cpuset_t sli_placement_set(const sl_placement *placement, int device, int thread) {
  const sl_machine *machine = placement->machine;
  int core = sl_placement_core(placement, device, thread);
  return placement->shared ? machine->locality[machine->node[core]]->cpuset
                           : machine->cores[core]->cpuset;
}

void sl_placement_bind(void *arg, int device, int thread) {
  static atomic_flag said = ATOMIC_FLAG_INIT; /* set by any binding thread; limits the log to one
                                                 line */
  const sl_placement *placement = arg;
  const sl_machine *machine = placement->machine;
  hwloc_const_cpuset_t set = sli_placement_set(placement, device, thread);
  if (hwloc_set_cpubind(machine->topology, set, HWLOC_CPUBIND_THREAD) &&
      !atomic_flag_test_and_set(&said))
    sli_log("thread %d of device %d cannot be bound near core %d (%s); it runs unbound", thread,
            device, sl_placement_core(placement, device, thread), strerror(errno));
}
