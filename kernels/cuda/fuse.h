/* Which of a program's calls a GPU runs as one: the table of fused rows, and the pass over
 * a program that finds their places (fuse.c). */
#ifndef SLUICE_CUDA_FUSE_H
#define SLUICE_CUDA_FUSE_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sl_firing;
struct sl_program;
struct sli_cuda_step;
struct sli_cuda_steps;

/* One fused row: `first`, whose output `output` is input `input` of `second`; or, where there
 * is no `second`, any number of calls of `first` that have nothing to do with each other. */
typedef struct sli_cuda_fused {
  const sl_op *first, *second;
  int output, input;
  uint32_t same; /* bit i: input i is the same array for both */
  bool in_place; /* an output may lie where an input of the same type lies */
  /* As of a plain row, with all calls. `kept`: what is handed over is written; where it
   * is not, its place in calls[0].out is NULL at the launch. False: these calls cannot be
   * fused after all. NULL: they can. */
  bool (*prepare)(const sl_call *calls, bool kept, void **state);
  void (*release)(void *state);
  size_t (*scratch)(const sl_call *calls, int ncalls);
  void (*launch)(const struct sli_cuda_fused *row, const sl_call *calls, int ncalls, void *state,
                 void *stream);
} sli_cuda_fused;

/* The launchers of fuse.c's table. */
#define SLI_CUDA_FUSED_LAUNCHERS(X) \
  X(add_layernorm) X(add_rmsnorm) X(layernorm_b_add) X(rmsnorm_b_add) X(linear_gelu) \
  X(linear_b_gelu_b) X(cross_entropy_cross_entropy_b) \
  X(weighted_cross_entropy_weighted_cross_entropy_b) X(sumsq_run) \
  X(adamw_run) X(adam_run) X(sgd_run) X(lion_run)
#define X(name)                                                                        \
  void sli_cuda_##name(const sli_cuda_fused *row, const sl_call *calls, int ncalls,    \
                       void *state, void *stream);
SLI_CUDA_FUSED_LAUNCHERS(X)
#undef X

size_t sli_cuda_sumsq_run_scratch(const sl_call *calls, int ncalls);
bool sli_cuda_linear_gelu_prepare(const sl_call *calls, bool kept, void **state);
bool sli_cuda_linear_b_gelu_b_prepare(const sl_call *calls, bool kept, void **state);
bool sli_cuda_cross_entropy_cross_entropy_b_prepare(const sl_call *calls, bool kept, void **state);
bool sli_cuda_weighted_cross_entropy_weighted_cross_entropy_b_prepare(const sl_call *calls,
                                                                      bool kept, void **state);

/* The steps of one variant of a program. */
void sli_cuda_fuse(const struct sl_program *program, int variant, struct sli_cuda_steps *steps);
void sli_cuda_unfuse(struct sli_cuda_steps *steps);

/* Launches a fused step with this firing's addresses; false: not all that it needs is wanted
 * this time, and its calls are to be launched one by one. */
bool sli_cuda_fused_launch(const struct sli_cuda_step *step, const struct sl_firing *firing,
                           const sl_tick *tick, void *scratch, void *stream);

#ifdef __cplusplus
}
#endif
#endif
