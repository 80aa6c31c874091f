/* SPDX-License-Identifier: Apache-2.0 */
/* Products with weights stored in blocks, y = x w^T + b. A block of a row of x is integers of three
 * digits; a block of a column is integers of four or eight bits. The sums of their products are
 * exact; each sum, multiplied by both scales, is added to y block by block. A number therefore has
 * the same bits at every level, in every tick and on any thread.
 *
 * A vector holds LANES columns of a group (ops/storage.h), four numbers of each. The digits of x
 * that multiply them are the same for all columns. */

enum { GROUP = SLI_STORAGE_GROUP, GROUP_VECTORS = GROUP / LANES, QUADS = SLI_QUADS };

/* Rows whose digits stay in cache while the columns are processed. */
enum { MOST_ROWS = 64 };

/* Distance in bytes at which weights are prefetched. */
enum { FETCHED = 4096, LINE = 64 };

#define INLINE static inline __attribute__((always_inline))

/* Rows and vectors of columns processed together: as many independent sums as fit the registers. */
#if defined(__AVX512F__)
enum { SUMMED_ROWS = 1, SUMMED_VECTORS = 1 };
#else
enum { SUMMED_ROWS = 2, SUMMED_VECTORS = 2 };
#endif

/* Numbers of weights: a quad of each column; in pairs, its first and third, then its second and
 * fourth number. */
typedef struct block_scales {
  vec d[SUMMED_VECTORS], m[SUMMED_VECTORS];
} block_scales;
typedef struct block_weights {
  ivec quads[2 * QUADS][SUMMED_VECTORS];
  block_scales by;
} block_weights;
typedef uint16_t pairs_unsigned VECTOR(4);

static inline ivec load_quads(const uint8_t *p) {
  ivec quads;
  memcpy(&quads, p, sizeof quads);
  return quads;
}

/* Broadcasts four bytes, or two 16-bit numbers, to all columns. */
static inline ivec spread(const void *digits) {
  int32_t quad;
  memcpy(&quad, digits, sizeof quad);
  return quad - (ivec){0};
}

/* Keeps sums in source order. GCC 12 would compute all products first and run out of registers. */
static inline ivec in_order(ivec sum) {
#if defined(IN_VECTOR)
  __asm__("" : "+" IN_VECTOR(sum));
#endif
  return sum;
}

/* Returns sum + the products of bytes, with `a` unsigned: summed in 32 bits, or only in pairs, in
 * 16 bits. The older of ARM64's dot products takes signed bytes, which load_block supplies. */
static inline ivec plus_bytes(ivec sum, ivec a, ivec b) {
#if defined(__AVX512VNNI__)
  return (ivec)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(__AVX512BW__)
  return (ivec)_mm512_add_epi16((__m512i)sum, _mm512_maddubs_epi16((__m512i)a, (__m512i)b));
#elif defined(__AVX2__)
  return (ivec)_mm256_add_epi16((__m256i)sum, _mm256_maddubs_epi16((__m256i)a, (__m256i)b));
#elif defined(__ARM_FEATURE_MATMUL_INT8)
  return (ivec)vusdotq_s32((int32x4_t)sum, (uint8x16_t)a, (int8x16_t)b);
#elif defined(__ARM_FEATURE_DOTPROD)
  return (ivec)vdotq_s32((int32x4_t)sum, (int8x16_t)a, (int8x16_t)b);
#else
  return (void)a, (void)b, sum; /* in pairs */
#endif
}

/* Returns products of 16-bit numbers, added in pairs. */
static inline ivec multiply_pairs(ivec a, ivec b) {
#if defined(__AVX512BW__)
  return (ivec)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (ivec)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (ivec)_mm_madd_epi16((__m128i)a, (__m128i)b);
#elif defined(__aarch64__)
  int16x8_t left = (int16x8_t)a, right = (int16x8_t)b;
  return (ivec)vpaddq_s32(vmull_s16(vget_low_s16(left), vget_low_s16(right)),
                          vmull_high_s16(left, right));
#else
  return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

/* Returns the initial sum: `begin` where byte products add up in 32 bits; otherwise `begin` is
 * added after widening. */
INLINE ivec first_sum(int32_t begin) {
#if defined(SUMS_BYTES)
  return begin - (ivec){0};
#else
  return (void)begin, (ivec){0};
#endif
}

/* Returns begin + the products that plus_bytes added to first_sum(begin). */
INLINE ivec last_sum(ivec sum, int32_t begin) {
#if defined(SUMS_BYTES)
  return (void)begin, sum;
#else
  return begin + multiply_pairs(sum, (ivec){0} + 0x10001);
#endif
}

/* Loads the scales of columns from v * LANES on of a group's block: d, and the term that remains
 * after the numbers' centre is subtracted. */
INLINE void load_scales(sl_storage storage, const uint8_t *block, int v, block_scales *by) {
#pragma GCC unroll 2
  for (int t = 0; t < SUMMED_VECTORS; t++) {
    const uint8_t *halves = block + GROUP * sli_storage_numbers(storage) + (v + t) * LANES * 2;
    by->d[t] = load_half((const void *)halves);
    if (storage == SL_STORAGE_Q4_1)
      by->m[t] =
          load_half((const void *)(halves + 2 * GROUP)) + by->d[t] * (float)block_centre(storage);
  }
}

/* Loads a block of columns from v * LANES on of a group. */
INLINE void load_block(sl_storage storage, const uint8_t *block, int v, block_weights *w) {
  load_scales(storage, block, v, &w->by);
#pragma GCC unroll 2
  for (int t = 0; t < SUMMED_VECTORS; t++) {
    const uint8_t *numbers = block + (v + t) * (int)sizeof(ivec);
#pragma GCC unroll 8
    for (int i = 0; i < QUADS; i++) {
      ivec q;
      if (storage == SL_STORAGE_Q8_0)
        q = load_quads(numbers + i * GROUP * 4) ^ made_signed(storage);
      else
        q = load_quads(numbers + i % (QUADS / 2) * GROUP * 4) >> i / (QUADS / 2) * 4 & 0x0f0f0f0f;
      if (in_pairs(storage)) {
        w->quads[2 * i][t] = q & 0x00ff00ff;
        w->quads[2 * i + 1][t] = (ivec)((uvec)q >> 8) & 0x00ff00ff;
      } else w->quads[i][t] = q;
    }
  }
}

/* Sums a block of `rows` rows by the columns of a tile, without scales. */
INLINE void sum_bytes(const block_weights *w, const sli_digits *x, int rows,
                      ivec (*sums)[SUMMED_VECTORS][SLI_SUMS]) {
  ivec s[SUMMED_ROWS][SUMMED_VECTORS][SLI_DIGITS];
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++) {
      s[r][t][0] = first_sum(x[r].begin[SLI_LOW]);
      s[r][t][1] = first_sum(x[r].begin[SLI_UPPER]);
      s[r][t][2] = first_sum(0);
    }
#pragma GCC unroll 8
  for (int i = 0; i < QUADS; i++)
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
      for (int digit = 0; digit < SLI_DIGITS; digit++) {
        ivec by = spread(x[r].quads[i].digits[digit]);
#pragma GCC unroll 2
        for (int t = 0; t < SUMMED_VECTORS; t++)
          s[r][t][digit] = in_order(plus_bytes(s[r][t][digit], w->quads[i][t], by));
      }
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++) {
      sums[r][t][SLI_LOW] = last_sum(s[r][t][0], x[r].begin[SLI_LOW]);
      sums[r][t][SLI_UPPER] =
          last_sum(s[r][t][1], x[r].begin[SLI_UPPER]) + (last_sum(s[r][t][2], 0) << 8);
    }
}

INLINE void sum_pairs(const block_weights *w, const sli_digits *x, int rows,
                      ivec (*sums)[SUMMED_VECTORS][SLI_SUMS]) {
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++)
#pragma GCC unroll 2
      for (int n = 0; n < SLI_SUMS; n++) sums[r][t][n] = x[r].begin[n] - (ivec){0};
#pragma GCC unroll 16
  for (int i = 0; i < 2 * QUADS; i++)
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
      for (int n = 0; n < SLI_SUMS; n++) {
        ivec by = spread(x[r].quads[i / 2].pairs[n][i % 2]);
#pragma GCC unroll 2
        for (int t = 0; t < SUMMED_VECTORS; t++)
          sums[r][t][n] = in_order(sums[r][t][n] + multiply_pairs(w->quads[i][t], by));
      }
}

/* Returns the contribution of a block's sums to vector t of y. */
INLINE vec scaled_sums(sl_storage storage, const block_scales *by, int t, const sli_digits *x,
                       const ivec *sums) {
  vec low = __builtin_convertvector(sums[SLI_LOW], vec);
  vec sum = low + __builtin_convertvector(sums[SLI_UPPER], vec) * 256.0f;
  vec plus = rounded(sum, by->d[t]);
  if (storage == SL_STORAGE_Q4_1) plus += rounded(set(x->sum), by->m[t]);
  return rounded(plus, set(x->scale));
}

/* Adds a block of `rows` rows by the columns of a tile to y[row][GROUP]. */
INLINE void plus_tile(sl_storage storage, const block_weights *w, const sli_digits *x, int rows,
                      float *y) {
  ivec sums[SUMMED_ROWS][SUMMED_VECTORS][SLI_SUMS];
  if (in_pairs(storage)) sum_pairs(w, x, rows, sums);
  else sum_bytes(w, x, rows, sums);
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++) {
      float *to = y + r * GROUP + t * LANES;
      storeu(to, loadu(to) + scaled_sums(storage, &w->by, t, &x[r], sums[r][t]));
    }
}

/* Copies a block with fewer columns than a group, with zeros for the missing columns. */
static void widen_block(sl_storage storage, sli_grouped group, int64_t b, uint8_t *to) {
  int64_t lines = sli_storage_numbers(storage) / 4, wide = group.wide;
  const uint8_t *from = group.blocks + b * wide * sli_storage_bytes(storage);
  memset(to, 0, (size_t)(GROUP * sli_storage_bytes(storage)));
  for (int64_t i = 0; i < lines; i++)
    memcpy(to + i * GROUP * 4, from + i * wide * 4, (size_t)wide * 4);
  for (int64_t i = 0; i < sli_storage_bytes(storage) / 2 - 2 * lines; i++)
    memcpy(to + lines * GROUP * 4 + i * GROUP * 2, from + lines * wide * 4 + i * wide * 2,
           (size_t)wide * 2);
}

/* Returns block b of a group; `room` holds the copy if the group is narrow. */
INLINE const uint8_t *block_of(sl_storage storage, sli_grouped group, int64_t b, uint8_t *room) {
  const uint8_t *block = group.blocks + b * GROUP * sli_storage_bytes(storage);
  if (__builtin_expect(group.wide < GROUP, 0)) {
    widen_block(storage, group, b, room);
    return room;
  }
#pragma GCC unroll 16
  for (int64_t at = 0; at < GROUP * sli_storage_bytes(storage); at += LINE)
    __builtin_prefetch(block + FETCHED + at);
  return block;
}

/* ---- one row ----------------------------------------------------------------------------------
 */

/* A single row reads each quad of weights once. With few registers, its products follow the load,
 * and its sums stay in registers from block to block. */
#if defined(__AVX2__) && !defined(__AVX512F__)
enum { ONE_ROW = 1 };
#else
enum { ONE_ROW = 0 };
#endif

/* Adds a quad's products of bytes with each digit. */
INLINE void plus_quad(const ivec *quads, const sli_digits *x, int i, ivec (*s)[SUMMED_VECTORS]) {
#pragma GCC unroll 3
  for (int digit = 0; digit < SLI_DIGITS; digit++) {
    ivec by = spread(x->quads[i].digits[digit]);
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++)
      s[digit][t] = in_order(plus_bytes(s[digit][t], quads[t], by));
  }
}

/* Sums a block of half-bytes by the columns of a tile, as sum_bytes does. */
INLINE void sum_half_bytes(const uint8_t *numbers, const sli_digits *x, ivec (*sums)[SLI_SUMS]) {
  ivec s[SLI_DIGITS][SUMMED_VECTORS];
#pragma GCC unroll 2
  for (int t = 0; t < SUMMED_VECTORS; t++) {
    s[0][t] = first_sum(x->begin[SLI_LOW]);
    s[1][t] = first_sum(x->begin[SLI_UPPER]);
    s[2][t] = first_sum(0);
  }
#pragma GCC unroll 4
  for (int i = 0; i < QUADS / 2; i++) {
    ivec both[SUMMED_VECTORS], half[SUMMED_VECTORS];
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++) {
      both[t] = load_quads(numbers + i * GROUP * 4 + t * (int)sizeof(ivec));
      half[t] = both[t] & 0x0f0f0f0f;
    }
    plus_quad(half, x, i, s);
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++) half[t] = both[t] >> 4 & 0x0f0f0f0f;
    plus_quad(half, x, i + QUADS / 2, s);
  }
#pragma GCC unroll 2
  for (int t = 0; t < SUMMED_VECTORS; t++) {
    sums[t][SLI_LOW] = last_sum(s[0][t], x->begin[SLI_LOW]);
    sums[t][SLI_UPPER] = last_sum(s[1][t], x->begin[SLI_UPPER]) + (last_sum(s[2][t], 0) << 8);
  }
}

/* Sums a block of bytes by the columns of a tile, as sum_pairs does. */
INLINE void sum_byte_pairs(const uint8_t *numbers, const sli_digits *x, ivec (*sums)[SLI_SUMS]) {
#pragma GCC unroll 2
  for (int t = 0; t < SUMMED_VECTORS; t++)
#pragma GCC unroll 2
    for (int n = 0; n < SLI_SUMS; n++) sums[t][n] = x->begin[n] - (ivec){0};
#pragma GCC unroll 8
  for (int i = 0; i < QUADS; i++) {
    ivec quads[SUMMED_VECTORS];
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++)
      quads[t] = load_quads(numbers + i * GROUP * 4 + t * (int)sizeof(ivec));
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; odd++)
#pragma GCC unroll 2
      for (int n = 0; n < SLI_SUMS; n++) {
        ivec by = spread(x->quads[i].pairs[n][odd]);
#pragma GCC unroll 2
        for (int t = 0; t < SUMMED_VECTORS; t++) {
          ivec pair = odd ? (ivec)((pairs_unsigned)quads[t] >> 8) : quads[t] & 0x00ff00ff;
          sums[t][n] = in_order(sums[t][n] + multiply_pairs(pair, by));
        }
      }
  }
}

/* Multiplies one row by a group's columns, all of which fit one tile: y[GROUP]. */
INLINE void multiply_one(sl_storage storage, sli_grouped group, int64_t blocks, const sli_digits *x,
                         int64_t all, float *y) {
  uint8_t room[GROUP * 34];
  vec to[SUMMED_VECTORS] = {0};
  for (int64_t b = 0; b < blocks; b++, x += all) {
    const uint8_t *block = block_of(storage, group, b, room);
    ivec sums[SUMMED_VECTORS][SLI_SUMS];
    block_scales w;
    if (in_pairs(storage)) sum_byte_pairs(block, x, sums);
    else sum_half_bytes(block, x, sums);
    load_scales(storage, block, 0, &w);
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++) to[t] += scaled_sums(storage, &w, t, x, sums[t]);
  }
#pragma GCC unroll 2
  for (int t = 0; t < SUMMED_VECTORS; t++) storeu(y + t * LANES, to[t]);
}

/* ---- several rows -----------------------------------------------------------------------------
 */

/* Multiplies rows of x by a group's columns: y[row][GROUP]. Block b of x is x[b * all + row]. */
INLINE void multiply_group(sl_storage storage, sli_grouped group, int64_t blocks,
                           const sli_digits *x, int64_t rows, int64_t all, float *y) {
  uint8_t room[GROUP * 34];
  if (ONE_ROW && rows == 1) {
    multiply_one(storage, group, blocks, x, all, y);
    return;
  }
  for (int64_t i = 0; i < rows * GROUP; i += LANES) storeu(y + i, (vec){0});
  for (int64_t b = 0; b < blocks; b++, x += all) {
    const uint8_t *block = block_of(storage, group, b, room);
    for (int v = 0; v < GROUP_VECTORS; v += SUMMED_VECTORS) {
      block_weights w;
      int64_t r = 0;
      load_block(storage, block, v, &w);
      for (; r + SUMMED_ROWS <= rows; r += SUMMED_ROWS)
        plus_tile(storage, &w, x + r, SUMMED_ROWS, y + r * GROUP + v * LANES);
      if (r < rows) plus_tile(storage, &w, x + r, 1, y + r * GROUP + v * LANES);
    }
  }
}

static void multiply_q8_0(sli_grouped group, int64_t blocks, const sli_digits *x, int64_t rows,
                          int64_t all, float *y) {
  multiply_group(SL_STORAGE_Q8_0, group, blocks, x, rows, all, y);
}

static void multiply_q4_1(sli_grouped group, int64_t blocks, const sli_digits *x, int64_t rows,
                          int64_t all, float *y) {
  multiply_group(SL_STORAGE_Q4_1, group, blocks, x, rows, all, y);
}

/* Writes rows of a group's `wide` columns to y, with the bias. */
static void give_group(const float *sums, int64_t rows, int64_t wide, const float *bias, float *y,
                       int64_t n) {
  for (int64_t r = 0; r < rows; r++, sums += GROUP, y += n)
    if (bias)
      for (int64_t c = 0; c < wide; c++) y[c] = sums[c] + bias[c];
    else memcpy(y, sums, (size_t)wide * sizeof *y);
}

/* Prefetches the first lines of a piece while digits are computed. */
static void fetch_first(const uint8_t *from) {
  for (int b = 0; b < FETCHED; b += LINE) __builtin_prefetch(from + b);
}

static void block_columns(const sli_served_product *p, int64_t rows, sli_range columns) {
  const sl_call *call = p->call;
  const sl_type *lies = &call->in_type[1];
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]), few;
  bool bytes = sli_storage_of(lies, k) == SL_STORAGE_Q8_0;
  const float *bias = call->in[2];
  _Alignas(64) float sums[MOST_ROWS * GROUP];
  _Alignas(64) sli_digits own[SLI_OWN_DIGITS];
  const sli_digits *x = p->x ? p->x : own;
  fetch_first(sli_storage_grouped(lies, call->in[1], columns.begin).blocks);
  for (int64_t r = 0; r < rows && !p->x; r++) row_digits(call, rows, r, own);
  for (int64_t r = 0; r < rows; r += MOST_ROWS)
    for (int64_t c = columns.begin; c < columns.end; c += GROUP) {
      sli_grouped group = sli_storage_grouped(lies, call->in[1], c);
      few = rows - r < MOST_ROWS ? rows - r : MOST_ROWS;
      (bytes ? multiply_q8_0 : multiply_q4_1)(group, k / SLI_STORAGE_BLOCK, x + r, few, rows, sums);
      give_group(sums, few, group.wide, bias ? bias + c : NULL, (float *)call->out[0] + r * n + c,
                 n);
    }
}

#undef SUMS_BYTES
#undef INLINE
