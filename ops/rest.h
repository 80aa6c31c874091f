/* How weights of served graphs lie at rest: as f32, as bf16, or in blocks of 32 numbers with a scale, as GGUF
 * files have them.
 *
 * A row of k numbers in blocks is all its numbers, one behind the other, and behind them its blocks' scales as
 * halves:
 *     Q8_0   int8 q[k] | half d[k / 32]            number = d q
 *     Q4_1   16 bytes a block, the lower halves its first 16 numbers, the upper ones the others | half d, m of
 *            each block                            number = d q + m
 * Q5_0 of a file, whose numbers are d q with q from -16 to 15, lies as Q8_0.
 * The product d q is exact in f32, so a number has one value whoever unpacks it.
 *
 * Where products read them, rows in blocks are grouped, so that they are read in the order of addresses, many at a time:
 * SLI_REST_GROUP rows of a device are a group (the last one may have fewer), and a group is its blocks one behind the other. A
 * block of a group of `wide` rows:
 *     Q8_0   8 quads [wide][4] of bytes, q + 128 | half d[wide]
 *     Q4_1   4 quads [wide][4] of bytes | half d[wide] | half m[wide]
 * A quad is four bytes that are next to each other in their row, of each row. */
#ifndef SLUICE_REST_H
#define SLUICE_REST_H

#include <stdint.h>
#include <string.h>

#include <sluice/batch.h>
#include <sluice/op.h>

enum { SLI_REST_BLOCK = 32, SLI_REST_GROUP = 16 };

/* Of [..., k] numbers; k is a whole number of blocks where there are any. */
sl_type sli_rest_type(sl_rest rest, const sl_type *values);
bool sli_rest_fits(sl_rest rest, const sl_type *values);
/* Of what lies as this type, in rows of k numbers. */
sl_rest sli_rest_of(const sl_type *lies, int64_t k);

/* How a tensor of a file lies at rest, by the name that its type has there ("Q4_1"). */
sl_rest sli_rest_named(const char *type);
/* Are its numbers in blocks? Then they come as a file has them, not as f32. */
bool sli_rest_blocks(sl_rest rest);

/* From f32, rounded; not to blocks. And to f32. */
void sli_rest_pack(sl_rest rest, const sl_type *values, const float *from, void *out);
void sli_rest_unpack(sl_rest rest, const sl_type *values, const void *from, float *out);

/* From a file's blocks of the type named so, which lies at rest as `rest`. */
void sli_rest_take(sl_rest rest, const char *type, const sl_type *values, const void *from, void *out);

/* Rows as they lie on a device, from one behind the other to groups, and back; other rows than in blocks stay. */
void sli_rest_group(sl_rest rest, const sl_type *lies, void *rows);
void sli_rest_ungroup(sl_rest rest, const sl_type *lies, void *groups);

/* Bytes of a row that are before the scales. */
static inline size_t sli_rest_scales_at(sl_rest rest, int64_t k) { return (size_t)(rest == SL_REST_Q8_0 ? k : k / 2); }

/* Bytes of numbers that a row has in a block, and all that it has there. */
static inline int64_t sli_rest_numbers(sl_rest rest) { return rest == SL_REST_Q8_0 ? 32 : 16; }
static inline int64_t sli_rest_bytes(sl_rest rest) { return rest == SL_REST_Q8_0 ? 34 : 20; }

/* The group of a row of weights in blocks that lie as this type says: where it is, and how many rows it has. */
typedef struct sli_grouped {
  const uint8_t *blocks;
  int64_t wide;
} sli_grouped;

static inline sli_grouped sli_rest_grouped(const sl_type *lies, const void *weights, int64_t row) {
  int64_t first = row / SLI_REST_GROUP * SLI_REST_GROUP, n = sl_type_rows(lies), left = n - first;
  size_t at = (size_t)first * (size_t)sl_type_last(lies) * sizeof(int32_t);
  return (sli_grouped){(const uint8_t *)weights + at, left < SLI_REST_GROUP ? left : SLI_REST_GROUP};
}

/* A row's numbers of block b of its group, as a file has them but with 128 added to those of Q8_0, and its scales. */
static inline void sli_rest_block_of(sl_rest rest, sli_grouped group, int64_t row, int64_t b, uint8_t *numbers,
                                     uint16_t *scales) {
  int64_t at = row % SLI_REST_GROUP, bytes = sli_rest_numbers(rest);
  const uint8_t *block = group.blocks + b * group.wide * sli_rest_bytes(rest), *halves = block + group.wide * bytes;
  for (int64_t j = 0; j < bytes / 4; j++) memcpy(numbers + 4 * j, block + (j * group.wide + at) * 4, 4);
  memcpy(scales, halves + 2 * at, 2);
  if (rest == SL_REST_Q4_1) memcpy(scales + 1, halves + 2 * (group.wide + at), 2);
}

#endif
