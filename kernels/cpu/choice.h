/* SPDX-License-Identifier: Apache-2.0 */
/* Choice of the family that computes f32 products. Families are timed once per machine. The choice
 * is kept in $XDG_CACHE_HOME/sluice/products-*, or in ~/.cache, for the processor, its level, its
 * number of cores and the library's version. All processes of a machine then have the same bits.
 * Without a folder that can be written, the level's default holds. */
#ifndef SLUICE_KERNELS_CPU_CHOICE_H
#define SLUICE_KERNELS_CPU_CHOICE_H

#include <stdbool.h>

typedef enum sli_family {
  SLI_FAMILY_CHOSEN, /* the machine's choice */
  SLI_FAMILY_TILES,
  SLI_FAMILY_LIBRARY,
  SLI_FAMILY_VECTORS, /* Sluice's own kernel */
  SLI_FAMILIES
} sli_family;

/* Classes of shapes: products that fill tiles, and products of few rows or columns. */
enum { SLI_WIDE, SLI_NARROW, SLI_CLASSES };

/* Seconds of each family's products, or 0 if it has none. */
typedef struct sli_family_times {
  double seconds[SLI_FAMILIES];
} sli_family_times;

/* Times all families on this machine's cores. */
typedef void sli_timer(sli_family_times *times);

typedef struct sli_family_choice {
  sli_family family[SLI_CLASSES];
  char why[512]; /* the times, and where they are kept; or why nothing was timed */
} sli_family_choice;

/* Returns the choice for a machine: the default, or a family that takes at most nine tenths of its
 * time. `machine` describes all that the times depend on, in one line. Times that are not in the
 * cache are measured by `timer`, by one process at a time. */
sli_family_choice sli_choice_make(const char *machine, const sli_family *defaults,
                                  sli_timer *timer);

/* Returns the name of this machine's processor. */
void sli_processor_name(char *name, int bytes);

#endif
