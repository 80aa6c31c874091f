#include "kernels/cuda/fuse.h"

#include <stdlib.h>

#include "base/base.h"

sl_status sli_cuda_fuse(const sl_program_call *calls, int ncalls, sli_cuda_steps *steps) {
  *steps = (sli_cuda_steps){.count = ncalls, .steps = sli_calloc(ncalls, sizeof *steps->steps)};
  for (int i = 0; i < ncalls; i++) {
    sli_cuda_step *step = &steps->steps[i];
    *step = (sli_cuda_step){.ncalls = 1, .calls = sli_calloc(1, sizeof *step->calls)};
    step->calls[0] = &calls[i];
  }
  return SL_OK;
}

void sli_cuda_unfuse(sli_cuda_steps *steps) {
  for (int i = 0; i < steps->count; i++) free(steps->steps[i].calls);
  free(steps->steps);
}
