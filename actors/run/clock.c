/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/run/clock.h"

#include <pthread.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static uint64_t rate_q32;

/* Reads ticks and system time together: keeps the pair with the shortest gap of several, so that an
 * interrupt in between does not distort it. */
static void read_pair(uint64_t *ticks, uint64_t *ns) {
  *ticks = 0;
  *ns = sli_now_ns();
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < 8; i++) {
    uint64_t before = sli_clock_ticks(), now = sli_now_ns(), after = sli_clock_ticks();
    if (after - before >= best) continue;
    best = after - before;
    *ticks = before + best / 2;
    *ns = now;
  }
}

#if defined(__x86_64__)

static bool invariant_tsc(void) {
  unsigned a, b, c, d;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
}

static void measure_rate(void) {
  if (!invariant_tsc()) return;
  uint64_t ticks0, ns0, ticks1, ns1;
  read_pair(&ticks0, &ns0);
  do read_pair(&ticks1, &ns1);
  while (ns1 - ns0 < 1000000);
  rate_q32 = (uint64_t)(((unsigned __int128)(ns1 - ns0) << 32) / (ticks1 - ticks0));
}

#elif defined(__aarch64__)

/* Reads the counter's frequency, which firmware has set (Arm Architecture Reference Manual,
 * CNTFRQ_EL0). */
static void measure_rate(void) {
  uint64_t hertz;
  __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hertz));
  if (hertz) rate_q32 = (uint64_t)(((unsigned __int128)1000000000 << 32) / hertz);
}

#else

static void measure_rate(void) {}

#endif

void sli_clock_init(sli_clock *clock) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, measure_rate);
  clock->ns_per_tick_q32 = rate_q32;
  read_pair(&clock->base_ticks, &clock->base_ns);
}
