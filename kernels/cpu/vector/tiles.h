/* Products of bf16 on tiles, as AMX has them: a tile is 16 rows of 64 bytes, and one instruction adds to a tile of
 * sums the product of a tile of A and a tile of B. A square of a strip and one of a panel are two tiles each, whose
 * four products are what the eight tiles there are hold. Where there is no AMX the same is done by vectors, in the
 * order that its manual gives (Intel, Software Developer's Manual, TDPBF16PS), so bits do not depend on it, but
 * that AMX takes numbers below 2^-126 for 0. */

enum { TILE_SIDE = 16 };

#if defined(__AMX_BF16__)

/* GCC's functions for tiles do not say what memory they read: whatever is written before them has to be there. */
static inline void settle(void) { __asm__ volatile("" ::: "memory"); }

/* All tiles are 16 rows of 64 bytes (the manual's palette 1). */
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

/* What went past the caches is to be there for whoever is told of it. */
static inline void end_tiles(void) {
  _tile_release();
  _mm_sfence();
}

/* Four quarters of what is summed, from row to row `row` bytes. */
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

/* Adds two tiles of A, one below the other, by two of B, side by side; from row to row so many bytes. */
static inline void add_tiles(const void *a, int64_t a_row, const void *b, int64_t b_row) {
  settle();
  _tile_loadd(4, a, a_row);
  _tile_loadd(6, b, b_row);
  _tile_loadd(7, (const char *)b + 64, b_row);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, (const char *)a + TILE_SIDE * a_row, a_row);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

/* A block of C from the sums, past the caches: whole lines, which are not read first. */
static inline void stream_quarters(float *c, int64_t c_row) {
  _Alignas(64) float block[SLI_SQUARE];
  store_quarters(block, SLI_STRIP * sizeof *block);
  for (int r = 0; r < SLI_STRIP; r++, c += c_row) {
    _mm512_stream_ps(c, _mm512_load_ps(block + r * SLI_STRIP));
    _mm512_stream_ps(c + TILE_SIDE, _mm512_load_ps(block + r * SLI_STRIP + TILE_SIDE));
  }
}

/* A block of C. A row that is 0 bytes long repeats the bias. */
static inline void add_block(const sli_tiles *t, const uint16_t *a, const uint16_t *b, const float *bias, float *c,
                             int64_t c_row, bool streams) {
  if (t->adds) load_quarters(c, c_row * (int64_t)sizeof *c);
  else if (bias) load_quarters(bias, 0);
  else zero_quarters();
  for (int64_t k = 0; k < t->k; k += SLI_STRIP, a += SLI_SQUARE, b += SLI_SQUARE) add_tiles(a, 64, b, 128);
  if (streams) stream_quarters(c, c_row);
  else store_quarters(c, c_row * (int64_t)sizeof *c);
}

#else

static inline void begin_tiles(void) {}
static inline void end_tiles(void) {}

/* The first of a word, the second of it. */
static inline vec first_of(uvec words) { return (vec)(words << 16); }
static inline vec second_of(uvec words) { return (vec)(words & 0xffff0000u); }

/* A row of a tile of sums, LANES of it; a is a row of 32 numbers, b 16 rows of 16 words, a panel's row apart. */
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

static void add_block(const sli_tiles *t, const uint16_t *a, const uint16_t *b, const float *bias, float *c,
                      int64_t c_row, bool streams) {
  (void)streams;
  for (int row = 0; row < SLI_STRIP; row++, c += c_row, a += SLI_STRIP)
    for (int n = 0; n < SLI_STRIP; n += LANES) {
      vec sum = t->adds ? loadu(c + n) : bias ? loadu(bias + n) : (vec){0};
      for (int64_t square = 0; square * SLI_STRIP < t->k; square++)
        sum = add_tile_row(sum, a + square * SLI_SQUARE, b + square * SLI_SQUARE + 2 * n);
      storeu(c + n, sum);
    }
}

#endif

/* A block at the edge of C, as part of a whole one. */
static void add_edge(const sli_tiles *t, const uint16_t *a, const uint16_t *b, const float *bias, float *c,
                     int64_t rows, int64_t columns) {
  _Alignas(64) float whole[SLI_SQUARE] = {0}, whole_bias[SLI_STRIP] = {0};
  size_t bytes = (size_t)columns * sizeof *c;
  if (bias) memcpy(whole_bias, bias, bytes);
  for (int64_t r = 0; t->adds && r < rows; r++) memcpy(whole + r * SLI_STRIP, c + r * t->c_row, bytes);
  add_block(t, a, b, bias ? whole_bias : NULL, whole, SLI_STRIP, false);
  for (int64_t r = 0; r < rows; r++) memcpy(c + r * t->c_row, whole + r * SLI_STRIP, bytes);
}

/* The blocks of a strip, from whose first row on C has `rows` rows. */
static void add_strip(const sli_tiles *t, const uint16_t *a, float *c, int64_t rows) {
  bool streams = t->streams && (uintptr_t)c % 64 == 0 && t->c_row % TILE_SIDE == 0;
  const uint16_t *b = t->b;
  for (int64_t n = 0; n < t->columns; n += SLI_STRIP, b += t->b_panel) {
    const float *bias = t->bias ? t->bias + n : NULL;
    int64_t columns = t->columns - n;
    if (rows >= SLI_STRIP && columns >= SLI_STRIP) add_block(t, a, b, bias, c + n, t->c_row, streams);
    else add_edge(t, a, b, bias, c + n, rows < SLI_STRIP ? rows : SLI_STRIP, columns < SLI_STRIP ? columns : SLI_STRIP);
  }
}

static void tile_product_chunk(void *arg, int i) {
  (void)i;
  const sli_tiles *t = arg;
  const uint16_t *a = t->a;
  begin_tiles();
  for (int64_t m = 0; m < t->rows; m += SLI_STRIP, a += t->a_strip) add_strip(t, a, t->c + m * t->c_row, t->rows - m);
  end_tiles();
}
