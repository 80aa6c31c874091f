/* What kernels ask of ops: where the bytes of a part lie in the whole, by how much positions turn,
 * and where windows lie on images. */
#ifndef SLUICE_OPS_LAYOUT_H
#define SLUICE_OPS_LAYOUT_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The whole as `rows` stretches of `whole` bytes; of each the part has `part` bytes, which
 * are ranges of it, one behind the other. */
typedef struct sli_cut {
  int64_t rows, whole, part; /* whole, part, begin, count: bytes */
  int nranges;
  int64_t begin[SL_PART_RANGES], count[SL_PART_RANGES];
} sli_cut;

/* SL_OK if there is such a part of such an array. */
sl_status sli_part_check(const sl_type *whole, const sl_part *part);

/* Of a part that there is. */
sli_cut sli_part_cut(const sl_type *whole, const sl_part *part);

/* Where byte `at` of the part lies in the whole, and how many from there on lie so too. */
int64_t sli_cut_find(const sli_cut *cut, int64_t at, int64_t *run);

/* Copies bytes [begin, end) of the part out of the whole, or into it; `part` points to the
 * first of them. */
void sli_cut_take(const sli_cut *cut, int64_t begin, int64_t end, const void *whole, void *part);
void sli_cut_put(const sli_cut *cut, int64_t begin, int64_t end, const void *part, void *whole);

/* Which part of a row of arrays, put one behind the other along `dim`, number i is. */
sl_part sli_concat_part(const sl_type *types, int i, int dim);

struct sli_permutation;
/* Of x, by attrs.dims or (`back`) by what undoes them. */
struct sli_permutation sli_permutation_of(const sl_type *x, const sl_attrs *attrs, bool back);
/* Of x, repeated so that it becomes y. */
struct sli_permutation sli_expansion_of(const sl_type *x, const sl_type *y);

/* The key of a call's random numbers. */
uint64_t sli_random_key(const sl_attrs *attrs);

/* Calls fn for every stretch of a shard that lies in one piece in the whole, in order: so
 * many bytes, from byte `part` of the shard and byte `whole` of the whole on. */
typedef void sli_stretch(void *ctx, int64_t part, int64_t whole, int64_t bytes);
void sli_shard_walk(const sl_shard *shard, sli_stretch *fn, void *ctx);

/* Fills frequency[pairs] for rotary: position t turns pair j by t * frequency[j]. Returns what
 * cosines and sines are multiplied by. */
double sli_rope_frequencies(const sl_attrs *attrs, int64_t pairs, double *frequency);
/* Continues a hash with the sl_rope that attrs.user points to; NULL adds nothing. */
uint64_t sli_rope_hash(uint64_t hash, const sl_attrs *attrs, int nin);

/* How a window goes over images, along their height ([0]) and along its width ([1]). */
typedef struct sli_window {
  int64_t images, channels, groups;
  int64_t in[2], out[2]; /* positions of an image before and after */
  int64_t size[2], stride[2], pad[2], dilation[2];
} sli_window;

/* Of images x and a kernel of type w, or of pools (w NULL); sl_fail says what does not fit. */
sl_status sli_window_check(const sl_attrs *attrs, const sl_type *x, const sl_type *w);
/* Where that is SL_OK. */
sli_window sli_window_of(const sl_attrs *attrs, const sl_type *x, const sl_type *w);
/* x with so many channels, and the positions after. */
sl_type sli_window_output(const sli_window *window, const sl_type *x, int64_t channels);
/* Continues a hash with the sl_window that attrs.user points to; NULL adds nothing. */
uint64_t sli_window_hash(uint64_t hash, const sl_attrs *attrs, int nin);

#ifdef __cplusplus
}
#endif

/* ---- where the elements of a part stand, in the part of the language that C and CUDA share -- */

#ifdef __CUDACC__
#define SLI_REGION __host__ __device__ static inline
#else
#define SLI_REGION static inline
#endif

/* Position `at` of what a part leaves of its dim; *left: how many of them follow in one piece. */
SLI_REGION int64_t sli_range_position(const sl_part *of, int64_t at, int64_t *left) {
  int r = 0;
  while (at >= of->count[r]) at -= of->count[r++];
  *left = of->count[r] - at;
  return of->begin[r] + at;
}

/* An array's elements in another order of dims: the output's dims, and how far apart in the input
 * the neighbours along each are (0: it is repeated). */
typedef struct sli_permutation {
  int ndim;
  int64_t dim[SL_MAX_DIMS], stride[SL_MAX_DIMS];
} sli_permutation;

/* Where in the input element `i` of the output lies. */
SLI_REGION int64_t sli_permutation_from(const sli_permutation *o, int64_t i) {
  int64_t from = 0;
  for (int d = o->ndim - 1; d >= 0; d--) {
    from += i % o->dim[d] * o->stride[d];
    i /= o->dim[d];
  }
  return from;
}

/* Element `element` of an array dim[ndim], which is that part, in the whole; the piece begins at
 * position `row`. *run as of sl_call_where. */
SLI_REGION int64_t sli_region_index(const sl_region *region, const int64_t *dim, int64_t row,
                                    int64_t element, int64_t *run) {
  int64_t index = 0, stride = 1, inner = 1, within = 0;
  bool open = true; /* all dims so far are whole */
  for (int d = region->ndim - 1; d >= 0; d--) {
    int64_t at = element % dim[d], left = dim[d] - at, position = at;
    element /= dim[d];
    if (region->of[d].nranges) position = sli_range_position(&region->of[d], at, &left);
    if (region->sequence == d + 1) position += row;
    if (open) {
      within += at * inner;
      *run = (left - 1) * inner + inner - (within - at * inner);
      inner *= dim[d];
      open = !region->of[d].nranges && region->sequence != d + 1;
    }
    index += position * stride;
    stride *= region->whole[d];
  }
  return index;
}

#endif
