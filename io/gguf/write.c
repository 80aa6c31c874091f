/* SPDX-License-Identifier: Apache-2.0 */
/* Writes GGUF files: keys with values, then tensors in blocks, in the layout of ggml's
 * docs/gguf.md. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/atomic.h"
#include "io/gguf/gguf_inner.h"

/* Kinds of values. */
enum { KIND_U32 = 4, KIND_I32 = 5, KIND_F32 = 6, KIND_BOOL = 7, KIND_TEXT = 8, KIND_ARRAY = 9 };
enum { VERSION = 3, ALIGNMENT = 32 };

/* ---- keys --------------------------------------------------------------------------------- */

struct sli_gguf_keys {
  FILE *out;
  char *bytes;
  size_t size;
  uint64_t count;
  cJSON *named; /* keys that tensor names depend on */
};

sli_gguf_keys *sli_gguf_keys_create(void) {
  sli_gguf_keys *k = sli_calloc(1, sizeof *k);
  k->out = open_memstream(&k->bytes, &k->size);
  k->named = cJSON_CreateObject();
  SLI_CHECK(k->out, "no memory for the keys of a file");
  return k;
}

void sli_gguf_keys_destroy(sli_gguf_keys *k) {
  if (!k) return;
  fclose(k->out);
  free(k->bytes);
  cJSON_Delete(k->named);
  free(k);
}

static void put(FILE *out, const void *bytes, size_t n) { fwrite(bytes, 1, n, out); }
static void put_u32(FILE *out, uint32_t x) { put(out, &x, sizeof x); }
static void put_u64(FILE *out, uint64_t x) { put(out, &x, sizeof x); }
static void put_text(FILE *out, const char *text) {
  put_u64(out, strlen(text));
  put(out, text, strlen(text));
}

static FILE *put_key(sli_gguf_keys *k, const char *key, uint32_t kind) {
  k->count++;
  put_text(k->out, key);
  put_u32(k->out, kind);
  return k->out;
}

void sli_gguf_put_text(sli_gguf_keys *k, const char *key, const char *value) {
  put_text(put_key(k, key, KIND_TEXT), value);
  cJSON_AddStringToObject(k->named, key, value);
}

void sli_gguf_put_count(sli_gguf_keys *k, const char *key, int64_t value) {
  put_u32(put_key(k, key, KIND_U32), (uint32_t)value);
  cJSON_AddNumberToObject(k->named, key, (double)value);
}

void sli_gguf_put_number(sli_gguf_keys *k, const char *key, double value) {
  float x = (float)value;
  put(put_key(k, key, KIND_F32), &x, sizeof x);
}

void sli_gguf_put_flag(sli_gguf_keys *k, const char *key, bool value) {
  put(put_key(k, key, KIND_BOOL), &(char){value}, 1);
}

static FILE *put_array(sli_gguf_keys *k, const char *key, uint32_t kind, const cJSON *values) {
  FILE *out = put_key(k, key, KIND_ARRAY);
  put_u32(out, kind);
  put_u64(out, (uint64_t)cJSON_GetArraySize(values));
  return out;
}

void sli_gguf_put_texts(sli_gguf_keys *k, const char *key, const cJSON *values) {
  FILE *out = put_array(k, key, KIND_TEXT, values);
  const cJSON *item;
  cJSON_ArrayForEach(item, values) put_text(out, item->valuestring);
}

void sli_gguf_put_integers(sli_gguf_keys *k, const char *key, const cJSON *values) {
  FILE *out = put_array(k, key, KIND_I32, values);
  const cJSON *item;
  cJSON_ArrayForEach(item, values) put_u32(out, (uint32_t)item->valueint);
}

void sli_gguf_put_numbers(sli_gguf_keys *k, const char *key, const cJSON *values) {
  FILE *out = put_array(k, key, KIND_F32, values);
  const cJSON *item;
  cJSON_ArrayForEach(item, values) put(out, &(float){(float)item->valuedouble}, sizeof(float));
}

/* ---- tensors ------------------------------------------------------------------------------- */

/* A file being written, with the names and types of its tensors in the file. */
typedef struct writing {
  const sli_gguf_content *content;
  sli_atomic_file file;
  const sli_gguf_type **types; /* [count] */
} writing;

static const sli_gguf_type *named_or(const char *type, const char *otherwise) {
  const sli_gguf_type *t = type ? sli_gguf_type_named(type) : NULL;
  return t && t->pack ? t : sli_gguf_type_named(otherwise);
}

/* Chooses a tensor's type. Gains and biases are F32. Rows that are not whole blocks are Q8_0 or
 * F16. The output projection is Q8_0 where other matrices have four bits. */
static const sli_gguf_type *type_for(const sli_gguf_content *c, const sli_tensor_data *t) {
  int64_t k = t->dim[t->ndim - 1];
  const sli_gguf_type *type = named_or(c->type, "F32");
  bool predicts = c->predicts && !strcmp(c->predicts, t->name),
       four = !strncmp(type->name, "Q4", 2);
  if (t->ndim < 2) return sli_gguf_type_named("F32");
  if (k % type->numbers || (four && predicts)) type = sli_gguf_type_named("Q8_0");
  return k % type->numbers ? sli_gguf_type_named("F16") : type;
}

static uint64_t elements(const sli_tensor_data *t) {
  uint64_t n = 1;
  for (int d = 0; d < t->ndim; d++) n *= (uint64_t)t->dim[d];
  return n;
}

static uint64_t bytes_of(const writing *w, int i) {
  const sli_tensor_data *t = &w->content->tensors[i];
  return elements(t) / (uint64_t)w->types[i]->numbers * (uint64_t)w->types[i]->bytes;
}

static uint64_t aligned(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static void put_infos(const writing *w) {
  const sli_gguf_content *c = w->content;
  uint64_t offset = 0;
  for (int i = 0; i < c->count; i++) {
    const sli_tensor_data *t = &c->tensors[i];
    char *name = sli_gguf_own_name(c->keys->named, t->name);
    put_text(w->file.stream, name);
    put_u32(w->file.stream, (uint32_t)t->ndim);
    for (int d = t->ndim - 1; d >= 0; d--) put_u64(w->file.stream, (uint64_t)t->dim[d]);
    put_u32(w->file.stream, sli_gguf_type_number(w->types[i]));
    put_u64(w->file.stream, offset);
    offset = aligned(offset + bytes_of(w, i));
    free(name);
  }
}

static void put_padding(const writing *w, uint64_t at) {
  static const char zeros[ALIGNMENT];
  put(w->file.stream, zeros, aligned(at) - at);
}

/* Writes row by row, in the order of the file. */
static void put_rows(const writing *w, int i, const float *values) {
  const sli_gguf_content *c = w->content;
  const sli_tensor_data *t = &c->tensors[i];
  const sli_gguf_type *type = w->types[i];
  char *name = sli_gguf_own_name(c->keys->named, t->name);
  sli_gguf_place place = sli_gguf_place_of("", c->keys->named, name, (size_t)t->dim[0]);
  size_t rows = t->ndim > 1 || place.rows.groups ? (size_t)t->dim[0] : 1, row = elements(t) / rows,
         bytes = row / (size_t)type->numbers * (size_t)type->bytes;
  unsigned char *packed = sli_calloc(1, bytes);
  float *raised = sli_calloc(row, sizeof *raised);
  for (size_t r = 0; r < rows; r++) {
    const float *from = values + sli_gguf_row_of(&place.rows, r) * row;
    for (size_t e = 0; e < row; e++) raised[e] = from[e] + (place.plus_one ? 1 : 0);
    type->pack(raised, row / (size_t)type->numbers, packed);
    put(w->file.stream, packed, bytes);
  }
  free(raised);
  free(packed);
  free(place.name);
  free(name);
}

static sl_status put_tensors(const writing *w) {
  const sli_gguf_content *c = w->content;
  sl_status status = SL_OK;
  for (int i = 0; i < c->count && !status; i++) {
    const float *values = c->tensors[i].data;
    if (!values) status = c->values(c->ctx, i, &values);
    if (status) break;
    put_rows(w, i, values);
    put_padding(w, bytes_of(w, i));
  }
  return status;
}

static void put_head(const writing *w) {
  const sli_gguf_content *c = w->content;
  FILE *out = w->file.stream;
  fflush(c->keys->out);
  put(out, "GGUF", 4);
  put_u32(out, VERSION);
  put_u64(out, (uint64_t)c->count);
  put_u64(out, c->keys->count);
  put(out, c->keys->bytes, c->keys->size);
  put_infos(w);
  put_padding(w, (uint64_t)ftell(out));
}

sl_status sli_gguf_write(const char *path, const sli_gguf_content *content) {
  writing w = {.content = content};
  sl_status status = sli_atomic_open(path, &w.file);
  if (status) return status;
  w.types = sli_calloc((size_t)content->count + 1, sizeof(const sli_gguf_type *));
  for (int i = 0; i < content->count; i++) w.types[i] = type_for(content, &content->tensors[i]);
  put_head(&w);
  status = put_tensors(&w);
  free(w.types);
  if (!status) return sli_atomic_commit(&w.file);
  sli_atomic_abandon(&w.file);
  return status;
}

bool sli_gguf_writes(const char *type) {
  const sli_gguf_type *t = sli_gguf_type_named(type);
  return t && t->pack;
}
