/* SPDX-License-Identifier: Apache-2.0 */
/* Learning from rollouts: a model answers prompts, something rewards its answers, and it learns
 * from these, with the sampler inside the training plan (GRPO: Shao et al., arXiv 2402.03300). Or a
 * teacher reads its answers, and the model learns the teacher's probabilities at their tokens
 * (on-policy distillation: Agarwal et al., arXiv 2306.13649).
 *
 *     sl_rollouts *r = NULL;
 *     status = sl_rollouts_create(&options, &r);
 *     graph = sl_graph_create(&(sl_graph_options){.objective = sl_rollouts_objective(r), ...});
 *     ... sl_model_build(), then
 *     lower.rollouts = *sl_rollouts_lower(r);
 *     ... sl_lower(), sl_runtime_create(), then
 *     sl_rollouts_attach(r, rt);
 *     ... sl_runtime_run(); after sl_runtime_destroy() and sl_lowered_destroy():
 *     sl_rollouts_destroy(r);
 *
 * A step of `batch` rows takes batch / group prompts. Each is answered `group` times with the
 * parameters that the step begins with, from the registers that it trains: nothing is copied. An
 * answer is rewarded by `answered`, and its advantage is its reward compared with those of its
 * group. Then the passes of the step learn from all answers. The prompts of a step, and all random
 * numbers, follow from the step's number and the seed: a resumed run has the same rollouts.
 *
 * Where devices share out data, sequences or tensors, all of them answer (`devices`), each a share
 * of the rows. An answer's numbers do not depend on which device gives it.
 *
 * Threads: callbacks come on threads of the plan and must not block for long, but
 * sl_rollouts_reward may be called by any thread. With several processes all of them create the
 * rollouts; devices of any process answer, and the first process alone has the answers. */
#ifndef SLUICE_ROLLOUTS_H
#define SLUICE_ROLLOUTS_H

#include <sluice/lower.h>
#include <sluice/objective.h>
#include <sluice/session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_rollouts sl_rollouts;

/* A prompt: its tokens, which must outlive the rollouts. */
typedef struct sl_prompt {
  const int32_t *tokens; /* [count], at least 1 */
  int64_t count;
} sl_prompt;

/* A complete answer. Valid until its step's passes begin. */
typedef struct sl_answer {
  uint64_t id;           /* for sl_rollouts_reward */
  int64_t step;          /* from 0 */
  int64_t prompt;        /* index of its prompt */
  int row, member;       /* row of the step's batch; index within its group */
  const int32_t *tokens; /* [count] */
  const float *logprobs; /* [count] natural logarithms of their probabilities */
  int64_t count;         /* 0: the step had no ticks left for it */
  bool truncated;        /* it did not end by itself */
} sl_answer;

/* Figures of a step's answers. Answers without a reward count in `dropped` alone. Figures of the
 * step's passes are counters of its sl_step_report, means over all tokens that count: "kl", the
 * divergence from the reference; "clipped", the share whose ratio is; "ratio_off", |ratio - 1|. */
typedef struct sl_rollouts_report {
  int64_t step;
  int answers, dropped, truncated;
  double reward, reward_std; /* mean over all answers; deviation with n - 1 */
  double length;             /* mean tokens of an answer */
  double entropy;            /* mean of -log p over the tokens of answers, an estimate of it */
  double flat;               /* share of groups whose rewards are all equal: nothing to learn */
  int64_t rows;              /* rows that the session has computed, prompts and answers */
  double answer_seconds;     /* from when the step's parameters are there to its last answer */
  double reward_seconds;     /* from then on to the last reward */
} sl_rollouts_report;

typedef struct sl_rollouts_options {
  const sl_model
      *model; /* model, options and adapters, as in sl_session_options; must outlive it */
  const sl_args *args;
  const sl_training *training; /* may be NULL */
  int64_t batch;               /* rows of a step, a multiple of `group` */
  int microbatches;            /* parts of it [1] */
  int stages;                  /* pipeline stages of training [1] */
  int devices;                 /* devices of each stage that answer, each a share [1] */
  int sequence;                /* devices that share a sequence [1] */
  bool all_positions; /* logits of all positions, as numbers.leaf needs; else only where answers can
                         be, in each part of a sequence that a device may have */
  int group;          /* answers to each prompt [8; 1 with a teacher] */
  const sl_prompt *prompts; /* [nprompts] */
  int64_t nprompts;
  uint64_t shuffle;   /* seed of the prompts' order, another in each epoch; 0: as listed */
  int64_t max_tokens; /* of an answer [256]; a prompt and its answer are at most the context */
  float temperature;  /* [1] */
  float top_p;        /* 0 or 1: any token */
  uint64_t seed;
  const int32_t *stop; /* [nstop] tokens that end an answer and are its last */
  int nstop;
  int updates; /* made of one rollout: every so many steps as many batches are answered [1] */
  int ahead;   /* updates that the parameters which answer are old, at most 8 [0] */
  int ticks;   /* most ticks of a step [as many as all answers could take] */
  /* Gets each answer once it is complete, and has sl_rollouts_reward called for it: now or later,
   * by any thread. The source of training waits for the rewards of all answers of a step. With a
   * teacher it may be NULL: answers have no rewards then. */
  void (*answered)(void *ctx, const sl_answer *answer);
  /* Gets a step when its rewards are there, with its answers, rewards [n] and advantages [n]; NaN:
   * dropped. May be NULL. */
  void (*rewarded)(void *ctx, const sl_rollouts_report *report, int n, const sl_answer *answers,
                   const double *rewards, const double *advantages);
  void *ctx;
  double clip_low, clip_high; /* ratios are clipped to 1 - low .. 1 + high [0.2, and as low] */
  double dual_clip;           /* most that a negative advantage counts with, times itself [3] */
  double kl;                  /* weight of the divergence from the reference model; 0: none */
  /* Learns the teacher's probabilities at the tokens of answers, in place of what rewards say;
   * `data` must be 0. All three must outlive the rollouts. NULL: learns from rewards. */
  const sl_distill *distill;
  const sl_model *teacher;
  const sl_args *teacher_args;
} sl_rollouts_options;

/* SL_E_USAGE names an option or prompt that cannot be. */
sl_status sl_rollouts_create(const sl_rollouts_options *options, sl_rollouts **out);
void sl_rollouts_destroy(sl_rollouts *r);
/* Return what a graph and sl_lower need, which lives as long as the rollouts. */
const sl_objective *sl_rollouts_objective(const sl_rollouts *r);
const sl_rollout_options *sl_rollouts_lower(const sl_rollouts *r);
/* Names the runtime that a failure ends. */
void sl_rollouts_attach(sl_rollouts *r, sl_runtime *rt);
/* Rewards an answer; NaN drops it: it has no part in its group's mean, and nothing learns from it.
 * Any thread. */
void sl_rollouts_reward(sl_rollouts *r, uint64_t id, double reward);
/* Ends the run: an answer cannot be rewarded. Any thread. */
void sl_rollouts_fail(sl_rollouts *r, sl_status status, const char *why);
/* Copies the report of a step that is not older than two steps; false: it is not known. Any
 * thread. */
bool sl_rollouts_about(sl_rollouts *r, int64_t step, sl_rollouts_report *out);

#ifdef __cplusplus
}
#endif
#endif
