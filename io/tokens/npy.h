/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a NumPy array file (.npy). */
#ifndef SLUICE_IO_NPY_H
#define SLUICE_IO_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

/* An array of integers: the offset of its elements in the file, their number and type. Elements
 * are in row-major order, little-endian. */
typedef struct sli_npy {
  size_t offset;
  int64_t count;
  int width; /* bytes of an element: 1, 2, 4 or 8 */
  bool is_signed;
} sli_npy;

/* Reads and checks the header of a file of `size` bytes. SL_E_INPUT names the file and the
 * error, or the unsupported feature: floats, big-endian elements, column-major order. */
sl_status sli_npy_read(const char *path, const void *bytes, size_t size, sli_npy *out);

#endif
