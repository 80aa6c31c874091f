/* SPDX-License-Identifier: Apache-2.0 */
/* Storage formats of weights that no step changes: f32, f32 rounded to int8, bf16, or blocks of
 * numbers, as in GGUF files.
 *
 * A row of k numbers in blocks of Q8_0 or Q4_1 has all its numbers first, then its blocks' scales
 * as halves:
 *
 *   Q8_0  int8 q[k] | half d[k / 32]                 number = d q
 *   Q4_1  16 bytes per block | half d, m per block   number = d q + m
 *
 * The bytes of a block of Q4_1 have its first 16 numbers in their lower halves and the others in
 * their upper ones. Q5_0 of a file, whose numbers are d q with q from -16 to 15, is stored as Q8_0.
 * The product d q is exact in f32, so a number has one value however it is unpacked.
 *
 * For matrix products, block rows are grouped so that a product reads addresses in order, many rows
 * at a time. Rows of other block formats are those of the file, each begun at a multiple of four
 * bytes. SLI_STORAGE_GROUP rows of a device form a group (the last may have fewer). A group is its
 * blocks, one behind the other. A block of a group of `wide` rows:
 *
 *   Q8_0  8 quads [wide][4] of bytes, q + 128 | half d[wide]
 *   Q4_1  4 quads [wide][4] of bytes | half d[wide] | half m[wide]
 *
 * A quad is, for each row, four bytes that are neighbours in that row. */
#ifndef SLUICE_OPS_STORAGE_H
#define SLUICE_OPS_STORAGE_H

#include <stdint.h>
#include <string.h>

#include <sluice/batch.h>
#include <sluice/op.h>

enum { SLI_STORAGE_BLOCK = 32, SLI_STORAGE_GROUP = 16 };

/* Return the stored type of values [..., k], and whether the format can hold them: in block formats
 * k must be a multiple of the block. */
sl_type sli_storage_type(sl_storage storage, const sl_type *values);
bool sli_storage_fits(sl_storage storage, const sl_type *values);
/* Returns the storage format of an array of type `lies`, in rows of k numbers, in a served graph.
 */
sl_storage sli_storage_of(const sl_type *lies, int64_t k);
/* Return the numbers and the bytes of a block; a number is one where there are none. */
int64_t sli_storage_block(sl_storage storage);
int64_t sli_storage_block_bytes(sl_storage storage);
/* Returns true if served products and tables read the format. */
bool sli_storage_served(sl_storage storage);
/* Makes of a shard of values the shard of their blocks, [rows, blocks of a row]. false: a cut goes
 * through a block. */
bool sli_storage_shard(sl_storage storage, const sl_shard *values, sl_shard *blocks);

/* Returns the storage format for a file's tensor, by the name of its type in the file ("Q4_1"). */
sl_storage sli_storage_named(const char *type);
/* Returns true for block formats, which are taken from a file as they are, not as f32. */
bool sli_storage_blocks(sl_storage storage);

/* Convert f32 to the storage format, rounded (not to block formats), and back to f32. */
void sli_storage_pack(sl_storage storage, const sl_type *values, const float *from, void *out);
void sli_storage_unpack(sl_storage storage, const sl_type *values, const void *from, float *out);

/* Unpacks blocks that lie as in a file: formats that served products do not read. */
void sli_storage_unpack_file(sl_storage storage, const void *blocks, int64_t numbers, float *out);

/* Converts a file's blocks of the named type to the storage format `rest`. */
void sli_storage_take(sl_storage storage, const char *type, const sl_type *values, const void *from,
                      void *out);

/* Reorder rows on a device, from row-major order to groups and back. Formats without blocks are
 * unchanged. */
void sli_storage_group(sl_storage storage, const sl_type *lies, void *rows);
void sli_storage_ungroup(sl_storage storage, const sl_type *lies, void *groups);

/* Bytes of a row before its scales. */
static inline size_t sli_storage_scales_at(sl_storage storage, int64_t k) {
  return (size_t)(storage == SL_STORAGE_Q8_0 ? k : k / 2);
}

/* Bytes that a row of Q8_0 or Q4_1 has in a block: those of its numbers, and all of them. */
static inline int64_t sli_storage_numbers(sl_storage storage) {
  return storage == SL_STORAGE_Q8_0 ? 32 : 16;
}
static inline int64_t sli_storage_bytes(sl_storage storage) {
  return storage == SL_STORAGE_Q8_0 ? 34 : 20;
}

/* Group of a row of weights stored in blocks, by type: its address and its number of rows. */
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
                       left < SLI_STORAGE_GROUP ? left : SLI_STORAGE_GROUP};
}

/* Copies a row's numbers of block b of its group, and its scales. The numbers are as in a file, but
 * Q8_0 has 128 added. */
static inline void sli_storage_block_of(sl_storage storage, sli_grouped group, int64_t row,
                                        int64_t b, uint8_t *numbers, uint16_t *scales) {
  int64_t at = row % SLI_STORAGE_GROUP, bytes = sli_storage_numbers(storage);
  const uint8_t *block = group.blocks + b * group.wide * sli_storage_bytes(storage),
                *halves = block + group.wide * bytes;
  for (int64_t j = 0; j < bytes / 4; j++)
    memcpy(numbers + 4 * j, block + (j * group.wide + at) * 4, 4);
  memcpy(scales, halves + 2 * at, 2);
  if (storage == SL_STORAGE_Q4_1) memcpy(scales + 1, halves + 2 * (group.wide + at), 2);
}

#endif
