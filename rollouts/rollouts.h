/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions shared by the files of rollouts/.
 *
 * A step's prompts are submitted before its first tick (steps.c), which also records its answers as
 * they arrive. The training source (batch.c) waits for their rewards and lays them out as rows. The
 * rollouts of a step may begin while the source still reads those of the previous step. */
#ifndef SLUICE_ROLLOUTS_ROLLOUTS_H
#define SLUICE_ROLLOUTS_ROLLOUTS_H

#include <pthread.h>

#include <sluice/frames.h>
#include <sluice/rollouts.h>

#include "base/base.h"

/* Answer of a row, from its first token until its step has been trained. */
typedef struct sli_rollout {
  int64_t prompt;
  size_t count, capacity;
  int32_t *tokens; /* [count] */
  size_t nlogprobs, logprobs_capacity;
  float *logprobs; /* [count] */
  bool ended, truncated, rewarded;
  double reward, advantage; /* NaN: dropped */
} sli_rollout;

typedef struct sli_rollout_step {
  int64_t step;        /* -1: none yet */
  int ended, rewarded; /* answers */
  bool known;          /* advantages have been computed */
  int64_t tokens;      /* tokens of all answers that were not dropped */
  sli_rollout *rows;   /* [batch] */
  uint64_t begun_ns, answered_ns;
  sl_rollouts_report report;
} sli_rollout_step;

/* A rollout that a device has begun: it generates the answers of `steps` steps together. */
typedef struct sli_rollout_begun {
  int64_t step, steps;  /* first step and number of steps; steps 0: not begun */
  uint64_t first_id;    /* request id of the first row of the first step; ids are consecutive */
  uint64_t rows_before; /* rows that the session had computed before */
} sli_rollout_begun;

/* A session on one device of each stage, which answers rows [first, first + count) of each step. */
typedef struct sli_rollout_device {
  sl_rollouts *rollouts;
  sl_session *session;
  int first, count;
  sli_rollout_begun *begun; /* [kept] */
  sl_rollout_options lower;
} sli_rollout_device;

/* Returns the temperature of the policy that is learned, softmax(logits / temperature), or 0 if the
 * loss does not depend on the sampling temperature: answers are greedy, or a teacher's. */
static inline float sli_policy_temperature(const sl_rollouts_options *o) {
  return o->distill ? 0 : o->temperature;
}

enum { SLI_ROLLOUTS_PLACES = 2 }; /* index of the places in `data` */

struct sl_rollouts {
  sl_rollouts_options options;
  int64_t context, longest; /* tokens of a row; tokens of the longest prompt */
  int64_t vocabulary;
  sli_rollout_device *devices; /* [options.devices] */
  sl_objective objective;
  sl_source source;
  int64_t shortest; /* tokens of the shortest prompt */
  int64_t parts;    /* equal parts of a row that devices hold; 1: whole rows */
  int64_t answers;  /* positions per part whose target can be an answer token; 0: all */
  sl_type types[8]; /* tokens, targets, places; then for the positions in the loss: old
                       log-probabilities, advantages, weights, positions, targets */
  sl_tensor *data[8];
  sl_prompt_frames frames;
  const sl_framed *framed; /* [nprompts] frames of the prompts; NULL: none */
  int64_t nframes;         /* frames per prompt; 0: the model reads none */
  int64_t rows_of_prompt;  /* encoder rows per prompt; 0: none */
  int32_t marker;          /* token that these rows replace */
  pthread_mutex_t lock;    /* guards all fields below */
  pthread_cond_t changed;
  sl_runtime *rt;
  bool failed;
  int64_t kept; /* number of steps kept: those of the rollout in training, of the next one, those in
                   between, and one for reports */
  sli_rollout_step *steps; /* [kept] */
  struct sli_rollouts_encoded {
    int64_t step, frames;
  } * encoded; /* [kept] number of frames encoded for each step */
};

/* steps.c: callbacks of a session (sl_session_steps); ctx is the session's sli_rollout_device. */
void sli_rollouts_begin(void *ctx, int64_t step);
void sli_rollouts_note(void *ctx, const sl_session_event *event);
/* Waits until the step's advantages are known and returns it, or NULL if the run ends. */
const sli_rollout_step *sli_rollouts_wait(sl_rollouts *r, int64_t step);

/* order.c: returns the prompt of a row of a step. */
int64_t sli_rollouts_prompt(const sl_rollouts *r, int64_t step, int64_t row);

/* frames.c */
/* For positions [first, end) of a row, writes the encoder row that replaces each embedding, or
 * -1. */
void sli_rollouts_places(const sl_rollouts *r, const sl_prompt *p, int64_t row, int64_t first,
                         int64_t end, int32_t *out);

/* Submits a row's request, with the places of its prompt's encoder rows. */
sl_status sli_rollouts_submit(const sli_rollout_device *d, const sl_prompt *p, int64_t row,
                              const sl_request *request, uint64_t *id);

/* batch.c: sets up the objective's data and loss. */
void sli_rollouts_learn(sl_rollouts *r);

#endif
