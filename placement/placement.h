/* What the files of placement/ share. */
#ifndef SLUICE_PLACEMENT_INTERNAL_H
#define SLUICE_PLACEMENT_INTERNAL_H

#include <hwloc.h>
#include <sluice/placement.h>

struct sl_machine {
  hwloc_topology_t topology;
  hwloc_obj_type_t leaf; /* what counts as a core: HWLOC_OBJ_CORE, or HWLOC_OBJ_PU where
                            the system does not tell cores */
  int ncores, nnodes;
  hwloc_obj_t *cores; /* [ncores] in logical order: neighbours share the most */
  int *node;          /* [ncores] */
  hwloc_obj_t *locality; /* [nnodes] the smallest part of the machine around a node's cores */
};

struct sl_placement {
  const sl_machine *machine;
  int devices, threads;
  bool shared;
  int *core; /* [devices][threads] */
  char **pci; /* [devices] addresses of the GPUs that are driven; NULL: these are CPUs */
};

/* The cores below an object of the topology are a run [*first, *end). */
void sli_machine_range(const sl_machine *machine, hwloc_obj_t object, int *first, int *end);

/* Where a thread may run: its core, or with more threads than cores the cores
 * of its NUMA node. Lives as long as the machine. */
hwloc_const_cpuset_t sli_placement_set(const sl_placement *placement, int device, int thread);

#endif
