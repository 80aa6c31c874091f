/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that follow picks and are known, because the prompt is scored: the last array of a
 * batch, [most_picks]. It holds 1 + the token, or 0 if a token is to be sampled. */
#ifndef SLUICE_OPS_GIVEN_H
#define SLUICE_OPS_GIVEN_H

#include <sluice/batch.h>

static inline const int32_t *sli_batch_given(const sl_batch *b) {
  return (const int32_t *)(const void *)(sl_batch_edits(b) + b->most_edits);
}

#endif
