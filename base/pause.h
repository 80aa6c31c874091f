/* SPDX-License-Identifier: Apache-2.0 */
/* Pause for spin loops, which yields resources to the sibling hardware thread. */
#ifndef SLUICE_BASE_PAUSE_H
#define SLUICE_BASE_PAUSE_H

static inline void sli_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory"); /* takes tens of cycles; yield takes one */
#endif
}

#endif
