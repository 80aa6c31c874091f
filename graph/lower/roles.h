/* What registers are for. A role is a row; what a register is named after, whose memory it is
 * counted as and who says how many slots it has follow from its role. */
#ifndef SLUICE_GRAPH_LOWER_ROLES_H
#define SLUICE_GRAPH_LOWER_ROLES_H

#include <sluice/plan.h>

typedef enum sli_role {
  SLI_ROLE_PARAM,   /* parameters, as they are kept */
  SLI_ROLE_GATHER,  /* the same, as those have them together who keep parts of them */
  SLI_ROLE_PACKED,  /* the same, packed for products */
  SLI_ROLE_GRAD,    /* gradients summed over a step */
  SLI_ROLE_REDUCE,  /* gradients on their way to those who sum them over the devices */
  SLI_ROLE_STATE,   /* the optimizer's */
  SLI_ROLE_ACT_B,   /* activations that B gives up */
  SLI_ROLE_ACT_W,   /* ... that W gives up */
  SLI_ROLE_ACT_PART, /* ... that some pieces have, and others have computed again */
  SLI_ROLE_KV,      /* a record of a microbatch that grows piece by piece */
  SLI_ROLE_DKV,     /* a private one */
  SLI_ROLE_RECORD,  /* one that lasts from step to step */
  SLI_ROLE_FWD,     /* on to the next stage */
  SLI_ROLE_BWD,     /* and back */
  SLI_ROLE_DY,      /* what B makes for W */
  SLI_ROLE_INNER,   /* from one group to another of the same way on the same stage */
  SLI_ROLE_SPREAD,  /* of what is spread over all stages: from there to its way back */
  SLI_ROLE_BETWEEN, /* the same from block to block, where blocks take turns (home.c) */
  SLI_ROLE_LOAD,    /* what sources give */
  SLI_ROLE_REPORT,  /* losses, norms, outputs */
  SLI_ROLE_STEP,    /* what is made once a step and is none of the above */
  SLI_ROLE_EVAL,    /* parameters, for evaluation */
  SLI_ROLE_STORE,   /* copies for a checkpoint */
  SLI_ROLE_WRITTEN, /* receipts for them */
  SLI_ROLE_BACK,    /* no data: what a source gave some ticks ago has been delivered */
  SLI_ROLE_TURN,    /* no data: whose turn it is in a lane */
  SLI_ROLE_H2D,     /* copied into a device's memory, */
  SLI_ROLE_D2H,     /* out of it, */
  SLI_ROLE_D2D,     /* and from one's into another's */
  SLI_ROLE_SPILL,   /* made here, on its way to where it lives, */
  SLI_ROLE_FILL,    /* and back for one who reads it; */
  SLI_ROLE_WEIGHTS, /* the same, of parameters; */
  SLI_ROLE_KV_SPILL, /* of what comes piece by piece: made here, */
  SLI_ROLE_KV_FILL, /* and there for one who sweeps over it */
  SLI_ROLES
} sli_role;

/* What the number of slots follows from, unless the user says it: see quotas.c. */
typedef enum sli_slots {
  SLI_SLOTS_ONE,
  SLI_SLOTS_TWO,
  SLI_SLOTS_FOUR,
  SLI_SLOTS_INITIAL,  /* as many as are ready at the start */
  SLI_SLOTS_ACT_B,    /* the stage's credits */
  SLI_SLOTS_ACT_W,
  SLI_SLOTS_LEAVING,  /* those that pieces need which leave */
  SLI_SLOTS_CROSSING, /* those of the two stages between which it goes */
  SLI_SLOTS_LOAD,     /* those of all stages */
  SLI_SLOTS_BEGUN,    /* microbatches that a stage has begun and not finished */
  SLI_SLOTS_SOURCE,   /* as many as what it is a copy of has */
  SLI_SLOTS_SPREAD,   /* what is under way between all stages */
  SLI_SLOTS_STAGING,  /* one to fill while another is read */
  SLI_SLOTS_INNER,    /* one; from block to block one for each piece, where these go together */
  SLI_SLOTS_BETWEEN,  /* the same in a lane: one more; else as STAGING */
  SLI_SLOTS_COUNT
} sli_slots;

typedef struct sli_role_row {
  const char *name;     /* of its registers, and of their quota */
  sl_memory memory;     /* what it is counted as; copies are what they are copies of */
  sli_slots slots;
  bool activation;      /* its slots are the activations of a stage: "act" means it */
  bool follows;         /* must hold what stages keep: grows with their credits during a run */
  bool per_microbatch;  /* a slot lasts for all pieces of a microbatch */
  const char *home;     /* what --home calls it, if it may live elsewhere than where it is made */
  sli_role filled;      /* with it: the role of what is brought back for who reads it */
} sli_role_row;

extern const sli_role_row sli_roles[SLI_ROLES];

/* NULL if there is none of that name. */
const sli_role_row *sli_role_find(const char *name);

#endif
