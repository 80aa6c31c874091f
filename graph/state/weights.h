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

/* Returns the type of the values that a place has, and reads them as f32. */
sl_type sli_param_values(const sl_param_info *p, const sl_param_place *place);
sl_status sli_param_read(const sl_param_info *p, const sl_param_place *place, sl_runtime *rt,
                         float *values);

/* Blocks of a tensor in a file: the name of their type, and the bytes of one. */
typedef struct sli_file_blocks {
  const char *type;
  size_t bytes;
  const void *blocks;
} sli_file_blocks;

/* Sets a parameter that stays in the blocks of a file (sl_param_info.storage). */
sl_status sli_param_set_blocks(const sl_lowered *lowered, sl_runtime *rt, int index,
                               const sli_file_blocks *from);

#endif
