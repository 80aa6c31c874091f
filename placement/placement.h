/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared within placement/. */
#ifndef SLUICE_PLACEMENT_PLACEMENT_H
#define SLUICE_PLACEMENT_PLACEMENT_H

#include <hwloc.h>
#include <sluice/placement.h>

struct sl_machine {
  hwloc_topology_t topology;
  hwloc_obj_type_t leaf; /* object type of a core: HWLOC_OBJ_CORE, or HWLOC_OBJ_PU if the system
                            does not report cores */
  int ncores, nnodes;
  hwloc_obj_t *cores;    /* [ncores] cores in logical order: neighbours share the most caches */
  int *node;             /* [ncores] */
  hwloc_obj_t *locality; /* [nnodes] smallest part of the machine around a node's cores */
};

struct sl_placement {
  const sl_machine *machine;
  int devices, threads;
  bool shared;
  int *core;  /* [devices][threads] */
  char **pci; /* [devices] PCI addresses of the GPUs; NULL: CPU devices */
};

/* Sets [*first, *end) to the cores below an object of the topology. */
void sli_machine_range(const sl_machine *machine, hwloc_obj_t object, int *first, int *end);

/* Returns the cores on which a thread may run: its core, or the cores of its NUMA node if there are
 * more threads than cores. The set is valid as long as the machine. */
hwloc_const_cpuset_t sli_placement_set(const sl_placement *placement, int device, int thread);

#endif
