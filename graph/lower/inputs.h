/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of lowering, fixed before the first task is created: the graph, the options and the values
 * derived from them. All candidates of a search share them; lowering does not write to them. */
#ifndef SLUICE_GRAPH_LOWER_INPUTS_H
#define SLUICE_GRAPH_LOWER_INPUTS_H

#include <sluice/lower.h>

#include "graph/graph.h"
#include "graph/devices/devices.h"
#include "graph/schedule/schedule.h"
#include "graph/sharding/sharding.h"

typedef struct sli_stores sli_stores;

/* Numbering of devices. */
typedef struct sli_numbering {
  int nesting[SLI_AXES]; /* order of all axes, stages included, from the outermost to the
                            innermost */
  const int *assign;     /* by computed number: the device assigned to that place (assign.c);
                            NULL: the identity */
} sli_numbering;

typedef struct sli_inputs {
  sl_graph *g;
  const sl_lower_options *options;
  const sli_kind *kind;   /* kind of the devices */
  const char *bf16;       /* how the devices multiply bf16, if requested; else NULL */
  bool narrow;            /* with bf16: activations of the model are bf16 as well */
  bool direct;            /* links may connect two devices' own memories */
  int p;                  /* devices along the pipeline */
  sli_grid grid;          /* devices of each stage */
  bool by_heads, by_ring; /* allowed methods of attention across devices */
  bool states_by_heads, states_by_exchange; /* allowed methods for states of linear attention */
  const char *other; /* text for reports: the cost of the method that was not chosen; NULL: not
                        computed */
  int barriers;      /* how often a microbatch waits for all stages if the vocabulary's tables are
                        sharded over them; 0: not sharded */
  bool in_line;      /* exchanges that passes wait for take turns on the passes' queue */
  bool scattered;    /* tensors that all devices of the tensor axis have cross to the next stage
                        in parts */
  int stages;        /* stages along the model, chunks included; 0: still to be searched for */
  const char *placement; /* of the stages, if they are known */
  bool by_axis;          /* exchanges along one axis of the grid do not wait for those along
                            another */
  int ranks, devices;    /* planned devices of each stage, and of all stages: p * ranks */
  sli_numbering layout;
  int *device_at, *place_of; /* [devices] device by place (along * ranks + rank), and the
                                inverse; layout.c */
  sli_sharding sharding;
  bool by_block;          /* granularity: tasks end with their block */
  bool layers;            /* all pieces of a microbatch go through a block before the next block */
  int m, k;               /* microbatches, pieces */
  const sli_paths *paths; /* given paths; NULL: all microbatches go through all stages */
  const double *block_seconds; /* with paths or scattered boundaries: seconds of the model's blocks
                                  on one device, by which they are cut into stages on any grid;
                                  NULL: cut by cost on the actual devices */
  int update_every;            /* N: the device updates the parameters of every N-th block and the
                                  host all others; 0: the host updates all */
  int leaving;                 /* number of pieces of a microbatch whose activations are offloaded;
                                  all others recompute; SL_NONE: not by piece */
  double flops;                /* operations of a step, forward and backward, on one device */
  sli_stores *stores;          /* owned by the result */
  sl_runtime *const *rt;       /* runtime that gets the result's failures, once it exists */
} sli_inputs;

/* Return a device's place along the pipeline, and its rank in the grid of its stage. */
static inline int sli_along_of(const sli_inputs *in, int device) {
  return in->place_of[device] / in->ranks;
}
static inline int sli_rank_of(const sli_inputs *in, int device) {
  return in->place_of[device] % in->ranks;
}
/* Returns the device at a place. */
static inline int sli_device_at(const sli_inputs *in, int along, int rank) {
  return in->device_at[along * in->ranks + rank];
}

/* Returns the device of the same rank that is `further` devices along the pipeline, cyclically. */
static inline int sli_peer_of(const sli_inputs *in, int device, int further) {
  return sli_device_at(in, (sli_along_of(in, device) + further) % in->p, sli_rank_of(in, device));
}

/* Returns the device that holds data that belongs to no single stage: the device of the first
 * place, or of the process that speaks for the job. */
static inline int sli_speaker(const sli_inputs *in) {
  return in->options->parallel.processes > 1 ? 0 : sli_device_at(in, 0, 0);
}

/* Returns the driver's number of a device; several devices may share one GPU. */
static inline int sli_lower_number(const sli_inputs *in, int device) {
  const sl_device_options *o = &in->options->devices;
  return o->nnumbers ? o->numbers[device % o->nnumbers] : 0;
}

#endif
