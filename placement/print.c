/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the placement as a human-readable table. */
#include "placement/placement.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { TEXT = 256 };

/* Appends to a text of TEXT bytes, truncating it. */
__attribute__((format(printf, 2, 3))) static void append(char *text, const char *format, ...) {
  size_t length = strlen(text);
  va_list args;
  va_start(args, format);
  vsnprintf(text + length, TEXT - length, format, args);
  va_end(args);
}

/* Appends the bits of a set: "0-3,8". */
static void append_set(char *text, hwloc_const_bitmap_t set) {
  size_t length = strlen(text);
  hwloc_bitmap_list_snprintf(text + length, TEXT - length, set);
}

/* Collects the cores a device may run on, their hardware threads by system number, and their NUMA
 * nodes. The caller owns the sets. */
static void collect(const sl_placement *placement, int device, hwloc_bitmap_t cores,
                    hwloc_bitmap_t pus, hwloc_bitmap_t nodes) {
  const sl_machine *machine = placement->machine;
  for (int t = 0; t < placement->threads; t++)
    hwloc_bitmap_or(pus, pus, sli_placement_set(placement, device, t));
  for (int i = 0; i < machine->ncores; i++)
    if (hwloc_bitmap_intersects(pus, machine->cores[i]->cpuset)) {
      hwloc_bitmap_set(cores, (unsigned)i);
      hwloc_bitmap_set(nodes, (unsigned)machine->node[i]);
    }
}

static bool device_is_in(const sl_placement *placement, int device, hwloc_const_cpuset_t set) {
  for (int t = 0; t < placement->threads; t++)
    if (hwloc_bitmap_intersects(sli_placement_set(placement, device, t), set)) return true;
  return false;
}

/* Appends the caches of one level that a device's cores use, and the other devices that use them:
 * "L3 2 x 36.0 MiB with cpu:0,2". Appends nothing if the level is unknown. */
static void append_caches(char *text, const sl_placement *placement, int device,
                          hwloc_const_cpuset_t pus, hwloc_obj_type_t level) {
  hwloc_topology_t topology = placement->machine->topology;
  hwloc_bitmap_t reach = hwloc_bitmap_alloc();
  hwloc_obj_t cache = NULL;
  int count = 0;
  double bytes = 0;
  while ((cache = hwloc_get_next_obj_by_type(topology, level, cache))) {
    if (!hwloc_bitmap_intersects(cache->cpuset, pus)) continue;
    hwloc_bitmap_or(reach, reach, cache->cpuset);
    bytes = (double)cache->attr->cache.size;
    count++;
  }
  if (count) {
    char size[32];
    append(text, "%s%s ", *text ? ", " : "", level == HWLOC_OBJ_L3CACHE ? "L3" : "L2");
    if (count > 1) append(text, "%d x ", count);
    append(text, "%s", sli_format_bytes(size, bytes));
    hwloc_bitmap_t others = hwloc_bitmap_alloc();
    for (int other = 0; other < placement->devices; other++)
      if (other != device && device_is_in(placement, other, reach))
        hwloc_bitmap_set(others, (unsigned)other);
    if (!hwloc_bitmap_iszero(others)) {
      append(text, " with %s:", placement->pci ? "cuda" : "cpu");
      append_set(text, others);
    }
    hwloc_bitmap_free(others);
  }
  hwloc_bitmap_free(reach);
}

static void print_device(const sl_placement *placement, int device, FILE *out) {
  hwloc_bitmap_t cores = hwloc_bitmap_alloc(), pus = hwloc_bitmap_alloc(),
                 nodes = hwloc_bitmap_alloc();
  collect(placement, device, cores, pus, nodes);
  char name[32], cores_text[TEXT] = "", pus_text[TEXT] = "", nodes_text[TEXT] = "",
                 caches[TEXT] = "";
  snprintf(name, sizeof name, "%s:%d", placement->pci ? "cuda" : "cpu", device);
  append_set(cores_text, cores);
  append_set(pus_text, pus);
  append_set(nodes_text, nodes);
  append_caches(caches, placement, device, pus, HWLOC_OBJ_L3CACHE);
  append_caches(caches, placement, device, pus, HWLOC_OBJ_L2CACHE);
  fprintf(out, "%-8s %7d  %-10s %-10s %-5s %s\n", name, placement->threads, cores_text, pus_text,
          nodes_text, *caches ? caches : "unknown");
  if (placement->pci && *placement->pci[device])
    fprintf(out, "%-8s drives the GPU at %s\n", "", placement->pci[device]);
  hwloc_bitmap_free(cores);
  hwloc_bitmap_free(pus);
  hwloc_bitmap_free(nodes);
}

static int count_straddling(const sl_placement *placement) {
  int straddling = 0;
  for (int d = 0; d < placement->devices; d++) {
    bool apart = false;
    int node = sl_machine_node(placement->machine, sl_placement_core(placement, d, 0));
    for (int t = 1; t < placement->threads; t++)
      apart |= sl_machine_node(placement->machine, sl_placement_core(placement, d, t)) != node;
    straddling += apart;
  }
  return straddling;
}

void sl_placement_print(const sl_placement *placement, FILE *out) {
  const sl_machine *machine = placement->machine;
  int pus = hwloc_get_nbobjs_by_type(machine->topology, HWLOC_OBJ_PU);
  int wanted = placement->devices * placement->threads, straddling = count_straddling(placement);
  fprintf(out, "machine: %d core%s (%d hardware thread%s), %d NUMA node%s\n", machine->ncores,
          machine->ncores == 1 ? "" : "s", pus, pus == 1 ? "" : "s", machine->nnodes,
          machine->nnodes == 1 ? "" : "s");
  fprintf(out, "%-8s %7s  %-10s %-10s %-5s %s\n", "device", "threads", "cores", "cpus", "node",
          "caches");
  for (int d = 0; d < placement->devices; d++) print_device(placement, d, out);
  if (placement->shared)
    fprintf(out, "note: %d threads share %d core%s%s\n", wanted, machine->ncores,
            machine->ncores == 1 ? "" : "s",
            machine->nnodes > 1 ? ", each within its NUMA node" : "");
  else if (wanted < machine->ncores)
    fprintf(out, "note: %d of %d cores stay free\n", machine->ncores - wanted, machine->ncores);
  if (straddling)
    fprintf(out, "note: %d device%s across NUMA nodes\n", straddling,
            straddling == 1 ? " lies" : "s lie");
}
