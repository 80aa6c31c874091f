/* SPDX-License-Identifier: Apache-2.0 */
/* Products with weights stored in blocks, y = x w^T + b. A block of a row of x is integers of three
 * digits; a block of a column is integers of three to eight bits. The sums of their products are
 * exact; each sum, multiplied by both scales, is added to y block by block. A number therefore has
 * the same bits at every level, in every tick and on any thread. A block of 256 numbers is eight
 * parts of 32, each of which counts as a block here.
 *
 * Exact products add the blocks group by group, and the groups by the tree of gemm.h. A block
 * belongs to the group of steps in which it begins, so that devices with whole blocks and whole
 * groups have parts of the same sums. The first group's sum ends with the bias.
 *
 * A vector holds LANES columns of a group (ops/storage.h), four numbers of each. The digits of x
 * that multiply them are the same for all columns. */

enum { GROUP = SLI_STORAGE_GROUP, GROUP_VECTORS = GROUP / LANES, QUADS = SLI_QUADS };

/* Rows whose digits stay in cache while the columns are processed. */
enum { MOST_ROWS = 64 };

/* Bytes of the largest block of a row. */
enum { MOST_BYTES = 210 };

/* Distance in bytes at which weights are prefetched. */
enum { FETCHED = 4096, LINE = 64 };

#define INLINE static inline __attribute__((always_inline))

/* Rows and vectors of columns processed together: as many independent sums as fit the registers. */
#if defined(__AVX512F__)
enum { SUMMED_ROWS = 1, SUMMED_VECTORS = 1 };
#else
enum { SUMMED_ROWS = 2, SUMMED_VECTORS = 2 };
#endif

/* Scales of columns: of the block, or of its halves, and the term that remains after the numbers'
 * centre is subtracted, of formats with an offset. */
typedef struct block_scales {
  vec d[SUMMED_VECTORS], second[SUMMED_VECTORS], m[SUMMED_VECTORS];
} block_scales;
/* Scales of blocks of 256, which those of parts multiply. */
typedef struct block_head {
  vec d[SUMMED_VECTORS], least[SUMMED_VECTORS];
} block_head;
/* Numbers of weights: a quad of each column; in pairs, its first and third, then its second and
 * fourth number. */
typedef struct block_weights {
  ivec quads[2 * QUADS][SUMMED_VECTORS];
  block_scales by;
} block_weights;
typedef uint16_t pairs_unsigned VECTOR(4);
typedef int16_t pairs_signed VECTOR(4);

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

/* Returns quad `j` of the file's bytes, of columns from v * LANES on. */
INLINE ivec file_quad(const uint8_t *block, int j, int v) {
  return load_quads(block + j * GROUP * 4 + v * (int)sizeof(ivec));
}

/* Returns the parts of a block. */
static inline int parts_of(sl_storage storage) { return sli_storage_in_parts(storage) ? 8 : 1; }

/* Returns true if a format has an offset for each block. */
static inline bool has_offset(sl_storage storage) {
  return storage == SL_STORAGE_Q4_1 || storage == SL_STORAGE_Q4_K || storage == SL_STORAGE_Q5_K;
}

/* Loads the head of columns from v * LANES on of a group's block. */
INLINE void load_head(sl_storage storage, const uint8_t *block, int v, block_head *head) {
  const uint8_t *halves = block + GROUP * sli_storage_quads(storage);
  if (!sli_storage_in_parts(storage)) return;
#pragma GCC unroll 2
  for (int t = 0; t < SUMMED_VECTORS; t++)
    if (in_halves(storage)) {
      head->d[t] = load_half((const void *)(halves + (v + t) * LANES * 2));
    } else {
      uvec both = (uvec)file_quad(block, 0, v + t);
      head->d[t] = halves_to_floats(both & 0xffff);
      head->least[t] = halves_to_floats(both >> 16);
    }
}

/* Loads the scale and offset of a part of Q4_K or Q5_K: six bits each, in quads 1 to 3, times the
 * head's. */
INLINE void load_six_bits(sl_storage storage, const uint8_t *block, int part, int v, vec *d,
                          vec *m) {
  const int shift = part % 4 * 8;
  ivec first = file_quad(block, 1, v) >> shift, second = file_quad(block, 2, v) >> shift, scale,
       less;
  if (part < 4) scale = first & 63, less = second & 63;
  else {
    ivec last = file_quad(block, 3, v) >> shift;
    scale = (last & 15) | (first >> 2 & 48);
    less = (last >> 4 & 15) | (second >> 2 & 48);
  }
  *d *= __builtin_convertvector(scale, vec);
  *m = *d * (float)block_centre(storage) - *m * __builtin_convertvector(less, vec);
}

/* Returns the scale of half `half` of a part: eight bits of Q6_K, six of Q3_K, which start at
 * -32. */
INLINE ivec half_scale(sl_storage storage, const uint8_t *block, int part, int half, int v) {
  int p = 2 * part + half;
  if (storage == SL_STORAGE_Q6_K) return file_quad(block, 48 + p / 4, v) << (24 - p % 4 * 8) >> 24;
  ivec lower = file_quad(block, 24 + p % 8 / 4, v) >> (p % 4 * 8 + p / 8 * 4) & 15,
       upper = file_quad(block, 26, v) >> (p % 4 * 8 + p / 4 * 2) & 3;
  return (lower | upper << 4) - 32;
}

/* Loads the scales of columns from v * LANES on of a part of a group's block. */
INLINE void load_scales(sl_storage storage, const uint8_t *block, const block_head *head, int part,
                        int v, block_scales *by) {
#pragma GCC unroll 2
  for (int t = 0; t < SUMMED_VECTORS; t++) {
    const uint8_t *halves = block + GROUP * sli_storage_quads(storage) + (v + t) * LANES * 2;
    if (in_halves(storage)) {
      by->d[t] =
          head->d[t] * __builtin_convertvector(half_scale(storage, block, part, 0, v + t), vec);
      by->second[t] =
          head->d[t] * __builtin_convertvector(half_scale(storage, block, part, 1, v + t), vec);
    } else if (sli_storage_in_parts(storage)) {
      by->d[t] = head->d[t], by->m[t] = head->least[t];
      load_six_bits(storage, block, part, v + t, &by->d[t], &by->m[t]);
    } else {
      by->d[t] = load_half((const void *)halves);
      if (storage == SL_STORAGE_Q4_1)
        by->m[t] =
            load_half((const void *)(halves + 2 * GROUP)) + by->d[t] * (float)block_centre(storage);
    }
  }
}

/* Returns quad i of a part's numbers, of columns from v * LANES on (io/gguf/types.c). */
INLINE ivec load_numbers(sl_storage storage, const uint8_t *block, int part, int i, int v) {
  const int low = part / 2 * QUADS + i, side = part / 4, quarter = part % 4;
  switch (storage) {
  case SL_STORAGE_Q8_0: return file_quad(block, i, v) ^ made_signed(storage);
  case SL_STORAGE_Q3_K:
    return (file_quad(block, 8 + side * QUADS + i, v) >> quarter * 2 & 0x03030303) |
           (file_quad(block, i, v) >> part & 0x01010101) << 2;
  case SL_STORAGE_Q4_K: return file_quad(block, 4 + low, v) >> part % 2 * 4 & 0x0f0f0f0f;
  case SL_STORAGE_Q5_K:
    return (file_quad(block, 12 + low, v) >> part % 2 * 4 & 0x0f0f0f0f) |
           (file_quad(block, 4 + i, v) >> part & 0x01010101) << 4;
  case SL_STORAGE_Q6_K:
    return (file_quad(block, side * 16 + quarter % 2 * QUADS + i, v) >> quarter / 2 * 4 &
            0x0f0f0f0f) |
           (file_quad(block, 32 + side * QUADS + i, v) >> quarter * 2 & 0x03030303) << 4;
  default: return file_quad(block, i % (QUADS / 2), v) >> i / (QUADS / 2) * 4 & 0x0f0f0f0f;
  }
}

/* Returns two of a quad's numbers in 16 bits each: the first and third, or the second and fourth.
 * Those of half blocks, whose sums begin at 0, are signed. */
INLINE ivec pair_of(sl_storage storage, ivec quad, bool odd) {
  ivec pair = odd ? (ivec)((pairs_unsigned)quad >> 8) : quad & 0x00ff00ff;
  if (!in_halves(storage)) return pair;
  return (ivec)((pairs_signed)pair - (int16_t)block_centre(storage));
}

/* Loads a part of columns from v * LANES on of a group's block. */
INLINE void load_block(sl_storage storage, const uint8_t *block, const block_head *head, int part,
                       int v, block_weights *w) {
  load_scales(storage, block, head, part, v, &w->by);
#pragma GCC unroll 2
  for (int t = 0; t < SUMMED_VECTORS; t++) {
#pragma GCC unroll 8
    for (int i = 0; i < QUADS; i++) {
      ivec quad = load_numbers(storage, block, part, i, v + t);
      if (in_pairs(storage)) {
        w->quads[2 * i][t] = pair_of(storage, quad, false);
        w->quads[2 * i + 1][t] = pair_of(storage, quad, true);
      } else w->quads[i][t] = quad;
    }
  }
}

/* Returns where a sum of a block, or of its half that begins with quad `first`, begins. */
INLINE int32_t begin_of(sl_storage storage, const sli_digits *x, int first, int sum) {
  if (!in_halves(storage)) return x->begin[sum];
  return in_pairs(storage) ? 0 : x->quads[2 * (first > 0) + sum].begin;
}

/* Returns the number of quads whose byte products, summed in pairs, fit 16 bits. */
static inline int quads_in_run(sl_storage storage) {
#if defined(SUMS_BYTES)
  return (void)storage, QUADS;
#else
  return storage == SL_STORAGE_Q6_K ? 2 : storage == SL_STORAGE_Q5_K ? 4 : QUADS;
#endif
}

/* Returns where the sums of a run begin: 0 unless quad `first` begins a block or half. */
INLINE int32_t begin_of_run(sl_storage storage, const sli_digits *x, int first, int sum) {
  return first % (in_halves(storage) ? QUADS / 2 : QUADS) ? 0 : begin_of(storage, x, first, sum);
}

/* Sums a run of quads from `first` on of `rows` rows by the columns of a tile, without scales.
 * `begins`: sets the sums, to which later runs are added. */
INLINE void sum_run(sl_storage storage, const block_weights *w, const sli_digits *x, int rows,
                    int first, int run, bool begins, ivec (*sums)[SUMMED_VECTORS][SLI_SUMS]) {
  ivec s[SUMMED_ROWS][SUMMED_VECTORS][SLI_DIGITS];
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++) {
      s[r][t][0] = first_sum(begin_of_run(storage, &x[r], first, SLI_LOW));
      s[r][t][1] = first_sum(begin_of_run(storage, &x[r], first, SLI_UPPER));
      s[r][t][2] = first_sum(0);
    }
#pragma GCC unroll 8
  for (int i = first; i < first + run; i++)
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
      ivec low = last_sum(s[r][t][0], begin_of_run(storage, &x[r], first, SLI_LOW));
      ivec upper = last_sum(s[r][t][1], begin_of_run(storage, &x[r], first, SLI_UPPER)) +
                   (last_sum(s[r][t][2], 0) << 8);
      sums[r][t][SLI_LOW] = begins ? low : sums[r][t][SLI_LOW] + low;
      sums[r][t][SLI_UPPER] = begins ? upper : sums[r][t][SLI_UPPER] + upper;
    }
}

/* Sums `count` quads from `first` on, in one run or two. */
INLINE void sum_bytes(sl_storage storage, const block_weights *w, const sli_digits *x, int rows,
                      int first, int count, ivec (*sums)[SUMMED_VECTORS][SLI_SUMS]) {
  const int run = SLI_MIN(quads_in_run(storage), count);
  sum_run(storage, w, x, rows, first, run, true, sums);
  if (run < count) sum_run(storage, w, x, rows, first + run, run, false, sums);
}

/* Sums pairs of `count` quads from `first` on. */
INLINE void sum_pairs(sl_storage storage, const block_weights *w, const sli_digits *x, int rows,
                      int first, int count, ivec (*sums)[SUMMED_VECTORS][SLI_SUMS]) {
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++)
#pragma GCC unroll 2
      for (int n = 0; n < SLI_SUMS; n++)
        sums[r][t][n] = begin_of(storage, &x[r], first, n) - (ivec){0};
#pragma GCC unroll 16
  for (int i = 2 * first; i < 2 * (first + count); i++)
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

static inline vec whole_sum(const ivec *sums) {
  vec low = __builtin_convertvector(sums[SLI_LOW], vec);
  return low + __builtin_convertvector(sums[SLI_UPPER], vec) * 256.0f;
}

/* Returns the contribution of a block's sums to vector t of y; `second`: the sums of the last
 * half. */
INLINE vec scaled_sums(sl_storage storage, const block_scales *by, int t, const sli_digits *x,
                       const ivec *sums, const ivec *second) {
  vec plus = rounded(whole_sum(sums), by->d[t]);
  if (in_halves(storage)) plus += rounded(whole_sum(second), by->second[t]);
  if (has_offset(storage)) plus += rounded(set(x->sum), by->m[t]);
  return rounded(plus, set(x->scale));
}

/* Sums `count` quads from `first` on of `rows` rows by the columns of a tile. */
INLINE void sum_quads(sl_storage storage, const block_weights *w, const sli_digits *x, int rows,
                      int first, int count, ivec (*sums)[SUMMED_VECTORS][SLI_SUMS]) {
  if (in_pairs(storage)) sum_pairs(storage, w, x, rows, first, count, sums);
  else sum_bytes(storage, w, x, rows, first, count, sums);
}

/* Adds a block of `rows` rows by the columns of a tile to y[row][GROUP]. */
INLINE void plus_tile(sl_storage storage, const block_weights *w, const sli_digits *x, int rows,
                      float *y) {
  ivec sums[SUMMED_ROWS][SUMMED_VECTORS][SLI_SUMS], second[SUMMED_ROWS][SUMMED_VECTORS][SLI_SUMS];
  const int count = in_halves(storage) ? QUADS / 2 : QUADS;
  sum_quads(storage, w, x, rows, 0, count, sums);
  if (in_halves(storage)) sum_quads(storage, w, x, rows, count, count, second);
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++) {
      float *to = y + r * GROUP + t * LANES;
      storeu(to, loadu(to) + scaled_sums(storage, &w->by, t, &x[r], sums[r][t], second[r][t]));
    }
}

/* Copies a block with fewer columns than a group, with zeros for the missing columns. */
static void widen_block(sl_storage storage, sli_grouped group, int64_t b, uint8_t *to) {
  int64_t lines = sli_storage_quads(storage) / 4, wide = group.wide;
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

/* Returns quad n in the order of loads: Q4_1 has numbers of two quads in the same bytes. */
static inline int quad_in_order(sl_storage storage, int n) {
  return storage == SL_STORAGE_Q4_1 ? n / 2 + n % 2 * (QUADS / 2) : n;
}

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

/* Sums a run of a part's quads by the columns of a tile, as sum_run does. */
INLINE void sum_run_once(sl_storage storage, const uint8_t *block, int part, const sli_digits *x,
                         int first, int run, bool begins, ivec (*sums)[SLI_SUMS]) {
  ivec s[SLI_DIGITS][SUMMED_VECTORS];
#pragma GCC unroll 2
  for (int t = 0; t < SUMMED_VECTORS; t++) {
    s[0][t] = first_sum(begin_of_run(storage, x, first, SLI_LOW));
    s[1][t] = first_sum(begin_of_run(storage, x, first, SLI_UPPER));
    s[2][t] = first_sum(0);
  }
#pragma GCC unroll 8
  for (int n = first; n < first + run; n++) {
    const int i = quad_in_order(storage, n);
    ivec quads[SUMMED_VECTORS];
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++) quads[t] = load_numbers(storage, block, part, i, t);
    plus_quad(quads, x, i, s);
  }
#pragma GCC unroll 2
  for (int t = 0; t < SUMMED_VECTORS; t++) {
    ivec low = last_sum(s[0][t], begin_of_run(storage, x, first, SLI_LOW));
    ivec upper =
        last_sum(s[1][t], begin_of_run(storage, x, first, SLI_UPPER)) + (last_sum(s[2][t], 0) << 8);
    sums[t][SLI_LOW] = begins ? low : sums[t][SLI_LOW] + low;
    sums[t][SLI_UPPER] = begins ? upper : sums[t][SLI_UPPER] + upper;
  }
}

/* Sums `count` quads of a part from `first` on, in one run or two. */
INLINE void sum_bytes_once(sl_storage storage, const uint8_t *block, int part, const sli_digits *x,
                           int first, int count, ivec (*sums)[SLI_SUMS]) {
  const int run = SLI_MIN(quads_in_run(storage), count);
  sum_run_once(storage, block, part, x, first, run, true, sums);
  if (run < count) sum_run_once(storage, block, part, x, first + run, run, false, sums);
}

/* Sums `count` quads of a part from `first` on by the columns of a tile, as sum_pairs does. */
INLINE void sum_pairs_once(sl_storage storage, const uint8_t *block, int part, const sli_digits *x,
                           int first, int count, ivec (*sums)[SLI_SUMS]) {
#pragma GCC unroll 2
  for (int t = 0; t < SUMMED_VECTORS; t++)
#pragma GCC unroll 2
    for (int n = 0; n < SLI_SUMS; n++) sums[t][n] = begin_of(storage, x, first, n) - (ivec){0};
#pragma GCC unroll 8
  for (int i = first; i < first + count; i++) {
    ivec quads[SUMMED_VECTORS];
#pragma GCC unroll 2
    for (int t = 0; t < SUMMED_VECTORS; t++) quads[t] = load_numbers(storage, block, part, i, t);
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; odd++)
#pragma GCC unroll 2
      for (int n = 0; n < SLI_SUMS; n++) {
        ivec by = spread(x->quads[i].pairs[n][odd]);
#pragma GCC unroll 2
        for (int t = 0; t < SUMMED_VECTORS; t++)
          sums[t][n] = in_order(sums[t][n] + multiply_pairs(pair_of(storage, quads[t], odd), by));
      }
  }
}

INLINE void sum_once(sl_storage storage, const uint8_t *block, int part, const sli_digits *x,
                     int first, int count, ivec (*sums)[SLI_SUMS]) {
  if (in_pairs(storage)) sum_pairs_once(storage, block, part, x, first, count, sums);
  else sum_bytes_once(storage, block, part, x, first, count, sums);
}

/* Multiplies one row by a group's columns, all of which fit one tile: y[GROUP]. */
INLINE void multiply_one(sl_storage storage, sli_grouped group, int64_t blocks, const sli_digits *x,
                         int64_t all, float *y) {
  const int parts = parts_of(storage), count = in_halves(storage) ? QUADS / 2 : QUADS;
  uint8_t room[GROUP * MOST_BYTES];
  vec to[SUMMED_VECTORS] = {0};
  for (int64_t b = 0; b < blocks; b++) {
    const uint8_t *block = block_of(storage, group, b, room);
    block_head head;
    load_head(storage, block, 0, &head);
    for (int part = 0; part < parts; part++, x += all) {
      ivec sums[SUMMED_VECTORS][SLI_SUMS], second[SUMMED_VECTORS][SLI_SUMS];
      block_scales by;
      sum_once(storage, block, part, x, 0, count, sums);
      if (in_halves(storage)) sum_once(storage, block, part, x, count, count, second);
      load_scales(storage, block, &head, part, 0, &by);
#pragma GCC unroll 2
      for (int t = 0; t < SUMMED_VECTORS; t++)
        to[t] += scaled_sums(storage, &by, t, x, sums[t], second[t]);
    }
  }
#pragma GCC unroll 2
  for (int t = 0; t < SUMMED_VECTORS; t++) storeu(y + t * LANES, to[t]);
}

/* ---- several rows -----------------------------------------------------------------------------
 */

/* Multiplies rows of x by a group's columns: y[row][GROUP]. Block b of x is x[b * all + row]. */
INLINE void multiply_group(sl_storage storage, sli_grouped group, int64_t blocks,
                           const sli_digits *x, int64_t rows, int64_t all, float *y) {
  const int parts = parts_of(storage);
  uint8_t room[GROUP * MOST_BYTES];
  if (ONE_ROW && rows == 1) {
    multiply_one(storage, group, blocks, x, all, y);
    return;
  }
  for (int64_t i = 0; i < rows * GROUP; i += LANES) storeu(y + i, (vec){0});
  for (int64_t b = 0; b < blocks; b++, x += parts * all) {
    const uint8_t *block = block_of(storage, group, b, room);
    for (int v = 0; v < GROUP_VECTORS; v += SUMMED_VECTORS) {
      block_head head;
      load_head(storage, block, v, &head);
      for (int part = 0; part < parts; part++) {
        const sli_digits *here = x + part * all;
        block_weights w;
        int64_t r = 0;
        load_block(storage, block, &head, part, v, &w);
        for (; r + SUMMED_ROWS <= rows; r += SUMMED_ROWS)
          plus_tile(storage, &w, here + r, SUMMED_ROWS, y + r * GROUP + v * LANES);
        if (r < rows) plus_tile(storage, &w, here + r, 1, y + r * GROUP + v * LANES);
      }
    }
  }
}

#define MULTIPLY(name, storage)                                                       \
  static void multiply_##name(sli_grouped group, int64_t blocks, const sli_digits *x, \
                              int64_t rows, int64_t all, float *y) {                  \
    multiply_group(storage, group, blocks, x, rows, all, y);                          \
  }
MULTIPLY(q8_0, SL_STORAGE_Q8_0)
MULTIPLY(q4_1, SL_STORAGE_Q4_1)
MULTIPLY(q3_k, SL_STORAGE_Q3_K)
MULTIPLY(q4_k, SL_STORAGE_Q4_K)
MULTIPLY(q5_k, SL_STORAGE_Q5_K)
MULTIPLY(q6_k, SL_STORAGE_Q6_K)
#undef MULTIPLY

typedef void multiply_blocks(sli_grouped group, int64_t blocks, const sli_digits *x, int64_t rows,
                             int64_t all, float *y);
static multiply_blocks *const multipliers[] = {
    [SL_STORAGE_Q8_0] = multiply_q8_0, [SL_STORAGE_Q4_1] = multiply_q4_1,
    [SL_STORAGE_Q3_K] = multiply_q3_k, [SL_STORAGE_Q4_K] = multiply_q4_k,
    [SL_STORAGE_Q5_K] = multiply_q5_k, [SL_STORAGE_Q6_K] = multiply_q6_k};

/* Groups of a product's blocks. */
typedef struct block_groups {
  sl_storage storage;
  int64_t k, chunk; /* steps of a group */
} block_groups;

static block_groups block_groups_for(const sl_call *call, sl_storage storage) {
  int64_t k = sl_type_last(&call->in_type[0]), chunk = call->attrs->numbers.chunk;
  return (block_groups){storage, k, call->attrs->numbers.exact && chunk ? chunk : k};
}

/* Returns the first block of a group. */
static int64_t first_in_group(const block_groups *by, int64_t group) {
  int64_t numbers = sli_storage_block(by->storage), first = SLI_MIN(group * by->chunk, by->k);
  return (first + numbers - 1) / numbers;
}

static void plus_bias(int64_t rows, int64_t wide, const float *bias, float *sums) {
  for (int64_t r = 0; r < rows; r++, sums += GROUP)
    for (int64_t c = 0; c < wide; c++) sums[c] += bias[c];
}

/* Slots of sums: of the current group, and of 1, 2 and 4 earlier groups. */
enum { BLOCK_SLOTS = 4 };

/* Multiplies rows of x by a group of columns: sums[row][GROUP]. */
static void multiply_columns(const block_groups *by, sli_grouped columns, const sli_digits *x,
                             int64_t rows, int64_t all, const float *bias, float *sums) {
  int64_t parts = sli_storage_block(by->storage) / SLI_STORAGE_BLOCK;
  for (int64_t g = 0; g * by->chunk < by->k; g++) {
    int64_t first = first_in_group(by, g), end = first_in_group(by, g + 1);
    sli_grouped from = {columns.blocks + first * columns.wide * sli_storage_bytes(by->storage),
                        columns.wide};
    multipliers[by->storage](from, end - first, x + first * parts * all, rows, all, sums);
    if (bias && !g) plus_bias(rows, columns.wide, bias, sums);
    add_group(g, (g + 1) * by->chunk >= by->k, sums, rows * GROUP, MOST_ROWS * GROUP);
  }
}

/* Writes rows of a group's `wide` columns to y. */
static void give_group(const float *sums, int64_t rows, int64_t wide, float *y, int64_t n) {
  for (int64_t r = 0; r < rows; r++, sums += GROUP, y += n)
    memcpy(y, sums, (size_t)wide * sizeof *y);
}

/* Prefetches the first lines of a piece while digits are computed. */
static void fetch_first(const uint8_t *from) {
  for (int b = 0; b < FETCHED; b += LINE) __builtin_prefetch(from + b);
}

static void block_columns(const sli_served_product *p, int64_t rows, sli_range columns) {
  const sl_call *call = p->call;
  const sl_type *lies = &call->in_type[1];
  int64_t n = sl_type_last(&call->out_type[0]), few;
  const sl_storage storage = sli_storage_of(call->attrs, lies);
  const block_groups by = block_groups_for(call, storage);
  const float *bias = call->in[2];
  _Alignas(64) float sums[BLOCK_SLOTS * MOST_ROWS * GROUP];
  _Alignas(64) sli_digits own[SLI_OWN_DIGITS];
  const sli_digits *x = p->x ? p->x : own;
  fetch_first(sli_storage_grouped(lies, call->in[1], columns.begin).blocks);
  for (int64_t r = 0; r < rows && !p->x; r++) row_digits(call, rows, r, own);
  for (int64_t r = 0; r < rows; r += MOST_ROWS)
    for (int64_t c = columns.begin; c < columns.end; c += GROUP) {
      sli_grouped group = sli_storage_grouped(lies, call->in[1], c);
      few = rows - r < MOST_ROWS ? rows - r : MOST_ROWS;
      multiply_columns(&by, group, x + r, few, rows, bias ? bias + c : NULL, sums);
      give_group(sums, few, group.wide, (float *)call->out[0] + r * n + c, n);
    }
}

#undef SUMS_BYTES
#undef INLINE
