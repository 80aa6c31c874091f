/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of devices: a table row gives a kind's queues and memories, its user syntax, and how it
 * gets resources of the machine. */
#ifndef SLUICE_GRAPH_DEVICES_H
#define SLUICE_GRAPH_DEVICES_H

#include <sluice/lower.h>
#include <sluice/placement.h>

#include "base/base.h"

/* The devices of one process, while they are being placed on the machine. */
typedef struct sli_site {
  sl_device_options *devices; /* devices of all processes */
  sli_arena *arena;           /* owns the memory that `devices` points to */
  const char *spec;           /* SPEC as the user wrote it, for messages */
  int first, count;           /* devices of this process; at least one */
  sl_machine *machine;        /* machine and placement found, also by a place() that fails; */
  sl_placement *placement;    /* the caller destroys both */
} sli_site;

typedef struct sli_kind {
  const char *name;
  const char *form; /* form of a SPEC that names such devices */
  /* Reads the text behind the colon and advances *text. False: not a SPEC of this kind. */
  bool (*read)(const char **text, sli_arena *arena, sl_device_options *out);
  /* Finds the devices on this machine, fills in open settings (threads, numbers, the budget) and
   * assigns cores. NULL: the devices need none, and always exist. */
  sl_status (*place)(sli_site *site);
  /* Fills in the settings that a plan needs, where devices need not exist here. NULL: by
   * place(). */
  void (*imagine)(sli_site *site);
  const struct sli_kind *model;  /* kind that stands for it where nothing is computed; NULL:
                                    itself */
  const struct sli_kind *hosted; /* for a modelled kind: the variant beside a host that has
                                    memory of its own and updates parameters there; NULL: the
                                    kind has such a host, or no variant */

  const sl_queue_ops *compute; /* runs passes */
  const sl_queue_ops *host;    /* runs work beside the passes */
  const sl_queue_ops *copy;    /* copies between the device's memory and the host's; NULL: they
                                  are one memory */
  const sl_memory_ops *memory[SL_SPACE_COUNT]; /* NULL: the process's memory */
  const sl_queue_ops *move[SL_SPACE_COUNT];    /* transfers registers to and from this space; NULL:
                                                  none can be placed there */
  sl_status (*direct)(void); /* checks that links can connect its own memory and that of such a
                                device of another process; NULL: links use host memory */
  int run_ahead;             /* run-ahead of the passes' queue */
  bool cores;                /* consists of host cores: so many threads for each device */
  bool computes;             /* computes values; else only time passes */
  bool modelled;             /* durations are known before the run */
  bool times_calls;          /* measures calls, at little cost */
  const char *(*bf16)(void); /* returns how it multiplies bf16, NULL: it does not */
  bool narrow;               /* with bf16: computes on bf16 tensors */
} sli_kind;

/* Returns the kind of that name; name NULL: the default. Returns NULL if there is none. */
const sli_kind *sli_kind_find(const char *name);

/* Reads a SPEC such as "cpu:2x4" into *out; memory that *out points to is the arena's. */
sl_status sli_devices_read(const char *spec, sli_arena *arena, sl_device_options *out);

/* Returns the kind that stands for these devices where nothing is computed. */
static inline const sli_kind *sli_kind_model(const sli_kind *kind) {
  return kind->model ? kind->model : kind;
}

/* Returns the memory space of the workspace and the results of host queues. */
static inline sl_space sli_kind_host_space(const sli_kind *kind) {
  return kind->copy ? SL_SPACE_HOST : SL_SPACE_DEVICE;
}

#endif
