/* SPDX-License-Identifier: Apache-2.0 */
/* The op load_experts: reads the parts of experts that a tick's rows want (ops/loads.h). */
#ifndef SLUICE_KERNELS_DISK_LOAD_EXPERTS_H
#define SLUICE_KERNELS_DISK_LOAD_EXPERTS_H

#include <sluice/op.h>

/* Plans a firing of the call, calls copy() for each piece to read, and fills in what is lent. The
 * pieces must be in memory before the firing ends. */
typedef sl_status sli_load_copy(void *ctx, const char *name, void *to, const void *from,
                                size_t bytes);
sl_status sli_load_experts(const sl_call *call, const char *name, sli_load_copy *copy, void *ctx);

#endif
