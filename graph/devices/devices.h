/* Kinds of devices: a row for each says what such devices are made of, how users name them and
 * what they get of the machine. */
#ifndef SLUICE_GRAPH_DEVICES_H
#define SLUICE_GRAPH_DEVICES_H

#include <sluice/lower.h>
#include <sluice/placement.h>

#include "base/base.h"

/* The devices of one process, looking for their place on the machine. */
typedef struct sli_site {
  sl_device_options *devices; /* of all processes */
  sli_arena *arena;           /* of what `devices` points to */
  const char *spec;           /* as the user named them, for messages */
  int first, count;           /* of this process; at least one */
  sl_machine *machine;        /* what was found and given, also by a place() that fails: */
  sl_placement *placement;    /* the caller's to destroy */
} sli_site;

typedef struct sli_kind {
  const char *name;
  const char *form; /* of a SPEC that names such devices */
  /* Reads what stands behind the colon, up to *text. False: it is something else. */
  bool (*read)(const char **text, sli_arena *arena, sl_device_options *out);
  /* Finds the devices here, fills in what was left open of them (threads, numbers, the budget)
   * and gives them cores. NULL: they need none, and are always here. */
  sl_status (*place)(sli_site *site);
  /* Fills in what a plan needs to know, where devices need not be here. NULL: by place(). */
  void (*imagine)(sli_site *site);
  const struct sli_kind *model; /* stands for it where nothing is to be computed; NULL: itself */
  const struct sli_kind *hosted; /* of a modelled one: the same beside a host that has memory of its
                                  own and updates parameters there; NULL: it has one, or none */

  const sl_queue_ops *compute; /* what runs passes, */
  const sl_queue_ops *host;    /* what runs beside them, */
  const sl_queue_ops *copy;    /* and what copies between the device's memory and the host's;
                                  NULL: they are one */
  const sl_memory_ops *memory[SL_SPACE_COUNT]; /* NULL: the process's */
  const sl_queue_ops *move[SL_SPACE_COUNT]; /* what brings registers that live there to and fro;
                                  NULL: none can */
  sl_status (*direct)(void);   /* can links lead from its own memory into that of such a device
                                  of another process? NULL: they are the host's */
  int run_ahead;               /* of passes */
  bool cores;                  /* it is cores of the host: so many threads for each device */
  bool computes;               /* on values; else only time passes */
  bool modelled;               /* whose durations are known before the run */
  bool times_calls;            /* measures calls, which costs it next to nothing */
  const char *(*bf16)(void);   /* how it multiplies bf16, NULL: it does not */
  bool narrow;                 /* with it, computes on tensors of bf16 */
} sli_kind;

/* By its name; NULL: the default. NULL if there is no such kind. */
const sli_kind *sli_kind_find(const char *name);

/* Reads a SPEC such as "cpu:2x4" into *out, which keeps what it points to in the arena. */
sl_status sli_devices_read(const char *spec, sli_arena *arena, sl_device_options *out);

/* The kind that stands for these devices where nothing is to be computed. */
static inline const sli_kind *sli_kind_model(const sli_kind *kind) {
  return kind->model ? kind->model : kind;
}

/* The space of the host's queues' workspace and of what they make. */
static inline sl_space sli_kind_host_space(const sli_kind *kind) {
  return kind->copy ? SL_SPACE_HOST : SL_SPACE_DEVICE;
}

#endif
