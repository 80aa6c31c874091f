/* SPDX-License-Identifier: Apache-2.0 */
/* --rl: the model learns from answers that it generates. */
#ifndef SLUICE_TOOLS_ACTORRUN_RL_RL_H
#define SLUICE_TOOLS_ACTORRUN_RL_RL_H

#include <sluice/frames.h>
#include <sluice/rollouts.h>

#include "text/tokenizer/tokenizer.h"
#include "text/chats/chats.h"
#include "tools/cli/cli.h"
#include "tools/launch/launch.h"

/* ---- prompts ------------------------------------------------------------------------------- */

typedef struct rl_prompt {
  char *text;   /* text as the model reads it */
  char *answer; /* "answer" of its line, for --reward exact; NULL if none */
  char *data;   /* "data" of its line, as JSON; NULL if none */
} rl_prompt;

/* Prompts of --prompts, and the tokens that end an answer. */
typedef struct rl_prompts {
  int64_t count;
  size_t capacity;
  rl_prompt *prompts;       /* [count] */
  sl_prompt *tokens;        /* [count] */
  sl_framed *frames;        /* [count] */
  sli_tokenizer *tokenizer; /* NULL if tokens are bytes or numbers */
  bool bytes;               /* tokens are bytes: some prompt, answer or stop is a text */
  int32_t *stop;            /* [nstop] */
  int nstop;
} rl_prompts;

/* Reads --prompts, through the chat template where a line has messages, and --stop. SL_E_INPUT
 * names file and line. */
sl_status rl_prompts_read(const settings *s, rl_prompts *out);
void rl_prompts_free(rl_prompts *p);
/* Returns the text of tokens, in valid UTF-8; the caller frees it. */
char *rl_prompts_text(const rl_prompts *p, const int32_t *tokens, int64_t count);
/* Returns the text of an answer, without the token that ended it; the caller frees it. */
char *rl_answer_text(const rl_prompts *p, const sl_answer *answer);

/* ---- rewards ------------------------------------------------------------------------------- */

typedef struct rl_rewards rl_rewards;

/* Starts --reward: a program, or a built-in reward. */
sl_status rl_rewards_open(const settings *s, const rl_prompts *prompts, rl_rewards **out);
/* Sets the rollouts that receive the rewards. */
void rl_rewards_attach(rl_rewards *rewards, sl_rollouts *rollouts);
/* Callback sl_rollouts_options.answered; ctx is the rewards. */
void rl_rewards_take(void *ctx, const sl_answer *answer);
/* Ends the program. */
void rl_rewards_close(rl_rewards *rewards);

/* ---- the run ------------------------------------------------------------------------------- */

typedef struct rl rl;

bool rl_wanted(const settings *s);
/* Checks --rl and related options before any work. */
sl_status rl_check(const settings *s);
/* Creates the rollouts and sets the settings' objective and rollouts. Without --rl *out is NULL. */
sl_status rl_open(settings *s, rl **out);
/* Begins a run after step `first`. x may be NULL, here and below. */
sl_status rl_attach(rl *x, const settings *s, int64_t first, sl_runtime *rt);
/* Closes --answers. SL_E_IO: it could not be written completely. */
sl_status rl_finish(rl *x);
/* Call it after the plan is destroyed. */
void rl_close(rl *x);

#endif
