/* A program's launches, captured and replayed. */
#ifndef SLUICE_CUDA_GRAPHS_H
#define SLUICE_CUDA_GRAPHS_H

#include <cuda_runtime.h>

#include <sluice/program.h>

enum { SLI_CUDA_GRAPHS = 64 }; /* of one program, at most */

typedef struct sli_cuda_graphs sli_cuda_graphs;

/* For a program whose calls are launched in `steps` steps. NULL: it is never captured. */
sli_cuda_graphs *sli_cuda_graphs_create(const sl_program *program, int steps);
void sli_cuda_graphs_destroy(sli_cuda_graphs *graphs);

/* How a firing is launched one step after the other: launch(arg), on `stream`, with
 * `scratch` for the calls. */
typedef struct sli_cuda_launch {
  void (*launch)(void *arg);
  void *arg;
  cudaStream_t stream;
  const void *scratch;
} sli_cuda_launch;

/* Launches a firing, that way or by a graph; then *replayed is true. The calling thread has
 * chosen the stream's device. Fails only where a graph that was made is not launched. */
cudaError_t sli_cuda_graphs_launch(sli_cuda_graphs *graphs, const sl_firing *firing,
                                   const sli_cuda_launch *how, bool *replayed);

/* Of those who launch, where something could not be: true if the calling thread is
 * capturing, which has failed then and is all that has. */
bool sli_cuda_capture_spoil(void);

#endif
