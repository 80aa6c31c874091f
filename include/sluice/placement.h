/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: the cores that a device's threads run on.
 *
 * A machine is hwloc's view of cores, caches and NUMA nodes. It is this computer or one that is
 * only described, so a placement can be inspected and tested anywhere. A placement gives each of N
 * devices T cores of its own, close to each other, as long as there are enough.
 *
 * Memory follows the threads: a page is allocated on the NUMA node of the thread that touches it
 * first, so a worker that touches its arena after binding needs nothing else. */
#ifndef SLUICE_PLACEMENT_H
#define SLUICE_PLACEMENT_H

#include <stdbool.h>
#include <stdio.h>

#include <sluice/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_machine sl_machine;

/* Makes a machine. description NULL: this computer, as far as the process may use it (cgroup and
 * affinity mask). A path that ends with ".xml": a computer recorded by `lstopo FILE.xml`. Anything
 * else: a synthetic one, such as "node:2 l3:1 core:4 pu:2" (hwloc's notation). */
sl_status sl_machine_create(const char *description, sl_machine **out);
void sl_machine_destroy(sl_machine *machine);

/* Number of cores. They are numbered from 0 along the machine, neighbours next to each other;
 * hardware threads of one core count as one core. */
int sl_machine_cores(const sl_machine *machine);
/* NUMA node that is local to a core; nodes are numbered from 0. */
int sl_machine_node(const sl_machine *machine, int core);

/* Threads for each of `devices` CPU devices that together use all cores; at least 1. */
int sl_placement_default(const sl_machine *machine, int devices);

typedef struct sl_placement sl_placement;

/* Gives each of `devices` devices `threads` cores. The machine must outlive the placement. If there
 * are fewer cores than threads, the cores are dealt out in turn, threads may move among the cores
 * of their NUMA node, and sl_placement_shared() is true. */
sl_status sl_placement_create(const sl_machine *machine, int devices, int threads,
                              sl_placement **out);
/* Gives each of `devices` devices, which drive GPUs, one core near its GPU, whose PCI address is
 * pci[device] ("0000:3b:00.0"; NULL or not found: any core). */
sl_status sl_placement_create_near(const sl_machine *machine, int devices, const char *const *pci,
                                   sl_placement **out);
void sl_placement_destroy(sl_placement *placement);

/* The core of one thread of one device. */
int sl_placement_core(const sl_placement *placement, int device, int thread);
/* True if some core serves more than one thread. */
bool sl_placement_shared(const sl_placement *placement);

/* Binds the calling thread to its core (or node); `placement` is the sl_placement. Fits
 * sl_runtime_options.bind. Any thread. Does nothing on a machine that is only described. If the
 * system refuses, prints that once and leaves the thread unbound. */
void sl_placement_bind(void *placement, int device, int thread);

/* Prints a table for people: the machine, then each device's cores, hardware threads, NUMA nodes
 * and caches, and which devices share them. */
void sl_placement_print(const sl_placement *placement, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
