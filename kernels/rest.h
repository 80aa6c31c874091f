/* How weights of served graphs lie at rest: as f32, as bf16, or in blocks of 32 numbers with a scale, as GGUF
 * files have them.
 *
 * A row of k numbers in blocks is all its numbers, one behind the other, and behind them its blocks' scales as
 * halves:
 *     Q8_0   int8 q[k] | half d[k / 32]            number = d q
 *     Q4_1   16 bytes a block, the lower halves its first 16 numbers, the upper ones the others | half d, m of
 *            each block                            number = d q + m
 * The product d q is exact in f32, so a number has one value whoever unpacks it. */
#ifndef SLUICE_REST_H
#define SLUICE_REST_H

#include <sluice/batch.h>
#include <sluice/op.h>

enum { SLI_REST_BLOCK = 32 };

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

/* Bytes of a row that are before the scales. */
static inline size_t sli_rest_scales_at(sl_rest rest, int64_t k) { return (size_t)(rest == SL_REST_Q8_0 ? k : k / 2); }

#endif
