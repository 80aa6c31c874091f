/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that read what a tick wants of parameters on disk (SL_OP_LOADS). */
#ifndef SLUICE_KERNELS_DISK_LOADERS_H
#define SLUICE_KERNELS_DISK_LOADERS_H

#include <sluice/op.h>

#include "kernels/disk/reads.h"

/* Reads bytes from disk; `name` is for messages. They are in memory when the firing's reads end. */
typedef sl_status sli_load_copy(void *ctx, const char *name, void *to, const void *from,
                                size_t bytes);

/* An op of the disk's queue. */
typedef struct sli_loader {
  const sl_op *op;
  /* Bytes of the call's scratch, which begins a page. NULL: none */
  size_t (*scratch)(const sl_call *call);
  /* Calls copy() for each piece to read. */
  sl_status (*begin)(const sl_call *call, const char *name, sli_load_copy *copy, void *ctx);
  /* Makes the outputs of what was read. NULL: they are the pieces */
  void (*end)(const sl_call *call);
} sli_loader;

extern const sli_loader sli_load_rows;

/* Plans a firing of load_experts, which asks for reads. Sets *number to the last read that must
 * have ended before its readers begin; 0: none. */
sl_status sli_load_experts(const sl_call *call, const char *name, sli_disk_reads *reads,
                           uint64_t *number);

#endif
