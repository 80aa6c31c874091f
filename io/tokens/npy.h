/* The header of a NumPy array file (.npy). */
#ifndef SLUICE_IO_NPY_H
#define SLUICE_IO_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

/* An array of integers: where its elements begin in the file, how many there are, and what each
 * is. They lie in rows, the last dim fastest, little-endian. */
typedef struct sli_npy {
  size_t offset;
  int64_t count;
  int width;     /* bytes of an element: 1, 2, 4 or 8 */
  bool is_signed;
} sli_npy;

/* Reads the header of a file of `size` bytes, and trusts nothing in it. SL_E_INPUT names the file
 * and what is wrong, or what is not read here: floats, big-endian elements, columns first. */
sl_status sli_npy_read(const char *path, const void *bytes, size_t size, sli_npy *out);

#endif
