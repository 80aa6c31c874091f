/* Which keys a query of attention sees, for the kernels of all devices. */
#ifndef SLUICE_KERNELS_SIGHT_H
#define SLUICE_KERNELS_SIGHT_H

#include <sluice/op.h>

/* The query at position p of a sequence sees the keys from p - behind to p + ahead, as far as there
 * are; where there are ids [batch, keys], only those with its own id, and none if that is negative. */
typedef struct sli_sight {
  int64_t behind, ahead;
  const int32_t *ids; /* or NULL */
  int64_t ids_row;    /* numbers from one sequence's ids to the next one's */
} sli_sight;

/* Of sequences of so many keys. */
static inline sli_sight sli_sight_of(const sl_attrs *attrs, int64_t keys, const void *ids) {
  int64_t far = attrs->window > 0 && attrs->window < keys ? attrs->window - 1 : keys;
  sli_sight sight = {far, attrs->full ? far : 0, (const int32_t *)ids, keys};
  return sight;
}

/* Input i of a call, NULL where the call has fewer. */
static inline const void *sli_optional(const sl_call *call, int i) {
  return i < call->nin ? call->in[i] : NULL;
}

/* A query's keys, on average, times two: in a sequence of `keys` seen from its first position on. */
static inline double sli_sight_pairs(const sl_attrs *attrs, int64_t keys) {
  double n = (double)keys, w = attrs->window > 0 && attrs->window < keys ? (double)attrs->window : n;
  double causal = (w * (w + 1) + 2 * (n - w) * w) / n;
  return attrs->full ? 2 * causal - 2 : causal;
}

#endif
