/* SPDX-License-Identifier: Apache-2.0 */
/* Block layouts of tensors in GGUF files, by ggml's type numbers. A quantized number is a small
 * integer. Each block has a scale, and in some types an offset. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "io/gguf/gguf_inner.h"
#include "io/gguf/grids.h"
#include "io/half.h"

static uint16_t word_at(const unsigned char *from) { return (uint16_t)(from[0] | from[1] << 8); }

static void unpack_f32(const unsigned char *from, size_t blocks, float *out) {
  memcpy(out, from, blocks * sizeof *out);
}

static void unpack_f16(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++) out[i] = sli_half_to_float(word_at(from + 2 * i));
}

static void unpack_bf16(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++) out[i] = sli_bfloat_to_float(word_at(from + 2 * i));
}

/* Unpacks 32 numbers from sixteen bytes: the lower halves are the first 16, the upper halves the
 * rest. */
static void unpack_halves(const unsigned char *from, float scale, float shift, float *out) {
  for (int i = 0; i < 16; i++) {
    out[i] = (float)(from[i] & 15) * scale + shift;
    out[i + 16] = (float)(from[i] >> 4) * scale + shift;
  }
}

/* Unpacks Q4_0: a scale, and numbers that start at -8. Eight times the scale is exact, and so is
 * the product. */
static void unpack_q4_0(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 18, out += 32) {
    float scale = sli_half_to_float(word_at(from));
    unpack_halves(from + 2, scale, -8 * scale, out);
  }
}

/* Unpacks Q4_1: a scale and an offset. */
static void unpack_q4_1(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 20, out += 32)
    unpack_halves(from + 4, sli_half_to_float(word_at(from)), sli_half_to_float(word_at(from + 2)),
                  out);
}

/* Unpacks 32 numbers with a fifth bit each; four bytes before the halves hold these bits. */
static void unpack_fifths(const unsigned char *from, float scale, float shift, float *out) {
  uint32_t fifth = word_at(from) | (uint32_t)word_at(from + 2) << 16;
  for (int i = 0; i < 16; i++) {
    out[i] = (float)((from[4 + i] & 15) | (int)(fifth >> i & 1) << 4) * scale + shift;
    out[i + 16] = (float)(from[4 + i] >> 4 | (int)(fifth >> (i + 16) & 1) << 4) * scale + shift;
  }
}

/* Unpacks Q5_0: a scale, and numbers that start at -16, which is exact as well. */
static void unpack_q5_0(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 22, out += 32) {
    float scale = sli_half_to_float(word_at(from));
    unpack_fifths(from + 2, scale, -16 * scale, out);
  }
}

static void unpack_q5_1(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 24, out += 32)
    unpack_fifths(from + 4, sli_half_to_float(word_at(from)), sli_half_to_float(word_at(from + 2)),
                  out);
}

/* Unpacks Q8_0: a scale, and 32 signed bytes. */
static void unpack_q8_0(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 34, out += 32) {
    float scale = sli_half_to_float(word_at(from));
    for (int k = 0; k < 32; k++) out[k] = (float)(int8_t)from[2 + k] * scale;
  }
}

/* Unpacks 32 numbers from sixteen bytes: each half of a byte is an index into a table. */
static void unpack_places(const unsigned char *from, const int8_t table[16], float scale,
                          float *out) {
  for (int i = 0; i < 16; i++) {
    out[i] = scale * (float)table[from[i] & 15];
    out[i + 16] = scale * (float)table[from[i] >> 4];
  }
}

/* Table of IQ4_NL and IQ4_XS, denser around 0. */
static const int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

static void unpack_iq4_nl(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 18, out += 32)
    unpack_places(from + 2, uneven, sli_half_to_float(word_at(from)), out);
}

/* Returns 2^(e - 128): the scale of MXFP4. The table has doubled values. */
static float power_of_two(unsigned char e) {
  uint32_t bits = e < 2 ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1) << 23;
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

/* Unpacks MXFP4: a power of two, and floats with a sign, two exponent bits and one mantissa bit. */
static void unpack_mxfp4(const unsigned char *from, size_t blocks, float *out) {
  static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (size_t i = 0; i < blocks; i++, from += 17, out += 32)
    unpack_places(from + 1, doubled, power_of_two(from[0]), out);
}

/* ---- blocks of 256 numbers, in parts with small scales
 * ---------------------------------------- */

/* Unpacks the scale and minimum of part j of eight: six bits each, in twelve bytes. Those of the
 * first four parts are the low bits of the first eight bytes. The other parts' low four bits are in
 * the last four bytes, and their upper two bits in the upper bits of the first eight. */
static void part_scales(const unsigned char *from, int j, float *scale, float *less) {
  bool first = j < 4;
  int upper_scale = first ? 0 : from[j - 4] >> 6 << 4, upper_less = first ? 0 : from[j] >> 6 << 4;
  *scale = (float)(first ? from[j] & 63 : (from[j + 4] & 15) | upper_scale);
  *less = (float)(first ? from[j + 4] & 63 : from[j + 4] >> 4 | upper_less);
}

/* Unpacks parts of 32 numbers. Two parts share the halves of 32 bytes. `fifth` holds one more bit
 * of each number, one bit of its bytes per part; NULL if there is none. */
static void unpack_parts(const unsigned char *head, const unsigned char *fifth,
                         const unsigned char *from, float *out) {
  float scale = sli_half_to_float(word_at(head)), least = sli_half_to_float(word_at(head + 2));
  for (int j = 0; j < 8; j++) {
    float factor, less;
    part_scales(head + 4, j, &factor, &less);
    factor *= scale, less *= least;
    for (int k = 0; k < 32; k++) {
      int number = from[j / 2 * 32 + k] >> j % 2 * 4 & 15;
      if (fifth) number |= (fifth[k] >> j & 1) << 4;
      out[j * 32 + k] = factor * (float)number - less;
    }
  }
}

static void unpack_q4_k(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 144, out += 256)
    unpack_parts(from, NULL, from + 16, out);
}

static void unpack_q5_k(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 176, out += 256)
    unpack_parts(from, from + 16, from + 48, out);
}

/* Unpacks Q6_K: numbers start at -32, in parts of 16 with a signed scale each. Four bits of a
 * number are in the halves of the first 128 bytes, two in the quarters of the next 64. */
static void unpack_q6_k(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 210, out += 256) {
    float scale = sli_half_to_float(word_at(from + 208));
    for (int n = 0; n < 256; n++) {
      int half = n / 128, quarter = n / 32 % 4, k = n % 32;
      int lower = from[half * 64 + quarter % 2 * 32 + k] >> quarter / 2 * 4 & 15;
      int upper = from[128 + half * 32 + k] >> quarter * 2 & 3;
      float factor = scale * (float)(int8_t)from[192 + n / 16];
      out[n] = factor * (float)((lower | upper << 4) - 32);
    }
  }
}

/* Returns number n of 256 with two bits each, stored in the quarters of the bytes of each half. */
static int two_bits(const unsigned char *from, int n) {
  return from[n / 128 * 32 + n % 32] >> n / 32 % 4 * 2 & 3;
}

/* Unpacks Q2_K: parts of 16, with a scale and a minimum of four bits each. */
static void unpack_q2_k(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 84, out += 256) {
    float scale = sli_half_to_float(word_at(from + 80)),
          least = sli_half_to_float(word_at(from + 82));
    for (int n = 0; n < 256; n++) {
      float factor = scale * (float)(from[n / 16] & 15), less = least * (float)(from[n / 16] >> 4);
      out[n] = factor * (float)two_bits(from + 16, n) - less;
    }
  }
}

/* Returns the scale of part p of sixteen: six bits, the lower four in eight bytes and the upper two
 * in four bytes. It starts at -32. */
static int third_scale(const unsigned char *from, int p) {
  int lower = from[p % 8] >> p / 8 * 4 & 15, upper = from[8 + p % 4] >> p / 4 * 2 & 3;
  return (lower | upper << 4) - 32;
}

/* Unpacks Q3_K: parts of 16 with a signed scale each. The third bit of each number is in the first
 * 32 bytes, one of their bits per 32 numbers. Numbers start at -4. */
static void unpack_q3_k(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 110, out += 256) {
    float scale = sli_half_to_float(word_at(from + 108));
    for (int n = 0; n < 256; n++) {
      float factor = scale * (float)third_scale(from + 96, n / 16);
      int third = from[n % 32] >> n / 32 & 1;
      out[n] = factor * (float)((two_bits(from + 32, n) | third << 2) - 4);
    }
  }
}

/* Unpacks IQ4_XS: parts of 32 with a scale of six bits each, which starts at -32. */
static void unpack_iq4_xs(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 136, out += 256)
    for (int j = 0; j < 8; j++) {
      int lower = from[4 + j / 2] >> j % 2 * 4 & 15, upper = word_at(from + 2) >> 2 * j & 3;
      float scale = sli_half_to_float(word_at(from)) * (float)((lower | upper << 4) - 32);
      unpack_places(from + 8 + 16 * j, uneven, scale, out + 32 * j);
    }
}

/* ---- points of lattices ------------------------------------------------------------------------
 */

/* Numbers that the digits of a point stand for. */
static const float odd_eighths[] = {8, 25, 43}, thirds[] = {4, 12, 20, 28, 36, 44, 52, 62},
                   odds[] = {1, 3, 5, 7, 9, 11, 13, 15}, ternary[] = {-1, 0, 1};

/* Returns the signs of eight numbers: seven bits, and one that makes their number even. */
static unsigned even_signs(unsigned bits) {
  bits &= 127;
  return bits | (unsigned)(__builtin_popcount(bits) & 1) << 7;
}

/* Unpacks a point of 16 bits at most: `count` digits. A set bit of `signs` is a minus. */
static void unpack_point(unsigned point, int bits, int count, const float *numbers, float scale,
                         unsigned signs, float *out) {
  for (int i = 0; i < count; i++) {
    float x = scale * numbers[point >> bits * i & ((1u << bits) - 1)];
    out[i] = signs >> i & 1 ? -x : x;
  }
}

static uint32_t long_at(const unsigned char *from) {
  return (uint32_t)word_at(from) | (uint32_t)word_at(from + 2) << 16;
}

/* Unpacks parts of 32: four points by a byte each, then 28 bits of signs and four of the scale. */
static void unpack_iq2_xxs(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 66)
    for (const unsigned char *at = from + 2; at < from + 66; at += 8) {
      uint32_t rest = long_at(at + 4);
      float scale = sli_half_to_float(word_at(from)) * (0.5f + (float)(rest >> 28)) * 0.25f;
      for (int k = 0; k < 4; k++, out += 8)
        unpack_point(sli_grid_iq2_xxs[at[k]], 2, 8, odd_eighths, scale, even_signs(rest >> 7 * k),
                     out);
    }
}

/* Returns the scale of part j of 16 numbers, of four bits. */
static float fourth_scale(const unsigned char *from, const unsigned char *scales, int j) {
  int n = scales[j / 2] >> j % 2 * 4 & 15;
  return sli_half_to_float(word_at(from)) * (0.5f + (float)n) * 0.25f;
}

/* Unpacks points of nine bits, with seven bits of signs. */
static void unpack_iq2_xs(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 74)
    for (int k = 0; k < 32; k++, out += 8) {
      unsigned word = word_at(from + 2 + 2 * k);
      unpack_point(sli_grid_iq2_xs[word & 511], 2, 8, odd_eighths,
                   fourth_scale(from, from + 66, k / 2), even_signs(word >> 9), out);
    }
}

/* Unpacks points of ten bits, the upper two apart, with all signs. */
static void unpack_iq2_s(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 82)
    for (int k = 0; k < 32; k++, out += 8) {
      unsigned upper = from[66 + k / 4] >> k % 4 * 2 & 3;
      unpack_point(sli_grid_iq2_s[from[2 + k] | upper << 8], 2, 8, odd_eighths,
                   fourth_scale(from, from + 74, k / 2), from[34 + k], out);
    }
}

/* Unpacks parts of 32: eight points by a byte each; their signs and scales follow all points. */
static void unpack_iq3_xxs(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 98)
    for (int k = 0; k < 64; k++, out += 4) {
      uint32_t rest = long_at(from + 66 + k / 8 * 4);
      float scale = sli_half_to_float(word_at(from)) * (0.5f + (float)(rest >> 28)) * 0.5f;
      unpack_point(sli_grid_iq3_xxs[from[2 + k]], 3, 4, thirds, scale,
                   even_signs(rest >> 7 * (k % 8 / 2)) >> k % 2 * 4, out);
    }
}

/* Unpacks points of nine bits, the uppermost apart, with all signs, in parts of 32. */
static void unpack_iq3_s(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 110)
    for (int k = 0; k < 64; k++, out += 4) {
      unsigned upper = from[66 + k / 8] >> k % 8 & 1;
      int n = from[106 + k / 16] >> k / 8 % 2 * 4 & 15;
      float scale = sli_half_to_float(word_at(from)) * (float)(1 + 2 * n);
      unpack_point(sli_grid_iq3_s[from[2 + k] | upper << 8], 3, 4, odds, scale,
                   from[74 + k / 2] >> k % 2 * 4, out);
    }
}

/* Adds an eighth of the scale to the numbers of a point, or subtracts it. */
static void unpack_ternary(unsigned point, float scale, bool below, float *out) {
  unpack_point(sli_grid_iq1[point], 2, 8, ternary, 1, 0, out);
  for (int i = 0; i < 8; i++) out[i] = scale * (out[i] + (below ? -0.125f : 0.125f));
}

/* Unpacks parts of 32: points of eleven bits, three of them in a word with scale and sign. */
static void unpack_iq1_s(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 50)
    for (int k = 0; k < 32; k++, out += 8) {
      unsigned word = word_at(from + 34 + k / 4 * 2), upper = word >> k % 4 * 3 & 7;
      float scale = sli_half_to_float(word_at(from)) * (float)(2 * (word >> 12 & 7) + 1);
      unpack_ternary(from[2 + k] | upper << 8, scale, word >> 15, out);
    }
}

/* Unpacks parts of 16 with scales of three bits. The block's scale is in the upper bits of four
 * words of these. */
static void unpack_iq1_m(const unsigned char *from, size_t blocks, float *out) {
  for (size_t i = 0; i < blocks; i++, from += 56) {
    const unsigned char *scales = from + 48;
    unsigned whole = 0;
    for (int w = 0; w < 4; w++) whole |= (unsigned)(word_at(scales + 2 * w) >> 12) << 4 * w;
    float scale = sli_half_to_float((uint16_t)whole);
    for (int k = 0; k < 32; k++, out += 8) {
      unsigned half = from[32 + k / 2] >> k % 2 * 4, j = (unsigned)k / 2;
      float part = (float)(2 * (word_at(scales + j / 4 * 2) >> j % 4 * 3 & 7) + 1);
      unpack_ternary(from[k] | (half & 7) << 8, scale * part, half >> 3 & 1, out);
    }
  }
}

static const sli_gguf_type types[] = {[0] = {"F32", 1, 4, unpack_f32, sli_gguf_pack_f32},
                                      [1] = {"F16", 1, 2, unpack_f16, sli_gguf_pack_f16},
                                      [2] = {"Q4_0", 32, 18, unpack_q4_0, sli_gguf_pack_q4_0},
                                      [3] = {"Q4_1", 32, 20, unpack_q4_1, NULL},
                                      [6] = {"Q5_0", 32, 22, unpack_q5_0, NULL},
                                      [7] = {"Q5_1", 32, 24, unpack_q5_1, NULL},
                                      [8] = {"Q8_0", 32, 34, unpack_q8_0, sli_gguf_pack_q8_0},
                                      [9] = {"Q8_1", 32, 36, NULL, NULL},
                                      [10] = {"Q2_K", 256, 84, unpack_q2_k, NULL},
                                      [11] = {"Q3_K", 256, 110, unpack_q3_k, NULL},
                                      [12] = {"Q4_K", 256, 144, unpack_q4_k, sli_gguf_pack_q4_k},
                                      [13] = {"Q5_K", 256, 176, unpack_q5_k, NULL},
                                      [14] = {"Q6_K", 256, 210, unpack_q6_k, NULL},
                                      [15] = {"Q8_K", 256, 292, NULL, NULL},
                                      [16] = {"IQ2_XXS", 256, 66, unpack_iq2_xxs, NULL},
                                      [17] = {"IQ2_XS", 256, 74, unpack_iq2_xs, NULL},
                                      [18] = {"IQ3_XXS", 256, 98, unpack_iq3_xxs, NULL},
                                      [19] = {"IQ1_S", 256, 50, unpack_iq1_s, NULL},
                                      [20] = {"IQ4_NL", 32, 18, unpack_iq4_nl, NULL},
                                      [21] = {"IQ3_S", 256, 110, unpack_iq3_s, NULL},
                                      [22] = {"IQ2_S", 256, 82, unpack_iq2_s, NULL},
                                      [23] = {"IQ4_XS", 256, 136, unpack_iq4_xs, NULL},
                                      [24] = {"I8", 1, 1, NULL, NULL},
                                      [25] = {"I16", 1, 2, NULL, NULL},
                                      [26] = {"I32", 1, 4, NULL, NULL},
                                      [27] = {"I64", 1, 8, NULL, NULL},
                                      [28] = {"F64", 1, 8, NULL, NULL},
                                      [29] = {"IQ1_M", 256, 56, unpack_iq1_m, NULL},
                                      [30] = {"BF16", 1, 2, unpack_bf16, sli_gguf_pack_bf16},
                                      [34] = {"TQ1_0", 256, 54, NULL, NULL},
                                      [35] = {"TQ2_0", 256, 66, NULL, NULL},
                                      [39] = {"MXFP4", 32, 17, unpack_mxfp4, NULL}};

const sli_gguf_type *sli_gguf_type_of(uint32_t number) {
  return number < SLI_COUNT(types) && types[number].name ? &types[number] : NULL;
}

uint32_t sli_gguf_type_number(const sli_gguf_type *type) { return (uint32_t)(type - types); }

const sli_gguf_type *sli_gguf_type_named(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(types); i++)
    if (types[i].name && !strcmp(types[i].name, name)) return &types[i];
  return NULL;
}

void sli_gguf_unpack(const char *type, const void *blocks, size_t elements, float *out) {
  const sli_gguf_type *of = sli_gguf_type_named(type);
  of->unpack(blocks, elements / (size_t)of->numbers, out);
}

char *sli_gguf_type_names(char *out, size_t size) {
  size_t at = 0;
  for (size_t i = 0; i < SLI_COUNT(types) && at < size; i++)
    if (types[i].unpack)
      at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", types[i].name);
  return out;
}
