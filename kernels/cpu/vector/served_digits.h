/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of rows of x to digits, for products with weights stored in blocks (sli_digits). */

/* Returns the centre subtracted from the numbers of weights, so that they are roughly symmetric
 * around 0. */
static inline int block_centre(sl_storage storage) {
  switch (storage) {
  case SL_STORAGE_Q8_0: return 128;
  case SL_STORAGE_Q6_K: return 32;
  case SL_STORAGE_Q5_K: return 16;
  case SL_STORAGE_Q3_K: return 4;
  default: return 8; /* Q4_1, Q4_K */
  }
}

/* True if a block's halves, of 16 numbers each, have scales of their own. */
static inline bool in_halves(sl_storage storage) {
  return storage == SL_STORAGE_Q3_K || storage == SL_STORAGE_Q6_K;
}

/* Returns the centre that the sums begin with: all of it, unless load_numbers subtracted it from
 * the numbers, for products of signed bytes. */
static inline int centre_left(sl_storage storage) {
#if defined(__ARM_FEATURE_DOTPROD) && !defined(__ARM_FEATURE_MATMUL_INT8)
  if (storage == SL_STORAGE_Q8_0) return 0;
#endif
  return block_centre(storage);
}

/* Returns the bits that subtract the rest of the centre from the four bytes of a quad: none or
 * 128. */
static inline ivec made_signed(sl_storage storage) {
  return (ivec)((uint32_t)(block_centre(storage) - centre_left(storage)) * 0x01010101u - (uvec){0});
}

/* True if products of bytes are summed four by four, in 32 bits. */
#if defined(__AVX512VNNI__) || defined(__ARM_FEATURE_DOTPROD)
#define SUMS_BYTES
#endif

/* Returns true if digits are in pairs of 16 bits. AVX2 and AVX-512 without VNNI add byte products
 * in pairs in 16 bits, which is enough for some quads of small weights. Baselines have no byte
 * products. */
static inline bool in_pairs(sl_storage storage) {
#if defined(SUMS_BYTES)
  return (void)storage, false;
#elif defined(__AVX2__)
  return storage == SL_STORAGE_Q8_0;
#else
  return (void)storage, true;
#endif
}

static inline ivec larger(ivec a, ivec b) {
#if defined(__AVX512F__)
  return (ivec)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (ivec)_mm256_max_epi32((__m256i)a, (__m256i)b);
#elif defined(__aarch64__)
  return (ivec)vmaxq_s32((int32x4_t)a, (int32x4_t)b);
#else
  return (a & (a > b)) | (b & (a <= b));
#endif
}

/* Return the largest and the sum of a vector's lanes. */
static inline __attribute__((always_inline)) int32_t largest_lane(ivec v) {
#pragma GCC unroll 4
  for (int half = LANES / 2; half; half /= 2) v = larger(v, SHUFFLE(v, lanes() ^ half));
  return v[0];
}

static inline __attribute__((always_inline)) int32_t sum_of_lanes(ivec v) {
#pragma GCC unroll 4
  for (int half = LANES / 2; half; half /= 2) v += SHUFFLE(v, lanes() ^ half);
  return v[0];
}

/* Returns 2^exponent, including subnormals; scalar code, not for vectors. */
static inline float power_of_two(int exponent) {
  uint32_t bits = exponent > -127 ? (uint32_t)(exponent + 127) << 23 : 1u << (exponent + 149);
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Returns the exponent of the scale that maps the block's largest number, with these bits, to the
 * largest three-digit integer: 0x7f7f7f, which is 1.992 * 2^22. */
static inline int digits_exponent(int32_t largest) {
  int exponent = (largest + 0x10200) >> 23;
  return (exponent > 1 ? exponent : 1) - 149;
}

/* Returns the digits of integers in quads. Digits are the bytes, each of which borrows its excess
 * from the next. */
static inline __attribute__((always_inline)) ivec quads_of(ivec integers) {
  typedef uint8_t bytes VECTOR(4);
  bytes turned;
#pragma GCC unroll 64
  for (int i = 0; i < LANES * 4; i++) turned[i] = (uint8_t)(i / 16 * 16 + i % 4 * 4 + i / 4 % 4);
  return (ivec)SHUFFLE((bytes)((integers + 0x808080) ^ 0x808080), turned);
}

/* Returns the digits of integers in pairs. */
static inline __attribute__((always_inline)) ivec pairs_of(ivec integers) {
  typedef uint16_t halves VECTOR(4);
  halves turned;
#pragma GCC unroll 32
  for (int i = 0; i < LANES * 2; i++)
    turned[i] = (uint16_t)(i / 8 * 8 + i % 2 * 4 + i / 2 % 2 * 2 + i / 4 % 2);
  ivec low = integers << 24 >> 24;
  return (ivec)SHUFFLE((halves)((integers - low) << 8 | (low & 0xffff)), turned);
}

/* Multiplies numbers by a power of two that f32 may not be able to represent, and rounds to the
 * nearest integers. */
static inline __attribute__((always_inline)) void scale_block(const vec *x, int exponent,
                                                              ivec *to) {
  vec first = set(power_of_two(exponent / 2)), second = set(power_of_two(exponent - exponent / 2));
#pragma GCC unroll 8
  for (int v = 0; v < BLOCK_VECTORS; v++) {
    vec scaled = x[v] * first * second, half = (vec)(((ivec)scaled & INT32_MIN) | (ivec)set(0.5f));
    to[v] = __builtin_convertvector(scaled + half, ivec);
  }
}

/* Sets where the sums of half blocks begin: minus the centre times the sum of their digits. */
static inline __attribute__((always_inline)) void begin_halves(const ivec *integers, int centre,
                                                               sli_digits *to) {
  enum { HALF = BLOCK_VECTORS / 2 };
  for (int half = 0; half < 2; half++) {
    ivec low = {0}, all = {0};
#pragma GCC unroll 4
    for (int v = half * HALF; v < (half + 1) * HALF; v++)
      low += integers[v] << 24 >> 24, all += integers[v];
    to->quads[2 * half + SLI_LOW].begin = -centre * sum_of_lanes(low);
    to->quads[2 * half + SLI_UPPER].begin = -centre * (sum_of_lanes(all - low) >> 8);
  }
}

/* `pairs`, `halves`, `centre`: in_pairs(), in_halves() and centre_left() of the weights. */
static inline __attribute__((always_inline)) void digits_of(const float *x, bool pairs, bool halves,
                                                            int centre, sli_digits *to) {
  vec numbers[BLOCK_VECTORS];
  ivec largest = {0}, sum = {0}, integers[BLOCK_VECTORS];
#pragma GCC unroll 8
  for (int v = 0; v < BLOCK_VECTORS; v++) {
    numbers[v] = loadu(x + v * LANES);
    largest = larger(largest, (ivec)numbers[v] & INT32_MAX);
  }
  int32_t most = largest_lane(largest);
  if (most >= 0x7f800000) {
    memset(to, 0, sizeof *to);
    to->scale = NAN;
    return;
  }
  int exponent = digits_exponent(most);
  scale_block(numbers, -exponent, integers);
#pragma GCC unroll 8
  for (int v = 0; v < BLOCK_VECTORS; v++) {
    ivec quads = pairs ? pairs_of(integers[v]) : quads_of(integers[v]);
    sum += integers[v];
    memcpy((char *)to->quads + v * (int)sizeof quads, &quads, sizeof quads);
  }
  int32_t all = sum_of_lanes(sum);
  to->begin[SLI_LOW] = -centre * (all & 0xff);
  to->begin[SLI_UPPER] = -centre * (all >> 8);
  to->sum = (float)all;
  to->scale = power_of_two(exponent);
  if (halves && !pairs) begin_halves(integers, centre, to);
}

/* Converts row i of a call's `rows`. */
static void row_digits(const sl_call *call, int64_t rows, int64_t i, sli_digits *to) {
  int64_t k = sl_type_last(&call->in_type[0]);
  const float *x = (const float *)call->in[0] + i * k;
  sl_storage storage = sli_storage_of(call->attrs, &call->in_type[1]);
  const int centre = centre_left(storage);
  const bool pairs = in_pairs(storage), halves = in_halves(storage);
  for (int64_t b = 0; b < k / SLI_STORAGE_BLOCK; b++, x += SLI_STORAGE_BLOCK, to += rows)
    if (pairs) digits_of(x, true, halves, centre, to + i);
    else digits_of(x, false, halves, centre, to + i);
}

static void served_digits_chunk(void *arg, int i) {
  const sli_served_product *p = arg;
  row_digits(p->call, sl_call_rows(p->call, 0, sl_type_rows(&p->call->in_type[0])), i, p->x);
}
