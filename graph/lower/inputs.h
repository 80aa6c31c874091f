/* What lowering starts from, settled before the first group is made: the graph, the options and
 * what follows from them. It is the same for all candidates of a search, which share it; nothing
 * writes to it any more then. */
#ifndef SLUICE_GRAPH_LOWER_INPUTS_H
#define SLUICE_GRAPH_LOWER_INPUTS_H

#include <sluice/lower.h>

#include "graph/graph.h"
#include "graph/devices/devices.h"
#include "graph/schedule/schedule.h"
#include "graph/share/share.h"

typedef struct sli_stores sli_stores;

/* How devices are numbered. */
typedef struct sli_numbering {
  int nesting[SLI_AXES]; /* of all devices, along stages too: from the outermost axis to the innermost */
  const int *assign;     /* by the number that follows, the device that is there (assign.c); NULL: the one of that
                            number */
} sli_numbering;

typedef struct sli_inputs {
  sl_graph *g;
  const sl_lower_options *options;
  const sli_kind *kind;  /* of the devices */
  const char *bf16;      /* how they multiply bf16, where they are to; else NULL */
  bool narrow;           /* with it: what flows through the model is bf16 as well */
  bool direct;           /* links may lead from one's own memory into another's */
  int p;                 /* devices along the pipeline */
  sli_grid grid;         /* of each stage */
  bool by_heads, by_ring; /* how attention may find the positions of other devices */
  const char *other;     /* for people: what the one that is not would take; NULL: it was not looked for */
  int barriers;          /* how often a microbatch waits for all stages, on which the vocabulary's tables
                            lie then: 0, not at all */
  bool in_line;          /* exchanges that passes wait for have their turn on the passes' queue */
  bool by_axis;          /* what goes along one axis of the grid does not wait for another's */
  int ranks, devices;    /* devices of each stage that are planned, and all of them: p * ranks */
  sli_numbering layout;
  int *device_at, *place_of; /* [devices] by place, which is along * ranks + rank, and back; layout.c */
  sli_sharding sharding;
  bool by_block;         /* the grain: groups end with their block */
  bool layers;           /* all pieces of a microbatch go through a block before the next block */
  int m, k;              /* microbatches, pieces */
  const sli_paths *paths; /* that are given; NULL: all go through all stages */
  const double *block_seconds; /* with paths: of the model's blocks on one device, by which they are cut on any
                                  grid and machine; NULL: by what they cost there */
  int update_every;      /* blocks whose parameters the device updates: every so many; 0: none.
                            The host updates the others */
  int leaving;           /* pieces of a microbatch whose activations leave, of others they are computed
                            again; SL_NONE: nothing is said of pieces */
  double flops;          /* of a step, forward and back, as one device would do it */
  sli_stores *stores;    /* the result's */
  sl_runtime *const *rt; /* where the result's failures go, once it has one */
} sli_inputs;

/* Where a device is along the pipeline, and in the grid of its stage. */
static inline int sli_along_of(const sli_inputs *in, int device) {
  return in->place_of[device] / in->ranks;
}
static inline int sli_rank_of(const sli_inputs *in, int device) {
  return in->place_of[device] % in->ranks;
}
/* The device there. */
static inline int sli_device_at(const sli_inputs *in, int along, int rank) {
  return in->device_at[along * in->ranks + rank];
}

/* Which device has what belongs to no one stage: the first place's, or that of the process that speaks for the job. */
static inline int sli_speaker(const sli_inputs *in) {
  return in->options->processes > 1 ? 0 : sli_device_at(in, 0, 0);
}

/* What the driver calls a device: several may lie on one GPU. */
static inline int sli_lower_number(const sli_inputs *in, int device) {
  const sl_device_options *o = &in->options->devices;
  return o->nnumbers ? o->numbers[device % o->nnumbers] : 0;
}

#endif
