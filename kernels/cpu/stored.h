/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in their storage format, unpacked by chunk functions. */
#ifndef SLUICE_KERNELS_CPU_STORED_H
#define SLUICE_KERNELS_CPU_STORED_H

#include "ops/storage.h"

/* Part of a weight [n, k] to unpack, SLI_UNPACKED_ROWS rows per chunk. Columns are whole blocks. */
enum { SLI_UNPACKED_ROWS = 4 };
typedef struct sli_unpacking {
  sl_storage storage;
  const sl_type *layout;
  const void *weights;
  int64_t k, row, rows, column, columns;
  float *to; /* [rows, columns] */
} sli_unpacking;

#endif
