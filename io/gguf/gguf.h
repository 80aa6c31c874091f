/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files (format: ggml's docs/gguf.md): metadata, which describes the model and its
 * tokenizer, and tensors, quantized or not. */
#ifndef SLUICE_IO_GGUF_GGUF_H
#define SLUICE_IO_GGUF_GGUF_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "io/safetensors.h"

typedef struct sli_gguf sli_gguf;

/* Returns whether the file begins with GGUF's magic. */
bool sli_gguf_is(const char *path);

/* Maps the file and checks everything but the tensors' values: counts, lengths, sizes, offsets,
 * overlaps, duplicate names. SL_E_INPUT names the file, and the key or tensor if there is one. */
sl_status sli_gguf_open(const char *path, sli_gguf **out);
void sli_gguf_close(sli_gguf *file);

/* Returns the numbers, flags and texts of the metadata as one JSON object, owned by the file. */
const cJSON *sli_gguf_metadata(const sli_gguf *file);
/* Returns the key of an array by index; NULL after the last. */
const char *sli_gguf_array_key(const sli_gguf *file, size_t index);
/* Returns the array of a key, the caller's to cJSON_Delete(); NULL if there is none. */
cJSON *sli_gguf_array(const sli_gguf *file, const char *key);

/* Access to tensors, sorted by name. In known architectures they have Hugging Face's names; in
 * others their own. Dimensions are in Hugging Face's order, the last one contiguous. */
int sli_gguf_count(const sli_gguf *file);
const sli_stored_tensor *sli_gguf_at(const sli_gguf *file, int index);
const sli_stored_tensor *sli_gguf_find(const sli_gguf *file, const char *name);

/* Dequantizes a tensor to out[elements], with rows in Hugging Face's order. SL_E_INPUT names a
 * tensor whose type is not supported. */
sl_status sli_gguf_read(const sli_gguf *file, const sli_stored_tensor *tensor, float *out);
/* Copies a tensor's quantized blocks to out[tensor->bytes], with rows in Hugging Face's order. */
sl_status sli_gguf_blocks(const sli_gguf *file, const sli_stored_tensor *tensor, void *out);

#endif
