/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files (format: ggml's docs/gguf.md): metadata that describes the model and its tokenizer,
 * and tensors, quantized or not. */
#ifndef SLUICE_IO_GGUF_GGUF_H
#define SLUICE_IO_GGUF_GGUF_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "io/safetensors.h"

typedef struct sli_gguf sli_gguf;

/* Returns whether the file begins with GGUF's magic. */
bool sli_gguf_is(const char *path);

/* Maps the file and checks everything except the tensors' values: counts, lengths, sizes, offsets,
 * overlaps, duplicate names. SL_E_INPUT names the file, and the key or tensor if there is one. */
sl_status sli_gguf_open(const char *path, sli_gguf **out);
void sli_gguf_close(sli_gguf *file);

/* Returns the numbers, flags and texts of the metadata as one JSON object, owned by the file. */
const cJSON *sli_gguf_metadata(const sli_gguf *file);
/* Returns the key of an array by index, or NULL after the last one. */
const char *sli_gguf_array_key(const sli_gguf *file, size_t index);
/* Returns the array of a key, or NULL if there is none. The caller deletes it with
 * cJSON_Delete(). */
cJSON *sli_gguf_array(const sli_gguf *file, const char *key);

/* Access to tensors, sorted by name. In known architectures they have their Hugging Face names, in
 * others the file's names. Dimensions are in Hugging Face's order, the last one contiguous. */
int sli_gguf_count(const sli_gguf *file);
const sli_stored_tensor *sli_gguf_at(const sli_gguf *file, int index);
const sli_stored_tensor *sli_gguf_find(const sli_gguf *file, const char *name);

/* Dequantizes a tensor to out[elements], with rows in Hugging Face's order. SL_E_INPUT names a
 * tensor whose type is not supported. */
sl_status sli_gguf_read(const sli_gguf *file, const sli_stored_tensor *tensor, float *out);
/* Unpacks whole blocks of a supported type, given by name, to out[elements]. */
void sli_gguf_unpack(const char *type, const void *blocks, size_t elements, float *out);
/* Copies a tensor's quantized blocks to out[tensor->bytes], with rows in Hugging Face's order. */
sl_status sli_gguf_blocks(const sli_gguf *file, const sli_stored_tensor *tensor, void *out);

/* Returns the row of an architecture in architectures.json, or NULL; and all rows. */
const cJSON *sli_gguf_architecture(const char *name);
const cJSON *sli_gguf_architectures(void);

/* ---- writing ------------------------------------------------------------------------------ */

/* Keys with their values, in insertion order. */
typedef struct sli_gguf_keys sli_gguf_keys;
sli_gguf_keys *sli_gguf_keys_create(void);
void sli_gguf_keys_destroy(sli_gguf_keys *keys);
void sli_gguf_put_text(sli_gguf_keys *keys, const char *key, const char *value);
void sli_gguf_put_count(sli_gguf_keys *keys, const char *key, int64_t value);
void sli_gguf_put_number(sli_gguf_keys *keys, const char *key, double value);
void sli_gguf_put_flag(sli_gguf_keys *keys, const char *key, bool value);
void sli_gguf_put_texts(sli_gguf_keys *keys, const char *key, const cJSON *values);
void sli_gguf_put_integers(sli_gguf_keys *keys, const char *key, const cJSON *values);
void sli_gguf_put_numbers(sli_gguf_keys *keys, const char *key, const cJSON *values);

/* Content of a file. Tensors have their Hugging Face names, and values in Hugging Face's order.
 * Tensors whose data is NULL are requested when their turn comes. */
typedef struct sli_gguf_content {
  sli_gguf_keys *keys;  /* including general.architecture */
  const char *type;     /* type of matrices whose rows are whole blocks; see sli_gguf_writes() */
  const char *predicts; /* name of the output projection matrix; NULL if none */
  const sli_tensor_data *tensors;
  int count;
  sli_tensor_values *values;
  void *ctx;
} sli_gguf_content;
/* Writes a file, which appears complete or not at all. SL_E_IO names the file. */
sl_status sli_gguf_write(const char *path, const sli_gguf_content *content);
/* Returns whether tensors of a type can be written: F32, F16, BF16, Q8_0, Q4_0 and Q4_K can. */
bool sli_gguf_writes(const char *type);

#endif
