/* SPDX-License-Identifier: Apache-2.0 */
/* Input numbers and attention mask of attention_step (ring attention), shared by the rules of
 * ops/attention_step.c and their kernels. */
#ifndef SLUICE_OPS_ATTENTION_STEP_H
#define SLUICE_OPS_ATTENTION_STEP_H

#include "ops/ops.h"

/* Inputs after q and kv, of the forward and the backward step. */
enum { SLI_STEP_IDS = 2, SLI_STEP_O, SLI_STEP_LSE, SLI_STEP_TAIL, SLI_STEP_INPUTS };

enum {
  SLI_STEP_BACKWARD_O = 2,
  SLI_STEP_BACKWARD_LSE,
  SLI_STEP_BACKWARD_DO,
  SLI_STEP_BACKWARD_IDS,
  SLI_STEP_BACKWARD_DQ,
  SLI_STEP_BACKWARD_DKV,
  SLI_STEP_BACK_INPUTS
};

static inline const sli_spans *sli_spans_of(const sl_attrs *attrs) { return attrs->user; }

static inline sli_mask sli_step_mask(const sl_attrs *attrs, const void *ids) {
  return sli_mask_of(attrs, sli_spans_of(attrs)->length, ids);
}

#endif
