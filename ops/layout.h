/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts that kernels share with ops: the location of a part's bytes in the whole, rotary
 * frequencies, permutations, and windows on images. */
#ifndef SLUICE_OPS_LAYOUT_H
#define SLUICE_OPS_LAYOUT_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A part of an array in bytes. The whole is `rows` stretches of `whole` bytes; the part has `part`
 * bytes of each stretch, as consecutive ranges. */
typedef struct sli_cut {
  int64_t rows, whole, part; /* whole, part, begin, count: in bytes */
  int nranges;
  int64_t begin[SL_PART_RANGES], count[SL_PART_RANGES];
} sli_cut;

/* Returns SL_OK if an array of this type has the part. */
sl_status sli_part_check(const sl_type *whole, const sl_part *part);

/* Returns the byte ranges of a valid part. */
sli_cut sli_part_cut(const sl_type *whole, const sl_part *part);

/* Returns the offset in the whole of byte `at` of the part; *run is the number of bytes contiguous
 * in both. */
int64_t sli_cut_find(const sli_cut *cut, int64_t at, int64_t *run);

/* Copy bytes [begin, end) of the part out of the whole, or into it; `part` points to the first of
 * these bytes. */
void sli_cut_take(const sli_cut *cut, int64_t begin, int64_t end, const void *whole, void *part);
void sli_cut_put(const sli_cut *cut, int64_t begin, int64_t end, const void *part, void *whole);

/* Returns the part of the result that array i occupies when the arrays are concatenated along
 * `dim`. */
sl_part sli_concat_part(const sl_type *types, int i, int dim);

/* A permutation of an array's dims: the output's dims, and the input's stride along each
 * (0: broadcast). */
typedef struct sli_permutation {
  int ndim;
  int64_t dim[SL_MAX_DIMS], stride[SL_MAX_DIMS];
} sli_permutation;

/* Returns the permutation of x by attrs.shape.dims, or its inverse (`back`). */
sli_permutation sli_permutation_of(const sl_type *x, const sl_attrs *attrs, bool back);
/* Returns the permutation that broadcasts x to y. */
sli_permutation sli_expansion_of(const sl_type *x, const sl_type *y);

/* Returns the key for a call's random numbers. */
uint64_t sli_random_key(const sl_attrs *attrs);

/* Calls fn, in order, for each contiguous stretch of a shard: `bytes` bytes, starting at byte
 * `part` of the shard and byte `whole` of the whole. */
typedef void sli_stretch(void *ctx, int64_t part, int64_t whole, int64_t bytes);
void sli_shard_walk(const sl_shard *shard, sli_stretch *fn, void *ctx);

/* Returns how many numbers of a head are rotated; they are the first ones. */
int64_t sli_rotary_turned(const sl_attrs *attrs, int64_t width);

/* Fills frequency[pairs] for rotary: position t rotates pair j by t * frequency[j]. Returns the
 * factor of the cosines and sines. */
double sli_rope_frequencies(const sl_attrs *attrs, int64_t pairs, double *frequency);
/* Returns the position whose angles a token at `position` uses. */
int64_t sli_rope_position(const sl_attrs *attrs, int64_t position);
/* Returns the factor of the cosines and sines at `position`, on top of that of
 * sli_rope_frequencies. */
double sli_rope_sharpness(const sl_attrs *attrs, int64_t position);
/* Returns the positions per chunk, or 0 without chunks. */
int64_t sli_rope_chunk(const sl_attrs *attrs);
/* Continues a hash with the sl_rope that attrs.user points to; NULL adds nothing. */
uint64_t sli_rope_hash(uint64_t hash, const sl_attrs *attrs, int nin);

/* Geometry of a window on images, along the height ([0]) and the width ([1]). */
typedef struct sli_window {
  int64_t images, channels, groups;
  int64_t in[2], out[2]; /* positions of an image in the input and the output */
  int64_t size[2], stride[2], pad[2], dilation[2];
} sli_window;

/* Checks a window on images x with a kernel of type w, or a pool (w NULL). Sets the error text if
 * they do not fit. */
sl_status sli_window_check(const sl_attrs *attrs, const sl_type *x, const sl_type *w);
/* Returns the window. Requires that sli_window_check returned SL_OK. */
sli_window sli_window_of(const sl_attrs *attrs, const sl_type *x, const sl_type *w);
/* Returns the output type: x with `channels` channels and the output positions. */
sl_type sli_window_output(const sli_window *window, const sl_type *x, int64_t channels);
/* Continues a hash with the sl_window that attrs.user points to; NULL adds nothing. */
uint64_t sli_window_hash(uint64_t hash, const sl_attrs *attrs, int nin);

#ifdef __cplusplus
}
#endif

/* ---- positions of a part's elements, in the subset of C and CUDA ---------------------------- */

#ifdef __CUDACC__
#define SLI_REGION __host__ __device__ static inline
#else
#define SLI_REGION static inline
#endif

/* Returns the position in the whole of position `at` of a part's dim, and sets *left to the number
 * of contiguous positions from there on. */
SLI_REGION int64_t sli_range_position(const sl_part *of, int64_t at, int64_t *left) {
  int r = 0;
  while (at >= of->count[r]) at -= of->count[r++];
  *left = of->count[r] - at;
  return of->begin[r] + at;
}

/* Returns the input element for output element `i`. */
SLI_REGION int64_t sli_permutation_from(const sli_permutation *o, int64_t i) {
  int64_t from = 0;
  for (int d = o->ndim - 1; d >= 0; d--) {
    from += i % o->dim[d] * o->stride[d];
    i /= o->dim[d];
  }
  return from;
}

/* Returns the index in the whole of element `element` of a part, an array dim[ndim]. The piece
 * begins at position `row`. Sets *run as sl_call_where does. */
SLI_REGION int64_t sli_region_index(const sl_region *region, const int64_t *dim, int64_t row,
                                    int64_t element, int64_t *run) {
  int64_t index = 0, stride = 1, inner = 1, within = 0;
  bool open = true; /* all dims so far are whole */
  for (int d = region->ndim - 1; d >= 0; d--) {
    int64_t at = element % dim[d], left = dim[d] - at, position = at;
    element /= dim[d];
    if (region->parts[d].nranges) position = sli_range_position(&region->parts[d], at, &left);
    if (region->sequence == d + 1) position += row;
    if (open) {
      within += at * inner;
      *run = (left - 1) * inner + inner - (within - at * inner);
      inner *= dim[d];
      open = !region->parts[d].nranges && region->sequence != d + 1;
    }
    index += position * stride;
    stride *= region->whole[d];
  }
  return index;
}

/* Returns the number of a tick's `rows` before member attrs.members.own + `more` of
 * attrs.members.count. */
static inline int64_t sli_rows_before(const sl_attrs *attrs, int64_t rows, int64_t more) {
  return rows * (attrs->members.own + more) / attrs->members.count;
}
/* Returns the bytes of one row of a tick. */
static inline int64_t sli_row_bytes(const sl_type *type) {
  int64_t bytes = (int64_t)sl_dtype_bytes(type->dtype);
  for (int d = 2; d < type->ndim; d++) bytes *= type->dim[d];
  return bytes;
}

#endif
