/* SPDX-License-Identifier: Apache-2.0 */
/* Input numbers of attention for a device's share of a piece's queries, shared by the rules of
 * ops/attention_share.c and their kernels. */
#ifndef SLUICE_OPS_ATTENTION_SHARE_H
#define SLUICE_OPS_ATTENTION_SHARE_H

#include "ops/ops.h"

/* Inputs of the backward call after q and the record. */
enum {
  SLI_SHARE_BACKWARD_O = 2,
  SLI_SHARE_BACKWARD_LSE,
  SLI_SHARE_BACKWARD_DO,
  SLI_SHARE_BACKWARD_KV,
  SLI_SHARE_BACKWARD_IDS
};

/* Number of inputs of the forward call. A recomputed call has the records after them. */
static inline int sli_attention_share_inputs(int nin) { return nin > 3 ? 3 : 2; }

#endif
