/* SPDX-License-Identifier: Apache-2.0 */
/* Learning from rollouts: a model answers prompts, a callback rewards the answers, and the model
 * learns from them, with the sampler inside the training plan (GRPO: Shao et al., arXiv
 * 2402.03300). Or a teacher reads the answers, and the model learns the teacher's probabilities at
 * their tokens (on-policy distillation: Agarwal et al., arXiv 2306.13649).
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
 * A step of `batch` rows takes batch / group prompts. Each prompt is answered `group` times with
 * the parameters at the beginning of the step. The sampler reads them from the training registers,
 * without copies. The callback `answered` has each answer rewarded. An answer's advantage compares
 * its reward with those of its group. Then the passes of the step learn from all answers. The
 * prompts of a step, and all random numbers, depend only on the step's number and the seed: a
 * resumed run has the same rollouts.
 *
 * If a stage has several devices, for data, sequence or tensor parallelism, all of them sample
 * (`devices`), each for its part of the rows. The numbers of an answer do not depend on which
 * device samples it.
 *
 * Threads: callbacks run on threads of the plan and must not block for long; any thread may call
 * sl_rollouts_reward. With several processes, all of them create the rollouts; devices of all
 * processes sample, but only the first process receives the answers. */
#ifndef SLUICE_ROLLOUTS_H
#define SLUICE_ROLLOUTS_H

#include <sluice/lower.h>
#include <sluice/objective.h>
#include <sluice/session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_rollouts sl_rollouts;

/* A prompt. Its tokens must outlive the rollouts. */
typedef struct sl_prompt {
  const int32_t *tokens; /* [count], at least 1 */
  int64_t count;
} sl_prompt;

/* A complete answer. Valid until its step's passes begin. */
typedef struct sl_answer {
  uint64_t id;           /* for sl_rollouts_reward */
  int64_t step;          /* counted from 0 */
  int64_t prompt;        /* index of its prompt */
  int row, member;       /* row of the step's batch; index within its group */
  const int32_t *tokens; /* [count] */
  const float *logprobs; /* [count] natural logarithms of the tokens' probabilities */
  int64_t count;         /* 0: the step ran out of ticks */
  bool truncated;        /* cut off before it ended */
} sl_answer;

/* Statistics of a step's answers. Answers without a reward count only in `dropped`. Statistics of
 * the step's passes are counters of its sl_step_report, means over all tokens in the loss: "kl",
 * the divergence from the reference; "clipped", the fraction with a clipped ratio; "ratio_off",
 * |ratio - 1|. */
typedef struct sl_rollouts_report {
  int64_t step;
  int answers, dropped, truncated;
  double reward, reward_std; /* mean over all answers; deviation with n - 1 */
  double length;             /* mean number of tokens of an answer */
  double entropy;            /* mean of -log p over the tokens of answers, an estimate of the
                                entropy */
  double flat;               /* fraction of groups whose rewards are all equal, which teach
                                nothing */
  int64_t rows;              /* rows that the session has computed, for prompts and answers */
  double answer_seconds;     /* time from the step's parameters being ready to its last answer */
  double reward_seconds;     /* time from the last answer to the last reward */
} sl_rollouts_report;

typedef struct sl_rollouts_options {
  const sl_model *model; /* these three as in sl_session_options; must outlive the rollouts */
  const sl_args *args;
  const sl_training *training; /* may be NULL */
  int64_t batch;               /* rows of a step, a multiple of `group` */
  int microbatches;            /* microbatches of a step [1] */
  int stages;                  /* pipeline stages of training [1] */
  int devices;                 /* devices of each stage that sample, each for a part of the rows
                                  [1] */
  int sequence;                /* devices that share a sequence [1] */
  bool all_positions; /* computes logits of all positions, as numbers.leaf requires; otherwise only
                         of positions that can belong to an answer, in each device's part of a
                         sequence */
  bool exact;         /* samples with the numbers of training with numbers.exact */
  int group;          /* answers per prompt [8; 1 with a teacher] */
  const sl_prompt *prompts; /* [nprompts] */
  int64_t nprompts;
  uint64_t shuffle;   /* seed of the prompts' order, which differs in each epoch; 0: as listed */
  int64_t max_tokens; /* maximum tokens of an answer [256]; prompt and answer together fit in the
                         context */
  float temperature;  /* answers are drawn from, and GRPO learns, softmax(logits / temperature); 0:
                         the most likely tokens */
  float top_p;        /* 0 or 1: any token */
  uint64_t seed;
  const int32_t *stop; /* [nstop] tokens that end an answer, as its last token */
  int nstop;
  int updates; /* updates per rollout: every `updates` steps, the batches of that many steps are
                  sampled [1] */
  int ahead;   /* number of updates by which the sampler's parameters lag behind, at most 8 [0] */
  int ticks;   /* maximum ticks of a step [enough for all answers] */
  /* Receives each answer once it is complete. For each answer, some thread must call
   * sl_rollouts_reward, immediately or later. Training waits for the rewards of all answers of a
   * step. May be NULL with a teacher, if answers have no rewards. */
  void (*answered)(void *ctx, const sl_answer *answer);
  /* Receives each step once it has all rewards, with its answers, rewards [n] and advantages [n];
   * NaN: dropped. May be NULL. */
  void (*rewarded)(void *ctx, const sl_rollouts_report *report, int n, const sl_answer *answers,
                   const double *rewards, const double *advantages);
  void *ctx;
  double clip_low, clip_high; /* ratios are clipped to 1 - low .. 1 + high [0.2, and the same as
                                 low] */
  double dual_clip;           /* bound on the objective for negative advantages, as a multiple of
                                 the advantage [3] */
  double kl;                  /* weight of the divergence from the reference model; 0: none */
  /* Learns the teacher's probabilities at the tokens of answers, instead of learning from rewards;
   * distill->data must be 0. All three must outlive the rollouts. NULL: learns from rewards. */
  const sl_distill *distill;
  const sl_model *teacher;
  const sl_args *teacher_args;
} sl_rollouts_options;

/* Creates the rollouts. SL_E_USAGE names an invalid option or prompt. */
sl_status sl_rollouts_create(const sl_rollouts_options *options, sl_rollouts **out);
void sl_rollouts_destroy(sl_rollouts *r);
/* Return the objective for the graph and the options for sl_lower, which live as long as the
 * rollouts. */
const sl_objective *sl_rollouts_objective(const sl_rollouts *r);
const sl_rollout_options *sl_rollouts_lower(const sl_rollouts *r);
/* Attaches the runtime that a failure ends. */
void sl_rollouts_attach(sl_rollouts *r, sl_runtime *rt);
/* Rewards an answer. NaN drops it: the answer does not count in its group's mean, and training
 * ignores it. Any thread. */
void sl_rollouts_reward(sl_rollouts *r, uint64_t id, double reward);
/* Ends the run because an answer cannot be rewarded. Any thread. */
void sl_rollouts_fail(sl_rollouts *r, sl_status status, const char *why);
/* Copies the report of a step that is at most two steps old. Returns false if the report is not
 * available. Any thread. */
bool sl_rollouts_about(sl_rollouts *r, int64_t step, sl_rollouts_report *out);

#ifdef __cplusplus
}
#endif
#endif
