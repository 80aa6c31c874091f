/* What the files of gguf/ share. */
#ifndef SLUICE_IO_GGUF_INNER_H
#define SLUICE_IO_GGUF_INNER_H

#include "io/gguf/gguf.h"

/* How the numbers of a type lie: in blocks, each of so many numbers and bytes. */
typedef struct sli_gguf_type {
  const char *name;
  int numbers, bytes;
  void (*unpack)(const unsigned char *from, size_t blocks, float *out); /* NULL: not supported */
} sli_gguf_type;
/* NULL if there is no such type. */
const sli_gguf_type *sli_gguf_type_of(uint32_t number);
const sli_gguf_type *sli_gguf_type_named(const char *name);
/* Those that are supported, as much as fits: "F32, F16, ..."; returns `out`. */
char *sli_gguf_type_names(char *out, size_t size);

/* Hugging Face's name of a tensor, or its own; the caller's to free(). */
char *sli_gguf_name(const cJSON *metadata, const char *name);
/* How many heads' rows lie in a tensor of this Hugging Face's name so that numbers which turn
 * together are neighbours; 0: its rows lie as they do there. */
int64_t sli_gguf_heads(const cJSON *metadata, const char *name);

/* ---- bytes from outside (metadata.c) ---------------------------------------------------------- */

/* What is left of the file. */
typedef struct cursor {
  const unsigned char *at;
  size_t left;
} cursor;
/* False: there is not as much left. */
bool sli_gguf_take(cursor *c, void *out, size_t bytes);
/* A text, with its length before it; *text is the caller's to free(). A zero in it is no end: it
 * is refused. */
sl_status sli_gguf_take_text(cursor *c, const char *path, const char *what, char **text);

/* An array of the metadata: its elements, checked. */
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
