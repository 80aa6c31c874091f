/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices of Hugging Face folders that are stored as small numbers with scales. Tensors beside
 * NAME.weight say how (the first that is there):
 *
 * - numbers: NAME.weight or NAME.weight_packed, of 8-bit floats (F8_E4M3), integers (I8; I32 with
 *   eight or four to a word), or floats of four bits (U8, two to a byte)
 * - scales: weight_scale_inv or weight_scale, one for all, for each row, for each run of columns of
 *   a row, or for each block of 128 x 128
 * - a second scale of all: weight_scale_2, a factor, or weight_global_scale, a divisor
 *
 * Sources: DeepSeek-V3 (arXiv 2412.19437), NVIDIA's ModelOpt, and compressed-tensors. */
#ifndef SLUICE_GRAPH_STATE_SCALED_H
#define SLUICE_GRAPH_STATE_SCALED_H

#include <sluice/batch.h>
#include <sluice/op.h>

#include "io/shards/shards.h"

typedef struct sli_scaled {
  const sli_stored_tensor *numbers, *scales, *second; /* numbers NULL: no such matrix */
  int file[3];
  bool divides; /* by the second scale */
} sli_scaled;

/* Finds the tensors beside a tensor NAME.weight or NAME.weight_packed of a file. NULL: there is
 * none. */
sli_scaled sli_scaled_find(const sli_shards *from, const sli_stored_tensor *numbers, int file);
/* Returns the name of the numbers' format: "FP8", "INT8", "INT4" or "NVFP4". */
const char *sli_scaled_format(const sli_scaled *s, const sl_type *type);
/* Checks that the tensors fit a matrix [.., rows, columns]. SL_E_INPUT names one that does not. */
sl_status sli_scaled_check(const sli_shards *from, const sli_scaled *s, const sl_type *type);
/* Computes the matrix, which was checked, in f32. */
sl_status sli_scaled_read(const sli_shards *from, const sli_scaled *s, const sl_type *type,
                          float *out);
/* Returns the format in which servers keep such matrices, or f32: floats of 8 bits, or of 4 bits
 * with scales of 8, in rows of whole blocks (io/small.h). */
sl_storage sli_scaled_storage(const sli_scaled *s);
/* Makes the blocks of a matrix, which was checked, in that format. SL_E_INPUT names a tensor with
 * numbers that are none. */
sl_status sli_scaled_blocks(const sli_shards *from, const sli_scaled *s, const sl_type *type,
                            void *blocks);
/* Returns whether a tensor holds scales of activations or of a cache, or a shape: with numbers that
 * are not rounded, nothing depends on it. */
bool sli_scaled_beside(const char *name);

#endif
