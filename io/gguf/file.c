/* SPDX-License-Identifier: Apache-2.0 */
/* A GGUF file, little-endian:
 *
 *     "GGUF" | u32 version | u64 tensors | u64 keys | keys and values | tensors | padding | data
 *
 * A tensor is its name, its dimensions, fastest first, its type, and its offset in the data, a
 * multiple of the alignment. Every value is checked before it is used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "io/file.h"
#include "io/gguf/gguf_inner.h"

enum { MOST_DIMS = 4, USUAL_ALIGNMENT = 32, MOST_ALIGNMENT = 1 << 20 };

bool sli_gguf_is(const char *path) {
  char magic[4] = {0};
  return sli_file_begin(path, magic, 4) == 4 && !memcmp(magic, "GGUF", 4);
}

/* ---- opening ---------------------------------------------------------------- */

static sl_status read_header(const sli_gguf *file, cursor *c, uint64_t *tensors, uint64_t *keys) {
  char magic[4];
  uint32_t version;
  if (!sli_gguf_take(c, magic, 4) || memcmp(magic, "GGUF", 4))
    return sl_fail(SL_E_INPUT, "%s is not a GGUF file", file->path);
  if (!sli_gguf_take(c, &version, 4) || !sli_gguf_take(c, tensors, 8) || !sli_gguf_take(c, keys, 8))
    return sl_fail(SL_E_INPUT, "%s is truncated: it ends within its first 24 bytes", file->path);
  if (version && !(version & 0xffff))
    return sl_fail(SL_E_INPUT, "%s is a big-endian GGUF file, which is not supported", file->path);
  if (version != 2 && version != 3)
    return sl_fail(SL_E_INPUT, "%s is GGUF version %u; supported: 2 and 3", file->path, version);
  return SL_OK;
}

static sl_status ends_within(const sli_gguf *file, const sli_stored_tensor *t) {
  return sl_fail(SL_E_INPUT, "%s is truncated: it ends within tensor %s", file->path, t->name);
}

/* Reads the dimensions and reverses them: the file has the fastest first, t->dim has it last. */
static sl_status read_shape(const sli_gguf *file, cursor *c, sli_stored_tensor *t) {
  uint32_t ndim;
  if (!sli_gguf_take(c, &ndim, 4)) return ends_within(file, t);
  if (ndim < 1 || ndim > MOST_DIMS)
    return sl_fail(SL_E_INPUT, "%s: tensor %s has %u dimensions; 1 to %d can be read", file->path,
                   t->name, ndim, MOST_DIMS);
  t->ndim = (int)ndim;
  t->elements = 1;
  for (int d = t->ndim - 1; d >= 0; d--) {
    uint64_t n;
    if (!sli_gguf_take(c, &n, 8)) return ends_within(file, t);
    if (n < 1 || n > INT64_MAX || __builtin_mul_overflow(t->elements, n, &t->elements))
      return sl_fail(SL_E_INPUT, "%s: tensor %s has an impossible shape", file->path, t->name);
    t->dim[d] = (int64_t)n;
  }
  return SL_OK;
}

static sl_status read_type(const sli_gguf *file, cursor *c, sli_stored_tensor *t) {
  uint32_t number;
  if (!sli_gguf_take(c, &number, 4)) return ends_within(file, t);
  const sli_gguf_type *type = sli_gguf_type_of(number);
  if (!type)
    return sl_fail(SL_E_INPUT, "%s: tensor %s is of type %u, which is not known", file->path,
                   t->name, number);
  t->dtype = type->name;
  if (t->dim[t->ndim - 1] % type->numbers)
    return sl_fail(SL_E_INPUT, "%s: tensor %s is %s, but its rows of %lld are not a multiple of %d",
                   file->path, t->name, t->dtype, (long long)t->dim[t->ndim - 1], type->numbers);
  if (__builtin_mul_overflow(t->elements / (size_t)type->numbers, (size_t)type->bytes, &t->bytes))
    return sl_fail(SL_E_INPUT, "%s: tensor %s has an impossible shape", file->path, t->name);
  return SL_OK;
}

static sl_status read_tensor(sli_gguf *file, cursor *c) {
  char *name;
  uint64_t offset;
  sl_status status = sli_gguf_take_text(c, file->path, "a tensor's name", &name);
  if (status) return status;
  sli_stored_tensor *t = &file->sources[file->count++].own;
  *t = (sli_stored_tensor){.name = name};
  status = read_shape(file, c, t);
  if (!status) status = read_type(file, c, t);
  if (!status && !sli_gguf_take(c, &offset, 8)) status = ends_within(file, t);
  if (!status) t->offset = offset;
  return status;
}

/* Reads the tensor entries. Each takes at least LEAST_BYTES, so a wrong count is detected first. */
static sl_status read_tensors(sli_gguf *file, cursor *c, uint64_t count) {
  enum { LEAST_BYTES = 8 + 4 + 8 + 4 + 8 };
  if (count > c->left / LEAST_BYTES)
    return sl_fail(SL_E_INPUT, "%s is truncated: it has %llu tensors, and %zu bytes are left",
                   file->path, (unsigned long long)count, c->left);
  file->sources = sli_calloc((size_t)count, sizeof *file->sources);
  sl_status status = SL_OK;
  for (uint64_t i = 0; i < count && !status; i++) status = read_tensor(file, c);
  return status;
}

static sl_status find_data(sli_gguf *file, const cursor *c, size_t *alignment) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(file->metadata.values, "general.alignment");
  double wanted = cJSON_IsNumber(item) ? item->valuedouble : USUAL_ALIGNMENT;
  *alignment = wanted >= 1 && wanted <= MOST_ALIGNMENT ? (size_t)wanted : 0;
  if (!*alignment || *alignment & (*alignment - 1))
    return sl_fail(SL_E_INPUT, "%s: general.alignment is %g, which is not a power of two up to %d",
                   file->path, wanted, MOST_ALIGNMENT);
  size_t read = file->map_bytes - c->left, padding = -read & (*alignment - 1);
  if (padding > c->left) padding = c->left;
  file->data = c->at + padding;
  file->data_bytes = c->left - padding;
  return SL_OK;
}

static int by_offset(const void *a, const void *b) {
  const sli_gguf_source *x = a, *y = b;
  return (x->own.offset > y->own.offset) - (x->own.offset < y->own.offset);
}

/* Checks that each tensor is within the data, aligned, and does not overlap its predecessor. */
static sl_status check_places(const sli_gguf *file, size_t alignment) {
  size_t done = 0;
  for (int i = 0; i < file->count; i++) {
    const sli_stored_tensor *t = &file->sources[i].own;
    if (t->offset > file->data_bytes || t->bytes > file->data_bytes - t->offset)
      return sl_fail(SL_E_INPUT,
                     "%s is truncated: tensor %s, of %zu bytes, begins at data byte %zu of %zu",
                     file->path, t->name, t->bytes, t->offset, file->data_bytes);
    if (t->offset % alignment)
      return sl_fail(SL_E_INPUT,
                     "%s: tensor %s begins at data byte %zu, which is not a multiple of %zu",
                     file->path, t->name, t->offset, alignment);
    if (t->offset < done)
      return sl_fail(SL_E_INPUT, "%s: tensors %s and %s overlap", file->path,
                     file->sources[i - 1].own.name, t->name);
    done = t->offset + t->bytes;
  }
  return SL_OK;
}

static sl_status read_all(sli_gguf *file) {
  cursor c = {file->map, file->map_bytes};
  uint64_t tensors, keys;
  size_t alignment;
  sl_status status = read_header(file, &c, &tensors, &keys);
  if (!status) status = sli_gguf_metadata_read(file->path, &c, keys, &file->metadata);
  if (!status) status = read_tensors(file, &c, tensors);
  if (!status) status = find_data(file, &c, &alignment);
  if (status) return status;
  qsort(file->sources, (size_t)file->count, sizeof *file->sources, by_offset);
  status = check_places(file, alignment);
  return status ? status : sli_gguf_make_tensors(file);
}

sl_status sli_gguf_open(const char *path, sli_gguf **out) {
  sli_gguf *file = sli_calloc(1, sizeof *file);
  file->path = sli_strdup(path);
  sl_status status = sli_file_map(path, &file->map, &file->map_bytes);
  if (!status) status = read_all(file);
  if (status) sli_gguf_close(file);
  else *out = file;
  return status;
}

void sli_gguf_close(sli_gguf *file) {
  if (!file) return;
  for (int i = 0; i < file->count; i++) {
    free((char *)file->sources[i].own.name);
    free(file->sources[i].place.name);
  }
  free(file->sources);
  free(file->tensors);
  sli_gguf_metadata_fini(&file->metadata);
  if (file->map) munmap(file->map, file->map_bytes);
  free(file->path);
  free(file);
}

/* ---- reading ---------------------------------------------------------------- */

const cJSON *sli_gguf_metadata(const sli_gguf *file) { return file->metadata.values; }

const char *sli_gguf_array_key(const sli_gguf *file, size_t index) {
  return index < file->metadata.narrays ? file->metadata.arrays[index].key : NULL;
}

cJSON *sli_gguf_array(const sli_gguf *file, const char *key) {
  for (size_t i = 0; i < file->metadata.narrays; i++)
    if (!strcmp(file->metadata.arrays[i].key, key))
      return sli_gguf_array_json(&file->metadata.arrays[i]);
  return NULL;
}

int sli_gguf_count(const sli_gguf *file) { return file->ntensors; }

const sli_stored_tensor *sli_gguf_at(const sli_gguf *file, int index) {
  SLI_CHECK(index >= 0 && index < file->ntensors, "tensor %d of %d", index, file->ntensors);
  return &file->tensors[index];
}

const sli_stored_tensor *sli_gguf_find(const sli_gguf *file, const char *name) {
  return sli_stored_find(file->tensors, file->ntensors, name);
}
