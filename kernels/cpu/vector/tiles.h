/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bf16 on AMX tiles. A tile is 16 rows of 64 bytes; one instruction adds the product of
 * a tile of A and a tile of B to a tile of sums. Squares of a strip and of a panel are two tiles
 * each. With their four products they fill the eight tiles of the processor. Without AMX, vectors
 * compute the same in the order of the manual (Intel, Software Developer's Manual, TDPBF16PS).
 * Results have the same bits, except that AMX treats numbers below 2^-126 as 0. ARM64's products of
 * bf16 matrices have a different summation order, and only tile_product uses them. */

enum { TILE_SIDE = 16 };

/* A block of 32 rows and columns of C. Products are added to `sums`, or if that is NULL to `bias`,
 * or if both are NULL to 0. */
typedef struct tile_block {
  const float *sums, *bias;
  int64_t sums_row;
  float *c;
  int64_t c_row;
  bool streams;
} tile_block;

#if defined(__AMX_BF16__)

/* Orders memory before tile instructions: GCC's builtins for tiles do not declare the memory they
 * read. */
static inline void settle(void) { __asm__ volatile("" ::: "memory"); }

/* Configures all tiles as 16 rows of 64 bytes (the manual's palette 1). */
static inline void begin_tiles(void) {
  _Alignas(64) struct {
    uint8_t palette, first_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } layout = {.palette = 1};
  for (int t = 0; t < 8; t++) layout.row_bytes[t] = 64, layout.rows[t] = TILE_SIDE;
  settle();
  _tile_loadconfig(&layout);
}

/* Releases the tiles and orders streaming stores before later stores that publish the result. */
static inline void end_tiles(void) {
  _tile_release();
  _mm_sfence();
}

/* Loads the four quarters of a block of sums; `row` is the row stride in bytes. */
static inline void load_quarters(const float *from, int64_t row) {
  const char *lower = (const char *)from + TILE_SIDE * row;
  settle();
  _tile_loadd(0, from, row);
  _tile_loadd(1, from + TILE_SIDE, row);
  _tile_loadd(2, lower, row);
  _tile_loadd(3, lower + TILE_SIDE * sizeof *from, row);
}

static inline void store_quarters(float *to, int64_t row) {
  char *lower = (char *)to + TILE_SIDE * row;
  _tile_stored(0, to, row);
  _tile_stored(1, to + TILE_SIDE, row);
  _tile_stored(2, lower, row);
  _tile_stored(3, lower + TILE_SIDE * sizeof *to, row);
}

static inline void zero_quarters(void) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

/* Multiplies two tiles of A, one below the other, by two of B, side by side, and adds the products.
 * Row strides are in bytes. `a_again`, `b_again`: the operand is still in its tiles. */
static inline void add_tiles(const void *a, int64_t a_row, bool a_again, const void *b,
                             int64_t b_row, bool b_again) {
  settle();
  if (!a_again) _tile_loadd(4, a, a_row);
  if (!b_again) {
    _tile_loadd(6, b, b_row);
    _tile_loadd(7, (const char *)b + 64, b_row);
  }
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  if (!a_again) _tile_loadd(5, (const char *)a + TILE_SIDE * a_row, a_row);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

/* Writes a block of C with streaming stores: whole lines, which are not read first. */
static inline void stream_quarters(float *c, int64_t c_row) {
  _Alignas(64) float block[SLI_SQUARE];
  store_quarters(block, SLI_STRIP * sizeof *block);
  for (int r = 0; r < SLI_STRIP; r++, c += c_row) {
    _mm512_stream_ps(c, _mm512_load_ps(block + r * SLI_STRIP));
    _mm512_stream_ps(c + TILE_SIDE, _mm512_load_ps(block + r * SLI_STRIP + TILE_SIDE));
  }
}

/* The sums are in the tiles. A row stride of 0 bytes repeats the bias. */
typedef struct quarters {
  char none;
} quarters;

static inline void begin_block(quarters *q, const tile_block *b) {
  (void)q;
  if (b->sums) load_quarters(b->sums, b->sums_row * (int64_t)sizeof *b->sums);
  else if (b->bias) load_quarters(b->bias, 0);
  else zero_quarters();
}

static inline void end_block(quarters *q, const tile_block *b) {
  (void)q;
  if (b->streams) stream_quarters(b->c, b->c_row);
  else store_quarters(b->c, b->c_row * (int64_t)sizeof *b->c);
}

static inline void add_squares(quarters *q, const uint16_t *a, bool a_again, const uint16_t *b,
                               bool b_again) {
  (void)q;
  add_tiles(a, 64, a_again, b, 128, b_again);
}

#else

static inline void begin_tiles(void) {}
static inline void end_tiles(void) {}

/* Return the first and the second number of each word. */
static inline vec first_of(uvec words) { return (vec)(words << 16); }
static inline vec second_of(uvec words) { return (vec)(words & 0xffff0000u); }

/* Returns LANES numbers of a row of a tile of sums. `a` is a row of 32 numbers, `b` 16 rows of 16
 * words, a panel's row apart. */
static inline vec add_tile_row(vec sum, const uint16_t *a, const uint16_t *b) {
  vec first = {0}, second = {0};
  for (int k = 0; k < TILE_SIDE; k++) {
    uint32_t word;
    memcpy(&word, a + 2 * k, sizeof word);
    uvec left = word - (uvec){0}, right = *(const uvec_unaligned *)(b + k * 2 * SLI_STRIP);
    first += first_of(left) * first_of(right);
    second += second_of(left) * second_of(right);
  }
  return sum + (first + second);
}

typedef struct quarters {
  float values[SLI_SQUARE];
} quarters;

static inline void begin_block(quarters *q, const tile_block *b) {
  for (int r = 0; r < SLI_STRIP; r++)
    for (int n = 0; n < SLI_STRIP; n += LANES)
      storeu(q->values + r * SLI_STRIP + n, b->sums   ? loadu(b->sums + r * b->sums_row + n)
                                            : b->bias ? loadu(b->bias + n)
                                                      : (vec){0});
}

static inline void end_block(quarters *q, const tile_block *b) {
  for (int r = 0; r < SLI_STRIP; r++)
    memcpy(b->c + r * b->c_row, q->values + r * SLI_STRIP, SLI_STRIP * sizeof *q->values);
}

static inline void add_squares(quarters *q, const uint16_t *a, bool a_again, const uint16_t *b,
                               bool b_again) {
  (void)a_again, (void)b_again;
  for (int r = 0; r < SLI_STRIP; r++)
    for (int n = 0; n < SLI_STRIP; n += LANES) {
      float *sum = q->values + r * SLI_STRIP + n;
      storeu(sum, add_tile_row(loadu(sum), a + r * SLI_STRIP, b + 2 * n));
    }
}

#endif

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

/* One instruction multiplies two rows of A by two columns of B, four numbers of each, and adds the
 * products to a vector of two rows by two columns. A patch of C is the number of these vectors that
 * fits half of the registers. */
enum { PATCH = 8, PAIRS = PATCH / 2, MULTIPLIED = 4 };

static inline float32x4_t load_two(const float *rows) {
  return vcombine_f32(vld1_f32(rows), vld1_f32(rows + SLI_STRIP));
}

static inline void store_two(float *rows, float32x4_t sums) {
  vst1_f32(rows, vget_low_f32(sums));
  vst1_f32(rows + SLI_STRIP, vget_high_f32(sums));
}

static inline bfloat16x8_t two_rows(const uint16_t *a) {
  return (bfloat16x8_t)vcombine_u16(vld1_u16(a), vld1_u16(a + SLI_STRIP));
}

/* Loads the numbers of four columns: two columns in each vector. */
static inline void four_columns(bfloat16x8_t *to, const uint16_t *b) {
  uint32x4_t first = (uint32x4_t)vld1q_u16(b), second = (uint32x4_t)vld1q_u16(b + 2 * SLI_STRIP);
  to[0] = (bfloat16x8_t)vzip1q_u32(first, second);
  to[1] = (bfloat16x8_t)vzip2q_u32(first, second);
}

static inline void add_patch(float *c, const uint16_t *a, const uint16_t *b) {
  float32x4_t sums[PAIRS][PAIRS];
  for (int r = 0; r < PAIRS; r++)
    for (int n = 0; n < PAIRS; n++) sums[r][n] = load_two(c + 2 * r * SLI_STRIP + 2 * n);
  for (int k = 0; k < SLI_STRIP; k += MULTIPLIED, a += MULTIPLIED, b += MULTIPLIED * SLI_STRIP) {
    bfloat16x8_t left[PAIRS], right[PAIRS];
    for (int r = 0; r < PAIRS; r++) left[r] = two_rows(a + 2 * r * SLI_STRIP);
    for (int n = 0; n < PAIRS; n += 2) four_columns(right + n, b + 4 * n);
    for (int r = 0; r < PAIRS; r++)
      for (int n = 0; n < PAIRS; n++) sums[r][n] = vbfmmlaq_f32(sums[r][n], left[r], right[n]);
  }
  for (int r = 0; r < PAIRS; r++)
    for (int n = 0; n < PAIRS; n++) store_two(c + 2 * r * SLI_STRIP + 2 * n, sums[r][n]);
}

static inline void add_bf16_squares(quarters *q, const uint16_t *a, const uint16_t *b) {
  for (int r = 0; r < SLI_STRIP; r += PATCH)
    for (int n = 0; n < SLI_STRIP; n += PATCH)
      add_patch(q->values + r * SLI_STRIP + n, a + r * SLI_STRIP, b + 2 * n);
}

#else

static inline void add_bf16_squares(quarters *q, const uint16_t *a, const uint16_t *b) {
  add_squares(q, a, false, b, false);
}

#endif

/* A block at the edge of C, computed as a whole block; a no-op for whole blocks. */
typedef struct edge {
  _Alignas(64) float whole[SLI_SQUARE], bias[SLI_STRIP];
  tile_block part;
  int64_t rows;
  size_t bytes;
} edge;

static void begin_edge(edge *e, tile_block *b, int64_t rows, int64_t columns) {
  e->rows = 0;
  if (rows == SLI_STRIP && columns == SLI_STRIP) return;
  *e = (edge){.part = *b, .rows = rows, .bytes = (size_t)columns * sizeof *e->whole};
  if (b->bias) memcpy(e->bias, b->bias, e->bytes);
  for (int64_t r = 0; b->sums && r < rows; r++)
    memcpy(e->whole + r * SLI_STRIP, b->sums + r * b->sums_row, e->bytes);
  *b = (tile_block){.sums = b->sums ? e->whole : NULL,
                    .sums_row = SLI_STRIP,
                    .bias = b->bias ? e->bias : NULL,
                    .c = e->whole,
                    .c_row = SLI_STRIP};
}

static void end_edge(const edge *e) {
  for (int64_t r = 0; r < e->rows; r++)
    memcpy(e->part.c + r * e->part.c_row, e->whole + r * SLI_STRIP, e->bytes);
}

/* Adds the block of C of a strip and a panel, from their first squares on. */
static inline void add_block(const sli_tiles *t, const uint16_t *a, const uint16_t *b,
                             const tile_block *block) {
  quarters q;
  begin_block(&q, block);
  for (int64_t k = 0; k < t->k; k += SLI_STRIP, a += SLI_SQUARE, b += SLI_SQUARE)
    add_bf16_squares(&q, a, b);
  end_block(&q, block);
}

static inline bool can_stream(const float *c, int64_t row) {
  return (uintptr_t)c % 64 == 0 && row % TILE_SIDE == 0;
}

/* Computes the blocks of a strip, from row m of C on. */
static void add_strip(const sli_tiles *t, const uint16_t *a, int64_t m) {
  int64_t rows = SLI_MIN(t->rows - m, SLI_STRIP);
  float *c = t->c + m * t->c_row;
  const uint16_t *b = t->b;
  bool streams = t->streams && can_stream(c, t->c_row);
  for (int64_t n = 0; n < t->columns; n += SLI_STRIP, b += t->b_panel) {
    int64_t columns = SLI_MIN(t->columns - n, SLI_STRIP);
    tile_block block = {.sums = t->adds ? c + n : NULL,
                        .sums_row = t->c_row,
                        .bias = t->bias ? t->bias + n : NULL,
                        .c = c + n,
                        .c_row = t->c_row,
                        .streams = streams};
    edge e;
    begin_edge(&e, &block, rows, columns);
    add_block(t, a, b, &block);
    end_edge(&e);
  }
}

static void tile_product_chunk(void *arg, int i) {
  (void)i;
  const sli_tiles *t = arg;
  const uint16_t *a = t->a;
  begin_tiles();
  for (int64_t m = 0; m < t->rows; m += SLI_STRIP, a += t->a_strip) add_strip(t, a, m);
  end_tiles();
}
