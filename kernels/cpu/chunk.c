/* SPDX-License-Identifier: Apache-2.0 */
/* Selection of the CPU level, and the loops over chunks. */
#include "kernels/cpu/chunk.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
static int detect(void) {
  int level = 0;
  while (sli_cpu_levels[level + 1].chunks && sli_cpu_levels[level + 1].is_here()) level++;
  const char *cap = getenv("SLUICE_CPU_LEVEL");
  if (cap && atoi(cap) >= 0 && atoi(cap) < level) level = atoi(cap);
  return level;
}

int sli_cpu_level(void) {
  static atomic_int known = -1; /* written by any thread, always with the same value */
  int level = atomic_load_explicit(&known, memory_order_relaxed);
  if (level < 0) {
    level = detect();
    atomic_store_explicit(&known, level, memory_order_relaxed);
  }
  return level;
}

const sli_cpu_chunks *sli_cpu(void) { return sli_cpu_levels[sli_cpu_level()].chunks; }

bool sli_cpu_is_set(const char *variable, const char *value) {
  const char *is = getenv(variable);
  return is && !strcmp(is, value);
}

void sli_for_elements(const sl_call *call, const sl_type *type, sli_chunk_fn *fn) {
  sl_team_for(call->team, sli_element_chunks(type), fn, (void *)call);
}

void sli_for_rows(const sl_call *call, const sl_type *type, sli_chunk_fn *fn) {
  int n = sli_chunk_count(sl_type_rows(type), sli_chunk_rows(sl_type_last(type)));
  sl_team_for(call->team, n, fn, (void *)call);
}

void sli_for_columns(const sl_call *call, const sl_type *type, sli_chunk_fn *fn) {
  sl_team_for(call->team, sli_chunk_count(sl_type_last(type), SLI_CHUNK_COLUMNS), fn, (void *)call);
}

size_t sli_partials_scratch(const sl_call *call, int threads) {
  (void)threads;
  size_t sums = (size_t)call->nout * (size_t)sl_type_last(&call->in_type[0]);
  return (size_t)sli_partials(sl_type_rows(&call->in_type[0])) * sums * sizeof(float);
}

void sli_sum_rows(const sl_call *call, sli_chunk_fn *fn) {
  sl_team_for(call->team, sli_partials(sl_type_rows(&call->in_type[0])), fn, (void *)call);
  sli_for_columns(call, &call->in_type[0], sli_cpu()->add_partials);
}
