/* SPDX-License-Identifier: Apache-2.0 */
/* Selection of the CPU level, and the loops over chunks. */
#include "kernels/cpu/chunk.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__x86_64__)
/* Reads CPUID directly: not all compilers have names for these bits. */
static bool has_tiles(void) {
  enum { LEAF = 7, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
  unsigned a, b, c, d;
  return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && d & AMX_BF16 && d & AMX_TILE;
}

/* Requests AMX tile state, once for all later threads. Linux requires the request because tiles add
 * 8 KiB of state per thread. */
static bool may_use_tiles(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  return !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
}
#endif

static int detect(void) {
  int level = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) level = 1;
  if (level == 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    level = 2;
  if (level == 2 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni"))
    level = 3;
  if (level == 3 && has_tiles() && may_use_tiles()) level = 4;
#endif
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

const sli_cpu_chunks *sli_cpu(void) {
  static const sli_cpu_chunks *const levels[] = {&sli_cpu_level0, &sli_cpu_level1, &sli_cpu_level2,
                                                 &sli_cpu_level3, &sli_cpu_level4};
  return levels[sli_cpu_level()];
}

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
