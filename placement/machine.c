/* SPDX-License-Identifier: Apache-2.0 */
/* Reduces hwloc's topology tree to a row of cores.
 *
 * hwloc orders cores so that the closer two of them are in the tree (a shared L2, L3, NUMA node,
 * package), the closer their numbers are. Every part of the machine is therefore a run of
 * consecutive cores, and placement cuts this row. */
#include "placement/placement.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/file.h"

/* Removes cores outside the process's affinity mask; hwloc itself has removed those outside the
 * cgroup. */
static void restrict_to_affinity(hwloc_topology_t topology) {
  hwloc_bitmap_t mask = hwloc_bitmap_alloc();
  if (mask && hwloc_get_cpubind(topology, mask, HWLOC_CPUBIND_PROCESS) == 0 &&
      hwloc_bitmap_intersects(mask, hwloc_topology_get_topology_cpuset(topology)))
    hwloc_topology_restrict(topology, mask, 0);
  hwloc_bitmap_free(mask);
}

static bool ends_with(const char *text, const char *suffix) {
  size_t length = strlen(text), tail = strlen(suffix);
  return length >= tail && !strcmp(text + length - tail, suffix);
}

/* Sets the topology source: this machine, an XML file, or hwloc's synthetic notation. */
static sl_status select_source(hwloc_topology_t topology, const char *description) {
  if (!description) return SL_OK;
  if (ends_with(description, ".xml")) {
    sl_status status = sli_file_probe(description);
    if (status) return status;
    if (hwloc_topology_set_xml(topology, description))
      return sl_fail(SL_E_INPUT, "%s is not a machine description written by lstopo", description);
    return SL_OK;
  }
  if (hwloc_topology_set_synthetic(topology, description))
    return sl_fail(
        SL_E_INPUT,
        "invalid machine description '%s': expected hwloc's notation, as in \"node:2 core:4 "
        "pu:2\", or a file that ends with .xml",
        description);
  return SL_OK;
}

static sl_status machine_load(const char *description, hwloc_topology_t *out) {
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology)) return sl_fail(SL_E_MEMORY, "cannot start hwloc");
  /* I/O devices of a described machine cost nothing to load; on this machine near.c asks the
   * system. */
  if (description) hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  sl_status status = select_source(topology, description);
  if (!status && hwloc_topology_load(topology))
    status = sl_fail(SL_E_INPUT, "hwloc cannot read the machine%s%s: %s", description ? " " : "",
                     description ? description : "", strerror(errno));
  if (status) {
    hwloc_topology_destroy(topology);
    return status;
  }
  if (!description) restrict_to_affinity(topology);
  *out = topology;
  return SL_OK;
}

/* Returns the object type to count: cores if every hardware thread belongs to one, else hardware
 * threads. */
static hwloc_obj_type_t choose_leaf(hwloc_topology_t topology) {
  int pus = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU), covered = 0;
  hwloc_obj_t core = NULL;
  while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)))
    covered += hwloc_bitmap_weight(core->cpuset);
  return covered == pus ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

/* Returns the NUMA node of a core: the smallest node that contains it. The first wins if there are
 * several, such as fast and slow memory of the same cores. */
static int find_node(const sl_machine *machine, hwloc_obj_t core) {
  hwloc_obj_t best = NULL, node = NULL;
  while ((node = hwloc_get_next_obj_by_type(machine->topology, HWLOC_OBJ_NUMANODE, node)))
    if (hwloc_bitmap_isincluded(core->cpuset, node->cpuset) &&
        (!best || hwloc_bitmap_weight(node->cpuset) < hwloc_bitmap_weight(best->cpuset)))
      best = node;
  return best ? (int)best->logical_index : 0;
}

/* Returns the part of the machine that a NUMA node is attached to. */
static hwloc_obj_t find_locality(const sl_machine *machine, int node) {
  hwloc_obj_t object = hwloc_get_obj_by_type(machine->topology, HWLOC_OBJ_NUMANODE, (unsigned)node);
  while (object && hwloc_obj_type_is_memory(object->type)) object = object->parent;
  return object ? object : hwloc_get_root_obj(machine->topology);
}

sl_status sl_machine_create(const char *description, sl_machine **out) {
  hwloc_topology_t topology = NULL;
  sl_status status = machine_load(description, &topology);
  if (status) return status;
  sl_machine *machine = sli_calloc(1, sizeof *machine);
  machine->topology = topology;
  machine->leaf = choose_leaf(topology);
  machine->ncores = hwloc_get_nbobjs_by_type(topology, machine->leaf);
  machine->nnodes = SLI_MAX(1, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE));
  machine->cores = sli_calloc((size_t)machine->ncores, sizeof *machine->cores);
  machine->node = sli_calloc((size_t)machine->ncores, sizeof *machine->node);
  machine->locality = sli_calloc((size_t)machine->nnodes, sizeof *machine->locality);
  for (int i = 0; i < machine->ncores; i++) {
    machine->cores[i] = hwloc_get_obj_by_type(topology, machine->leaf, (unsigned)i);
    machine->node[i] = find_node(machine, machine->cores[i]);
  }
  for (int i = 0; i < machine->nnodes; i++) machine->locality[i] = find_locality(machine, i);
  *out = machine;
  return SL_OK;
}

void sl_machine_destroy(sl_machine *machine) {
  if (!machine) return;
  hwloc_topology_destroy(machine->topology);
  free(machine->cores);
  free(machine->node);
  free(machine->locality);
  free(machine);
}

int sl_machine_cores(const sl_machine *machine) { return machine->ncores; }

int sl_machine_node(const sl_machine *machine, int core) {
  SLI_CHECK(core >= 0 && core < machine->ncores, "core %d of %d", core, machine->ncores);
  return machine->node[core];
}

void sli_machine_range(const sl_machine *machine, hwloc_obj_t object, int *first, int *end) {
  hwloc_obj_t low = object, high = object;
  while (low->type != machine->leaf && low->arity) low = low->first_child;
  while (high->type != machine->leaf && high->arity) high = high->last_child;
  bool empty = low->type != machine->leaf || high->type != machine->leaf;
  *first = empty ? 0 : (int)low->logical_index;
  *end = empty ? 0 : (int)high->logical_index + 1;
}
