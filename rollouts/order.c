/* SPDX-License-Identifier: Apache-2.0 */
/* Order of the prompts. */
#include "text/tokens/tokens.h"
#include "rollouts/rollouts.h"

/* Cycles through the prompts, in order or in an order shuffled for each epoch. */
int64_t sli_rollouts_prompt(const sl_rollouts *r, int64_t step, int64_t row) {
  const sl_rollouts_options *o = &r->options;
  int64_t at = step * (o->batch / o->group) + row / o->group, epoch = at / o->nprompts;
  at %= o->nprompts;
  return o->shuffle ? sli_shuffle(o->shuffle, epoch, at, o->nprompts) : at;
}
