/* Kinds of devices: what their queues and memories are. */
#ifndef SLUICE_GRAPH_KINDS_H
#define SLUICE_GRAPH_KINDS_H

#include <sluice/plan.h>

typedef struct sli_kind {
  const char *name;
  const sl_queue_ops *compute; /* what runs passes, */
  const sl_queue_ops *host;    /* what runs beside them, */
  const sl_queue_ops *copy;    /* and what copies between the device's memory and the host's;
                                  NULL: they are one */
  const sl_memory_ops *memory[SL_SPACE_COUNT]; /* NULL: the process's */
  sl_status (*direct)(void);   /* can links lead from its own memory into that of such a device
                                  of another process? NULL: they are the host's */
  int run_ahead;               /* of passes */
  bool computes;               /* on values; else only time passes */
  bool modelled;               /* whose durations are known before the run */
  bool times_calls;            /* measures calls, which costs it next to nothing */
  const char *(*bf16)(void);   /* how it multiplies bf16, NULL: it does not */
  bool narrow;                 /* with it, computes on tensors of bf16 */
} sli_kind;

/* NULL: the default. SL_E_USAGE if there is no such kind. */
sl_status sli_kind_find(const char *name, const sli_kind **out);

/* The space of the host's queues' workspace and of what they make. */
static inline sl_space sli_kind_host_space(const sli_kind *kind) {
  return kind->copy ? SL_SPACE_HOST : SL_SPACE_DEVICE;
}

#endif
