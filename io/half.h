/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of 16-bit floats to f32. */
#ifndef SLUICE_IO_HALF_H
#define SLUICE_IO_HALF_H

#include <stdint.h>
#include <string.h>

/* IEEE half to single: normal numbers move the exponent's bias from 15 to 127; subnormals are
 * multiples of 2^-24; infinities and NaNs are kept. */
static inline float sli_half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  uint32_t bits;
  float out;
  if (exponent == 0) {
    out = (float)fraction * 0x1p-24f;
    memcpy(&bits, &out, 4);
    bits |= sign;
  } else if (exponent == 31) {
    bits = sign | 0x7f800000u | fraction << 13;
  } else {
    bits = sign | (exponent + 112) << 23 | fraction << 13;
  }
  memcpy(&out, &bits, 4);
  return out;
}

static inline float sli_bfloat_to_float(uint16_t b) {
  uint32_t bits = (uint32_t)b << 16;
  float out;
  memcpy(&out, &bits, 4);
  return out;
}

#endif
