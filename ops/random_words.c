/* SPDX-License-Identifier: Apache-2.0 */
/* Counter-based random numbers. An element's numbers depend only on its position in the run, so
 * they are the same on every device and at any time. */
#include "ops/layout.h"

#include "base/philox.h"
#include "ops/ops.h"

static int64_t microbatch_elements(const sl_region *region) {
  int64_t n = 1;
  for (int d = 0; d < region->ndim; d++) n *= region->whole[d];
  return n;
}

int64_t sl_call_where(const sl_call *call, int64_t element, int64_t *run) {
  const sl_region *region = call->attrs->region;
  const sl_type *type = &call->out_type[0];
  if (!region) {
    int64_t n = sl_type_elements(type);
    *run = n - element;
    return call->tick.microbatch * n + element;
  }
  *run = 1;
  return call->tick.microbatch * microbatch_elements(region) +
         sli_region_index(region, type->dim, call->tick.row, element, run);
}

uint64_t sli_random_key(const sl_attrs *attrs) {
  return sli_hash_word(sli_hash_word(SLI_HASH_SEED, attrs->random.seed), attrs->random.key);
}

void sl_call_random(const sl_call *call, int64_t block, uint32_t words[4]) {
  uint64_t b = (uint64_t)block, step = (uint64_t)call->tick.step;
  words[0] = (uint32_t)b;
  words[1] = (uint32_t)(b >> 32);
  words[2] = (uint32_t)step;
  words[3] = (uint32_t)(step >> 32);
  sli_philox(words, sli_random_key(call->attrs));
}
