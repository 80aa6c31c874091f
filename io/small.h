/* SPDX-License-Identifier: Apache-2.0 */
/* Floats of 8 and 4 bits, and blocks of 128 of them with their scales, which is how matrices of
 * small numbers are stored in memory (ops/storage.h).
 *
 *   FP8    e4m3[128] | float scale                            number = e4m3 scale
 *   NVFP4  e2m1[128], two to a byte | e4m3 scale[8] | float f number = e2m1 (scale f)
 *
 * A negative f is a divisor: scale / -f. */
#ifndef SLUICE_IO_SMALL_H
#define SLUICE_IO_SMALL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define SLI_BOTH __host__ __device__
#else
#define SLI_BOTH
#endif

enum {
  SLI_SMALL_BLOCK = 128,
  SLI_FP8_BYTES = SLI_SMALL_BLOCK + 4,
  SLI_NVFP4_RUN = 16, /* numbers that share a scale */
  SLI_NVFP4_SCALES = SLI_SMALL_BLOCK / 2,
  SLI_NVFP4_FACTOR = SLI_NVFP4_SCALES + SLI_SMALL_BLOCK / SLI_NVFP4_RUN,
  SLI_NVFP4_BYTES = SLI_NVFP4_FACTOR + 4
};

/* Returns the value of a sign, 4 bits of exponent and 3 of fraction; there is no infinity. */
SLI_BOTH static inline float sli_e4m3_to_float(uint8_t v) {
  uint32_t size = v & 127u, bits = (size << 20) + (120u << 23);
  float x;
  if (size < 8) x = (float)size * 0x1p-9f;
  else {
    if (size == 127) bits = 0x7fc00000u;
    memcpy(&x, &bits, sizeof x);
  }
  return v & 128 ? -x : x;
}

/* Rounds to the nearest number of this format, ties to even; sizes above 448 become 448, what is
 * not finite NaN. */
SLI_BOTH static inline uint8_t sli_float_to_e4m3(float x) {
  uint32_t bits, sign;
  memcpy(&bits, &x, sizeof bits);
  sign = bits >> 24 & 128;
  bits &= 0x7fffffffu;
  if (bits >= 0x7f800000u) return (uint8_t)(sign | 127);
  if (bits < 0x3c800000u) return (uint8_t)(sign | (uint32_t)rintf(fabsf(x) * 512)); /* below 2^-6 */
  bits = (bits + 0x7ffff + (bits >> 20 & 1)) >> 20;
  return (uint8_t)(sign | (bits - (120 << 3) > 126 ? 126 : bits - (120 << 3)));
}

/* Returns the value of a sign, 2 bits of exponent and 1 of fraction. */
SLI_BOTH static inline float sli_e2m1_to_float(unsigned v) {
  unsigned exponent = v >> 1 & 3, fraction = v & 1;
  float size = exponent ? (float)((2 + fraction) << (exponent - 1)) * 0.5f : (float)fraction * 0.5f;
  return v & 8 ? -size : size;
}

SLI_BOTH static inline float sli_small_float(const uint8_t *from) {
  float x;
  memcpy(&x, from, sizeof x);
  return x;
}

/* Returns the scale of run i of a block of NVFP4. */
SLI_BOTH static inline float sli_nvfp4_scale(const uint8_t *block, int i) {
  float scale = sli_e4m3_to_float(block[SLI_NVFP4_SCALES + i]),
        by = sli_small_float(block + SLI_NVFP4_FACTOR);
  return by < 0 ? scale / -by : scale * by;
}

/* Return number n of a block. */
SLI_BOTH static inline float sli_fp8_number(const uint8_t *block, int n) {
  return sli_e4m3_to_float(block[n]) * sli_small_float(block + SLI_SMALL_BLOCK);
}
SLI_BOTH static inline float sli_nvfp4_number(const uint8_t *block, int n) {
  return sli_e2m1_to_float(block[n / 2] >> n % 2 * 4 & 15u) *
         sli_nvfp4_scale(block, n / SLI_NVFP4_RUN);
}

#endif
