/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files written by tests, byte by byte. */
#ifndef SLUICE_TESTS_SUPPORT_GGUF_FILE_H
#define SLUICE_TESTS_SUPPORT_GGUF_FILE_H

#include <stdint.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/test.h"

typedef struct gguf_file {
  unsigned char *bytes;
  size_t count, capacity;
} gguf_file;

/* Type numbers of the format. */
enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_TEXT = 8, GGUF_ARRAY = 9 };

static inline void gguf_add(gguf_file *f, const void *bytes, size_t count) {
  while (f->count + count >= f->capacity) SLI_GROW(f->bytes, f->capacity, f->capacity);
  memcpy(f->bytes + f->count, bytes, count);
  f->count += count;
}
static inline void gguf_u32(gguf_file *f, uint32_t value) { gguf_add(f, &value, 4); }
static inline void gguf_u64(gguf_file *f, uint64_t value) { gguf_add(f, &value, 8); }
static inline void gguf_text(gguf_file *f, const char *text) {
  gguf_u64(f, strlen(text));
  gguf_add(f, text, strlen(text));
}

static inline void gguf_begin(gguf_file *f, uint64_t tensors, uint64_t keys) {
  f->count = 0;
  gguf_add(f, "GGUF", 4);
  gguf_u32(f, 3);
  gguf_u64(f, tensors);
  gguf_u64(f, keys);
}
static inline void gguf_key(gguf_file *f, const char *key, uint32_t kind) {
  gguf_text(f, key);
  gguf_u32(f, kind);
}
static inline void gguf_key_text(gguf_file *f, const char *key, const char *value) {
  gguf_key(f, key, GGUF_TEXT);
  gguf_text(f, value);
}
static inline void gguf_key_u32(gguf_file *f, const char *key, uint32_t value) {
  gguf_key(f, key, GGUF_U32);
  gguf_u32(f, value);
}
static inline void gguf_key_array(gguf_file *f, const char *key, uint32_t kind, uint64_t count) {
  gguf_key(f, key, GGUF_ARRAY);
  gguf_u32(f, kind);
  gguf_u64(f, count);
}
/* Appends a tensor's description. The first dim is the one that varies fastest. */
static inline void gguf_tensor(gguf_file *f, const char *name, uint32_t ndim, const uint64_t *dims,
                               uint32_t type, uint64_t offset) {
  gguf_text(f, name);
  gguf_u32(f, ndim);
  for (uint32_t i = 0; i < ndim; i++) gguf_u64(f, dims[i]);
  gguf_u32(f, type);
  gguf_u64(f, offset);
}
static inline void gguf_pad(gguf_file *f) {
  while (f->count % 32) gguf_add(f, "", 1);
}

static inline void gguf_write(const gguf_file *f, const char *path) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(f->bytes, 1, f->count, file) == f->count && !fclose(file), "%s is written",
        path);
}

#endif
