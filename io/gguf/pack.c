/* SPDX-License-Identifier: Apache-2.0 */
/* Packs numbers into the blocks of GGUF files (ggml-common.h): 16 bits, Q8_0, Q4_0 and Q4_K. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "io/gguf/gguf_inner.h"
#include "io/half.h"

enum { BLOCK = 32, PARTS = 8, SUPER = BLOCK * PARTS };

static void put_word(unsigned char *to, uint16_t word) {
  to[0] = (unsigned char)word;
  to[1] = (unsigned char)(word >> 8);
}

static void put_half(unsigned char *to, float x) { put_word(to, sli_float_to_half(x)); }

static float largest(const float *x, int n) {
  float most = 0;
  for (int i = 0; i < n; i++) most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
  return most;
}

static int clamped(float x, int most) {
  int n = (int)rintf(x);
  return n < 0 ? 0 : n > most ? most : n;
}

void sli_gguf_pack_f32(const float *from, size_t blocks, unsigned char *out) {
  memcpy(out, from, blocks * sizeof *from);
}

void sli_gguf_pack_f16(const float *from, size_t blocks, unsigned char *out) {
  for (size_t i = 0; i < blocks; i++) put_half(out + 2 * i, from[i]);
}

void sli_gguf_pack_bf16(const float *from, size_t blocks, unsigned char *out) {
  for (size_t i = 0; i < blocks; i++) put_word(out + 2 * i, sli_float_to_bfloat(from[i]));
}

/* Packs Q8_0: a scale that maps the largest number to 127. */
void sli_gguf_pack_q8_0(const float *from, size_t blocks, unsigned char *out) {
  for (size_t b = 0; b < blocks; b++, from += BLOCK, out += 34) {
    float scale = fabsf(largest(from, BLOCK)) / 127, by = scale > 0 ? 1 / scale : 0;
    put_half(out, scale);
    for (int i = 0; i < BLOCK; i++) out[2 + i] = (unsigned char)(int8_t)rintf(from[i] * by);
  }
}

/* Packs Q4_0: a scale that maps the largest number to -8. */
void sli_gguf_pack_q4_0(const float *from, size_t blocks, unsigned char *out) {
  for (size_t b = 0; b < blocks; b++, from += BLOCK, out += 18) {
    float scale = largest(from, BLOCK) / -8, by = scale != 0 ? 1 / scale : 0;
    put_half(out, scale);
    for (int i = 0; i < BLOCK / 2; i++) {
      int lower = clamped(from[i] * by + 8, 15), upper = clamped(from[i + 16] * by + 8, 15);
      out[2 + i] = (unsigned char)(lower | upper << 4);
    }
  }
}

/* ---- Q4_K: parts of 32, number = scale q - less, both in 6 bits of the block's scale
 * ----------- */

/* A part's scale and offset, and the remaining error. */
typedef struct fitted {
  float scale, less;
  double error;
} fitted;

/* Fits scale and offset to integers by least squares. The offset is not below 0. */
static fitted fit(const float *x, const int *q) {
  double n = BLOCK, sq = 0, sqq = 0, sx = 0, sqx = 0;
  for (int i = 0; i < BLOCK; i++) {
    sq += q[i], sqq += (double)q[i] * q[i];
    sx += (double)x[i], sqx += (double)q[i] * (double)x[i];
  }
  double det = n * sqq - sq * sq, scale = det > 0 ? (n * sqx - sq * sx) / det : 0;
  double less = -(sx - scale * sq) / n;
  if (less < 0) less = 0, scale = sqq > 0 ? sqx / sqq : 0;
  fitted f = {(float)scale, (float)less, 0};
  for (int i = 0; i < BLOCK; i++) {
    double miss = scale * q[i] - less - (double)x[i];
    f.error += miss * miss;
  }
  return f;
}

/* Tries integers for ranges a little narrower and wider than that of the numbers, and keeps the
 * best. */
static fitted fit_part(const float *x) {
  enum { TRIES = 21 };
  float low = 0, high = x[0];
  for (int i = 0; i < BLOCK; i++) low = fminf(low, x[i]), high = fmaxf(high, x[i]);
  fitted best = {0, -low, INFINITY};
  if (high <= low) return best;
  for (int t = 0; t < TRIES; t++) {
    float by = (14 + 0.1f * (float)t) / (high - low);
    int q[BLOCK];
    for (int i = 0; i < BLOCK; i++) q[i] = clamped(by * (x[i] - low), 15);
    fitted f = fit(x, q);
    if (f.scale > 0 && f.error < best.error) best = f;
  }
  return best;
}

/* Packs the scale and offset of part j, six bits each, as sli_gguf unpacks them. */
static void put_part(unsigned char *to, int j, int scale, int less) {
  if (j < 4) {
    to[j] |= (unsigned char)scale;
    to[j + 4] |= (unsigned char)less;
    return;
  }
  to[j + 4] = (unsigned char)((scale & 15) | (less & 15) << 4);
  to[j - 4] |= (unsigned char)(scale >> 4 << 6);
  to[j] |= (unsigned char)(less >> 4 << 6);
}

static void pack_super(const float *x, unsigned char *out) {
  fitted parts[PARTS];
  float scale = 0, less = 0;
  for (int j = 0; j < PARTS; j++) {
    parts[j] = fit_part(x + j * BLOCK);
    scale = fmaxf(scale, parts[j].scale), less = fmaxf(less, parts[j].less);
  }
  memset(out, 0, 144);
  put_half(out, scale / 63);
  put_half(out + 2, less / 63);
  float d = sli_half_to_float(sli_float_to_half(scale / 63)),
        m = sli_half_to_float(sli_float_to_half(less / 63));
  for (int j = 0; j < PARTS; j++) {
    int s = d > 0 ? clamped(parts[j].scale / d, 63) : 0,
        l = m > 0 ? clamped(parts[j].less / m, 63) : 0;
    put_part(out + 4, j, s, l);
    float by = s && d > 0 ? 1 / (d * (float)s) : 0;
    for (int i = 0; i < BLOCK; i++) {
      int q = clamped((x[j * BLOCK + i] + m * (float)l) * by, 15);
      out[16 + j / 2 * BLOCK + i] |= (unsigned char)(q << j % 2 * 4);
    }
  }
}

void sli_gguf_pack_q4_k(const float *from, size_t blocks, unsigned char *out) {
  for (size_t b = 0; b < blocks; b++) pack_super(from + b * SUPER, out + b * 144);
}
