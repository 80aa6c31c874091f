/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of devices: a table row gives a kind's queues and memories, its user syntax, and how it
 * acquires resources of the machine. */
#ifndef SLUICE_GRAPH_DEVICES_DEVICES_H
#define SLUICE_GRAPH_DEVICES_DEVICES_H

#include <sluice/lower.h>
#include <sluice/placement.h>

#include "base/base.h"

/* The devices of one process, while they are being placed on the machine. */
typedef struct sli_site {
  sl_device_options *devices; /* devices of all processes */
  sli_arena *arena;           /* owns the memory that `devices` points to */
  const char *spec;           /* SPEC as the user wrote it, for messages */
  int first, count;           /* devices of this process; at least one */
  sl_machine *machine;        /* set by place(), even if it fails; */
  sl_placement *placement;    /* the caller destroys machine and placement */
} sli_site;

typedef struct sli_kind {
  const char *name;
  const char *form; /* form of a SPEC that names such devices */
  /* Reads the text after the colon and advances *text. Returns false if it is not a SPEC of this
   * kind. */
  bool (*read)(const char **text, sli_arena *arena, sl_device_options *out);
  /* Finds the devices on this machine, fills in open settings (threads, numbers, the budget) and
   * assigns cores. NULL: the devices always exist and need no cores. */
  sl_status (*place)(sli_site *site);
  /* Fills in the settings that a plan needs, for planning without the devices. NULL: place()
   * does. */
  void (*imagine)(sli_site *site);
  const struct sli_kind *model;  /* kind that replaces this one if nothing is computed; NULL:
                                    itself */
  const struct sli_kind *hosted; /* variant of a modelled kind with separate host memory, where
                                    parameters are updated; NULL: this kind is the variant, or
                                    has none */

  const sl_queue_ops *compute; /* runs passes */
  const sl_queue_ops *host;    /* runs work outside the passes */
  const sl_queue_ops *copy;    /* copies between device and host memory; NULL: both are the
                                  same memory */
  const sl_memory_ops *memory[SL_HOME_COUNT]; /* NULL: the process's memory */
  const sl_queue_ops *move[SL_HOME_COUNT]; /* transfers registers to and from this space; NULL: no
                                               register can live there */
  const sl_queue_ops *loads;               /* reads what a tick's rows want of experts on disk */
  bool loads_in_line; /* experts are loaded in line with products: a layer waits for a read or does
                         not, so the means of both hardly overlap */
  sl_status (*direct)(void); /* checks that links can connect device memory to that of another
                                process; NULL: links use host memory */
  const sl_queue_ops *group; /* collectives of several devices; NULL: they cannot make any */
  int run_ahead;             /* run-ahead of the passes' queue */
  bool cores;                /* devices are groups of host cores with several threads */
  bool computes;             /* computes values; otherwise only time passes */
  bool modelled;             /* durations are known before the run */
  bool times_calls;          /* can measure calls cheaply */
  const char *(*bf16)(void); /* returns how it multiplies bf16, or NULL if it cannot */
  bool narrow;               /* with bf16: computes on bf16 tensors */
} sli_kind;

/* Returns the kind called `name`, the default if name is NULL, or NULL if there is none. */
const sli_kind *sli_kind_find(const char *name);

/* Parses a SPEC such as "cpu:2x4" into *out; the arena owns the memory that *out points to. */
sl_status sli_devices_read(const char *spec, sli_arena *arena, sl_device_options *out);

/* Returns the kind that replaces these devices if nothing is computed. */
static inline const sli_kind *sli_kind_model(const sli_kind *kind) {
  return kind->model ? kind->model : kind;
}

/* Returns the memory space in which host queues keep workspace and results. */
static inline sl_space sli_kind_host_space(const sli_kind *kind) {
  return kind->copy ? SL_SPACE_HOST : SL_SPACE_DEVICE;
}

#endif
