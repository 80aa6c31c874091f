/* Choosing the CPU level, and the loops over chunks. */
#include "kernels/cpu/chunk.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"

static int detect(void) {
  int level = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) level = 1;
  if (level == 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    level = 2;
  if (level == 2 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) level = 3;
#endif
  const char *cap = getenv("SLUICE_CPU_LEVEL");
  if (cap && atoi(cap) >= 0 && atoi(cap) < level) level = atoi(cap);
  return level;
}

int sli_cpu_level(void) {
  static atomic_int known = -1; /* written by any thread, always the same value */
  int level = atomic_load_explicit(&known, memory_order_relaxed);
  if (level < 0) {
    level = detect();
    atomic_store_explicit(&known, level, memory_order_relaxed);
  }
  return level;
}

const sli_cpu_chunks *sli_cpu(void) {
  static const sli_cpu_chunks *const levels[] = {&sli_cpu_level0, &sli_cpu_level1,
                                                 &sli_cpu_level2, &sli_cpu_level3};
  return levels[sli_cpu_level()];
}

void sli_for_elements(const sl_call *call, const sl_type *type, sli_chunk_fn *fn) {
  int n = sli_chunk_count(sl_type_elements(type), SLI_CHUNK_ELEMENTS);
  sl_team_for(call->team, n, fn, (void *)call);
}

void sli_for_rows(const sl_call *call, const sl_type *type, sli_chunk_fn *fn) {
  int n = sli_chunk_count(sl_type_rows(type), sli_chunk_rows(sl_type_last(type)));
  sl_team_for(call->team, n, fn, (void *)call);
}

void sli_for_columns(const sl_call *call, const sl_type *type, sli_chunk_fn *fn) {
  sl_team_for(call->team, sli_chunk_count(sl_type_last(type), SLI_CHUNK_COLUMNS), fn,
              (void *)call);
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

/* ---- products ------------------------------------------------------------------ */

enum { PIECES_A_THREAD = 4, PIECE_COLUMNS = 128, TILE_ROWS = 8, TILE_COLUMNS = 16 };

static int64_t shares(int64_t total, int64_t parts, int64_t multiple) {
  int64_t share = (total + parts - 1) / parts;
  return SLI_MAX((share + multiple - 1) / multiple, 1) * multiple;
}

/* Tall pieces pack little of B for many sums, wide ones as little of A. Of few pieces, an odd number would leave one
 * of two threads idle while the last one runs. */
int sli_multiplying_cut(sli_multiplying *m, int threads) {
  int64_t tall = SLI_MAX((m->m + SLI_PRODUCT_ROWS - 1) / SLI_PRODUCT_ROWS, 1), most = PIECES_A_THREAD * threads;
  int64_t wide = threads > 1 ? SLI_MAX(SLI_MIN((most + tall - 1) / tall, m->n / PIECE_COLUMNS), 1) : 1;
  if (threads > 1 && tall > 1 && tall * wide % 2 && tall * wide < most) tall++;
  m->rows = shares(m->m, tall, TILE_ROWS);
  m->columns = shares(m->n, wide, TILE_COLUMNS);
  return sli_chunk_count(m->m, m->rows) * sli_chunk_count(m->n, m->columns);
}
