/* Shared by the rules of ops/attention_share.c and their kernels. */
#ifndef SLUICE_OPS_ATTENTION_SHARE_H
#define SLUICE_OPS_ATTENTION_SHARE_H

#include "ops/ops.h"

/* What a call reads behind q and the record. */
enum { SLI_SHARE_BACK_O = 2, SLI_SHARE_BACK_LSE, SLI_SHARE_BACK_DO, SLI_SHARE_BACK_KV, SLI_SHARE_BACK_IDS };

/* A call that is made again has the records behind the inputs it had: how many those are. */
static inline int sli_attention_share_inputs(int nin) { return nin > 3 ? 3 : 2; }

#endif
