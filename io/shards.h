/* The weights of one model, in one safetensors file or in a folder of Hugging Face's with several. */
#ifndef SLUICE_IO_SHARDS_H
#define SLUICE_IO_SHARDS_H

#include "io/safetensors.h"

typedef struct sli_shards sli_shards;

/* Opens a safetensors file, or in a folder model.safetensors or the files that
 * model.safetensors.index.json names. SL_E_INPUT names the file, and the tensor where there is
 * one. */
sl_status sli_shards_open(const char *path, sli_shards **out);
void sli_shards_close(sli_shards *s);

int sli_shards_count(const sli_shards *s);
const sli_safetensors *sli_shards_at(const sli_shards *s, int file);
const char *sli_shards_path(const sli_shards *s, int file);

/* The tensor of that name, and the number of its file; NULL if there is none. */
const sli_stored_tensor *sli_shards_find(const sli_shards *s, const char *name, int *file);

#endif
