/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions shared by the files of rollouts/.
 *
 * A step's prompts are submitted before its first tick (steps.c), its answers are noted as they
 * come, and the source of training (batch.c) waits for their rewards and lays them out as rows. The
 * rollouts of a step may begin while the source still reads those of the step before. */
#ifndef SLUICE_ROLLOUTS_INTERNAL_H
#define SLUICE_ROLLOUTS_INTERNAL_H

#include <pthread.h>

#include <sluice/frames.h>
#include <sluice/rollouts.h>

#include "base/base.h"

/* Answer of a row, while it comes and until its step has begun to train. */
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
  bool known;          /* advantages are there */
  int64_t tokens;      /* of all answers that count */
  sli_rollout *rows;   /* [batch] */
  uint64_t begun_ns, answered_ns;
  sl_rollouts_report report;
} sli_rollout_step;

/* A rollout, as a device has begun it: so many steps are answered at once. */
typedef struct sli_rollout_begun {
  int64_t step, steps;  /* the first of them; steps 0: nothing has begun */
  uint64_t first_id;    /* id of the first row of the first step; the others follow */
  uint64_t rows_before; /* rows that the session had computed */
} sli_rollout_begun;

/* A session, of one device of each stage, which answers so many rows of each step. */
typedef struct sli_rollout_device {
  sl_rollouts *of;
  sl_session *session;
  int first, count;
  sli_rollout_begun *begun; /* [kept] */
  sl_rollout_options lower;
} sli_rollout_device;

enum { SLI_ROLLOUTS_PLACES = 2 }; /* index of the places among the data */

struct sl_rollouts {
  sl_rollouts_options options;
  int64_t context, longest; /* tokens of a row; of the longest prompt */
  int64_t vocabulary;
  sli_rollout_device *devices; /* [options.devices] */
  sl_objective objective;
  sl_source source;
  int64_t shortest; /* prompt's tokens */
  int64_t parts;    /* of a row, equal ones, that devices may have */
  int64_t answers;  /* positions of a part that can have a token of an answer as their target; 0:
                       all */
  sl_type types[8]; /* tokens, targets, places; of these positions: old log-probabilities,
                       advantages, weights, the positions, targets */
  sl_tensor *data[8];
  sl_prompt_frames frames;
  const sl_framed *framed; /* [nprompts] frames of prompts; NULL: they have none */
  int64_t nframes;         /* of a prompt; 0: the model reads none */
  int64_t rows_of_prompt;  /* rows of an encoder in a prompt; 0: none */
  int32_t marker;          /* tokens that have these rows in their place */
  pthread_mutex_t lock;    /* guards all below */
  pthread_cond_t changed;
  sl_runtime *rt;
  bool failed;
  int64_t kept;            /* steps that are known at a time: those of the rollout that trains, of
                              the next one, those in between, and one that is asked about */
  sli_rollout_step *steps; /* [kept] */
  struct sli_rollouts_encoded {
    int64_t step, frames;
  } * encoded; /* [kept] frames whose rows encoders have computed */
};

/* steps.c: callbacks of a session (sl_session_steps); ctx is its sli_rollout_device. */
void sli_rollouts_begin(void *ctx, int64_t step);
void sli_rollouts_note(void *ctx, const sl_session_event *event);
/* Returns the step once its advantages are known; NULL: the run ends. */
const sli_rollout_step *sli_rollouts_wait(sl_rollouts *r, int64_t step);

/* order.c: returns the prompt of a row of a step. */
int64_t sli_rollouts_prompt(const sl_rollouts *r, int64_t step, int64_t row);

/* frames.c */
/* Writes the row of the step's encoder that each of positions [first, end) of a row has, -1:
 * none. */
void sli_rollouts_places(const sl_rollouts *r, const sl_prompt *p, int64_t row, int64_t first,
                         int64_t end, int32_t *out);

/* Submits a row's request with the places of its prompt's rows. */
sl_status sli_rollouts_submit(const sli_rollout_device *d, const sl_prompt *p, int64_t row,
                              const sl_request *request, uint64_t *id);

/* batch.c: data and loss of the objective. */
void sli_rollouts_learn(sl_rollouts *r);

#endif
