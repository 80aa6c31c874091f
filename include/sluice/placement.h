/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: the cores that a device's threads run on.
 *
 * A machine is hwloc's view of cores, caches and NUMA nodes. It is this computer or only a
 * description of one, so a placement can be inspected and tested anywhere. A placement gives each
 * of N devices T separate cores close to each other, as long as there are enough cores.
 *
 * Memory follows the threads: a page is allocated on the NUMA node of the thread that first touches
 * it, so it is enough that a worker touches its arena after binding. */
#ifndef SLUICE_PLACEMENT_H
#define SLUICE_PLACEMENT_H

#include <stdbool.h>
#include <stdio.h>

#include <sluice/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_machine sl_machine;

/* Makes a machine. description NULL: the part of this computer that the process may use (cgroup and
 * affinity mask). A path that ends with ".xml": a computer recorded by `lstopo FILE.xml`. Anything
 * else: a synthetic machine, such as "node:2 l3:1 core:4 pu:2" (hwloc's notation). */
sl_status sl_machine_create(const char *description, sl_machine **out);
void sl_machine_destroy(sl_machine *machine);

/* Returns the number of cores. Cores are numbered from 0 along the machine, neighbours
 * consecutively; hardware threads of one core count as one core. */
int sl_machine_cores(const sl_machine *machine);
/* Returns the NUMA node that is local to a core; nodes are numbered from 0. */
int sl_machine_node(const sl_machine *machine, int core);

/* Returns the number of threads per device with which `devices` CPU devices use all cores; at least
 * 1. */
int sl_placement_default(const sl_machine *machine, int devices);

typedef struct sl_placement sl_placement;

/* Gives each of `devices` devices `threads` cores. The machine must outlive the placement. If there
 * are fewer cores than threads, cores are assigned round-robin, threads may move among the cores of
 * their NUMA node, and sl_placement_shared() returns true. */
sl_status sl_placement_create(const sl_machine *machine, int devices, int threads,
                              sl_placement **out);
/* Gives each of `devices` GPU devices one core near its GPU, whose PCI address is pci[device]
 * ("0000:3b:00.0"; NULL or not found: any core). */
sl_status sl_placement_create_near(const sl_machine *machine, int devices, const char *const *pci,
                                   sl_placement **out);
void sl_placement_destroy(sl_placement *placement);

/* Returns the core of one thread of one device. */
int sl_placement_core(const sl_placement *placement, int device, int thread);
/* Returns true if a core serves more than one thread. */
bool sl_placement_shared(const sl_placement *placement);

/* Binds the calling thread to its core (or node). `placement` is an sl_placement; the function has
 * the type of sl_runtime_options.bind. Any thread. Does nothing on a machine that is only
 * described. If the system refuses, prints a message once and leaves the thread unbound. */
void sl_placement_bind(void *placement, int device, int thread);

/* Prints a readable table: the machine, then each device's cores, hardware threads, NUMA nodes and
 * caches, and which devices share them. */
void sl_placement_print(const sl_placement *placement, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
