/* SPDX-License-Identifier: Apache-2.0 */
/* Roles of registers, one table row each. The role determines a register's name, the memory
 * category it is counted as, and what sets its number of slots. */
#ifndef SLUICE_GRAPH_LOWER_ROLES_H
#define SLUICE_GRAPH_LOWER_ROLES_H

#include <sluice/plan.h>

typedef enum sli_role {
  SLI_ROLE_PARAM,    /* parameters in their stored form */
  SLI_ROLE_GATHER,   /* parameters, all-gathered from their shards */
  SLI_ROLE_PACKED,   /* parameters packed for matrix products */
  SLI_ROLE_GRAD,     /* gradients summed over a step */
  SLI_ROLE_REDUCE,   /* gradients on their way to the devices that sum them */
  SLI_ROLE_STATE,    /* optimizer state */
  SLI_ROLE_ACT_B,    /* activations that B frees */
  SLI_ROLE_ACT_W,    /* activations that W frees */
  SLI_ROLE_ACT_PART, /* activations kept by some pieces and recomputed by others */
  SLI_ROLE_KV,       /* keys and values of a microbatch (KV cache), growing piece by piece */
  SLI_ROLE_DKV,      /* record of the backward pass: gradients of keys and values */
  SLI_ROLE_CACHE,    /* record that only its task reads: pages and states of a server */
  SLI_ROLE_SPAN,     /* rows of an encoder, of all prompts of a step */
  SLI_ROLE_RECORD,   /* record that persists from step to step */
  SLI_ROLE_FWD,      /* activations sent to the next stage */
  SLI_ROLE_BWD,      /* gradients sent to the previous stage */
  SLI_ROLE_DY,       /* gradients that B computes for W */
  SLI_ROLE_INNER,    /* from task to task within the same pass and stage */
  SLI_ROLE_SHARDED,  /* activations of blocks sharded over all stages, kept for the backward pass */
  SLI_ROLE_BETWEEN,  /* INNER from block to block, if blocks take turns (home.c) */
  SLI_ROLE_LOAD,     /* data from sources */
  SLI_ROLE_REPORT,   /* losses, norms, outputs */
  SLI_ROLE_STEP,     /* other values computed once a step */
  SLI_ROLE_EVAL,     /* parameters used by evaluation */
  SLI_ROLE_STORE,    /* copies for a checkpoint */
  SLI_ROLE_WRITTEN,  /* manifest entries for those copies */
  SLI_ROLE_BACK,     /* no data: data that a source supplied some ticks ago has been delivered */
  SLI_ROLE_ROLLED,   /* no data: the rollouts of a step have been delivered */
  SLI_ROLE_VERSION,  /* no data: the parameters of a step's rollouts have been updated */
  SLI_ROLE_DELAY,    /* values that later ticks read (sl_delay) */
  SLI_ROLE_TURN,     /* no data: grants the turn in a slot pool */
  SLI_ROLE_H2D,      /* copy into a device's memory */
  SLI_ROLE_D2H,      /* copy out of a device's memory */
  SLI_ROLE_D2D,      /* copy from one device's memory into another's */
  SLI_ROLE_SPILL,    /* written on the device, on its way to its home (placement) */
  SLI_ROLE_FILL,     /* brought back from its home for a reader */
  SLI_ROLE_WEIGHTS,  /* parameters brought back from their home for a reader */
  SLI_ROLE_EXPERTS,  /* parts of experts that are held, and what is known about them */
  SLI_ROLE_LENT,     /* the parts of experts that rows are computed with */
  SLI_ROLE_KV_SPILL, /* keys and values of one piece, on their way to their home */
  SLI_ROLE_KV_FILL,  /* keys and values of one piece, brought back for a sweep */
  SLI_ROLES
} sli_role;

/* Rule that gives the number of slots, unless the user sets it: see quotas.c. */
typedef enum sli_slots {
  SLI_SLOTS_ONE,
  SLI_SLOTS_TWO,
  SLI_SLOTS_FOUR,
  SLI_SLOTS_DELAY,   /* as many as are ready at the start, plus one if the writer reads them too */
  SLI_SLOTS_INITIAL, /* as many as are ready at the start */
  SLI_SLOTS_ACT_B,   /* the stage's credits */
  SLI_SLOTS_ACT_W,
  SLI_SLOTS_LEAVING,  /* as many as offloaded pieces need */
  SLI_SLOTS_CROSSING, /* credits of the two stages that it connects */
  SLI_SLOTS_LOAD,     /* credits of all stages */
  SLI_SLOTS_BEGUN,    /* microbatches that a stage has begun but not finished */
  SLI_SLOTS_SOURCE,   /* as many as the register it is a copy of */
  SLI_SLOTS_SHARDED,  /* microbatches in flight across all stages */
  SLI_SLOTS_STAGING,  /* one to fill while another is read */
  SLI_SLOTS_INNER,    /* one; from block to block one per piece, if pieces go through a block
                         together */
  SLI_SLOTS_BETWEEN,  /* INNER plus one if slots are shared; else as STAGING */
  SLI_SLOTS_COUNT
} sli_slots;

typedef struct sli_role_row {
  const char *name; /* name of its registers and of their quota */
  sl_memory memory; /* memory category; copies count as their original */
  sli_slots slots;
  bool activation;     /* its slots are a stage's activations: "act" includes it */
  bool follows;        /* must hold as much as its stages: grows with their credits during a run */
  bool per_microbatch; /* a slot lasts for all pieces of a microbatch */
  const char *home;    /* name in --home, if it may be placed elsewhere than where it is written */
  sli_role filled;     /* if `home` is set: role of the copy that is brought back for a reader */
} sli_role_row;

extern const sli_role_row sli_roles[SLI_ROLES];

/* Returns NULL if no role has that name. */
const sli_role_row *sli_role_find(const char *name);

#endif
