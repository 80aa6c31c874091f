/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of calls of any kind: of attention, of turned positions, and groups of a norm. */
#ifndef SLUICE_OPS_HEADS_H
#define SLUICE_OPS_HEADS_H

#include <sluice/op.h>

/* Returns the number of heads, or of heads of keys; 0: the call has none. */
int sli_count_heads(const sl_attrs *attrs);
int sli_key_heads(const sl_attrs *attrs);

/* Leaves `own` of each `whole` heads to a device. */
void sli_heads_share(sl_attrs *attrs, int64_t own, int64_t whole);

#endif
