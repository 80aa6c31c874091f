/* Programs made ready for a GPU (rows.c), as the queue sees them. */
#ifndef SLUICE_CUDA_PROGRAM_H
#define SLUICE_CUDA_PROGRAM_H

#include <sluice/program.h>

/* A program call's state. */
typedef struct sli_cuda_call {
  void (*launch)(const sl_call *call, void *stream);
  void (*release)(void *state);
  void *state; /* the row's own */
} sli_cuda_call;

sl_status sli_cuda_program_prepare(sl_program *program, int device);
void sli_cuda_program_release(sl_program *program);
size_t sli_cuda_program_scratch(const sl_program *program, int threads);

#endif
