/* SPDX-License-Identifier: Apache-2.0 */
/* Products of attention tiles, in f32 or of words of two bf16 numbers, and the transposition and
 * rounding of their operands (attention.h). */

enum { QT = SLI_QUERY_TILE, KT = SLI_KEY_TILE, BLOCK_COLUMNS = 2 * LANES };
enum { BLOCK_ROWS = REGISTERS / 4 }; /* sums take half of the registers */

static inline vec add_product(bool words, vec c, const float *a, vec b) {
  return words ? add_products(c, a, b) : plus_product(c, set(*a), b);
}

/* Computes a block of C: `rows` by up to two vectors. Inlined with constant `rows`, `full` (both
 * vectors are complete) and `words` (A and B are words, and K counts words). */
static inline __attribute__((always_inline)) void block(int rows, bool full, bool words, bool add,
                                                        int64_t K, const float *a, int64_t a_row,
                                                        int64_t a_col, const float *b,
                                                        int64_t b_row, float *c, int64_t c_row,
                                                        int64_t n) {
  vec c0[BLOCK_ROWS], c1[BLOCK_ROWS];
  int64_t n0 = full ? LANES : n, n1 = full ? LANES : n - LANES;
  for (int r = 0; r < rows; r++) {
    c0[r] = add ? load(c + r * c_row, n0) : (vec){0};
    c1[r] = add ? load(c + r * c_row + LANES, n1) : (vec){0};
  }
  for (int64_t k = 0; k < K; k++) {
    vec b0 = load(b + k * b_row, n0), b1 = load(b + k * b_row + LANES, n1);
    for (int r = 0; r < rows; r++) {
      c0[r] = add_product(words, c0[r], a + r * a_row + k * a_col, b0);
      c1[r] = add_product(words, c1[r], a + r * a_row + k * a_col, b1);
    }
  }
  for (int r = 0; r < rows; r++) {
    store(c + r * c_row, c0[r], n0);
    store(c + r * c_row + LANES, c1[r], n1);
  }
}

static inline __attribute__((always_inline)) void blocks(bool words, bool add, int64_t M, int64_t N,
                                                         int64_t K, const float *a, int64_t a_row,
                                                         int64_t a_col, const float *b,
                                                         int64_t b_row, float *c, int64_t c_row,
                                                         ahead *next) {
  for (int64_t n = 0; n < N; n += BLOCK_COLUMNS) {
    bool full = N - n >= BLOCK_COLUMNS;
    int64_t m = 0;
    for (; full && m + BLOCK_ROWS <= M; m += BLOCK_ROWS) {
      ask(next);
      block(BLOCK_ROWS, true, words, add, K, a + m * a_row, a_row, a_col, b + n, b_row,
            c + m * c_row + n, c_row, 0);
    }
    for (; m < M; m++)
      if (full)
        block(1, true, words, add, K, a + m * a_row, a_row, a_col, b + n, b_row, c + m * c_row + n,
              c_row, 0);
      else
        block(1, false, words, add, K, a + m * a_row, a_row, a_col, b + n, b_row, c + m * c_row + n,
              c_row, N - n);
  }
}

#if defined(__AMX_BF16__)

/* Words of A and B in the layout of AMX tiles: 16 rows of A by 16 words, 16 rows of B by 16
 * words. */
enum { WORDS = 16, BLOCK = 32 };

static inline void add_words(const float *a, int64_t a_row, const float *b, int64_t b_row) {
  add_tiles(a, a_row * (int64_t)sizeof *a, false, b, b_row * (int64_t)sizeof *b, false);
}

/* Multiplies fewer words than a tile has, padded with zeros. */
static void add_few_words(const float *a, int64_t a_row, const float *b, int64_t b_row,
                          int64_t words) {
  _Alignas(64) float left[BLOCK * WORDS] = {0}, right[WORDS * BLOCK] = {0};
  for (int64_t r = 0; r < BLOCK; r++)
    memcpy(left + r * WORDS, a + r * a_row, (size_t)words * sizeof *a);
  for (int64_t k = 0; k < words; k++) memcpy(right + k * BLOCK, b + k * b_row, BLOCK * sizeof *b);
  add_words(left, WORDS, right, BLOCK);
}

/* Computes a block of C that may be incomplete. */
static void words_block(bool add, int64_t rows, int64_t columns, int64_t K, const float *a,
                        int64_t a_row, const float *b, int64_t b_row, float *c, int64_t c_row,
                        ahead *next) {
  _Alignas(64) float whole[BLOCK * BLOCK];
  bool edge = rows < BLOCK || columns < BLOCK;
  float *to = edge ? whole : c;
  int64_t to_row = (edge ? BLOCK : c_row) * (int64_t)sizeof *c;
  size_t bytes = (size_t)(columns < BLOCK ? columns : BLOCK) * sizeof *c;
  for (int64_t r = 0; edge && add && r < BLOCK && r < rows; r++)
    memcpy(whole + r * BLOCK, c + r * c_row, bytes);
  if (add) load_quarters(to, to_row);
  else zero_quarters();
  for (; K >= WORDS; K -= WORDS, a += WORDS, b += WORDS * b_row) {
    ask(next);
    add_words(a, a_row, b, b_row);
  }
  if (K) add_few_words(a, a_row, b, b_row, K);
  store_quarters(to, to_row);
  for (int64_t r = 0; edge && r < BLOCK && r < rows; r++)
    memcpy(c + r * c_row, whole + r * BLOCK, bytes);
}

/* to[m][k] = from[k][m], both padded to multiples of WORDS. */
static void turn_words(float *to, int64_t to_row, const float *from, int64_t row, int64_t M,
                       int64_t K) {
  for (int64_t k = 0; k < K; k += WORDS)
    for (int64_t m = 0; m < M; m += WORDS)
      turn_square(from + k * row + m, row, to + m * to_row + k, to_row);
}

static void words_product(bool add, int64_t M, int64_t N, int64_t K, const float *a, int64_t a_row,
                          int64_t a_col, const float *b, int64_t b_row, float *c, int64_t c_row,
                          ahead *next) {
  _Alignas(64) float turned[SLI_MAX_HEAD_DIM * KT / 2];
  if (a_col != 1) {
    turn_words(turned, KT / 2, a, a_col, M, K);
    a = turned;
    a_row = KT / 2;
  }
  for (int64_t n = 0; n < N; n += BLOCK)
    for (int64_t m = 0; m < M; m += BLOCK)
      words_block(add, M - m, N - n, K, a + m * a_row, a_row, b + n, b_row, c + m * c_row + n,
                  c_row, next);
}

#else

static void words_product(bool add, int64_t M, int64_t N, int64_t K, const float *a, int64_t a_row,
                          int64_t a_col, const float *b, int64_t b_row, float *c, int64_t c_row,
                          ahead *next) {
  blocks(true, add, M, N, K, a, a_row, a_col, b, b_row, c, c_row, next);
}

#endif

/* C[M, N] = A[M, K] B[K, N], added to C if `add`. `words`: operands are words, K of them; the call
 * must be between begin_tiles and end_tiles. Prefetches `next` at the same time. */
static void product(bool words, bool add, int64_t M, int64_t N, int64_t K, const float *a,
                    int64_t a_row, int64_t a_col, const float *b, int64_t b_row, float *c,
                    int64_t c_row, ahead *next) {
  if (words) words_product(add, M, N, K, a, a_row, a_col, b, b_row, c, c_row, next);
  else blocks(false, add, M, N, K, a, a_row, a_col, b, b_row, c, c_row, next);
}

/* ---- words ------------------------------------------------------------------------- */

static inline int64_t words_for(int64_t numbers) { return (numbers + 1) / 2; }

/* Returns the row stride for n numbers as words: whole vectors of words. */
static inline int64_t words_row(int64_t n) { return (n + 2 * LANES - 1) / (2 * LANES) * LANES; }

/* Packs neighbours in a row into words. */
static void words_along(float *to, const float *from, int64_t row, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < n; c += 2 * LANES)
      storeu(to + r * words_row(n) + c / 2,
             neighbours(load(from + r * row + c, n - c),
                        load(from + r * row + c + LANES, n - c - LANES)));
}

/* Packs neighbours in a column into words; zeros follow the last row. */
static void words_down(float *to, int64_t to_row, const float *from, int64_t row, int64_t rows,
                       int64_t n) {
  for (int64_t r = 0; r < rows; r += 2)
    for (int64_t c = 0; c < n; c += LANES)
      storeu(to + r / 2 * to_row + c,
             pair(load(from + r * row + c, n - c),
                  load(from + (r + 1) * row + c, r + 1 < rows ? n - c : 0)));
}

static int64_t down_row(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

/* Packs neighbours in a column into words, in place. */
static void words_here(float (*x)[QT], int64_t rows) { words_down(x[0], QT, x[0], QT, rows, QT); }

/* to[d][i] = from[i][d] * scale; zero for queries from `queries` to QT. Rows of `to` are written up
 * to the next multiple of LANES. */
static void transpose_in(float (*to)[QT], const float *from, int64_t row, int64_t queries,
                         int64_t dim, float scale) {
  for (int64_t i = 0; i < QT; i += LANES)
    for (int64_t d = 0; d < dim; d += LANES) {
      vec v[LANES];
      for (int64_t l = 0; l < LANES; l++)
        v[l] = i + l < queries ? load(from + (i + l) * row + d, dim - d) * scale : (vec){0};
      transpose(v);
      for (int64_t l = 0; l < LANES; l++) storeu(&to[d + l][i], v[l]);
    }
}

/* to[i][d] = from[d][i] * scale[i]. */
static void transpose_out(float *to, int64_t row, float (*from)[QT], int64_t queries, int64_t dim,
                          const float *scale) {
  for (int64_t i = 0; i < queries; i += LANES)
    for (int64_t d = 0; d < dim; d += LANES) {
      vec v[LANES], s = loadu(scale + i);
      for (int64_t l = 0; l < LANES; l++)
        v[l] = d + l < dim ? loadu(&from[d + l][i]) * s : (vec){0};
      transpose(v);
      for (int64_t l = 0; l < LANES && i + l < queries; l++)
        store(to + (i + l) * row + d, v[l], dim - d);
    }
}
