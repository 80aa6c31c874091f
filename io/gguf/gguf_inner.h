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

/* ---- names and layouts (names.c) ---------------------------------------------------------------
 */

/* Order of rows or of columns. From `first` on, runs of `width` lie in the file in the order
 * [each][groups], and in Hugging Face's order [groups][each]. groups 0: as in Hugging Face's. */
typedef struct sli_gguf_runs {
  size_t first, groups, each, width;
} sli_gguf_runs;
/* Returns the index in Hugging Face's order of row or column r of the file. */
size_t sli_gguf_row_of(const sli_gguf_runs *runs, size_t r);

/* Rows of a part whose pieces follow each other in the file: `width` rows of each of the groups.
 * Hugging Face's tensor has `period` rows for each group, the piece's from `at` on. */
enum { SLI_GGUF_PIECES = 3 };
typedef struct sli_gguf_spread {
  size_t groups, period; /* groups 0: the part has no such rows */
  int count;
  struct {
    size_t width, at;
  } piece[SLI_GGUF_PIECES];
} sli_gguf_spread;
/* Returns the row of the whole tensor that row r of such a part is. */
size_t sli_gguf_spread_row(const sli_gguf_spread *s, size_t r);

/* Place of a file's tensor among Hugging Face's. */
typedef struct sli_gguf_place {
  char *name; /* of the whole tensor; owned */
  sli_gguf_runs rows, columns;
  sli_gguf_spread spread;
  int part, parts; /* the tensor is one of several parts */
  bool woven;      /* rows of the parts take turns; otherwise the parts follow each other */
  bool turned;     /* the file has the last two dims exchanged */
  bool plus_one, minus_exp; /* the file has x + 1, or -exp(x) */
  bool uneven;              /* the rows are not whole runs */
  const char *shape;        /* "flat" [n], "row" [1, n], "channels" [c, 1, k], "joined" [a b, c] */
  size_t last;              /* the file's last dim, if the shape is flat; 0: it has one dim */
} sli_gguf_place;
/* Finds the place of a tensor with so many rows. Unknown tensors keep their name. */
sli_gguf_place sli_gguf_place_of(const char *path, const cJSON *metadata, const char *name,
                                 size_t rows);
/* Finds the names in a file of a tensor given by its Hugging Face name: one, or one for each of its
 * parts. An unknown tensor of a layer has none; others keep their name. Returns their number; the
 * caller frees them. */
enum { SLI_GGUF_PARTS = 4 };
int sli_gguf_own_names(const cJSON *metadata, const char *name, char *out[SLI_GGUF_PARTS]);

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

/* ---- the file -------------------------------------------------------------------------------- */

/* A tensor of the file, or a part of one of Hugging Face's. */
typedef struct sli_gguf_source {
  sli_stored_tensor own; /* name, shape and place in the file; owns the name */
  sli_gguf_place place;
  size_t begin, rows; /* first row within the whole tensor's matrices, and the rows of these */
} sli_gguf_source;

struct sli_gguf {
  char *path;
  void *map;
  size_t map_bytes;
  gguf_metadata metadata;
  const unsigned char *data;
  size_t data_bytes;
  int count, ntensors;
  sli_gguf_source *sources;   /* [count] */
  sli_stored_tensor *tensors; /* sorted by name; `offset` is the index of the first source */
};
/* Makes Hugging Face's tensors of the sources (tensors.c). */
sl_status sli_gguf_make_tensors(sli_gguf *file);

#endif
