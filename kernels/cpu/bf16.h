/* SPDX-License-Identifier: Apache-2.0 */
/* Single numbers in bf16. Array kernels use the vector versions (vector/round.h). */
#ifndef SLUICE_KERNELS_CPU_BF16_H
#define SLUICE_KERNELS_CPU_BF16_H

#include <stdint.h>
#include <string.h>

/* Rounds to nearest, ties to even. */
static inline uint16_t sli_bf16_from(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return (uint16_t)(bits >> 16 | 64);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float sli_bf16_value(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

#endif
