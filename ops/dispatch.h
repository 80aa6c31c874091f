/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch of rows to the devices of their experts, for the rules of ops/dispatch.c and their
 * kernels. */
#ifndef SLUICE_OPS_DISPATCH_H
#define SLUICE_OPS_DISPATCH_H

#include "ops/ops.h"

static inline const sl_dispatch *sli_dispatch_of(const sl_call *call) { return call->attrs->user; }

static inline bool sli_dispatch_has(const sl_dispatch *r, int32_t id) {
  return id >= r->first && id < r->first + r->count;
}

/* Returns how many of the first `end` ids name one of this device's experts. */
static inline int64_t sli_dispatch_count(const sl_dispatch *r, const int32_t *ids, int64_t end) {
  int64_t n = 0;
  for (int64_t i = 0; i < end; i++) n += sli_dispatch_has(r, ids[i]);
  return n;
}

#endif
