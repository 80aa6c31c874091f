/* SPDX-License-Identifier: Apache-2.0 */
/* Random weights in each storage format of a file. */
#ifndef SLUICE_TESTS_SUPPORT_STORED_WEIGHT_H
#define SLUICE_TESTS_SUPPORT_STORED_WEIGHT_H

#include "io/gguf/gguf.h"
#include "ops/storage.h"
#include "tests/support/kernel_call.h"

/* File types, and the offsets of a block's 16-bit numbers, which must be finite. */
static const struct form {
  const char *type;
  int numbers, bytes, nhalves, halves[2];
} forms[] = {
    {"F32", 1, 4, 0, {0}},        {"F16", 1, 2, 1, {0}},         {"BF16", 1, 2, 1, {0}},
    {"Q8_0", 32, 34, 1, {0}},     {"Q5_0", 32, 22, 1, {0}},      {"Q5_1", 32, 24, 2, {0, 2}},
    {"Q4_0", 32, 18, 1, {0}},     {"Q4_1", 32, 20, 2, {0, 2}},   {"Q2_K", 256, 84, 2, {80, 82}},
    {"Q3_K", 256, 110, 1, {108}}, {"Q4_K", 256, 144, 2, {0, 2}}, {"Q5_K", 256, 176, 2, {0, 2}},
    {"Q6_K", 256, 210, 1, {208}}, {"IQ4_NL", 32, 18, 1, {0}},    {"IQ4_XS", 256, 136, 1, {0}},
    {"MXFP4", 32, 17, 0, {0}},    {"FP8", 128, 132, 0, {0}},     {"NVFP4", 128, 76, 0, {0}}};

/* A weight [n, k]: as in the file, as stored in memory, and its values. */
typedef struct weight {
  sl_storage storage;
  sl_type values, lies;
  unsigned char *file;
  void *stored;
  float *unpacked;
} weight;

static inline void fill_block(const struct form *f, unsigned char *block) {
  for (int i = 0; i < f->bytes; i++) block[i] = (unsigned char)random_below(256);
  for (int h = 0; h < f->nhalves; h++)
    block[f->halves[h] + 1] = (unsigned char)(random_below(2) << 7 | random_below(0x2c));
  for (int i = 0; i < f->bytes - 4 && f->numbers == 128; i++) block[i] ^= (block[i] & 127) == 127;
  if (f->numbers == 128) memcpy(block + f->bytes - 4, &(float){1e-3f}, sizeof(float));
  if (f->numbers == 32 && !f->nhalves) block[0] = (unsigned char)(118 + random_below(8));
}

static inline weight make_weight(const struct form *f, int64_t n, int64_t k) {
  weight w = {.storage = sli_storage_named(f->type), .values = SL_TYPE(SL_F32, n, k)};
  int64_t blocks = n * k / f->numbers;
  w.lies = sli_storage_type(w.storage, &w.values);
  w.file = array_create(&SL_TYPE(SL_I32, (blocks * f->bytes + 3) / 4));
  w.stored = array_create(&w.lies);
  w.unpacked = array_create(&w.values);
  for (int64_t b = 0; b < blocks; b++) fill_block(f, w.file + b * f->bytes);
  if (w.storage == SL_STORAGE_F32) array_random(w.file, &w.values, 0);
  if (sli_storage_small(w.storage)) sli_storage_unpack_file(w.storage, w.file, n * k, w.unpacked);
  else sli_gguf_unpack(f->type, w.file, (size_t)(n * k), w.unpacked);
  if (w.storage == SL_STORAGE_F32) sli_storage_pack(w.storage, &w.values, w.unpacked, w.stored);
  else sli_storage_take(w.storage, f->type, &w.values, w.file, w.stored);
  sli_storage_group(w.storage, &w.lies, w.stored);
  return w;
}

static inline void free_weight(weight *w) {
  free(w->file);
  free(w->stored);
  free(w->unpacked);
}

static inline sl_attrs attrs_of(const weight *w, bool exact) {
  return (sl_attrs){.weight.width = w->values.dim[1],
                    .weight.storage = (int)w->storage,
                    .numbers.exact = exact,
                    .numbers.chunk = exact ? 7 : 0};
}

#endif
