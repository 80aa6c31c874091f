/* Placement: which cores a device's threads run on.
 *
 * A machine is what hwloc says of cores, caches and NUMA nodes: of this
 * computer, or of one that is only described, so that a placement can be looked
 * at and tested anywhere. A placement gives each of N devices T cores of its
 * own, close to each other, as long as there are enough.
 *
 * Memory follows the threads: a bound thread that touches a page first has it
 * on its own NUMA node, so a worker that touches its arena after binding needs
 * nothing else. */
#ifndef SLUICE_PLACEMENT_H
#define SLUICE_PLACEMENT_H

#include <stdbool.h>
#include <stdio.h>

#include <sluice/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_machine sl_machine;

/* description NULL: this computer, as far as the process is allowed to use it
 * (cgroup and affinity mask). A path that ends with ".xml": a computer that
 * `lstopo FILE.xml` wrote down. Anything else: a synthetic one, such as
 * "node:2 l3:1 core:4 pu:2" (hwloc's notation). */
sl_status sl_machine_create(const char *description, sl_machine **out);
void sl_machine_destroy(sl_machine *machine);

/* Cores are numbered from 0 along the machine, neighbours next to each other.
 * Hardware threads of one core count as one core. */
int sl_machine_cores(const sl_machine *machine);
/* The NUMA node that is local to a core; nodes are numbered from 0. */
int sl_machine_node(const sl_machine *machine, int core);

/* Threads for each of `devices` CPU devices so that all cores are shared out;
 * at least 1. */
int sl_placement_default(const sl_machine *machine, int devices);

typedef struct sl_placement sl_placement;

/* Gives each of `devices` devices `threads` cores. The machine must outlive
 * the placement. With fewer cores than threads the cores are handed out in
 * turn, threads may move among the cores of their NUMA node, and
 * sl_placement_shared() says so. */
sl_status sl_placement_create(const sl_machine *machine, int devices, int threads,
                              sl_placement **out);
/* Gives each of `devices` devices, which drive GPUs, one core near its GPU, whose PCI
 * address is pci[device] ("0000:3b:00.0"; NULL or not found: any core). */
sl_status sl_placement_create_near(const sl_machine *machine, int devices, const char *const *pci,
                                   sl_placement **out);
void sl_placement_destroy(sl_placement *placement);

/* The core of one thread of one device. */
int sl_placement_core(const sl_placement *placement, int device, int thread);
/* True if some core serves more than one thread. */
bool sl_placement_shared(const sl_placement *placement);

/* Binds the calling thread to its core (or node); `placement` is the sl_placement. Fits
 * sl_runtime_options.bind. Any thread. Does nothing on a machine that is only
 * described; where the system refuses, says so once and leaves the thread
 * unbound. */
void sl_placement_bind(void *placement, int device, int thread);

/* A table for people: machine, then device by device its cores, hardware
 * threads, NUMA nodes and caches, and who shares what. */
void sl_placement_print(const sl_placement *placement, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
