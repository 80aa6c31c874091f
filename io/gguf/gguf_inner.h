/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions shared by the files of gguf/. */
#ifndef SLUICE_IO_GGUF_GGUF_INNER_H
#define SLUICE_IO_GGUF_GGUF_INNER_H

#include "io/gguf/gguf.h"

/* Block layout of a type: numbers and bytes per block. */
typedef struct sli_gguf_type {
  const char *name;
  int numbers, bytes;
  void (*unpack)(const unsigned char *from, size_t blocks, float *out); /* NULL if not supported */
  void (*pack)(const float *from, size_t blocks, unsigned char *out);   /* NULL if not written */
} sli_gguf_type;
/* Finds a type by number, or returns NULL if there is none. */
const sli_gguf_type *sli_gguf_type_of(uint32_t number);
const sli_gguf_type *sli_gguf_type_named(const char *name);
/* Returns the number of a type. */
uint32_t sli_gguf_type_number(const sli_gguf_type *type);
/* Lists the supported types, "F32, F16, ...", as far as they fit. Returns `out`. */
char *sli_gguf_type_names(char *out, size_t size);

/* Returns the Hugging Face name of a tensor, or its own name if unknown. The caller frees it. */
char *sli_gguf_name(const cJSON *metadata, const char *name);
/* Returns the GGUF name, in an architecture, of a tensor given by its Hugging Face name, or the
 * same name if unknown. The caller frees it. */
char *sli_gguf_own_name(const cJSON *metadata, const char *name);
/* Returns the index in Hugging Face's order of a row of the file. Heads have `head` rows. */
size_t sli_gguf_place_of(size_t r, size_t head);
/* Returns whether a tensor of this Hugging Face name is stored with 1 added. */
bool sli_gguf_plus_one(const cJSON *metadata, const char *name);
/* Returns the number of heads whose rows are interleaved for rotary pairs in the tensor of this
 * Hugging Face name. Returns 0 if rows are in Hugging Face's order. */
int64_t sli_gguf_heads(const cJSON *metadata, const char *name);

/* ---- blocks (pack.c) --------------------------------------------------------------------------
 */

void sli_gguf_pack_f32(const float *from, size_t blocks, unsigned char *out);
void sli_gguf_pack_f16(const float *from, size_t blocks, unsigned char *out);
void sli_gguf_pack_bf16(const float *from, size_t blocks, unsigned char *out);
void sli_gguf_pack_q8_0(const float *from, size_t blocks, unsigned char *out);
void sli_gguf_pack_q4_0(const float *from, size_t blocks, unsigned char *out);
void sli_gguf_pack_q4_k(const float *from, size_t blocks, unsigned char *out);

/* ---- untrusted bytes (metadata.c) ------------------------------------------------------------ */

/* The unread part of the file. */
typedef struct cursor {
  const unsigned char *at;
  size_t left;
} cursor;
/* Reads bytes. Returns false if fewer are left. */
bool sli_gguf_take(cursor *c, void *out, size_t bytes);
/* Reads a length and a text; the caller frees *text. A text with a zero byte is rejected. */
sl_status sli_gguf_take_text(cursor *c, const char *path, const char *what, char **text);

/* An array of the metadata. Its elements were checked. */
typedef struct gguf_array {
  char *key;
  uint32_t kind;
  uint64_t count;
  cursor from;
} gguf_array;

typedef struct gguf_metadata {
  cJSON *values;
  gguf_array *arrays;
  size_t narrays, room;
} gguf_metadata;
/* Reads `count` keys with their values. */
sl_status sli_gguf_metadata_read(const char *path, cursor *c, uint64_t count, gguf_metadata *out);
void sli_gguf_metadata_fini(gguf_metadata *m);
cJSON *sli_gguf_array_json(const gguf_array *array);

#endif
