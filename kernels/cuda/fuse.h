/* SPDX-License-Identifier: Apache-2.0 */
/* Fusion of a program's calls on a GPU: the table of fused ops, and the pass over a program that
 * finds matches (fuse.c). */
#ifndef SLUICE_KERNELS_CUDA_FUSE_H
#define SLUICE_KERNELS_CUDA_FUSE_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sl_firing;
struct sl_program;
struct sli_cuda_step;
struct sli_cuda_steps;

/* A fused op: output `output` of `first` is input `input` of `second`. Without `second`, it fuses
 * any number of independent calls of `first`. */
typedef struct sli_cuda_fused {
  const sl_op *first, *second;
  int output, input;
  uint32_t same; /* bit i: both calls have the same array as input i */
  bool in_place; /* an output may alias an input of the same type */
  /* Prepares like a plain op, with all calls. `kept`: the intermediate array is written; otherwise
   * its entry in calls[0].out is NULL at launch. Returns false if these calls cannot be fused.
   * NULL: all calls can. */
  bool (*prepare)(const sl_call *calls, bool kept, void **state);
  void (*release)(void *state);
  size_t (*scratch)(const sl_call *calls, int ncalls);
  void (*launch)(const struct sli_cuda_fused *row, const sl_call *calls, int ncalls, void *state,
                 void *stream);
} sli_cuda_fused;

/* Launchers of fuse.c's table. */
/* clang-format off */
#define SLI_CUDA_FUSED_LAUNCHERS(X) \
  X(add_layernorm) X(add_rmsnorm) X(layernorm_b_add) X(rmsnorm_b_add) X(linear_gelu) \
  X(linear_b_gelu_b) X(cross_entropy_cross_entropy_b) \
  X(weighted_cross_entropy_weighted_cross_entropy_b) X(sumsq_run) \
  X(adamw_run) X(adam_run) X(sgd_run) X(lion_run)
/* clang-format on */
#define X(name)                                                                                  \
  void sli_cuda_##name(const sli_cuda_fused *row, const sl_call *calls, int ncalls, void *state, \
                       void *stream);
SLI_CUDA_FUSED_LAUNCHERS(X)
#undef X

size_t sli_cuda_sumsq_run_scratch(const sl_call *calls, int ncalls);
bool sli_cuda_linear_gelu_prepare(const sl_call *calls, bool kept, void **state);
bool sli_cuda_linear_b_gelu_b_prepare(const sl_call *calls, bool kept, void **state);
bool sli_cuda_cross_entropy_cross_entropy_b_prepare(const sl_call *calls, bool kept, void **state);
bool sli_cuda_weighted_cross_entropy_weighted_cross_entropy_b_prepare(const sl_call *calls,
                                                                      bool kept, void **state);

/* Create and destroy the steps of one variant of a program. */
void sli_cuda_fuse(const struct sl_program *program, int variant, struct sli_cuda_steps *steps);
void sli_cuda_unfuse(struct sli_cuda_steps *steps);

/* Launches a fused step with this firing's addresses. Returns false if this firing does not need
 * one of the outputs that the step writes; its calls must then be launched one by one. */
bool sli_cuda_fused_launch(const struct sli_cuda_step *step, const struct sl_firing *firing,
                           const sl_tick *tick, void *scratch, void *stream);

#ifdef __cplusplus
}
#endif
#endif
