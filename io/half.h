/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of 16-bit floats to f32 and back. */
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

/* Rounds to the nearest half, ties to even; what is too large becomes infinite. */
static inline uint16_t sli_float_to_half(float x) {
  uint32_t bits, sign;
  memcpy(&bits, &x, 4);
  sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (bits >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (bits < 0x38800000) { /* a multiple of 2^-24: the sum rounds x to one */
    float shifted, size;
    memcpy(&size, &bits, 4);
    shifted = size + 0.5f;
    memcpy(&bits, &shifted, 4);
    return (uint16_t)(sign | (bits - 0x3f000000));
  }
  return (uint16_t)(sign | (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13);
}

/* Rounds to the nearest, ties to even; NaN stays NaN. */
static inline uint16_t sli_float_to_bfloat(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 64);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float sli_bfloat_to_float(uint16_t b) {
  uint32_t bits = (uint32_t)b << 16;
  float out;
  memcpy(&out, &bits, 4);
  return out;
}

#endif
