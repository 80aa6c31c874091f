/* SPDX-License-Identifier: Apache-2.0 */
/* Capture and replay of a program's launches. */
#ifndef SLUICE_KERNELS_CUDA_GRAPHS_H
#define SLUICE_KERNELS_CUDA_GRAPHS_H

#include <cuda_runtime.h>

#include <sluice/program.h>

enum { SLI_CUDA_GRAPHS = 64 }; /* maximum graphs of one program */

typedef struct sli_cuda_graphs sli_cuda_graphs;

/* Creates the graphs of a program whose calls are launched in `steps` steps. Returns NULL if the
 * program is never captured. */
sli_cuda_graphs *sli_cuda_graphs_create(const sl_program *program, int steps);
void sli_cuda_graphs_destroy(sli_cuda_graphs *graphs);

/* Step-by-step launch of a firing: launch(arg), on `stream`, with `scratch` for the calls. */
typedef struct sli_cuda_launch {
  void (*launch)(void *arg);
  void *arg;
  cudaStream_t stream;
  const void *scratch;
} sli_cuda_launch;

/* Launches a firing, step by step or by a graph, and sets *replayed if by a graph. The calling
 * thread has set the stream's device. Fails only if an existing graph cannot be launched. */
cudaError_t sli_cuda_graphs_launch(sli_cuda_graphs *graphs, const sl_firing *firing,
                                   const sli_cuda_launch *how, bool *replayed);

/* Reports a failed launch. Returns true if the calling thread is capturing; then only the capture
 * has failed. */
bool sli_cuda_capture_spoil(void);

#endif
