/* GGUF files (ggml's docs/gguf.md says what they hold): keys with values, which say what a model is
 * and how its text is cut into tokens, and tensors, quantized or not. */
#ifndef SLUICE_IO_GGUF_GGUF_H
#define SLUICE_IO_GGUF_GGUF_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "io/safetensors.h"

typedef struct sli_gguf sli_gguf;

/* Does the file begin as one? */
bool sli_gguf_is(const char *path);

/* Maps the file and checks all but the tensors' values: counts, lengths, sizes, offsets, overlaps,
 * doubled names. SL_E_INPUT names the file, and the key or the tensor where there is one. */
sl_status sli_gguf_open(const char *path, sli_gguf **out);
void sli_gguf_close(sli_gguf *file);

/* Numbers, flags and texts by their keys, as one JSON object; the file's. */
const cJSON *sli_gguf_metadata(const sli_gguf *file);
/* Keys of arrays, by number; NULL behind the last. */
const char *sli_gguf_array_key(const sli_gguf *file, size_t index);
/* The array of that key, the caller's to cJSON_Delete(); NULL if there is none. */
cJSON *sli_gguf_array(const sli_gguf *file, const char *key);

/* Tensors in order of their names. Those of architectures that are known have Hugging Face's names;
 * the others have their own. Sizes are in Hugging Face's order, the last one's numbers side by side. */
int sli_gguf_count(const sli_gguf *file);
const sli_stored_tensor *sli_gguf_at(const sli_gguf *file, int index);
const sli_stored_tensor *sli_gguf_find(const sli_gguf *file, const char *name);

/* Unpacks a tensor to out[elements], with its rows in Hugging Face's order. SL_E_INPUT names the
 * tensor, where its type is not one that can be unpacked. */
sl_status sli_gguf_read(const sli_gguf *file, const sli_stored_tensor *tensor, float *out);
/* Its blocks as they lie in the file, to out[tensor->bytes], its rows in that order too. */
sl_status sli_gguf_blocks(const sli_gguf *file, const sli_stored_tensor *tensor, void *out);

#endif
