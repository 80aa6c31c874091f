/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a NumPy array file (.npy). */
#ifndef SLUICE_IO_NPY_H
#define SLUICE_IO_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

enum { SLI_NPY_DIMS = 8 };

/* An array: the offset of its elements in the file, their number, type and shape. Elements are in
 * row-major order, little-endian. */
typedef struct sli_npy {
  size_t offset;
  int64_t count;
  int width; /* bytes of an element: 1, 2, 4 or 8 */
  bool is_signed, is_float;
  int ndim;
  int64_t dim[SLI_NPY_DIMS];
} sli_npy;

/* Reads and checks the header of a file of `size` bytes. SL_E_INPUT names the file and the error,
 * or the unsupported feature: big-endian elements, column-major order, or elements other than
 * integers, flags, and floats of 4 or 8 bytes. */
sl_status sli_npy_read(const char *path, const void *bytes, size_t size, sli_npy *out);
/* Reads and checks the header of an array of integers; refuses all others. */
sl_status sli_npy_read_integers(const char *path, const void *bytes, size_t size, sli_npy *out);

#endif
