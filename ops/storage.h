/* SPDX-License-Identifier: Apache-2.0 */
/* Storage formats of frozen weights: f32, f32 rounded to int8, bf16, or blocks of numbers, as in
 * GGUF files.
 *
 * A row of k numbers in blocks of Q8_0 or Q4_1 stores all its numbers first, then the scales of its
 * blocks as halves:
 *
 *   Q8_0  int8 q[k] | half d[k / 32]                 number = d q
 *   Q4_1  16 bytes per block | half d, m per block   number = d q + m
 *
 * The bytes of a Q4_1 block hold its first 16 numbers in their lower halves and the other 16 in
 * their upper halves. Q5_0 in a file, whose numbers are d q with q from -16 to 15, is stored as
 * Q8_0. The product d q is exact in f32, so every way of unpacking gives the same value.
 *
 *   IQ4_NL, MXFP4  16 bytes per block | d per block  number = d table[q]
 *
 * The scale d of MXFP4 is the upper half of a float, with which its power of two is exact, and the
 * table has doubled values. Rows of other block formats are stored as in the file, each starting at
 * a multiple of four bytes. storage.def lists the formats.
 *
 * For matrix products, rows of blocks are grouped so that a product reads addresses in order, many
 * rows at a time: SLI_STORAGE_GROUP rows of a matrix on a device form a group (the last group may
 * have fewer). A group stores its blocks one after another. A block of a group of `wide` rows:
 *
 *   Q8_0                  8 quads [wide][4] of bytes, q + 128 | half d[wide]
 *   Q4_1                  4 quads [wide][4] of bytes | half d[wide] | half m[wide]
 *   IQ4_NL, MXFP4         4 quads [wide][4] of bytes | d[wide]
 *   others in groups      quads [wide][4] of the file's bytes | the last half [wide], if any
 *
 * A quad holds, for each row, four adjacent bytes of that row. FP8 and NVFP4 have no groups, and
 * blocks of 128 numbers (io/small.h). */
#ifndef SLUICE_OPS_STORAGE_H
#define SLUICE_OPS_STORAGE_H

#include <stdint.h>
#include <string.h>

#include <sluice/batch.h>
#include <sluice/op.h>

#include "io/small.h"

enum { SLI_STORAGE_BLOCK = 32, SLI_STORAGE_GROUP = 16 };

/* Experts in nested bit planes (planes.h): their format has the bits of the base and of all planes
 * in its number. Weights [E, n, k] lie as [E, planes, words of a plane]. */
enum { SLI_STORAGE_PLANES = 256 };
static inline sl_storage sli_storage_planes(int base, int width) {
  return (sl_storage)(SLI_STORAGE_PLANES + 16 * base + width);
}
static inline bool sli_storage_in_planes(sl_storage storage) {
  return (int)storage >= SLI_STORAGE_PLANES;
}
static inline int sli_storage_base(sl_storage storage) { return (int)storage / 16 % 16; }
static inline int sli_storage_width(sl_storage storage) { return (int)storage % 16; }

/* A row of storage.def. */
typedef enum sli_grouping {
  SLI_LAYOUT_NUMBERS,
  SLI_LAYOUT_ROWS,
  SLI_LAYOUT_GROUPS,
  SLI_LAYOUT_SPLIT
} sli_grouping;
typedef enum sli_summands { SLI_SUMS_FLOATS, SLI_SUMS_DIGITS } sli_summands;
typedef struct sli_form {
  const char *name;
  int numbers, quads, halves; /* of a block: its numbers, bytes in quads, and bytes after them */
  sli_grouping layout;
  sli_summands sums;
  sl_storage on_cpus;
} sli_form;
static const sli_form sli_forms[] = {
#define FORM(storage, name, numbers, quads, halves, layout, sums, on_cpus) \
  {name, numbers, quads, halves, layout, sums, on_cpus},
#include "ops/storage.def"
#undef FORM
};

#ifdef __cplusplus
extern "C" {
#endif

/* Return the stored type of values [..., k], and whether the format can hold them: block formats
 * need k to be a multiple of the block. */
sl_type sli_storage_type(sl_storage storage, const sl_type *values);
bool sli_storage_fits(sl_storage storage, const sl_type *values);
/* Returns the storage format of a weight that a served op reads. attrs.weight.storage is the format
 * of blocks and halves, whose type does not show it; another number gives f32. */
sl_storage sli_storage_of(const sl_attrs *attrs, const sl_type *weight);
/* Return the numbers and the bytes of a block. In formats without blocks, each number is a
 * block. */
int64_t sli_storage_block(sl_storage storage);
int64_t sli_storage_block_bytes(sl_storage storage);
/* Sets *blocks to the shard of blocks, [rows, blocks per row], for a shard of values. Returns false
 * if a cut splits a block. */
bool sli_storage_shard(sl_storage storage, const sl_shard *values, sl_shard *blocks);

const char *sli_storage_name(sl_storage storage);
/* Returns the storage format of a tensor in a file, from the name of its type there ("Q4_1"). */
sl_storage sli_storage_named(const char *type);
/* Returns true for block formats, which are loaded from a file unchanged, not as f32. */
bool sli_storage_blocks(sl_storage storage);

/* Convert f32 to the storage format, with rounding (not to block formats), and back to f32. */
void sli_storage_pack(sl_storage storage, const sl_type *values, const float *from, void *out);
void sli_storage_unpack(sl_storage storage, const sl_type *values, const void *from, float *out);

/* Unpacks blocks laid out as in a file. */
void sli_storage_unpack_file(sl_storage storage, const void *blocks, int64_t numbers, float *out);
/* Unpacks a block that was in groups. */
void sli_storage_unpack_block(sl_storage storage, const uint8_t *quads, const uint16_t *halves,
                              float *out);

/* Returns whether a file's blocks of the named type can be converted to the storage format. */
bool sli_storage_takes(sl_storage storage, const char *type);
/* Converts a file's blocks of the named type to the storage format. */
void sli_storage_take(sl_storage storage, const char *type, const sl_type *values, const void *from,
                      void *out);

/* Reorder rows on a device, from row-major order to groups and back. Formats without blocks are
 * unchanged. */
void sli_storage_group(sl_storage storage, const sl_type *lies, void *rows);
void sli_storage_ungroup(sl_storage storage, const sl_type *lies, void *groups);

#ifdef __cplusplus
}
#endif

/* Offset in bytes of a row's scales. */
static inline size_t sli_storage_scales_at(sl_storage storage, int64_t k) {
  return (size_t)(storage == SL_STORAGE_Q8_0 ? k : k / 2);
}

/* Bytes per block of a row in groups: of its quads, and in all. */
static inline int64_t sli_storage_quads(sl_storage storage) { return sli_forms[storage].quads; }
static inline int64_t sli_storage_bytes(sl_storage storage) {
  return sli_forms[storage].quads + sli_forms[storage].halves;
}
/* True for floats of 8 and 4 bits with scales. */
static inline bool sli_storage_small(sl_storage storage) {
  return storage == SL_STORAGE_SCALED || storage == SL_STORAGE_NVFP4;
}
/* True for formats whose rows are in groups. */
static inline bool sli_storage_in_groups(sl_storage storage) {
  return !sli_storage_in_planes(storage) && sli_forms[storage].layout >= SLI_LAYOUT_GROUPS;
}
/* True for formats whose products are sums of integers on CPUs. */
static inline bool sli_storage_by_digits(sl_storage storage) {
  return !sli_storage_in_planes(storage) && sli_forms[storage].sums == SLI_SUMS_DIGITS;
}
/* True for formats of digits whose blocks are the file's, 256 numbers in eight parts. */
static inline bool sli_storage_in_parts(sl_storage storage) {
  return sli_forms[storage].numbers == 256 && sli_forms[storage].sums == SLI_SUMS_DIGITS;
}
/* Returns the format in which products on CPUs read weights that a file has in `storage`: MXFP4 as
 * Q8_0, whose numbers are doubled and whose scales are halved; formats without fast products as
 * f32. */
static inline sl_storage sli_storage_on_cpus(sl_storage storage) {
  return sli_storage_in_planes(storage) ? storage : sli_forms[storage].on_cpus;
}

/* Group of a row of weights in blocks: its address and its number of rows. */
typedef struct sli_grouped {
  const uint8_t *blocks;
  int64_t wide;
} sli_grouped;

static inline sli_grouped sli_storage_grouped(const sl_type *lies, const void *weights,
                                              int64_t row) {
  int64_t first = row / SLI_STORAGE_GROUP * SLI_STORAGE_GROUP, n = sl_type_rows(lies),
          left = n - first;
  size_t at = (size_t)first * (size_t)sl_type_last(lies) * sizeof(int32_t);
  return (sli_grouped){(const uint8_t *)weights + at,
                       left < SLI_STORAGE_GROUP ? left : (int64_t)SLI_STORAGE_GROUP};
}

/* Copies the quads and the halves of a row's block b in its group. The bytes are a file's, except
 * that Q8_0 has 128 added. */
static inline void sli_storage_block_of(sl_storage storage, sli_grouped group, int64_t row,
                                        int64_t b, uint8_t *quads, uint16_t *halves) {
  int64_t place = row % SLI_STORAGE_GROUP, bytes = sli_storage_quads(storage);
  const uint8_t *block = group.blocks + b * group.wide * sli_storage_bytes(storage),
                *ends = block + group.wide * bytes + 2 * place;
  for (int64_t j = 0; j < bytes / 4; j++)
    memcpy(quads + 4 * j, block + (j * group.wide + place) * 4, 4);
  int64_t after = sli_storage_bytes(storage) - bytes;
  if (after > 0) memcpy(halves, ends, 2);
  if (after > 2) memcpy(halves + 1, ends + 2 * group.wide, 2);
}

#endif
