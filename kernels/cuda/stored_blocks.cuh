/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of blocks with the bytes of GGUF files (io/gguf/types.c), in rows or in groups of rows.
 */
#ifndef SLUICE_CUDA_STORED_BLOCKS_CUH
#define SLUICE_CUDA_STORED_BLOCKS_CUH

#include "io/small.h"
#include "kernels/cuda/stored.cuh"

namespace sli {

/* Bytes of a row's block in a group, as they are in the file: quads, and `QUADS` bytes further the
 * half after them. */
template <int QUADS> struct grouped_bytes {
  const uint8_t *quads, *half;
  int64_t step; /* bytes from a quad to the next one */
  int first;    /* byte 0 here */
  __device__ int operator[](int i) const {
    i += first;
    return i < QUADS ? quads[i / 4 * step + i % 4] : half[i - QUADS];
  }
  __device__ grouped_bytes operator+(int bytes) const { return {quads, half, step, first + bytes}; }
};

template <typename B> __device__ inline float half_at(B from) {
  return half_to_float((uint16_t)(from[0] | from[1] << 8));
}

/* Returns number n of 32 with four bits each. */
template <typename B> __device__ inline int four_bits(B from, int n) {
  return n < 16 ? from[n] & 15 : from[n - 16] >> 4;
}

/* Returns number n of 256 with two bits each. */
template <typename B> __device__ inline int two_bits(B from, int n) {
  return from[n / 128 * 32 + n % 32] >> n / 32 % 4 * 2 & 3;
}

/* Return place i of the table of IQ4_NL and IQ4_XS, or of MXFP4's doubled values. */
__device__ inline float uneven_number(int i) {
  return (float)((int)(uneven_quad(i / 4) >> i % 4 * 8 & 255) - 128);
}
__device__ inline float doubled_number(int i) {
  return (float)((int)(doubled_quad(i / 4) >> i % 4 * 8 & 255) - 128);
}

template <typename B> __device__ inline float q5_1_number(B b, int n) {
  int fifth = b[4 + n / 8] >> n % 8 & 1;
  return (float)(four_bits(b + 8, n) | fifth << 4) * half_at(b) + half_at(b + 2);
}

/* The scale is the upper half of a float. */
template <typename B> __device__ inline float mxfp4_number(B b, int n) {
  return __uint_as_float((uint32_t)(b[16] | b[17] << 8) << 16) * doubled_number(four_bits(b, n));
}

/* Q4_K, and Q5_K with a fifth bit: parts of 32 with a scale and a minimum of six bits each. */
template <bool FIFTH, typename B> __device__ inline float part_number(B b, int n) {
  B scales = b + 4, fifth = b + 16, numbers = b + (FIFTH ? 48 : 16);
  int j = n / 32, k = n % 32, scale, less;
  if (j < 4) scale = scales[j] & 63, less = scales[j + 4] & 63;
  else {
    scale = (scales[j + 4] & 15) | scales[j - 4] >> 6 << 4;
    less = scales[j + 4] >> 4 | scales[j] >> 6 << 4;
  }
  int number = numbers[j / 2 * 32 + k] >> j % 2 * 4 & 15;
  if (FIFTH) number |= (fifth[k] >> j & 1) << 4;
  return half_at(b) * (float)scale * (float)number - half_at(b + 2) * (float)less;
}

template <typename B> __device__ inline float q6_k_number(B b, int n) {
  int half = n / 128, quarter = n / 32 % 4, k = n % 32;
  int lower = b[half * 64 + quarter % 2 * 32 + k] >> quarter / 2 * 4 & 15;
  int upper = b[128 + half * 32 + k] >> quarter * 2 & 3;
  return half_at(b + 208) * (float)(int8_t)b[192 + n / 16] * (float)((lower | upper << 4) - 32);
}

template <typename B> __device__ inline float q2_k_number(B b, int n) {
  float scale = half_at(b + 80) * (float)(b[n / 16] & 15);
  return scale * (float)two_bits(b + 16, n) - half_at(b + 82) * (float)(b[n / 16] >> 4);
}

template <typename B> __device__ inline float q3_k_number(B b, int n) {
  int p = n / 16, lower = b[96 + p % 8] >> p / 8 * 4 & 15, upper = b[104 + p % 4] >> p / 4 * 2 & 3;
  int third = b[n % 32] >> n / 32 & 1;
  float scale = half_at(b + 108) * (float)((lower | upper << 4) - 32);
  return scale * (float)((two_bits(b + 32, n) | third << 2) - 4);
}

template <typename B> __device__ inline float iq4_xs_number(B b, int n) {
  int j = n / 32, lower = b[4 + j / 2] >> j % 2 * 4 & 15;
  int upper = (b[2] | b[3] << 8) >> 2 * j & 3;
  float scale = half_at(b) * (float)((lower | upper << 4) - 32);
  return scale * uneven_number(four_bits(b + 8 + 16 * j, n % 32));
}

/* Number n of a block, which is a row's, or in groups its quads and the half after them. */
template <sl_storage STORAGE> struct file_block;
#define FILE_BLOCK(storage, number)                                                          \
  template <> struct file_block<storage> : form_of<storage> {                                \
    template <typename B> __device__ static float at(B b, int n) { return (void)n, number; } \
  };
FILE_BLOCK(SL_STORAGE_F16, half_at(b))
FILE_BLOCK(SL_STORAGE_Q5_1, q5_1_number(b, n))
FILE_BLOCK(SL_STORAGE_Q2_K, q2_k_number(b, n))
FILE_BLOCK(SL_STORAGE_Q3_K, q3_k_number(b, n))
FILE_BLOCK(SL_STORAGE_Q4_K, part_number<false>(b, n))
FILE_BLOCK(SL_STORAGE_Q5_K, part_number<true>(b, n))
FILE_BLOCK(SL_STORAGE_Q6_K, q6_k_number(b, n))
FILE_BLOCK(SL_STORAGE_IQ4_NL, half_at(b + 16) * uneven_number(four_bits(b, n)))
FILE_BLOCK(SL_STORAGE_IQ4_XS, iq4_xs_number(b, n))
FILE_BLOCK(SL_STORAGE_MXFP4, mxfp4_number(b, n))
FILE_BLOCK(SL_STORAGE_SCALED, sli_fp8_number(b, n))
FILE_BLOCK(SL_STORAGE_NVFP4, sli_nvfp4_number(b, n))
#undef FILE_BLOCK

/* Formats whose numbers are read one by one. */
#define SLI_FILE_FORMS(form)                                                               \
  form(F16) form(Q5_1) form(Q2_K) form(Q3_K) form(Q4_K) form(Q5_K) form(Q6_K) form(IQ4_NL) \
      form(IQ4_XS) form(MXFP4) form(SCALED) form(NVFP4)

/* Rows of such blocks; each row or group begins at a multiple of four bytes. */
template <sl_storage STORAGE> struct stored_file {
  using block = file_block<STORAGE>;
  static constexpr int E = 4, SPAN = QUADS * E;
  __device__ static int64_t column(int64_t span, int) { return span * SPAN + quad_of_lane() * E; }
  __device__ static float number(const stored &w, int64_t row, int64_t c) {
    int64_t bytes = (w.k / block::NUMBERS * block::BYTES + 3) / 4 * 4, b = c / block::NUMBERS;
    const uint8_t *rows = (const uint8_t *)w.data;
    int n = (int)(c % block::NUMBERS);
    if constexpr (block::IN_GROUPS) {
      int64_t place = row % GROUP, left = w.n - (row - place), wide = left < GROUP ? left : GROUP;
      const uint8_t *here = rows + (row - place) * bytes + b * wide * block::BYTES;
      return block::at(
          grouped_bytes<block::QUADS>{here + 4 * place, here + wide * block::QUADS + 2 * place,
                                      4 * wide, 0},
          n);
    } else return block::at(rows + row * bytes + b * block::BYTES, n);
  }
  __device__ static void read(const stored &w, int64_t row, int64_t span,
                              float (&to)[LANE_ROWS][E]) {
    int64_t c = column(span, 0);
    for (int r = 0; r < LANE_ROWS; r++) {
      int64_t at = row + first_row_of_lane() + r;
      for (int e = 0; e < E; e++)
        to[r][e] = c + e < w.k ? number(w, at < w.n ? at : w.n - 1, c + e) : 0.0f;
    }
  }
};

/* Returns number c of a row of weights in any format. */
__device__ inline float served_number(sl_storage storage, const stored &w, int64_t row, int64_t c) {
  switch (storage) {
#define FILE_FORM(form) \
  case SL_STORAGE_##form: return stored_file<SL_STORAGE_##form>::number(w, row, c);
    SLI_FILE_FORMS(FILE_FORM)
#undef FILE_FORM
  default: return stored_number(storage, w, row, c);
  }
}

/* Calls f with the reader of a format. */
template <typename F> void with_any_stored(sl_storage storage, F f) {
  switch (storage) {
#define FILE_FORM(form) \
  case SL_STORAGE_##form: return f(stored_file<SL_STORAGE_##form>());
    SLI_FILE_FORMS(FILE_FORM)
#undef FILE_FORM
  default: return with_stored(storage, f);
  }
}

} // namespace sli

#endif
