/* SPDX-License-Identifier: Apache-2.0 */
/* Pause of a thread that spins, for the sake of the other thread on its core. */
#ifndef SLUICE_PAUSE_H
#define SLUICE_PAUSE_H

static inline void sli_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory"); /* takes some tens of cycles, where yield takes one */
#endif
}

#endif
