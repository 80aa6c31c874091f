/* SPDX-License-Identifier: Apache-2.0 */
/* Objectives: training goals other than predicting the next token of files.
 *
 * In a graph with an objective (sl_graph_options.objective), callbacks make the data and the loss:
 * sl_tokens calls `tokens`, and sl_cross_entropy calls `loss`. Models need no change. Graphs for
 * inference have no objective.
 *
 * An objective may compare the model with a frozen model: a reference, which is the model before
 * its first step, or a teacher. sl_model_build() builds the frozen model first, in the same graph.
 * Its parameters are named "reference.NAME" or "teacher.NAME", and it has no backward pass. Its ops
 * run on the model's stages, next to the model's ops. The reference shares the model's frozen
 * parameters: with adapters (sl_lora) the reference is the model without adapters. */
#ifndef SLUICE_OBJECTIVE_H
#define SLUICE_OBJECTIVE_H

#include <sluice/graph.h>
#include <sluice/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SL_FROZEN_MOST = 4 }; /* most tensors that a loss gets from the frozen model */

typedef struct sl_objective {
  const char *name; /* "dpo"; prefix of error messages */
  /* Makes the data, as sl_tokens does: returns i32 [rows, context] and sets *targets, of the same
   * shape. NULL: the data comes from files, as without an objective. */
  sl_tensor *(*tokens)(void *ctx, sl_graph *g, int64_t rows, int64_t context, int64_t vocab,
                       sl_tensor **targets);
  /* Returns the positions whose logits the loss needs, i32 [rows, chosen], and sets *targets, of
   * the same shape. Only these logits are computed, and `loss` and `frozen` receive only these
   * logits and targets. Called after `tokens`. NULL, or a NULL result: all positions. So that
   * devices can share a row, it may return i32 [rows, parts, chosen]: as many positions in each of
   * `parts` equal parts of the row, counted within the part. targets and logits are then [rows,
   * parts * chosen]. */
  sl_tensor *(*positions)(void *ctx, sl_graph *g, sl_tensor **targets);
  /* Returns the loss of a microbatch, an f64 scalar. frozen[SL_FROZEN_MOST] is what `frozen` has
   * set. */
  sl_tensor *(*loss)(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                     sl_tensor *const *frozen);
  /* Computes frozen[], the tensors that the loss needs, from the frozen model's logits. NULL: there
   * is no frozen model. */
  void (*frozen)(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets, sl_tensor **frozen);
  /* The teacher; NULL: the frozen model is a reference. It has the model's rows and context. */
  const sl_model *teacher;
  const sl_args *teacher_args;
  const struct sl_bits *bits; /* trains bit routers of the model's experts; NULL: none */
  void *ctx;
} sl_objective;

/* ---- losses ------------------------------------------------------------------------- */

/* Direct preference optimization (Rafailov et al., arXiv 2305.18290). Rows come in pairs: the
 * chosen answer, then the rejected one. If the model gives them log-probabilities c and r, and the
 * reference gives cr and rr, the pair's loss is -log sigmoid(beta ((c - cr) - (r - rr))). A
 * microbatch's loss is the mean over its pairs. */
typedef struct sl_dpo {
  float beta;      /* [0.1] */
  float smoothing; /* assumed fraction of pairs labelled the wrong way round, below 0.5 [0] */
} sl_dpo;

/* Sum over each row of the weighted log-probabilities of its targets, f32 [rows]. weights: f32,
 * shaped as targets; 0 where a target is not part of an answer. */
sl_tensor *sl_answer_logprobs(sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                              sl_tensor *weights);
/* Returns the DPO loss. own and reference: sl_answer_logprobs of each model, with an even number of
 * rows. */
sl_tensor *sl_dpo_loss(sl_graph *g, sl_tensor *own, sl_tensor *reference, const sl_dpo *settings);

/* Preference pairs, read from files of JSON lines, {"prompt", "chosen", "rejected"}. A prompt of
 * messages is rendered together with its answer, by a chat template. */
typedef struct sl_preferences {
  const char *paths;         /* one per line */
  const char *tokenizer;     /* a tokenizer.json; NULL: bytes are tokens */
  const char *end;           /* text appended to the answer if the prompt is text; NULL: none */
  const char *chat_template; /* name of a template, or its file; NULL: that of the tokenizer */
  bool drop;                 /* drops pairs longer than the context, instead of failing */
} sl_preferences;

/* Creates the objective; the strings must outlive it. Files are read when a model is built. */
sl_objective *sl_dpo_create(const sl_preferences *preferences, const sl_dpo *settings);
void sl_dpo_destroy(sl_objective *dpo);
/* Reads the pairs for models with this context and vocabulary. Sets *pairs and *dropped to the
 * numbers of pairs read and dropped. SL_E_INPUT names the file and the line. */
sl_status sl_dpo_pairs(sl_objective *dpo, int64_t context, int64_t vocab, int64_t *pairs,
                       int64_t *dropped);

/* Group relative policy optimization (Shao et al., arXiv 2402.03300). A field of 0 takes its
 * default; SL_OFF means 0. */
typedef struct sl_grpo {
  float clip_low, clip_high; /* ratios are clipped to 1 - clip_low .. 1 + clip_high [0.2] */
  float bound; /* for a negative advantage A the objective is at least bound A; SL_OFF: no bound
                  [3] */
  float kl;    /* weight of the divergence from the reference [0] */
} sl_grpo;

/* Returns the loss of tokens that the model has sampled. A target has log-probability lp now and
 * had `old` when it was sampled; A is its advantage. With ratio = exp(clamp(lp - old, -20, 20)) the
 * loss is -min(ratio A, clip(ratio) A), plus kl (exp(d) - d - 1) with d = reference - lp. `weights`
 * weights the targets; its mean over a step should be 1. Shapes: old, weights, reference f32 [rows,
 * context]; advantages the same, or [rows, 1]. reference NULL: no divergence term. */
sl_tensor *sl_grpo_loss(sl_graph *g, sl_tensor *logits, sl_tensor *targets, sl_tensor *old,
                        sl_tensor *advantages, sl_tensor *weights, sl_tensor *reference,
                        const sl_grpo *settings);
/* Computes the advantages of a group of answers to one prompt: (reward - mean) / (deviation +
 * 1e-6), with the deviation over count - 1. Returns the deviation. A NaN reward means no reward: it
 * does not count, and its advantage is NaN. */
double sl_grpo_advantages(int count, const double *rewards, double *advantages);

/* Distillation: the divergence KL(teacher || model) of the next token, over the teacher's most
 * likely tokens, with probabilities renormalised to sum to 1. */
typedef struct sl_distill {
  int top;           /* number of most likely tokens; 0: all */
  float temperature; /* divides the logits of both models; its square multiplies the loss [1] */
  float data;        /* fraction of the loss that is the data's cross entropy [0] */
} sl_distill;
/* Sets frozen[0] and, with `top`, frozen[1] from the teacher's logits [rows, context, vocabulary]:
 * the log-probabilities of the most likely tokens, and the tokens themselves. */
void sl_distill_teach(sl_graph *g, sl_tensor *logits, const sl_distill *settings,
                      sl_tensor **frozen);
/* Returns the distillation loss of a model's logits against the tensors that sl_distill_teach has
 * set, without the data's cross entropy. `weights` weights the positions, f32 [rows, context]; its
 * mean over a step should be 1. NULL: equal weights. */
sl_tensor *sl_distill_loss(sl_graph *g, sl_tensor *logits, sl_tensor *const *frozen,
                           sl_tensor *weights, const sl_distill *settings);
/* Creates the objective; the teacher and its arguments must outlive it. */
sl_objective *sl_distill_create(const sl_model *teacher, const sl_args *args,
                                const sl_distill *settings);
void sl_distill_destroy(sl_objective *distill);

/* Bit routers of experts in nested bit planes (D2MoE, arXiv 2504.15299). Each expert has a map [K,
 * width] named "...experts.*.bits.weight". The softmax of its product with a row gives the row's
 * probabilities p_k of K = width - base + 1 widths, base to width bits, and the row is multiplied
 * with the numbers that the planes of its likeliest width stand for. The gradient of that choice is
 * that of p. Only bit routers are trained. q and q' are the next-token probabilities of the model
 * as it was loaded and of this one, and alpha weighs the mean bits of rows:
 *
 *   loss = CE(q, q') + alpha / layers * sum over layers of mean over rows of sum_k p_k bits_k */
enum { SL_BITS_WIDTHS = 7 };
typedef struct sl_bits {
  int base, width; /* 2 <= base <= width <= 8 */
  float alpha;     /* [0] */
  /* Shares of an expert's rows that may take each width, from base on; their sum is at least 1. A
   * row takes its likeliest width that has room, in the order of p. All 0: no limits. */
  float capacity[SL_BITS_WIDTHS];
} sl_bits;
/* Creates the objective. */
sl_objective *sl_bits_create(const sl_bits *settings);
void sl_bits_destroy(sl_objective *bits);

#ifdef __cplusplus
}
#endif
#endif
