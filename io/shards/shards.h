/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a model: one file, safetensors or GGUF, or a Hugging Face folder with several
 * files. */
#ifndef SLUICE_IO_SHARDS_SHARDS_H
#define SLUICE_IO_SHARDS_SHARDS_H

#include "io/safetensors.h"

typedef struct sli_shards sli_shards;

/* Opens a file. In a folder, opens model.safetensors or the files named by
 * model.safetensors.index.json. SL_E_INPUT names the file, and the tensor if there is one. */
sl_status sli_shards_open(const char *path, sli_shards **out);
void sli_shards_close(sli_shards *s);

int sli_shards_count(const sli_shards *s);
const char *sli_shards_path(const sli_shards *s, int file);

/* Returns the tensors of a file as an array sorted by name. */
int sli_shards_tensors(const sli_shards *s, int file, const sli_stored_tensor **out);

/* Returns the tensor of a name and the index of its file, or NULL if there is none. */
const sli_stored_tensor *sli_shards_find(const sli_shards *s, const char *name, int *file);

/* Reads a tensor as f32 to out[elements]; SL_E_INPUT for unsupported types. */
sl_status sli_shards_read(const sli_shards *s, int file, const sli_stored_tensor *tensor,
                          float *out);
/* A tensor [n, out, in] in MXFP4, as stored in gpt-oss files. NAME_blocks [n, out, in / 32, 16] has
 * two numbers per byte, and NAME_scales [n, out, in / 32] has powers of two. */
typedef struct sli_packed {
  const sli_stored_tensor *blocks, *scales; /* blocks NULL if there is none */
  int file[2];
} sli_packed;
sli_packed sli_shards_packed(const sli_shards *s, const char *name);
/* Reads the packed tensor to out[n * out * in] as f32. SL_E_INPUT names a tensor of another shape
 * or type. */
sl_status sli_shards_read_packed(const sli_shards *s, const sli_packed *packed,
                                 const int64_t dim[3], float *out);
/* Converts the packed tensor to blocks of MXFP4 as in GGUF files, SLI_MXFP4_BYTES each. */
enum { SLI_MXFP4_BYTES = 17 };
sl_status sli_shards_read_packed_blocks(const sli_shards *s, const sli_packed *packed,
                                        const int64_t dim[3], unsigned char *out);
/* Copies a tensor's bytes, which in GGUF files are quantized blocks, to out[tensor->bytes]. */
sl_status sli_shards_blocks(const sli_shards *s, int file, const sli_stored_tensor *tensor,
                            void *out);

#endif
