/* SPDX-License-Identifier: Apache-2.0 */
/* Objectives: what a model learns, in place of predicting the next token of files.
 *
 * A graph with an objective (sl_graph_options.objective) makes its data and its loss by callbacks:
 * sl_tokens calls `tokens`, and sl_cross_entropy calls `loss`. Models need no change.
 * Graphs for inference have no objective.
 *
 * An objective may compare the model with a frozen one: a reference, which is the model as it is
 * before its first step, or a teacher. sl_model_build() builds it first, in the same graph. Its
 * parameters are named "reference.NAME" or "teacher.NAME", and it has no backward pass. Its ops run
 * on the stages of the model's own, beside them. A frozen parameter of the model and that of its
 * reference are one: with adapters (sl_lora) the reference is the model without them. */
#ifndef SLUICE_OBJECTIVE_H
#define SLUICE_OBJECTIVE_H

#include <sluice/graph.h>
#include <sluice/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SL_FROZEN_MOST = 4 }; /* tensors that a loss may have of the frozen model */

typedef struct sl_objective {
  const char *name; /* "dpo"; errors begin with it */
  /* Makes the data, as sl_tokens does: i32 [rows, context], and *targets of that shape. NULL:
   * files, as without an objective. */
  sl_tensor *(*tokens)(void *ctx, sl_graph *g, int64_t rows, int64_t context, int64_t vocab,
                       sl_tensor **targets);
  /* Returns the loss of a microbatch, an f64 scalar. frozen[SL_FROZEN_MOST]: see below. */
  sl_tensor *(*loss)(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                     sl_tensor *const *frozen);
  /* Computes from the frozen model's logits what the loss needs, as frozen[]. NULL: there is no
   * frozen model. */
  void (*frozen)(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets, sl_tensor **frozen);
  /* The frozen model; NULL: a reference. Its rows and its context are those of the model. */
  const sl_model *teacher;
  const sl_args *teacher_args;
  void *ctx;
} sl_objective;

#ifdef __cplusplus
}
#endif
#endif
