/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of weights between a file's blocks, f32 and the storage formats that products read.
 * This is scalar reference code; kernels/cpu/vector/storage.h has the vectorised version. */
#include "ops/storage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/gguf/gguf.h"
#include "io/half.h"
#include "io/small.h"
#include "ops/planes.h"
#include "ops/spikes.h"

static void take_same(const unsigned char *block, unsigned char *numbers, uint16_t *scales);
static void take_q5_0(const unsigned char *block, unsigned char *numbers, uint16_t *scales);
static void take_q4_1(const unsigned char *block, unsigned char *numbers, uint16_t *scales);
static void take_q4_0(const unsigned char *block, unsigned char *numbers, uint16_t *scales);
static void take_doubled(const unsigned char *block, unsigned char *numbers, uint16_t *scales);
static void take_iq4_nl(const unsigned char *block, unsigned char *numbers, uint16_t *scales);
static void take_mxfp4(const unsigned char *block, unsigned char *numbers, uint16_t *scales);

/* Names in files, bytes per block, and the conversion of a block (NULL: blocks stay as they
 * are). */
static const struct {
  const char *type;
  sl_storage storage;
  int bytes;
  void (*take)(const unsigned char *block, unsigned char *numbers, uint16_t *scales);
} forms[] = {{"F32", SL_STORAGE_F32, 4, NULL},
             {"BF16", SL_STORAGE_BF16, 2, NULL},
             {"Q8_0", SL_STORAGE_Q8_0, 34, take_same},
             {"Q5_0", SL_STORAGE_Q8_0, 22, take_q5_0},
             {"Q4_1", SL_STORAGE_Q4_1, 20, take_q4_1},
             {"Q4_0", SL_STORAGE_Q4_1, 18, take_q4_0},
             {"F16", SL_STORAGE_F16, 2, NULL},
             {"Q5_1", SL_STORAGE_Q5_1, 24, NULL},
             {"Q2_K", SL_STORAGE_Q2_K, 84, NULL},
             {"Q3_K", SL_STORAGE_Q3_K, 110, NULL},
             {"Q4_K", SL_STORAGE_Q4_K, 144, NULL},
             {"Q5_K", SL_STORAGE_Q5_K, 176, NULL},
             {"Q6_K", SL_STORAGE_Q6_K, 210, NULL},
             {"IQ4_NL", SL_STORAGE_IQ4_NL, 18, take_iq4_nl},
             {"IQ4_XS", SL_STORAGE_IQ4_XS, 136, NULL},
             {"MXFP4", SL_STORAGE_MXFP4, 17, take_mxfp4},
             {"MXFP4", SL_STORAGE_Q8_0, 17, take_doubled},
             {"FP8", SL_STORAGE_SCALED, SLI_FP8_BYTES, NULL},
             {"NVFP4", SL_STORAGE_NVFP4, SLI_NVFP4_BYTES, NULL}};

const char *sli_storage_name(sl_storage storage) {
  return (size_t)storage < SLI_COUNT(sli_forms) ? sli_forms[storage].name : "an unknown format";
}

sl_storage sli_storage_named(const char *type) {
  for (size_t i = 0; i < SLI_COUNT(forms); i++)
    if (!strcmp(forms[i].type, type)) return forms[i].storage;
  return SL_STORAGE_F32;
}

int64_t sli_storage_block(sl_storage storage) { return sli_forms[storage].numbers; }

int64_t sli_storage_block_bytes(sl_storage storage) { return sli_storage_bytes(storage); }

bool sli_storage_blocks(sl_storage storage) {
  return !sli_storage_in_planes(storage) && storage != SL_STORAGE_F32 &&
         storage != SL_STORAGE_BF16 && storage != SL_STORAGE_F16 && storage != SL_STORAGE_INT8;
}

/* Halves after the quads of a block. */
static int64_t halves_of(sl_storage storage) { return sli_forms[storage].halves / 2; }

/* True for formats whose rows are words of a type that holds 32 bits. */
static bool in_words(sl_storage storage) {
  return storage == SL_STORAGE_F16 || sli_storage_blocks(storage);
}

static size_t row_bytes(sl_storage storage, int64_t k) {
  size_t bytes = (size_t)(k / sli_storage_block(storage) * sli_storage_bytes(storage));
  return in_words(storage) ? (bytes + 3) / 4 * 4 : bytes;
}

/* Type of one expert's matrix. */
static sl_type matrix_of(const sl_type *values) {
  return SL_TYPE(SL_F32, values->dim[1], values->dim[2]);
}

static sl_type planes_type(sl_storage storage, const sl_type *values) {
  sl_type matrix = matrix_of(values);
  return SL_TYPE(SL_I32, values->dim[0], sli_storage_width(storage),
                 (int64_t)(sli_plane_bytes(&matrix) / sizeof(int32_t)));
}

sl_type sli_storage_type(sl_storage storage, const sl_type *values) {
  if (sli_storage_in_planes(storage)) return planes_type(storage, values);
  sl_type type = *values;
  type.dtype = in_words(storage) ? SL_I32 : storage == SL_STORAGE_BF16 ? SL_BF16 : SL_F32;
  if (in_words(storage))
    type.dim[type.ndim - 1] = (int64_t)(row_bytes(storage, sl_type_last(values)) / sizeof(int32_t));
  return type;
}

sl_storage sli_storage_of(const sl_attrs *attrs, const sl_type *weight) {
  bool known = attrs->weight.storage > 0 && attrs->weight.storage <= SL_STORAGE_FP8;
  if (weight->dtype == SL_I32 && known) return (sl_storage)attrs->weight.storage;
  return weight->dtype == SL_BF16 ? SL_STORAGE_BF16 : SL_STORAGE_F32;
}

bool sli_storage_fits(sl_storage storage, const sl_type *values) {
  return (values->ndim == 2 || values->ndim == 3 /* weights of experts */) &&
         sl_type_last(values) % sli_storage_block(storage) == 0;
}

/* Converts a part along the last dim to count blocks; returns false if it begins or ends within
 * one. */
static bool count_in_blocks(sl_part *part, int64_t numbers) {
  bool whole = true;
  for (int r = 0; r < part->nranges; r++) {
    whole &= part->begin[r] % numbers == 0 && part->count[r] % numbers == 0;
    part->begin[r] /= numbers, part->count[r] /= numbers;
  }
  return whole;
}

bool sli_storage_shard(sl_storage storage, const sl_shard *values, sl_shard *blocks) {
  int64_t numbers = sli_storage_block(storage);
  int last = values->whole.ndim - 1;
  bool fits = true;
  *blocks = *values;
  blocks->whole.dtype = SL_I32;
  blocks->whole.dim[last] /= numbers;
  for (int p = 0; p < SL_SHARD_PARTS; p++) {
    fits &= blocks->parts[p].axis != SL_PART_FLAT;
    if (blocks->parts[p].axis == last) fits &= count_in_blocks(&blocks->parts[p], numbers);
  }
  return fits;
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* Rounds a group with the same bits as the op quantize. */
static void round_group(const float *from, int64_t n, float *to) {
  float most = 0;
  for (int64_t i = 0; i < n; i++) most = fabsf(from[i]) > most ? fabsf(from[i]) : most;
  float scale = most / SLI_INT8_MOST, by = scale > 0 ? scale : 1;
  for (int64_t i = 0; i < n; i++) to[i] = (rintf(from[i] / by) + 0.0f) * scale;
}

static void round_int8(const sl_type *values, const float *from, float *to) {
  int64_t k = sl_type_last(values), all = sl_type_elements(values);
  for (int64_t row = 0; row < all; row += k)
    for (int64_t g = 0; g < k; g += SLI_INT8_GROUP)
      round_group(from + row + g, SLI_MIN(k - g, SLI_INT8_GROUP), to + row + g);
}

static void pack_planes(sl_storage storage, const sl_type *values, const float *from, char *out) {
  sl_type matrix = matrix_of(values);
  int width = sli_storage_width(storage);
  for (int64_t e = 0; e < values->dim[0]; e++) {
    sli_planes_pack(&matrix, sli_storage_base(storage), width, from, out);
    from += sl_type_elements(&matrix);
    out += (size_t)width * sli_plane_bytes(&matrix);
  }
}

static void unpack_planes(sl_storage storage, const sl_type *values, const char *from, float *out) {
  sl_type matrix = matrix_of(values);
  int width = sli_storage_width(storage);
  for (int64_t e = 0; e < values->dim[0]; e++, out += sl_type_elements(&matrix)) {
    const void *planes[SLI_PLANES_MOST];
    for (int p = 0; p < width; p++, from += sli_plane_bytes(&matrix)) planes[p] = from;
    sli_planes_unpack(planes, sli_storage_base(storage), width, matrix.dim[1], 0, matrix.dim[0],
                      out);
  }
}

static void pack_halves(const sl_type *values, const float *from, char *out) {
  int64_t k = sl_type_last(values), rows = sl_type_rows(values);
  for (int64_t r = 0; r < rows; r++, out += row_bytes(SL_STORAGE_F16, k)) {
    uint16_t *row = (uint16_t *)(void *)out;
    for (int64_t i = 0; i < k; i++) row[i] = sli_float_to_half(from[r * k + i]);
    if (k % 2) row[k] = 0;
  }
}

void sli_storage_pack(sl_storage storage, const sl_type *values, const float *from, void *out) {
  SLI_CHECK(!sli_storage_blocks(storage), "f32 cannot be quantized into blocks");
  uint16_t *to = out;
  if (sli_storage_in_planes(storage)) pack_planes(storage, values, from, out);
  else if (storage == SL_STORAGE_F32) memcpy(out, from, sl_type_bytes(values));
  else if (storage == SL_STORAGE_INT8) round_int8(values, from, out);
  else if (storage == SL_STORAGE_F16) pack_halves(values, from, out);
  else
    for (int64_t i = 0, n = sl_type_elements(values); i < n; i++)
      to[i] = sli_float_to_bfloat(from[i]);
}

/* ---- blocks ------------------------------------------------------------------------------- */

static float half_at(const void *from) {
  uint16_t half;
  memcpy(&half, from, sizeof half);
  return sli_half_to_float(half);
}

static void unpack_q8_0(const unsigned char *row, int64_t k, float *out) {
  const unsigned char *scales = row + sli_storage_scales_at(SL_STORAGE_Q8_0, k);
  for (int64_t i = 0; i < k; i++)
    out[i] = (float)(int8_t)row[i] * half_at(scales + i / SLI_STORAGE_BLOCK * 2);
}

static void unpack_q4_1(const unsigned char *row, int64_t k, float *out) {
  const unsigned char *scales = row + sli_storage_scales_at(SL_STORAGE_Q4_1, k);
  for (int64_t i = 0; i < k; i++) {
    int64_t block = i / SLI_STORAGE_BLOCK, at = i % SLI_STORAGE_BLOCK;
    int byte = row[block * 16 + at % 16], q = at < 16 ? byte & 15 : byte >> 4;
    out[i] = (float)q * half_at(scales + block * 4) + half_at(scales + block * 4 + 2);
  }
}

/* Unpacks a block of IQ4_NL or MXFP4 by way of its bytes in a file. */
static void unpack_places(sl_storage storage, const uint8_t *numbers, uint16_t scale, float *out) {
  uint8_t block[18];
  bool half = storage == SL_STORAGE_IQ4_NL;
  if (half) memcpy(block, &scale, sizeof scale);
  else block[0] = (uint8_t)(scale < 0x80 ? scale >> 6 : (scale >> 7) + 1);
  memcpy(block + (half ? 2 : 1), numbers, 16);
  sli_storage_unpack_file(storage, block, SLI_STORAGE_BLOCK, out);
}

static void unpack_split(sl_storage storage, const unsigned char *row, int64_t k, float *out) {
  const unsigned char *scales = row + sli_storage_scales_at(storage, k);
  for (int64_t b = 0; b < k / SLI_STORAGE_BLOCK; b++) {
    uint16_t scale;
    memcpy(&scale, scales + 2 * b, sizeof scale);
    unpack_places(storage, row + 16 * b, scale, out + b * SLI_STORAGE_BLOCK);
  }
}

void sli_storage_unpack_block(sl_storage storage, const uint8_t *quads, const uint16_t *halves,
                              float *out) {
  uint8_t block[256];
  int64_t bytes = sli_storage_quads(storage);
  if (sli_forms[storage].layout == SLI_LAYOUT_SPLIT)
    return unpack_places(storage, quads, halves[0], out);
  memcpy(block, quads, (size_t)bytes);
  memcpy(block + bytes, halves, (size_t)sli_forms[storage].halves);
  sli_storage_unpack_file(storage, block, sli_storage_block(storage), out);
}

void sli_storage_unpack(sl_storage storage, const sl_type *values, const void *from, float *out) {
  int64_t k = sl_type_last(values), rows = sl_type_rows(values);
  const uint16_t *words = from;
  if (sli_storage_in_planes(storage)) unpack_planes(storage, values, from, out);
  if (storage == SL_STORAGE_F32 || storage == SL_STORAGE_INT8)
    memcpy(out, from, sl_type_bytes(values));
  if (storage == SL_STORAGE_BF16)
    for (int64_t i = 0; i < rows * k; i++) out[i] = sli_bfloat_to_float(words[i]);
  for (int64_t r = 0; r < rows && in_words(storage); r++) {
    const unsigned char *row = (const unsigned char *)from + (size_t)r * row_bytes(storage, k);
    if (storage == SL_STORAGE_Q8_0) unpack_q8_0(row, k, out + r * k);
    else if (storage == SL_STORAGE_Q4_1) unpack_q4_1(row, k, out + r * k);
    else if (sli_forms[storage].layout == SLI_LAYOUT_SPLIT)
      unpack_split(storage, row, k, out + r * k);
    else sli_storage_unpack_file(storage, row, k, out + r * k);
  }
}

static void unpack_small(sl_storage storage, const uint8_t *block, int64_t numbers, float *out) {
  bool eight = storage == SL_STORAGE_SCALED;
  for (int64_t i = 0; i < numbers; i++) {
    int n = (int)(i % SLI_SMALL_BLOCK);
    out[i] = eight ? sli_fp8_number(block, n) : sli_nvfp4_number(block, n);
    if (n == SLI_SMALL_BLOCK - 1) block += eight ? SLI_FP8_BYTES : SLI_NVFP4_BYTES;
  }
}

void sli_storage_unpack_file(sl_storage storage, const void *blocks, int64_t numbers, float *out) {
  size_t f = 0;
  if (sli_storage_small(storage)) return unpack_small(storage, blocks, numbers, out);
  while (forms[f].storage != storage) f++;
  sli_gguf_unpack(forms[f].type, blocks, (size_t)numbers, out);
}

/* Returns -8 times a half, by adding three to its exponent. */
static uint16_t minus_eight(uint16_t half) {
  uint16_t sign = (uint16_t)(~half & 0x8000), size = half & 0x7fff;
  for (int i = 0; i < 3; i++) size = (uint16_t)(size < 0x400 ? 2 * size : size + 0x400);
  return (uint16_t)(sign | (size < 0x7c00 ? size : 0x7c00));
}

static void take_same(const unsigned char *block, unsigned char *numbers, uint16_t *scales) {
  memcpy(scales, block, 2);
  memcpy(numbers, block + 2, 32);
}

/* Expands q5_0: the fifth bits of the 32 numbers are in four bytes before the rest. Each number
 * becomes a byte of -16 to 15. */
static void take_q5_0(const unsigned char *block, unsigned char *numbers, uint16_t *scales) {
  memcpy(scales, block, 2);
  for (int i = 0; i < 32; i++) {
    int four = i < 16 ? block[6 + i] & 15 : block[6 + i - 16] >> 4,
        fifth = block[2 + i / 8] >> i % 8 & 1;
    numbers[i] = (unsigned char)((four | fifth << 4) - 16);
  }
}

static void take_q4_1(const unsigned char *block, unsigned char *numbers, uint16_t *scales) {
  memcpy(scales, block, 4);
  memcpy(numbers, block + 4, 16);
}

/* Doubles the numbers of MXFP4, which are then whole, and halves the scale, a power of two. A half
 * rounds scales below 2^-24. */
static void take_doubled(const unsigned char *block, unsigned char *numbers, uint16_t *scales) {
  static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  *scales = sli_float_to_half(ldexpf(1, block[0] - 128));
  for (int i = 0; i < 16; i++) {
    numbers[i] = (unsigned char)doubled[block[1 + i] & 15];
    numbers[i + 16] = (unsigned char)doubled[block[1 + i] >> 4];
  }
}

static void take_iq4_nl(const unsigned char *block, unsigned char *numbers, uint16_t *scales) {
  memcpy(scales, block, 2);
  memcpy(numbers, block + 2, 16);
}

/* Halves the scale, as the table's values are doubled: 2^(e - 128) has the exponent e - 1, and no
 * exponent for e below 2. */
static void take_mxfp4(const unsigned char *block, unsigned char *numbers, uint16_t *scales) {
  *scales = (uint16_t)(block[0] < 2 ? 0x20 << block[0] : (block[0] - 1) << 7);
  memcpy(numbers, block + 1, 16);
}

/* Expands q4_0: m is -8 d, which a half can hold. */
static void take_q4_0(const unsigned char *block, unsigned char *numbers, uint16_t *scales) {
  memcpy(scales, block, 2);
  scales[1] = minus_eight(scales[0]);
  memcpy(numbers, block + 2, 16);
}

/* Returns the conversion of the named type to the storage format; SLI_COUNT(forms): none. */
static size_t find_form(sl_storage storage, const char *type) {
  size_t f = 0;
  while (f < SLI_COUNT(forms) && (forms[f].storage != storage || strcmp(forms[f].type, type))) f++;
  return f;
}

bool sli_storage_takes(sl_storage storage, const char *type) {
  return find_form(storage, type) < SLI_COUNT(forms);
}

void sli_storage_take(sl_storage storage, const char *type, const sl_type *values, const void *from,
                      void *out) {
  size_t f = find_form(storage, type);
  SLI_CHECK(f < SLI_COUNT(forms), "%s is not stored as %s", type, sli_storage_name(storage));
  int64_t k = sl_type_last(values), blocks = k / sli_storage_block(storage),
          each = storage == SL_STORAGE_Q8_0 ? 32 : 16;
  const unsigned char *block = from;
  for (int64_t r = 0; r < sl_type_rows(values); r++) {
    unsigned char *row = (unsigned char *)out + (size_t)r * row_bytes(storage, k);
    if (!forms[f].take) {
      memcpy(row, block, (size_t)(blocks * forms[f].bytes));
      block += blocks * forms[f].bytes;
      continue;
    }
    for (int64_t b = 0; b < blocks; b++, block += forms[f].bytes)
      forms[f].take(
          block, row + b * each,
          (uint16_t *)(void *)(row + sli_storage_scales_at(storage, k)) + b * halves_of(storage));
  }
}

/* ---- groups ------------------------------------------------------------------------------- */

/* Rows of a group. A row's quads lie before its halves, of the whole row or of each block. */
typedef struct moving {
  int64_t quads, halves, wide; /* sizes of a block, in bytes, and the group's rows */
  bool whole;                  /* halves of the whole row follow all its quads */
  uint32_t flips;
  bool back;
} moving;

static inline void move_part(const moving *m, uint8_t *row, uint8_t *grouped, size_t bytes) {
  if (m->back) memcpy(row, grouped, bytes);
  else memcpy(grouped, row, bytes);
}

static void move_block(const moving *m, uint8_t *quads, uint8_t *halves, uint8_t *block,
                       int64_t place) {
  for (int64_t j = 0; j < m->quads / 4; j++) {
    uint8_t *quad = block + (j * m->wide + place) * 4;
    uint32_t word;
    memcpy(&word, m->back ? quad : quads + 4 * j, 4);
    word ^= m->flips;
    memcpy(m->back ? quads + 4 * j : quad, &word, 4);
  }
  uint8_t *ends = block + m->wide * m->quads + 2 * place;
  for (int64_t j = 0; j < m->halves; j += 2) move_part(m, halves + j, ends + j * m->wide, 2);
}

/* Moves the rows of a group, `bytes` bytes each. */
static void move_group(const moving *m, uint8_t *rows, uint8_t *grouped, int64_t bytes) {
  int64_t each = m->quads + m->halves, blocks = bytes / each;
  for (int64_t b = 0; b < blocks; b++)
    for (int64_t r = 0; r < m->wide; r++) {
      uint8_t *row = rows + r * bytes, *quads = row + b * (m->whole ? m->quads : each);
      uint8_t *halves = m->whole ? row + blocks * m->quads + b * m->halves : quads + m->quads;
      move_block(m, quads, halves, grouped + b * m->wide * each, r);
    }
}

/* Reorders group by group, each through a copy. No group has rows of two matrices. */
static void regroup(sl_storage storage, const sl_type *lies, void *rows, bool back) {
  int64_t bytes = sl_type_last(lies) * (int64_t)sizeof(int32_t), n = sl_type_rows(lies), wide,
          each = lies->ndim > 2 ? lies->dim[lies->ndim - 2] : n;
  uint8_t *copy = sli_calloc(SLI_STORAGE_GROUP, (size_t)bytes);
  for (int64_t r = 0; r < n && sli_storage_in_groups(storage); r += wide) {
    wide = SLI_MIN(each - r % each, SLI_STORAGE_GROUP);
    uint8_t *here = (uint8_t *)rows + r * bytes;
    memcpy(copy, here, (size_t)(wide * bytes));
    const moving m = {.quads = sli_storage_quads(storage),
                      .halves = 2 * halves_of(storage),
                      .wide = wide,
                      .whole = sli_forms[storage].layout == SLI_LAYOUT_SPLIT,
                      .flips = storage == SL_STORAGE_Q8_0 ? 0x80808080 : 0,
                      .back = back};
    if (back) move_group(&m, here, copy, bytes);
    else move_group(&m, copy, here, bytes);
  }
  free(copy);
}

void sli_storage_group(sl_storage storage, const sl_type *lies, void *rows) {
  regroup(storage, lies, rows, false);
}

void sli_storage_ungroup(sl_storage storage, const sl_type *lies, void *groups) {
  regroup(storage, lies, groups, true);
}
