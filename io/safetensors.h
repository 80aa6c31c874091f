/* Weight files in the safetensors format: named arrays, one after another,
 * behind a JSON header. */
#ifndef SLUICE_IO_SAFETENSORS_H
#define SLUICE_IO_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

enum { SLI_STORED_DIMS = 8 };

typedef struct sli_stored_tensor {
  const char *name;
  const char *dtype; /* as in the file: "F32", "BF16", ... */
  int ndim;
  int64_t dim[SLI_STORED_DIMS];
  size_t elements;
  size_t offset, bytes; /* within the data part */
} sli_stored_tensor;

typedef struct sli_safetensors sli_safetensors;

/* Maps the file and checks all of the header: sizes, overlaps, gaps, doubled
 * names. SL_E_INPUT names the file, and the tensor where there is one. */
sl_status sli_safetensors_open(const char *path, sli_safetensors **out);
void sli_safetensors_close(sli_safetensors *file);

/* Tensors in order of their names. */
int sli_safetensors_count(const sli_safetensors *file);
const sli_stored_tensor *sli_safetensors_at(const sli_safetensors *file, int index);
/* The first whose name is not less than that, in the order of strcmp; count if there is
 * none. */
int sli_safetensors_from(const sli_safetensors *file, const char *name);
/* NULL if the file has none of that name. */
const sli_stored_tensor *sli_safetensors_find(const sli_safetensors *file, const char *name);

/* Copies F32, F16 or BF16 data to out[elements] as f32; SL_E_INPUT for other
 * types. */
sl_status sli_safetensors_read(const sli_safetensors *file, const sli_stored_tensor *tensor,
                               float *out);

/* The tensor's bytes as they lie in the file, at any alignment; valid until the
 * file is closed. */
const void *sli_safetensors_bytes(const sli_safetensors *file, const sli_stored_tensor *tensor);

/* By name; SL_E_INPUT names the file and a tensor that is there twice. And the one of a name among tensors
 * so sorted, or NULL. */
sl_status sli_stored_sort(const char *path, sli_stored_tensor *tensors, int count);
const sli_stored_tensor *sli_stored_find(const sli_stored_tensor *tensors, int count, const char *name);

/* "F32[384, 64]"; returns `out`, at least 256 bytes. */
char *sli_stored_format(char *out, const sli_stored_tensor *tensor);

/* One f32 tensor to be written. */
typedef struct sli_tensor_data {
  const char *name;
  int ndim;
  const int64_t *dim;
  const float *data;
} sli_tensor_data;

/* Writes tensors in the order given; the file appears whole or not at all.
 * SL_E_IO names the file. */
sl_status sli_safetensors_write(const char *path, const sli_tensor_data *tensors, int count);

/* The same, where not all values need be in memory at once: those of tensors whose data is
 * NULL are asked for when their turn comes, and are used until the next are asked for. A
 * status other than SL_OK ends it. */
typedef sl_status sli_tensor_values(void *ctx, int index, const float **out);
sl_status sli_safetensors_write_each(const char *path, const sli_tensor_data *tensors, int count,
                                     sli_tensor_values *values, void *ctx);

/* The same, and what the file holds: its length and FNV-1a checksum. */
typedef struct sli_written {
  uint64_t bytes, hash;
} sli_written;
sl_status sli_safetensors_write_known(const char *path, const sli_tensor_data *tensors, int count,
                                      sli_written *out);

/* The same file by several processes that share a file system: one begins it, under
 * another name; all open it with the same list, write what they have, whose first failure
 * close reports, and close it; one gives it its name. Their `data` is not looked at. */
sl_status sli_safetensors_begin_parts(const char *path, const sli_tensor_data *tensors, int count);
typedef struct sli_tensor_parts sli_tensor_parts;
sl_status sli_safetensors_open_parts(const char *path, const sli_tensor_data *tensors, int count,
                                     sli_tensor_parts **out);
/* So many of a tensor's elements from `first` on. */
void sli_safetensors_write_part(sli_tensor_parts *parts, int tensor, int64_t first, int64_t count,
                                const float *data);
/* After it the parts are on the disk. */
sl_status sli_safetensors_close_parts(sli_tensor_parts *parts);
sl_status sli_safetensors_end_parts(const char *path, const char *as);

#endif
