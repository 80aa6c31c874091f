/* Several arrays walked together: dims of one length side by side, with how far it is in each
 * array from one position to the next. What an array repeats has no distance in it. */
#ifndef SLUICE_SPACE_H
#define SLUICE_SPACE_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SLI_SPACE_INPUTS = 3, SLI_SPACE_OUT = SLI_SPACE_INPUTS, SLI_SPACE_ARRAYS };

typedef struct sli_space {
  int ndim, kept;       /* dims, and how many of them the output has: the leading ones */
  int64_t total, summed; /* positions of those, and of the others */
  int64_t dim[SL_MAX_DIMS];
  int64_t step[SLI_SPACE_ARRAYS][SL_MAX_DIMS];
} sli_space;

/* The type that arrays have together by NumPy's rules: lengths are those of the last dims, and of
 * two one may be 1. SL_E_SHAPE names two that do not go together. */
sl_status sli_broadcast(int n, const sl_type *types, sl_type *out);

/* type[SLI_SPACE_ARRAYS] lie in `whole` by those rules; NULL: there is no such array. Dims that
 * all arrays walk as one are one. */
sli_space sli_space_make(const sl_type *whole, const sl_type *const *types);

/* A type without the dims of these bits, or with length 1 there. */
sl_type sli_reduced(const sl_type *type, uint32_t axes, bool keep);

/* The dim whose bit attrs.axes has, the last if it has none. */
int sli_one_axis(const sl_attrs *attrs, const sl_type *type);

#ifdef __cplusplus
}
#endif
#endif
