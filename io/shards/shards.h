/* The weights of one model: in one file, safetensors or GGUF, or in a folder of Hugging Face's with
 * several. */
#ifndef SLUICE_IO_SHARDS_H
#define SLUICE_IO_SHARDS_H

#include "io/safetensors.h"

typedef struct sli_shards sli_shards;

/* Opens a file, or in a folder model.safetensors or the files that
 * model.safetensors.index.json names. SL_E_INPUT names the file, and the tensor where there is
 * one. */
sl_status sli_shards_open(const char *path, sli_shards **out);
void sli_shards_close(sli_shards *s);

int sli_shards_count(const sli_shards *s);
const char *sli_shards_path(const sli_shards *s, int file);

/* The tensors of a file, in a row, in order of their names. */
int sli_shards_tensors(const sli_shards *s, int file, const sli_stored_tensor **out);

/* The tensor of that name, and the number of its file; NULL if there is none. */
const sli_stored_tensor *sli_shards_find(const sli_shards *s, const char *name, int *file);

/* Its values, to out[elements]; SL_E_INPUT for types that cannot be read. */
sl_status sli_shards_read(const sli_shards *s, int file, const sli_stored_tensor *tensor, float *out);
/* The same of a GGUF file as its blocks lie there, to out[tensor->bytes]. */
sl_status sli_shards_blocks(const sli_shards *s, int file, const sli_stored_tensor *tensor, void *out);

#endif
