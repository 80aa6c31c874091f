/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion from f32 to bf16, the upper half of an f32: in the given order, or transposed and
 * packed. Two neighbours form one word, carried in vectors of floats. The rounding instruction of
 * AVX-512 turns numbers below 2^-126 into 0; its products treat them as 0 anyway. */

typedef uint16_t hvec VECTOR(2);
typedef uint16_t hhvec VECTOR(4);
typedef uint16_t hvec_unaligned __attribute__((vector_size(LANES * 2), may_alias, aligned(2)));
typedef uint32_t uvec_unaligned __attribute__((vector_size(LANES * 4), may_alias, aligned(2)));

/* Rounds to nearest by adding half of the last kept place, minus one bit if that place is even. The
 * carry may reach the exponent, which is correct. A carry would corrupt a NaN, so a NaN is cut,
 * with a bit set to keep it a NaN. */
static inline uvec round_bits(vec x) {
  uvec bits = (uvec)x;
  uvec rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  uvec cut = bits >> 16 | 0x40;
  uvec nan = (uvec)((bits & 0x7fffffff) > 0x7f800000);
  return (nan & cut) | (~nan & rounded);
}

static inline hvec round_lanes(vec x) {
#if defined(__AVX512BF16__)
  return (hvec)_mm512_cvtneps_pbh((__m512)x);
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  return (hvec)vcvt_bf16_f32((float32x4_t)x);
#else
  return __builtin_convertvector(round_bits(x), hvec);
#endif
}

/* Packs two numbers per lane into a word. */
static inline vec pair(vec low, vec high) {
#if defined(__AVX512BF16__)
  hhvec both = (hhvec)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low), order;
  for (int l = 0; l < 2 * LANES; l++) order[l] = (uint16_t)(l / 2 + l % 2 * LANES);
  return (vec)SHUFFLE(both, order);
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  uint16x8_t a = (uint16x8_t)vcvtq_low_bf16_f32((float32x4_t)low),
             b = (uint16x8_t)vcvtq_low_bf16_f32((float32x4_t)high);
  return (vec)vzip1q_u16(a, b);
#else
  return (vec)(round_bits(low) | round_bits(high) << 16);
#endif
}

/* Packs 2 LANES numbers of a row. */
static inline vec neighbours(vec a, vec b) {
#if defined(__AVX512BF16__)
  return (vec)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  return (vec)vcvtq_high_bf16_f32(vcvtq_low_bf16_f32((float32x4_t)a), (float32x4_t)b);
#else
  ivec even, odd;
  for (int l = 0; l < LANES; l++) even[l] = 2 * l, odd[l] = 2 * l + 1;
  return pair(SHUFFLE2(a, b, even), SHUFFLE2(a, b, odd));
#endif
}

/* Returns c + the products of the word's two numbers with those of each lane. */
static inline vec add_products(vec c, const float *word, vec b) {
  uint32_t bits;
  memcpy(&bits, word, sizeof bits);
  uvec a = bits - (uvec){0};
#if defined(__AVX512BF16__)
#if defined(__clang__) /* clang's cost model loops forever on a broadcast word seen as bf16 */
  __asm__("" : "+v"(a));
#endif
  return (vec)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  return (vec)vbfdotq_f32((float32x4_t)c, (bfloat16x8_t)a, (bfloat16x8_t)b);
#else
  c += (vec)(a & 0xffff0000u) * (vec)((uvec)b & 0xffff0000u);
  return c + (vec)(a << 16) * (vec)((uvec)b << 16);
#endif
}

static void round_bf16_chunk(void *arg, int i) {
  const sli_rounding *r = arg;
  sli_range range = sli_chunk_range(r->count, SLI_CHUNK_ELEMENTS, i);
  int64_t at = range.begin;
  for (; at + LANES <= range.end; at += LANES)
    *(hvec_unaligned *)(r->to + at) = round_lanes(loadu(r->from + at));
  if (at == range.end) return;
  hvec last = round_lanes(load(r->from + at, range.end - at));
  for (int l = 0; at + l < range.end; l++) r->to[at + l] = last[l];
}

/* ---- other orders: squares of 2 LANES by LANES numbers; neighbours along k form a word ------- */

/* distance of the prefetch in floats: this many rows at once exceed the hardware prefetcher */
enum { AHEAD = 32, FAR_AHEAD = 128 };

/* Loads a square of [k, n], which may be incomplete: vector p has rows 2p and 2p + 1. */
static inline void square_of_rows(vec *v, const float *from, int64_t row, int64_t k, int64_t n) {
  for (int r = 0; r < 2 * LANES && r < k; r++) __builtin_prefetch(from + r * row + AHEAD);
  for (int p = 0; p < LANES; p++)
    v[p] = pair(load(from + 2 * p * row, 2 * p < k ? n : 0),
                load(from + (2 * p + 1) * row, 2 * p + 1 < k ? n : 0));
}

/* Loads a square of [n, k]: vector l has row l. */
static inline void square_of_columns(vec *v, const float *from, int64_t row, int64_t k, int64_t n) {
  for (int l = 0; l < LANES; l++) {
    int64_t there = l < n ? k : 0;
    __builtin_prefetch(from + l * row + FAR_AHEAD);
    __builtin_prefetch(from + l * row + FAR_AHEAD + 16);
    v[l] = neighbours(load(from + l * row, there), load(from + l * row + LANES, there - LANES));
  }
}

static inline void store_pairs(uint16_t *to, vec v) { *(uvec_unaligned *)to = (uvec)v; }

/* Return the columns and the rows of [k, n] that chunk i covers. */
static inline sli_range turn_columns(const sli_turning *t, int i) {
  return sli_chunk_range(t->n, sli_turn_columns(t), i / sli_chunk_count(t->k, sli_turn_rows(t)));
}
static inline sli_range turn_rows(const sli_turning *t, int i) {
  return sli_chunk_range(t->k, sli_turn_rows(t), i % sli_chunk_count(t->k, sli_turn_rows(t)));
}

/* Returns the address of (k, n) in the transposed order. */
static inline uint16_t *turned_at(const sli_turning *t, int64_t k, int64_t n) {
  int64_t row = sli_turned_row(t->k);
  if (!t->strips) return t->to + n * row + k;
  return t->to + (n - n % SLI_STRIP) * row + k / SLI_STRIP * SLI_SQUARE +
         n % SLI_STRIP * SLI_STRIP + k % SLI_STRIP;
}

static void turn_rows_over(const sli_turning *t, sli_range rows, sli_range columns) {
  for (int64_t k = rows.begin; k < sli_turned_row(rows.end); k += 2 * LANES)
    for (int64_t n = columns.begin; n < columns.end; n += LANES) {
      vec v[LANES];
      square_of_rows(v, t->from + k * t->row + n, t->row, rows.end - k, columns.end - n);
      transpose(v);
      for (int l = 0; l < LANES && n + l < columns.end; l++)
        store_pairs(turned_at(t, k, n + l), v[l]);
    }
}

/* Rounds columns that are already contiguous. */
static void round_columns(const sli_turning *t, sli_range rows, sli_range columns) {
  for (int64_t n = columns.begin; n < columns.end; n++)
    for (int64_t k = rows.begin; k < sli_turned_row(rows.end); k += 2 * LANES) {
      const float *from = t->from + n * t->row + k;
      store_pairs(turned_at(t, k, n), neighbours(load_ahead(from, rows.end - k),
                                                 load_ahead(from + LANES, rows.end - k - LANES)));
    }
}

static void turn_bf16_chunk(void *arg, int i) {
  const sli_turning *t = arg;
  sli_range columns = turn_columns(t, i), rows = turn_rows(t, i);
  if (t->turned) round_columns(t, rows, columns);
  else turn_rows_over(t, rows, columns);
}

/* Returns the block of columns from n on; two of its rows have 2 block numbers. */
static inline uint16_t *packed_block(const sli_turning *t, int64_t n) {
  return t->to + n * sli_turned_row(t->k);
}

static void pack_rows(const sli_turning *t, sli_range rows, sli_range columns) {
  int64_t ahead = 2 * (SLI_TURN_LONG / (columns.end - columns.begin) + 1) * t->row;
  for (int64_t k = rows.begin; k < rows.end; k += 2)
    for (int64_t n = columns.begin; n < columns.end; n += t->block) {
      uint16_t *to = packed_block(t, n) + k * t->block;
      const float *from = t->from + k * t->row + n;
      for (int64_t c = 0, left = t->n - n; c < t->block; c += LANES) {
        __builtin_prefetch(from + ahead + c);
        __builtin_prefetch(from + ahead + t->row + c);
        store_pairs(to + 2 * c, pair(load(from + c, k < t->k ? left - c : 0),
                                     load(from + t->row + c, k + 1 < t->k ? left - c : 0)));
      }
    }
}

static void pack_columns(const sli_turning *t, sli_range rows, sli_range columns) {
  for (int64_t n = columns.begin; n < columns.end; n += t->block)
    for (int64_t c = 0; c < t->block; c += LANES)
      for (int64_t k = rows.begin; k < rows.end; k += 2 * LANES) {
        vec v[LANES];
        square_of_columns(v, t->from + (n + c) * t->row + k, t->row, t->k - k, t->n - n - c);
        transpose(v);
        for (int p = 0; p < LANES; p++)
          store_pairs(packed_block(t, n) + (k + 2 * p) * t->block + 2 * c, v[p]);
      }
}

/* Packs a chunk, and fills the padding of the order. */
static void pack_bf16_chunk(void *arg, int i) {
  const sli_turning *t = arg;
  sli_range columns = turn_columns(t, i), rows = turn_rows(t, i);
  rows.end = sli_turned_row(rows.end);
  if (t->turned) pack_columns(t, rows, columns);
  else pack_rows(t, rows, columns);
}
