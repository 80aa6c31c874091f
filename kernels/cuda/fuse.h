/* Which of a program's calls a GPU runs as one. */
#ifndef SLUICE_CUDA_FUSE_H
#define SLUICE_CUDA_FUSE_H

#include "kernels/cuda/program.h"

/* The steps of one variant, whose calls have been prepared. */
sl_status sli_cuda_fuse(const sl_program_call *calls, int ncalls, sli_cuda_steps *steps);
void sli_cuda_unfuse(sli_cuda_steps *steps);

#endif
