/* SPDX-License-Identifier: Apache-2.0 */
/* Weight files in the safetensors format: named arrays, one after another, after a JSON header. */
#ifndef SLUICE_IO_SAFETENSORS_H
#define SLUICE_IO_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

enum { SLI_STORED_DIMS = 8 };

typedef struct sli_stored_tensor {
  const char *name;
  const char *dtype; /* type name in the file: "F32", "BF16", ... */
  int ndim;
  int64_t dim[SLI_STORED_DIMS];
  size_t elements;
  size_t offset, bytes; /* in the data part */
} sli_stored_tensor;

typedef struct sli_safetensors sli_safetensors;

/* Maps the file and checks the whole header: sizes, overlaps, gaps, duplicate names. SL_E_INPUT
 * names the file, and the tensor if there is one. */
sl_status sli_safetensors_open(const char *path, sli_safetensors **out);
void sli_safetensors_close(sli_safetensors *file);

/* Access to tensors, sorted by name. */
int sli_safetensors_count(const sli_safetensors *file);
const sli_stored_tensor *sli_safetensors_at(const sli_safetensors *file, int index);
/* Returns the index of the first tensor whose name is not less than `name` in strcmp order, or the
 * count if there is none. */
int sli_safetensors_from(const sli_safetensors *file, const char *name);
/* Finds a tensor by name, or returns NULL if there is none. */
const sli_stored_tensor *sli_safetensors_find(const sli_safetensors *file, const char *name);

/* Copies F32, F16 or BF16 data to out[elements] as f32; SL_E_INPUT for other types. */
sl_status sli_safetensors_read(const sli_safetensors *file, const sli_stored_tensor *tensor,
                               float *out);

/* Returns the tensor's raw bytes in the mapped file, at any alignment; valid until the file is
 * closed. */
const void *sli_safetensors_bytes(const sli_safetensors *file, const sli_stored_tensor *tensor);

/* Tensor lists sorted by name. sli_stored_sort: SL_E_INPUT names the file and a duplicate tensor.
 * sli_stored_find: NULL if there is none. */
sl_status sli_stored_sort(const char *path, sli_stored_tensor *tensors, int count);
const sli_stored_tensor *sli_stored_find(const sli_stored_tensor *tensors, int count,
                                         const char *name);

/* Formats "F32[384, 64]"; returns `out`, at least 256 bytes. */
char *sli_stored_format(char *out, const sli_stored_tensor *tensor);

/* One tensor of four-byte elements to write. */
typedef struct sli_tensor_data {
  const char *name;
  int ndim;
  const int64_t *dim;
  const float *data;
  const char *dtype; /* NULL: F32 */
} sli_tensor_data;

/* Writes tensors in the given order; the file appears complete or not at all. SL_E_IO names the
 * file. */
sl_status sli_safetensors_write(const char *path, const sli_tensor_data *tensors, int count);

/* Writes tensors whose values need not all be in memory at once. `values` is called for each tensor
 * whose data is NULL, when its turn comes; its result is used until the next call. A status other
 * than SL_OK ends the write. */
typedef sl_status sli_tensor_values(void *ctx, int index, const float **out);
sl_status sli_safetensors_write_each(const char *path, const sli_tensor_data *tensors, int count,
                                     sli_tensor_values *values, void *ctx);

/* Writes tensors, and returns the file's length and FNV-1a checksum. */
typedef struct sli_written {
  uint64_t bytes, hash;
} sli_written;
sl_status sli_safetensors_write_known(const char *path, const sli_tensor_data *tensors, int count,
                                      sli_written *out);

/* Writes one file from several processes on a shared file system. One process begins it, under a
 * temporary name. All processes open it with the same list, write their parts, and close it; close
 * reports the first failed write. One process then renames the file. `data` in the list is
 * ignored. */
sl_status sli_safetensors_begin_parts(const char *path, const sli_tensor_data *tensors, int count);
typedef struct sli_tensor_parts sli_tensor_parts;
sl_status sli_safetensors_open_parts(const char *path, const sli_tensor_data *tensors, int count,
                                     sli_tensor_parts **out);
/* Writes `count` elements of a tensor, starting at element `first`. */
void sli_safetensors_write_part(sli_tensor_parts *parts, int tensor, int64_t first, int64_t count,
                                const float *data);
/* Closes the file; its parts are then on disk. */
sl_status sli_safetensors_close_parts(sli_tensor_parts *parts);
sl_status sli_safetensors_end_parts(const char *path, const char *as);

#endif
