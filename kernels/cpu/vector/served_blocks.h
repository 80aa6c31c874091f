/* Products with weights in blocks, y = x w^T + b. A block of a row of x is integers of three digits, a block of a column
 * integers of four or eight bits: their products add up exactly, and what they come to, by both scales, is added to y
 * block by block. So a number has the same bits at every level, in every tick, by any thread.
 *
 * A vector has LANES columns of a group (kernels/rest.h), four numbers of each; the digits of x they are multiplied by are
 * the same for all columns. */

enum { GROUP = SLI_REST_GROUP, GROUP_VECTORS = GROUP / LANES, QUADS = SLI_QUADS };

/* Rows whose digits stay in a cache while columns go by. */
enum { MOST_ROWS = 64 };

/* Weights are fetched so many bytes before they are read. */
enum { FETCHED = 4096, LINE = 64 };

/* The numbers of weights, LANES columns. */
typedef struct block_weights {
  ivec quads[QUADS];
  vec d, m;
} block_weights;

static inline ivec load_quads(const uint8_t *p) {
  ivec quads;
  memcpy(&quads, p, sizeof quads);
  return quads;
}

static inline ivec spread_quad(const int8_t *digits) {
  int32_t quad;
  memcpy(&quad, digits, sizeof quad);
  return quad - (ivec){0};
}

/* begin + the sums of a block's numbers of each column by digits. Without AVX-512's products of bytes they are of 4 bits,
 * so that 16 products of them fit 16 bits. */
static inline __attribute__((always_inline)) ivec sum_quads(ivec begin, const ivec *quads, const sli_digits *x, int digit) {
#if defined(__AVX512VNNI__)
#pragma GCC unroll 8
  for (int i = 0; i < QUADS; i++)
    begin = (ivec)_mm512_dpbusd_epi32((__m512i)begin, (__m512i)quads[i], (__m512i)spread_quad(x->quads[i].digits[digit]));
  return begin;
#elif defined(__AVX512BW__)
  __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int i = 0; i < QUADS; i++)
    sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16((__m512i)quads[i], (__m512i)spread_quad(x->quads[i].digits[digit])));
  return begin + (ivec)_mm512_madd_epi16(sum, _mm512_set1_epi16(1));
#elif defined(__AVX2__)
  __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int i = 0; i < QUADS; i++)
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16((__m256i)quads[i], (__m256i)spread_quad(x->quads[i].digits[digit])));
  return begin + (ivec)_mm256_madd_epi16(sum, _mm256_set1_epi16(1));
#else
  typedef int16_t pairs VECTOR(4);
  pairs sum = {0};
#pragma GCC unroll 8
  for (int i = 0; i < QUADS; i++) {
    pairs numbers = (pairs)quads[i], by = (pairs)spread_quad(x->quads[i].digits[digit]);
    sum += (numbers & 255) * (by << 8 >> 8) + (numbers >> 8) * (by >> 8);
  }
  return begin + ((ivec)sum << 16 >> 16) + ((ivec)sum >> 16);
#endif
}

static inline __attribute__((always_inline)) ivec sum_block(sl_rest rest, ivec begin, const ivec *quads,
                                                            const sli_digits *x, int digit) {
#if !defined(__AVX512VNNI__)
  if (rest == SL_REST_Q8_0) {
    ivec low[QUADS], high[QUADS];
#pragma GCC unroll 8
    for (int i = 0; i < QUADS; i++) low[i] = quads[i] & 0x0f0f0f0f, high[i] = quads[i] >> 4 & 0x0f0f0f0f;
    return sum_quads(begin + (sum_quads((ivec){0}, high, x, digit) << 4), low, x, digit);
  }
#endif
  (void)rest;
  return sum_quads(begin, quads, x, digit);
}

/* A block of columns v * LANES on of a group: its numbers, d, and what remains to be added once the numbers' centre is
 * taken off them. */
static inline __attribute__((always_inline)) void load_block(sl_rest rest, const uint8_t *block, int v,
                                                             block_weights *w) {
  const uint8_t *numbers = block + v * (int)sizeof(ivec), *halves = block + GROUP * sli_rest_numbers(rest) + v * LANES * 2;
  w->d = load_half((const void *)halves);
  if (rest == SL_REST_Q8_0) {
#pragma GCC unroll 8
    for (int i = 0; i < QUADS; i++) w->quads[i] = load_quads(numbers + i * GROUP * 4);
    return;
  }
#pragma GCC unroll 4
  for (int i = 0; i < QUADS / 2; i++) {
    ivec both = load_quads(numbers + i * GROUP * 4);
    w->quads[i] = both & 0x0f0f0f0f;
    w->quads[i + QUADS / 2] = both >> 4 & 0x0f0f0f0f;
  }
  w->m = load_half((const void *)(halves + 2 * GROUP)) + w->d * (float)block_centre(rest);
}

/* acc + a block of a row by one of LANES columns. */
static inline __attribute__((always_inline)) vec plus_block(sl_rest rest, vec acc, const block_weights *w,
                                                            const sli_digits *x) {
  ivec low = sum_block(rest, x->quads[SLI_BEGIN_LOW].with.begin - (ivec){0}, w->quads, x, 0);
  ivec middle = sum_block(rest, (ivec){0}, w->quads, x, 1);
  ivec high = sum_block(rest, x->quads[SLI_BEGIN_HIGH].with.begin - (ivec){0}, w->quads, x, 2);
  vec sum = __builtin_convertvector((middle << 8) + low, vec) + __builtin_convertvector(high, vec) * 65536.0f;
  vec y = rounded(sum, w->d);
  if (rest == SL_REST_Q4_1) y += rounded(set(x->quads[SLI_SUM].with.sum), w->m);
  return acc + rounded(y, set(x->quads[SLI_SCALE].with.scale));
}

/* Fewer columns than a group has go through a copy, in which the others are 0. */
static void widen_block(sl_rest rest, sli_grouped group, int64_t b, uint8_t *to) {
  int64_t lines = sli_rest_numbers(rest) / 4, wide = group.wide;
  const uint8_t *from = group.blocks + b * wide * sli_rest_bytes(rest);
  memset(to, 0, (size_t)(GROUP * sli_rest_bytes(rest)));
  for (int64_t i = 0; i < lines; i++) memcpy(to + i * GROUP * 4, from + i * wide * 4, (size_t)wide * 4);
  for (int64_t i = 0; i < sli_rest_bytes(rest) / 2 - 2 * lines; i++)
    memcpy(to + lines * GROUP * 4 + i * GROUP * 2, from + lines * wide * 4 + i * wide * 2, (size_t)wide * 2);
}

/* Block b of a group; `room` is for one that is not as wide as others. */
static inline __attribute__((always_inline)) const uint8_t *block_of(sl_rest rest, sli_grouped group, int64_t b,
                                                                     uint8_t *room) {
  const uint8_t *block = group.blocks + b * GROUP * sli_rest_bytes(rest);
  if (__builtin_expect(group.wide < GROUP, 0)) {
    widen_block(rest, group, b, room);
    return room;
  }
#pragma GCC unroll 16
  for (int64_t at = 0; at < GROUP * sli_rest_bytes(rest); at += LINE) __builtin_prefetch(block + FETCHED + at);
  return block;
}

/* Rows of x, of which block b is x[b * all + row], by a group's columns: y[row][GROUP]. */
static inline __attribute__((always_inline)) void multiply_group(sl_rest rest, sli_grouped group, int64_t blocks,
                                                                 const sli_digits *x, int64_t rows, int64_t all,
                                                                 float *y) {
  uint8_t room[GROUP * 34];
  for (int64_t i = 0; i < rows * GROUP; i += LANES) storeu(y + i, (vec){0});
  for (int64_t b = 0; b < blocks; b++, x += all) {
    const uint8_t *block = block_of(rest, group, b, room);
    for (int v = 0; v < GROUP_VECTORS; v++) {
      block_weights w;
      load_block(rest, block, v, &w);
      for (int64_t r = 0; r < rows; r++) {
        float *sum = y + r * GROUP + v * LANES;
        storeu(sum, plus_block(rest, loadu(sum), &w, x + r));
      }
    }
  }
}

static void multiply_q8_0(sli_grouped group, int64_t blocks, const sli_digits *x, int64_t rows, int64_t all, float *y) {
  multiply_group(SL_REST_Q8_0, group, blocks, x, rows, all, y);
}

static void multiply_q4_1(sli_grouped group, int64_t blocks, const sli_digits *x, int64_t rows, int64_t all, float *y) {
  multiply_group(SL_REST_Q4_1, group, blocks, x, rows, all, y);
}

/* Some rows, by a group's columns, `wide` of which there are. */
static void give_group(const float *sums, int64_t rows, int64_t wide, const float *bias, float *y, int64_t n) {
  for (int64_t r = 0; r < rows; r++, sums += GROUP, y += n)
    if (bias) for (int64_t c = 0; c < wide; c++) y[c] = sums[c] + bias[c];
    else memcpy(y, sums, (size_t)wide * sizeof *y);
}

/* The first lines of a piece come while digits are made. */
static void fetch_first(const uint8_t *from) {
  for (int b = 0; b < FETCHED; b += LINE) __builtin_prefetch(from + b);
}

static void block_columns(const sli_served_product *p, int64_t rows, sli_range columns) {
  const sl_call *call = p->call;
  const sl_type *lies = &call->in_type[1];
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]), few;
  bool bytes = sli_rest_of(lies, k) == SL_REST_Q8_0;
  const float *bias = call->in[2];
  _Alignas(64) float sums[MOST_ROWS * GROUP];
  _Alignas(64) sli_digits own[SLI_OWN_DIGITS];
  const sli_digits *x = p->x ? p->x : own;
  fetch_first(sli_rest_grouped(lies, call->in[1], columns.begin).blocks);
  for (int64_t r = 0; r < rows && !p->x; r++) row_digits(call, rows, r, own);
  for (int64_t r = 0; r < rows; r += MOST_ROWS)
    for (int64_t c = columns.begin; c < columns.end; c += GROUP) {
      sli_grouped group = sli_rest_grouped(lies, call->in[1], c);
      few = rows - r < MOST_ROWS ? rows - r : MOST_ROWS;
      (bytes ? multiply_q8_0 : multiply_q4_1)(group, k / SLI_REST_BLOCK, x + r, few, rows, sums);
      give_group(sums, few, group.wide, bias ? bias + c : NULL, (float *)call->out[0] + r * n + c, n);
    }
}
