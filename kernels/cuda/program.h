/* Programs made ready for a GPU, as the queue sees them. */
#ifndef SLUICE_CUDA_PROGRAM_H
#define SLUICE_CUDA_PROGRAM_H

#include <sluice/program.h>

#include "kernels/cuda/extents.h"
#include "kernels/cuda/graphs.h"

/* A program call's state. */
typedef struct sli_cuda_call {
  void (*launch)(const sl_call *call, void *stream);
  void (*release)(void *state);
  void *state; /* the row's own */
  bool shared; /* with other calls */
  int fill;    /* its first output among all of the program that calls fill (extents.c) */
  bool knows_rows; /* the row's */
} sli_cuda_call;

/* What is launched as one: a call, or several that are fused. */
typedef struct sli_cuda_step {
  const struct sli_cuda_fused *fused; /* fuse.h; NULL: one call */
  int ncalls;
  const sl_program_call **calls;      /* in the order they have in the program */
  bool kept;                          /* of two: what the first hands to the second is written */
  void *state;                        /* the fused row's own */
} sli_cuda_step;

/* Of one variant, in the order they are launched in. */
typedef struct sli_cuda_steps {
  int count;
  sli_cuda_step *steps;
} sli_cuda_steps;

/* A program's state. */
typedef struct sli_cuda_program {
  int nvariants;
  sli_cuda_steps *variants; /* as sli_program_variant() counts them */
  sli_cuda_graphs *graphs;  /* NULL: it is launched step by step */
  sli_cuda_extents *extents; /* NULL: its slots are always full */
  bool is_timed;            /* some call wants to know what it takes */
  uint64_t fired;           /* firings, while some are still to be timed, */
  int timed;                /* and how many of them were */
} sli_cuda_program;

sl_status sli_cuda_program_prepare(sl_program *program, int device);
void sli_cuda_program_release(sl_program *program);
/* Of a program that is prepared. */
size_t sli_cuda_program_scratch(const sl_program *program, int threads);

#endif
