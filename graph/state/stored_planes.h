/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices in nested bit planes (ops/planes.h) in weight files.
 *
 * The planes of a matrix NAME [rows, k] are a tensor "NAME.planesB", U32 [width, rows, words]: B is
 * the bits of the base, `words` those of a row of a plane. The first n planes are the width of n
 * bits, so a file of width 4 also serves width 3. */
#ifndef SLUICE_GRAPH_STATE_STORED_PLANES_H
#define SLUICE_GRAPH_STATE_STORED_PLANES_H

#include <sluice/op.h>

#include "io/shards/shards.h"

/* The planes of a matrix in a file; `tensor` NULL: it has none. */
typedef struct sli_stored_planes {
  const sli_stored_tensor *tensor;
  int file, base, width;
} sli_stored_planes;

/* Finds the planes of a matrix by the matrix's name. */
sli_stored_planes sli_stored_planes_find(const sli_shards *from, const char *name);
/* Checks that the tensor has planes of a matrix of this type. SL_E_INPUT names the file and what is
 * wrong. */
sl_status sli_stored_planes_check(const sli_shards *from, const sli_stored_planes *planes,
                                  const sl_type *matrix);
/* Copies the first `width` planes, of a base of `base` bits. SL_E_INPUT: the file has another base
 * or fewer planes, or a number that is not finite. */
sl_status sli_stored_planes_read(const sli_shards *from, const sli_stored_planes *planes,
                                 const sl_type *matrix, int base, int width, void *out);
/* Reads the values of all planes. */
sl_status sli_stored_planes_values(const sli_shards *from, const sli_stored_planes *planes,
                                   const sl_type *matrix, float *out);

#endif
