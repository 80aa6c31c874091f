/* SPDX-License-Identifier: Apache-2.0 */
/* Prepared programs of a GPU, as the queue uses them. */
#ifndef SLUICE_KERNELS_CUDA_PROGRAM_H
#define SLUICE_KERNELS_CUDA_PROGRAM_H

#include <sluice/program.h>

#include "kernels/cuda/lengths.h"
#include "kernels/cuda/graphs.h"

/* State of a program's call. */
typedef struct sli_cuda_call {
  void (*launch)(const sl_call *call, void *stream);
  void (*release)(void *state);
  void *state; /* state of the op */
  bool shared; /* shared with other calls */
  /* number of its first output whose valid length the call sets, among all of the program
   * (lengths.c) */
  int fill;
  bool knows_rows; /* sli_cuda_op.knows_rows */
} sli_cuda_call;

/* Unit of launching: one call, or several fused ones. */
typedef struct sli_cuda_step {
  const struct sli_cuda_fused *fused; /* fuse.h; NULL: a single call */
  int ncalls;
  const sl_program_call **calls; /* in program order */
  bool kept;                     /* for pairs: the intermediate array is written */
  void *state;                   /* state of the fused op */
} sli_cuda_step;

/* Steps of one variant, in launch order. */
typedef struct sli_cuda_steps {
  int count;
  sli_cuda_step *steps;
} sli_cuda_steps;

/* State of a program. */
typedef struct sli_cuda_program {
  int nvariants;
  sli_cuda_steps *variants;  /* indexed by sli_program_variant() */
  sli_cuda_graphs *graphs;   /* NULL: launched step by step */
  sli_cuda_lengths *lengths; /* NULL: slots are always full */
  bool is_timed;             /* some call wants its time measured */
  uint64_t fired;            /* firings, while some remain to be timed */
  int timed;                 /* timed firings */
} sli_cuda_program;

sl_status sli_cuda_program_prepare(sl_program *program, int device);
void sli_cuda_program_release(sl_program *program);
/* Returns the scratch of a prepared program. */
size_t sli_cuda_program_scratch(const sl_program *program, int threads);

#endif
