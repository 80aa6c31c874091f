/* SPDX-License-Identifier: Apache-2.0 */
/* Cheap nanosecond clock. On x86 with an invariant time-stamp counter, and on ARM64, a reading is
 * one instruction and a multiplication; elsewhere it is clock_gettime. */
#ifndef SLUICE_ACTORS_RUN_CLOCK_H
#define SLUICE_ACTORS_RUN_CLOCK_H

#include "base/base.h"

typedef struct sli_clock {
  uint64_t base_ticks;
  uint64_t ns_per_tick_q32; /* 32.32 fixed point; 0: use clock_gettime */
  uint64_t base_ns;         /* CLOCK_MONOTONIC at base_ticks */
} sli_clock;

/* Calibrates the clock. Takes about a millisecond the first time, to compare the counter with the
 * system's clock. Any thread. */
void sli_clock_init(sli_clock *clock);

/* True if a reading is one instruction. */
static inline bool sli_clock_is_fast(const sli_clock *clock) { return clock->ns_per_tick_q32 != 0; }

/* Reads the processor's counter; 0 if there is none. */
static inline uint64_t sli_clock_ticks(void) {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return 0;
#endif
}

/* Nanoseconds since init, for a clock that is fast. */
static inline uint64_t sli_clock_now_fast(const sli_clock *clock) {
  return (uint64_t)(((unsigned __int128)(sli_clock_ticks() - clock->base_ticks) *
                     clock->ns_per_tick_q32) >>
                    32);
}

/* Nanoseconds since init. */
static inline uint64_t sli_clock_now(const sli_clock *clock) {
  return sli_clock_is_fast(clock) ? sli_clock_now_fast(clock) : sli_now_ns() - clock->base_ns;
}

#endif
