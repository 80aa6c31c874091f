/* What plans hash of the arguments of calls. */
#ifndef SLUICE_OPS_HASH_H
#define SLUICE_OPS_HASH_H

#include <sluice/op.h>

#include "base/base.h"

static inline uint64_t sli_hash_type(uint64_t hash, const sl_type *type) {
  hash = sli_hash_word(hash, (uint64_t)type->dtype);
  hash = sli_hash_word(hash, (uint64_t)type->ndim);
  for (int d = 0; d < type->ndim; d++) hash = sli_hash_word(hash, (uint64_t)type->dim[d]);
  return hash;
}

#endif
