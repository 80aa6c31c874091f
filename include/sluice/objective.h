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
  /* Returns the positions whose logits the loss needs, i32 [rows, chosen], and sets *targets, of
   * that shape. `loss` and `frozen` then have the logits and targets of these alone, and no others
   * are computed. Called behind `tokens`. NULL, or returns NULL: all positions. Devices may share
   * rows out if as many positions are of each part of a row: i32 [rows, parts, chosen], within each
   * of so many equal parts; targets and logits are then of [rows, parts * chosen]. */
  sl_tensor *(*positions)(void *ctx, sl_graph *g, sl_tensor **targets);
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

/* ---- losses ------------------------------------------------------------------------- */

/* Direct preference optimization (Rafailov et al., arXiv 2305.18290). Rows come in pairs: a chosen
 * answer, then the one rejected. Of a pair whose answers have the log-probabilities c and r, and cr
 * and rr by the reference, the loss is -log sigmoid(beta ((c - cr) - (r - rr))); of a microbatch it
 * is their mean. */
typedef struct sl_dpo {
  float beta;      /* [0.1] */
  float smoothing; /* share of pairs that are taken to be the wrong way round, below 0.5 [0] */
} sl_dpo;

/* Sum over each row of the weighted log-probabilities of its targets, f32 [rows]. weights: f32,
 * shaped as targets; 0 where a target is not of an answer. */
sl_tensor *sl_answer_logprobs(sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                              sl_tensor *weights);
/* own and reference: sl_answer_logprobs of each model, an even number of rows. */
sl_tensor *sl_dpo_loss(sl_graph *g, sl_tensor *own, sl_tensor *reference, const sl_dpo *settings);

/* An objective that reads pairs of files with JSON lines, {"prompt", "chosen", "rejected"}. */
typedef struct sl_preferences {
  const char *paths;     /* one per line */
  const char *tokenizer; /* a tokenizer.json; NULL: bytes are tokens */
  const char *end;       /* text behind the answer to a text; NULL: none */
  /* Renders messages, a JSON array, as the text that an answer continues, for free(). NULL: prompts
   * are texts only. */
  sl_status (*render)(void *ctx, const char *messages, size_t bytes, char **text);
  const char *chat_end; /* text behind the answer to messages; NULL: none */
  void *ctx;
  bool drop; /* leaves out pairs that are longer than the context, instead of failing */
} sl_preferences;

/* Makes the objective; the strings must outlive it. Files are read when a model is built. */
sl_objective *sl_dpo_create(const sl_preferences *preferences, const sl_dpo *settings);
void sl_dpo_destroy(sl_objective *dpo);
/* Reads the pairs for models of that context and vocabulary: their number, and that of those left
 * out. SL_E_INPUT names the file and the line. */
sl_status sl_dpo_pairs(sl_objective *dpo, int64_t context, int64_t vocab, int64_t *pairs,
                       int64_t *dropped);

/* Group relative policy optimization (Shao et al., arXiv 2402.03300). 0 means the default, SL_OFF
 * 0. */
typedef struct sl_grpo {
  float clip_low, clip_high; /* ratios are clipped to 1 - clip_low .. 1 + clip_high [0.2] */
  float bound; /* with a negative advantage A the objective is at least bound A; off: none [3] */
  float kl;    /* weight of the divergence from the reference [0] */
} sl_grpo;

/* Returns the loss of tokens that the model itself has sampled. For each target with
 * log-probability lp, which was `old` when it was sampled: ratio = exp(clamp(lp - old, -20, 20)),
 * and the loss is -min(ratio A, clip(ratio) A), plus kl (exp(d) - d - 1) with d = reference - lp.
 * `weights` says how much each target counts; over a step their mean should be 1. Shapes: old,
 * weights, reference f32 [rows, context]; advantages that, or [rows, 1]. reference NULL: none. */
sl_tensor *sl_grpo_loss(sl_graph *g, sl_tensor *logits, sl_tensor *targets, sl_tensor *old,
                        sl_tensor *advantages, sl_tensor *weights, sl_tensor *reference,
                        const sl_grpo *settings);
/* Advantages of a group of answers to one prompt: (reward - mean) / (deviation + 1e-6), with the
 * deviation over count - 1, which is returned. A reward that is NaN is none: it does not count, and
 * its advantage is NaN. */
double sl_grpo_advantages(int count, const double *rewards, double *advantages);

/* Distillation: the divergence KL(teacher || model) of the next token, over the likeliest tokens of
 * the teacher, whose probabilities are made to add up to 1. */
typedef struct sl_distill {
  int top;           /* so many tokens; 0: all */
  float temperature; /* logits of both are divided by it, and the loss is times its square [1] */
  float data;        /* share of the cross entropy of the data in the loss [0] */
} sl_distill;
/* Sets frozen[0] and, with `top`, frozen[1] from the teacher's logits [rows, context, vocabulary]:
 * the logarithms of the likeliest tokens' probabilities, and these tokens. */
void sl_distill_teach(sl_graph *g, sl_tensor *logits, const sl_distill *settings,
                      sl_tensor **frozen);
/* Returns the loss of a model's logits by what sl_distill_teach has set, without the data's own.
 * `weights` says how much each position counts, f32 [rows, context]; over a step their mean should
 * be 1. NULL: all alike. */
sl_tensor *sl_distill_loss(sl_graph *g, sl_tensor *logits, sl_tensor *const *frozen,
                           sl_tensor *weights, const sl_distill *settings);
/* Makes the objective; the teacher and its arguments must outlive it. */
sl_objective *sl_distill_create(const sl_model *teacher, const sl_args *args,
                                const sl_distill *settings);
void sl_distill_destroy(sl_objective *distill);

#ifdef __cplusplus
}
#endif
#endif
