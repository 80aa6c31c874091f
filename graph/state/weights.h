/* SPDX-License-Identifier: Apache-2.0 */
/* Writes selected parameters to a file, under names chosen by the caller. */
#ifndef SLUICE_GRAPH_STATE_WEIGHTS_H
#define SLUICE_GRAPH_STATE_WEIGHTS_H

#include <sluice/state.h>

/* Tensor to write to a file. */
typedef struct sli_saved {
  const char *name;
  int param;   /* index of the parameter */
  bool merged; /* adapter is merged into it */
  int member;  /* 1 + index along dim 0 of the slice stored as this tensor; 0: the whole
                  parameter */
} sli_saved;

/* Writes the listed parameters; otherwise like sl_weights_save(). */
sl_status sli_weights_save(const char *path, const sli_saved *list, int n,
                           const sl_lowered *lowered, sl_runtime *rt, sl_job *job);

/* Return the type of the values at a place, and read these values as f32. */
sl_type sli_param_values(const sl_param_info *p, const sl_param_place *place);
sl_status sli_param_read(const sl_param_info *p, const sl_param_place *place, sl_runtime *rt,
                         float *values);

/* Quantized blocks of a tensor in a file: type name and bytes per block. */
typedef struct sli_file_blocks {
  const char *type;
  size_t bytes;
  const void *blocks;
} sli_file_blocks;

/* Sets a parameter that keeps the file's blocks (sl_param_info.storage). */
sl_status sli_param_set_blocks(const sl_lowered *lowered, sl_runtime *rt, int index,
                               const sli_file_blocks *from);
/* Sets a parameter from all its values in its storage format. */
sl_status sli_param_set_stored(const sl_lowered *lowered, sl_runtime *rt, int index,
                               const void *stored);

#endif
