/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/run/clock.h"

#include <pthread.h>

#if defined(__x86_64__)
#include <cpuid.h>

static bool invariant_tsc(void) {
  unsigned a, b, c, d;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
}

/* Reads ticks and system time together: of several pairs the one with the shortest gap, so that an
 * interrupt in between does not count. */
static void read_pair(uint64_t *ticks, uint64_t *ns) {
  *ticks = *ns = 0;
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < 8; i++) {
    uint64_t before = __builtin_ia32_rdtsc(), now = sli_now_ns(),
             after = __builtin_ia32_rdtsc();
    if (after - before >= best) continue;
    best = after - before;
    *ticks = before + best / 2;
    *ns = now;
  }
}

static uint64_t rate_q32;

static void measure_rate(void) {
  if (!invariant_tsc()) return;
  uint64_t ticks0, ns0, ticks1, ns1;
  read_pair(&ticks0, &ns0);
  do read_pair(&ticks1, &ns1);
  while (ns1 - ns0 < 1000000);
  rate_q32 = (uint64_t)(((unsigned __int128)(ns1 - ns0) << 32) / (ticks1 - ticks0));
}

void sli_clock_init(sli_clock *clock) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, measure_rate);
  clock->ns_per_tick_q32 = rate_q32;
  read_pair(&clock->base_ticks, &clock->base_ns);
}
#else
void sli_clock_init(sli_clock *clock) {
  *clock = (sli_clock){.base_ns = sli_now_ns()};
}
#endif
