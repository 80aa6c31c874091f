/* SPDX-License-Identifier: Apache-2.0 */
/* Writes selected parameters to a file, under names chosen by the caller. */
#ifndef SLUICE_GRAPH_STATE_WEIGHTS_H
#define SLUICE_GRAPH_STATE_WEIGHTS_H

#include <sluice/state.h>

/* Tensor of a file. */
typedef struct sli_saved {
  const char *name;
  int param;   /* index of the parameter */
  bool merged; /* adapter merged into it */
  int member;  /* 1 + position along dim 0 that is stored as a tensor of its own; 0: all of it */
} sli_saved;

/* Writes the listed parameters; otherwise as sl_weights_save(). */
sl_status sli_weights_save(const char *path, const sli_saved *list, int n,
                           const sl_lowered *lowered, sl_runtime *rt, sl_job *job);

/* Sets a stored-format parameter (sl_param_info.storage) from bytes in that format. */
sl_status sli_param_set_lying(const sl_lowered *lowered, sl_runtime *rt, int index,
                              const void *lies);

#endif
