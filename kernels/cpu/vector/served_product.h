/* SPDX-License-Identifier: Apache-2.0 */
/* Products of served graphs, y = x w^T + b. The order of each sum follows from the weight's shape
 * alone, regardless of the other rows and of the weight's storage format.
 *
 * A tile is TILE_COLUMNS columns of w by TILE_ROWS rows of x; each sum is a vector in a register.
 * For few rows, weights are converted to f32 as they are loaded. A single row takes LANES columns,
 * so that the same number of vectors is summed together. For more rows than a tile has, tiles of
 * MANY_COLUMNS by MANY_ROWS fill the registers: a stretch of the columns is unpacked and read for
 * all rows. */

/* Returns the sums of LANES vectors, one per lane. The upper half of each is added to the lower
 * until one number is left. */
static inline __attribute__((always_inline)) vec sums(vec *v) {
#pragma GCC unroll 8
  for (int wide = LANES, half = LANES / 2; wide > 1; wide = half, half /= 2) {
    const ivec low = lanes() + (lanes() & -half), high = low + half;
#pragma GCC unroll 16
    for (int i = 0; i < half; i++)
      v[i] = SHUFFLE2(v[2 * i], v[2 * i + 1], low) + SHUFFLE2(v[2 * i], v[2 * i + 1], high);
  }
  return v[0];
}

enum { TILE_COLUMNS = 4, TILE_ROWS = LANES / TILE_COLUMNS, HEIGHT = 96 };
enum { MANY_COLUMNS = REGISTERS / 4, MANY_ROWS = 3, MANY = MANY_COLUMNS * MANY_ROWS };
enum { MOST_COLUMNS = (int)LANES > (int)MANY_COLUMNS ? LANES : MANY_COLUMNS };

/* Rows of x and columns of w. Missing rows and columns repeat the last one. */
typedef struct served_tile {
  sl_storage storage;  /* of floats */
  const sl_type *type; /* of the weights */
  const void *weights;
  int64_t k, n, rows, first, columns; /* columns from `first` on */
  const float *x[HEIGHT + MANY_ROWS + TILE_ROWS];
  const uint8_t *w[MOST_COLUMNS];
  const float *bias; /* bias of these columns, or NULL */
  float *y;          /* y of row 0 */
} served_tile;

/* Adds LANES numbers of each column, multiplied by those of `tall` rows from i on. */
static inline __attribute__((always_inline)) void dot_step(int tall, const float *const *x,
                                                           int64_t i, int64_t n, const vec *w,
                                                           vec *acc) {
  vec xv[TILE_ROWS];
#pragma GCC unroll 4
  for (int r = 0; r < tall; r++) xv[r] = load(x[r] + i, n);
#pragma GCC unroll 16
  for (int a = 0; a < tall * TILE_COLUMNS; a++)
    acc[a] = plus_product(acc[a], xv[a / TILE_COLUMNS], w[a % TILE_COLUMNS]);
}

static inline __attribute__((always_inline)) void fetch(const uint8_t *from, int64_t bytes) {
#pragma GCC unroll 8
  for (int64_t b = 0; b < bytes; b += LINE) __builtin_prefetch(from + FETCHED + b);
}

/* Multiplies numbers `begin` to `end` of x by w, whose first number is `begin`. `fetched`: prefetch
 * the stored weights that follow. */
static inline __attribute__((always_inline)) void dot_floats(int tall, const float *const *x,
                                                             const float *const *w, int64_t begin,
                                                             int64_t end, bool fetched, vec *acc) {
  vec wv[TILE_COLUMNS];
  int64_t i = begin;
  for (; i + LANES <= end; i += LANES) {
    if (fetched) fetch((const uint8_t *)(w[0] + i * TILE_COLUMNS), TILE_COLUMNS * (int)sizeof(vec));
#pragma GCC unroll 4
    for (int c = 0; c < TILE_COLUMNS; c++) wv[c] = loadu(w[c] + i - begin);
    dot_step(tall, x, i, LANES, wv, acc);
  }
  if (i == end) return;
#pragma GCC unroll 4
  for (int c = 0; c < TILE_COLUMNS; c++) wv[c] = load(w[c] + i - begin, end - i);
  dot_step(tall, x, i, end - i, wv, acc);
}

/* Loads numbers of 16 bits. */
static inline __attribute__((always_inline)) vec load_short(sl_storage storage, const uint8_t *row,
                                                            int64_t i, int64_t n) {
  const uint16_t *p = (const uint16_t *)(const void *)row + i;
  return storage == SL_STORAGE_BF16 ? load_bf16(p, n) : load_f16(p, n);
}

/* Multiplies by stored weights of 16 bits. */
static inline __attribute__((always_inline)) void dot_shorts(sl_storage storage, int tall,
                                                             const float *const *x,
                                                             const uint8_t *const *w, int64_t k,
                                                             vec *acc) {
  vec wv[TILE_COLUMNS];
  int64_t i = 0;
  for (; i + LANES <= k; i += LANES) {
    fetch(w[0] + i * TILE_COLUMNS * 2, TILE_COLUMNS * LANES * 2);
#pragma GCC unroll 4
    for (int c = 0; c < TILE_COLUMNS; c++) wv[c] = load_short(storage, w[c], i, LANES);
    dot_step(tall, x, i, LANES, wv, acc);
  }
  if (i == k) return;
#pragma GCC unroll 4
  for (int c = 0; c < TILE_COLUMNS; c++) wv[c] = load_short(storage, w[c], i, k - i);
  dot_step(tall, x, i, k - i, wv, acc);
}

/* Multiplies by floats of 8 or 4 bits, block by block. */
static inline __attribute__((always_inline)) void dot_small(sl_storage storage, int tall,
                                                            const float *const *x,
                                                            const uint8_t *const *w, int64_t k,
                                                            vec *acc) {
  const int bytes = storage == SL_STORAGE_SCALED ? SLI_FP8_BYTES : SLI_NVFP4_BYTES;
  small_scales scales[TILE_COLUMNS];
  vec wv[TILE_COLUMNS];
  for (int64_t b = 0; b < k / SLI_SMALL_BLOCK; b++) {
    for (int c = 0; c < TILE_COLUMNS; c++) find_scales(storage, w[c] + b * bytes, &scales[c]);
    fetch(w[0] + b * bytes * TILE_COLUMNS, TILE_COLUMNS * bytes);
#pragma GCC unroll 2
    for (int i = 0; i < SLI_SMALL_BLOCK; i += LANES) {
#pragma GCC unroll 4
      for (int c = 0; c < TILE_COLUMNS; c++)
        wv[c] = load_small(storage, w[c] + b * bytes, &scales[c], i);
      dot_step(tall, x, b * SLI_SMALL_BLOCK + i, LANES, wv, acc);
    }
  }
}

static inline __attribute__((always_inline)) void copy_sums(int n, const vec *from, vec *to) {
#pragma GCC unroll 16
  for (int a = 0; a < n; a++) to[a] = from[a];
}

/* Multiplies `tall` rows by TILE_COLUMNS columns. */
static inline __attribute__((always_inline)) void dot_few(int tall, const served_tile *t,
                                                          const uint8_t *const *w, vec *to) {
  vec acc[LANES];
  const float *floats[TILE_COLUMNS];
#pragma GCC unroll 16
  for (int a = 0; a < tall * TILE_COLUMNS; a++) acc[a] = (vec){0};
  for (int c = 0; c < TILE_COLUMNS; c++) floats[c] = (const float *)(const void *)w[c];
  if (t->storage == SL_STORAGE_F32) dot_floats(tall, t->x, floats, 0, t->k, true, acc);
  else if (t->storage == SL_STORAGE_BF16) dot_shorts(SL_STORAGE_BF16, tall, t->x, w, t->k, acc);
  else if (t->storage == SL_STORAGE_SCALED) dot_small(SL_STORAGE_SCALED, tall, t->x, w, t->k, acc);
  else if (t->storage == SL_STORAGE_NVFP4) dot_small(SL_STORAGE_NVFP4, tall, t->x, w, t->k, acc);
  else dot_shorts(SL_STORAGE_F16, tall, t->x, w, t->k, acc);
  copy_sums(tall * TILE_COLUMNS, acc, to);
}

/* Writes y of the tile's rows from `row` on: LANES sums, `wide` columns per row. */
static inline __attribute__((always_inline)) void dot_finish(const served_tile *t, int64_t row,
                                                             int wide, vec *acc) {
  float s[LANES];
  storeu(s, sums(acc));
  for (int r = 0; r < LANES / wide && row + r < t->rows; r++) {
    float *y = t->y + (row + r) * t->n, *from = s + r * wide;
    if (t->bias)
      for (int c = 0; c < t->columns; c++) y[c] = from[c] + t->bias[c];
    else if (t->columns == wide) memcpy(y, from, (size_t)wide * sizeof *y);
    else memcpy(y, from, (size_t)t->columns * sizeof *y);
  }
}

/* Multiplies one row by LANES columns. */
static void dot_one(const served_tile *t) {
  vec acc[LANES];
  for (int c = 0; c < LANES; c += TILE_COLUMNS) dot_few(1, t, t->w + c, acc + c);
  dot_finish(t, 0, LANES, acc);
}

static void dot_tile(const served_tile *t) {
  vec acc[LANES];
  dot_few(TILE_ROWS, t, t->w, acc);
  dot_finish(t, 0, TILE_COLUMNS, acc);
}

/* Writes y of MANY_ROWS rows from `row` on. */
static inline void write_many(const served_tile *t, int64_t row, vec *kept) {
  float s[MANY + LANES];
  for (int i = 0; i < MANY; i += LANES) storeu(s + i, sums(kept + i));
  for (int r = 0; r < MANY_ROWS && row + r < t->rows; r++) {
    float *y = t->y + (row + r) * t->n, *from = s + r * MANY_COLUMNS;
    for (int c = 0; c < t->columns; c++) y[c] = t->bias ? from[c] + t->bias[c] : from[c];
  }
}

/* Adds the products of n numbers, from number i of x and number `at` of w on. */
static inline __attribute__((always_inline)) void many_step(const float *const *x,
                                                            const float *const *w, int64_t i,
                                                            int64_t at, int64_t n,
                                                            vec (*acc)[MANY_COLUMNS]) {
  vec xv[MANY_ROWS];
  UNROLLED for (int r = 0; r < MANY_ROWS; r++) xv[r] = load(x[r] + i, n);
  UNROLLED for (int c = 0; c < MANY_COLUMNS; c++) {
    vec wv = load(w[c] + at, n);
#if defined(IN_VECTOR)
    __asm__("" : "+" IN_VECTOR(wv)); /* loaded once, not once for each row */
#endif
    UNROLLED for (int r = 0; r < MANY_ROWS; r++) acc[r][c] = plus_product(acc[r][c], xv[r], wv);
  }
}

/* Multiplies MANY_ROWS rows by numbers `begin` to `end` of the columns, whose first number is
 * `begin`. `kept` holds the rows' sums over earlier numbers, and then over these too. */
static inline void multiply_many(const float *const *x, const float *const *w, int64_t begin,
                                 int64_t end, vec *kept) {
  vec acc[MANY_ROWS][MANY_COLUMNS];
  UNROLLED for (int r = 0; r < MANY_ROWS; r++) UNROLLED for (int c = 0; c < MANY_COLUMNS; c++)
      acc[r][c] = begin ? kept[r * MANY_COLUMNS + c] : (vec){0};
  int64_t i = begin;
  for (; i + LANES <= end; i += LANES) many_step(x, w, i, i - begin, LANES, acc);
  if (i < end) many_step(x, w, i, i - begin, end - i, acc);
  UNROLLED for (int r = 0; r < MANY_ROWS; r++) UNROLLED for (int c = 0; c < MANY_COLUMNS; c++)
      kept[r * MANY_COLUMNS + c] = acc[r][c];
}

/* Prefetches the next tile's weights gradually: for the `count` products of this tile from `at` on,
 * the matching fraction. Prefetching everything together would delay the current reads. */
static void fetch_next(const served_tile *t, int64_t at, int64_t count) {
  int64_t all = t->k * t->rows, bytes = MANY_COLUMNS * (t->w[1] - t->w[0]);
  for (int64_t b = bytes * at / all; b < bytes * (at + count) / all; b += LINE)
    __builtin_prefetch(t->w[0] + bytes + b, 0, 2);
}

/* Multiplies up to HEIGHT rows by one stretch of the columns at a time. */
enum { STRETCH = 768 };

static void dot_many(const served_tile *t) {
  _Alignas(64) float unpacked[MANY_COLUMNS][STRETCH];
  vec kept[(HEIGHT + MANY_ROWS) * MANY_COLUMNS + LANES] = {0};
  const float *w[MANY_COLUMNS];
  int64_t stretches = (t->k + STRETCH - 1) / STRETCH;
  int64_t multiple = SLI_MAX(sli_storage_block(t->storage), LANES);
  int64_t even = ((t->k + stretches - 1) / stretches + multiple - 1) / multiple * multiple;
  for (int64_t i = 0, count; i < t->k; i += count) {
    count = t->k - i < even ? t->k - i : even;
    for (int c = 0; c < MANY_COLUMNS; c++) {
      w[c] = unpacked[c];
      if (t->storage == SL_STORAGE_F32) w[c] = (const float *)(const void *)t->w[c] + i;
      else
        unpack_columns(t->storage, t->type, t->weights, t->k,
                       t->first + (c < t->columns ? c : t->columns - 1), i, count, unpacked[c]);
    }
    for (int64_t r = 0; r < t->rows; r += MANY_ROWS) {
      fetch_next(t, i * t->rows + r * count, MANY_ROWS * count);
      multiply_many(t->x + r, w, i, i + count, kept + r * MANY_COLUMNS);
      if (i + count == t->k) write_many(t, r, kept + r * MANY_COLUMNS);
    }
  }
}

static void dot_rows(served_tile *t, const float *x, int64_t rows, float *y) {
  for (int64_t r = 0; r < rows; r += HEIGHT) {
    t->rows = rows - r < HEIGHT ? rows - r : HEIGHT;
    t->y = y + r * t->n;
    for (int i = 0; i < t->rows + MANY_ROWS + TILE_ROWS - 1; i++)
      t->x[i] = x + (r + (i < t->rows ? i : t->rows - 1)) * t->k;
    if (rows > TILE_ROWS || sli_storage_in_groups(t->storage)) dot_many(t);
    else if (rows == 1) dot_one(t);
    else dot_tile(t);
  }
}

/* Multiplies by weights [n, k]. */
static void dot_columns(const sl_call *call, int64_t rows, sli_range columns) {
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]);
  const sl_type *type = &call->in_type[1];
  sl_storage storage = sli_storage_of(call->attrs, type);
  bool many = rows > TILE_ROWS || sli_storage_in_groups(storage);
  int64_t wide = many ? MANY_COLUMNS : rows == 1 ? LANES : TILE_COLUMNS;
  size_t row = sl_type_bytes(type) / (size_t)n;
  const float *bias = call->in[2];
  served_tile t = {.storage = storage, .type = type, .weights = call->in[1], .k = k, .n = n};
  for (int64_t c = columns.begin; c < columns.end; c += wide) {
    const uint8_t *w = (const uint8_t *)call->in[1] + (size_t)c * row;
    t.first = c;
    t.columns = columns.end - c < wide ? columns.end - c : wide;
    t.bias = bias ? bias + c : NULL;
    for (int i = 0; i < wide; i++) t.w[i] = w + (size_t)(i < t.columns ? i : t.columns - 1) * row;
    dot_rows(&t, call->in[0], rows, (float *)call->out[0] + c);
  }
}

/* Multiplies by weights [k, n], up to 4 vectors of columns together. */
static inline __attribute__((always_inline)) void sum_tile(int tall, const float *x, int64_t k,
                                                           const float *w, int64_t n, int64_t wide,
                                                           const float *bias, float *y) {
  vec acc[4][2] = {0};
  for (int64_t i = 0; i < k; i++) {
    vec w0 = load(w + i * n, wide),
        w1 = wide > LANES ? load(w + i * n + LANES, wide - LANES) : (vec){0};
#pragma GCC unroll 4
    for (int r = 0; r < tall; r++) {
      acc[r][0] = plus_product(acc[r][0], set(x[r * k + i]), w0);
      acc[r][1] = plus_product(acc[r][1], set(x[r * k + i]), w1);
    }
  }
  for (int r = 0; r < tall; r++) {
    vec b0 = bias ? load(bias, wide) : (vec){0};
    store(y + r * n, acc[r][0] + b0, wide);
    if (wide > LANES)
      store(y + r * n + LANES, acc[r][1] + (bias ? load(bias + LANES, wide - LANES) : (vec){0}),
            wide - LANES);
  }
}

static void sum_columns(const sl_call *call, int64_t rows, sli_range columns) {
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]);
  const float *x = call->in[0], *w = call->in[1], *bias = call->in[2];
  float *y = call->out[0];
  for (int64_t c = columns.begin; c < columns.end; c += 2 * LANES) {
    int64_t wide = columns.end - c < 2 * LANES ? columns.end - c : 2 * LANES, r = 0;
    const float *b = bias ? bias + c : NULL;
    for (; r + 4 <= rows; r += 4) sum_tile(4, x + r * k, k, w + c, n, wide, b, y + r * n + c);
    for (; r < rows; r++) sum_tile(1, x + r * k, k, w + c, n, wide, b, y + r * n + c);
  }
}

/* ---- exact products ------------------------------------------------------------------------ */

/* Tile of a few rows by EXACT_WIDTH columns. Rows of w are read along k and transposed in
 * registers, so that each lane has a column's chain of fused products, as in gemm.h. */
enum { EXACT_ROWS = 4, EXACT_TILES = 2, EXACT_WIDTH = EXACT_TILES * LANES };
enum { EXACT_SUMS = EXACT_ROWS * EXACT_TILES };

/* Some columns of w, of which `count` numbers from `begin` on are at w[], in f32, bf16 or f16.
 * Other formats are unpacked by stretches. */
enum { EXACT_STRETCH = 256 };
typedef struct exact_weights {
  sl_storage storage; /* of w[] */
  int64_t column, columns, begin, count;
  int64_t ahead; /* bytes to prefetch ahead */
  const uint8_t *w[EXACT_WIDTH];
} exact_weights;

/* Unpacks the stretch from number `begin` on, which starts a block. */
static void exact_unpack(const sl_call *call, exact_weights *e, int64_t begin, float *to) {
  int64_t k = sl_type_last(&call->in_type[0]);
  const sl_storage storage = sli_storage_of(call->attrs, &call->in_type[1]);
  e->begin = begin;
  e->count = SLI_MIN(k - begin, (int64_t)EXACT_STRETCH);
  for (int64_t c = 0; c < e->columns; c++)
    unpack_columns(storage, &call->in_type[1], call->in[1], k, e->column + c, begin, e->count,
                   to + c * EXACT_STRETCH);
}

static exact_weights exact_begin(const sl_call *call, int64_t column, int64_t columns,
                                 const float *room) {
  enum { LONG_ROWS = 1 << 17, WITHIN_ROW = 512 };
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]);
  const sl_storage storage = sli_storage_of(call->attrs, &call->in_type[1]);
  bool direct =
      storage == SL_STORAGE_F32 || storage == SL_STORAGE_BF16 || storage == SL_STORAGE_F16;
  int64_t row = direct ? (int64_t)sl_type_bytes(&call->in_type[1]) / n : EXACT_STRETCH * 4;
  const uint8_t *w =
      direct ? (const uint8_t *)call->in[1] + column * row : (const uint8_t *)(const void *)room;
  exact_weights e = {.storage = direct ? storage : SL_STORAGE_F32,
                     .column = column,
                     .columns = columns,
                     .count = direct ? k : 0,
                     .ahead = row * EXACT_WIDTH <= LONG_ROWS ? row * EXACT_WIDTH : WITHIN_ROW};
  for (int64_t c = 0; c < EXACT_WIDTH; c++) e.w[c] = w + (c < columns ? c : columns - 1) * row;
  return e;
}

/* Loads LANES numbers of LANES columns, each column in a lane. */
static inline __attribute__((always_inline)) void exact_turn(sl_storage storage,
                                                             const uint8_t *const *w, int64_t i,
                                                             int64_t n, vec *v) {
  UNROLLED for (int l = 0; l < LANES; l++) v[l] =
      storage == SL_STORAGE_F32 ? load((const float *)(const void *)w[l] + i, n)
                                : load_short(storage, w[l], i, n);
  transpose(v);
}

/* Multiplies pairs of numbers in bf16, each of which is turned as one of 32 bits. */
static inline __attribute__((always_inline)) void exact_pairs(int tall, const float *x, int64_t k,
                                                              const uint8_t *const *w, int64_t i,
                                                              vec *acc) {
  vec v[LANES];
  /* Copies, because rows of an odd length begin at any even address. */
  UNROLLED for (int l = 0; l < LANES; l++) memcpy(&v[l], w[l] + 2 * i, sizeof v[l]);
  transpose(v);
  UNROLLED for (int l = 0; l < LANES; l++) {
    const vec low = (vec)((uvec)v[l] << 16), high = (vec)((uvec)v[l] & 0xffff0000u);
    UNROLLED for (int r = 0; r < tall; r++) {
      const float *at = x + r * k + i + 2 * l;
      acc[r] = plus_product(acc[r], set(at[0]), low);
      acc[r] = plus_product(acc[r], set(at[1]), high);
    }
  }
}

/* Multiplies by numbers `begin` to `end` at w, from the sums in acc. */
static inline __attribute__((always_inline)) void exact_steps(sl_storage storage, int tall,
                                                              const float *x, int64_t k,
                                                              const exact_weights *e, int64_t begin,
                                                              int64_t end, vec *acc) {
  const int size = storage == SL_STORAGE_F32 ? 4 : 2, step = 64 / size;
  for (int64_t i = begin, n; i < end; i += n) {
    n = SLI_MIN(end - i, (int64_t)step);
    UNROLLED for (int t = 0; t < EXACT_TILES; t++) {
      const uint8_t *const *w = e->w + (ptrdiff_t)t * LANES;
      vec v[LANES], *to = acc + (ptrdiff_t)t * tall;
      int64_t at = i;
      for (int l = 0; l < LANES; l++) __builtin_prefetch(w[l] + i * size + e->ahead, 0, 2);
      if (storage == SL_STORAGE_BF16)
        for (; at + 2 * LANES <= i + n; at += 2 * LANES) exact_pairs(tall, x, k, w, at, to);
      for (; at + LANES <= i + n; at += LANES) {
        exact_turn(storage, w, at, LANES, v);
        UNROLLED for (int l = 0; l < LANES; l++) UNROLLED for (int r = 0; r < tall; r++) to[r] =
            plus_product(to[r], set(x[r * k + at + l]), v[l]);
      }
      if (at == i + n) continue;
      exact_turn(storage, w, at, i + n - at, v);
      for (int64_t l = 0; at + l < i + n; l++)
        for (int r = 0; r < tall; r++) to[r] = plus_product(to[r], set(x[r * k + at + l]), v[l]);
    }
  }
}

static inline __attribute__((always_inline)) void exact_tile(int tall, const sl_call *call,
                                                             exact_weights *e, float *room) {
  const float *x = call->in[0], *bias = call->in[2];
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]),
          chunk = call->attrs->numbers.chunk ? call->attrs->numbers.chunk : k, i = 0;
  float sums[(SLI_MOST_GROUPS + 1) * EXACT_SUMS * LANES], *y = (float *)call->out[0] + e->column;
  for (int64_t group = 0; i < k; group++) {
    vec acc[EXACT_SUMS];
    int64_t end = SLI_MIN((group + 1) * chunk, k);
    for (int a = 0; a < EXACT_TILES * tall; a++) {
      int64_t c = a / tall * LANES;
      acc[a] = bias && !group ? load(bias + e->column + c, e->columns - c) : (vec){0};
    }
    for (int64_t to; i < end; i = to) {
      if (i == e->begin + e->count) exact_unpack(call, e, i, room);
      int64_t from = i - e->begin;
      to = SLI_MIN(end, e->begin + e->count);
      if (e->storage == SL_STORAGE_BF16)
        exact_steps(SL_STORAGE_BF16, tall, x + e->begin, k, e, from, to - e->begin, acc);
      else if (e->storage == SL_STORAGE_F16)
        exact_steps(SL_STORAGE_F16, tall, x + e->begin, k, e, from, to - e->begin, acc);
      else exact_steps(SL_STORAGE_F32, tall, x + e->begin, k, e, from, to - e->begin, acc);
    }
    for (int a = 0; a < EXACT_TILES * tall; a++) storeu(sums + a * LANES, acc[a]);
    add_group(group, end == k, sums, EXACT_TILES * tall * LANES, EXACT_SUMS * LANES);
  }
  for (int a = 0; a < EXACT_TILES * tall; a++) {
    int64_t c = a / tall * LANES;
    if (c < e->columns) store(y + a % tall * n + c, loadu(sums + a * LANES), e->columns - c);
  }
}

static void exact_few(const sl_call *call, int64_t rows, sli_range columns) {
  _Alignas(64) float room[EXACT_WIDTH * EXACT_STRETCH];
  for (int64_t c = columns.begin; c < columns.end; c += EXACT_WIDTH) {
    exact_weights e = exact_begin(call, c, SLI_MIN(columns.end - c, (int64_t)EXACT_WIDTH), room);
    switch (rows) {
    case 1: exact_tile(1, call, &e, room); break;
    case 2: exact_tile(2, call, &e, room); break;
    case 3: exact_tile(3, call, &e, room); break;
    case 4: exact_tile(4, call, &e, room); break;
    default: break; /* no rows */
    }
  }
}

/* Multiplies by w, [columns, k] or transposed, in the summation order of training's exact
 * product. */
static void exact_product(const sl_call *call, const float *w, int64_t w_row, int64_t rows,
                          sli_range columns) {
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]);
  const sl_attrs *a = call->attrs;
  const float *bias = call->in[2];
  sli_gemm g = {.rows = rows,
                .columns = columns.end - columns.begin,
                .k = k,
                .a = call->in[0],
                .a_row = k,
                .b = w,
                .b_row = w_row,
                .b_transposed = !a->product.transposed,
                .bias = bias ? bias + columns.begin : NULL,
                .c = (float *)call->out[0] + columns.begin,
                .c_row = n,
                .chunk = a->numbers.chunk ? a->numbers.chunk : k};
  memcpy(g.part, a->numbers.part, sizeof g.part);
  gemm_chunk(&g, 0);
}

/* Columns that are unpacked together for many rows. */
enum { EXACT_COLUMNS = 64 };

static void exact_columns(const sl_call *call, sl_storage storage, int64_t rows,
                          sli_range columns) {
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]);
  bool transposed = call->attrs->product.transposed;
  if (storage == SL_STORAGE_F32) {
    const float *w = (const float *)call->in[1] + columns.begin * (transposed ? 1 : k);
    exact_product(call, w, transposed ? n : k, rows, columns);
    return;
  }
  float *w = sli_room(SLI_ROOM_STRIP, (size_t)((EXACT_COLUMNS + 1) * k) * sizeof *w);
  for (int64_t c = columns.begin; c < columns.end; c += EXACT_COLUMNS) {
    sli_range some = {c, SLI_MIN(c + EXACT_COLUMNS, columns.end)};
    for (int64_t i = c; i < some.end; i++)
      unpack_columns(storage, &call->in_type[1], call->in[1], k, i, 0, k, w + (i - c) * k);
    exact_product(call, w, k, rows, some);
  }
}

static void linear_served_chunk(void *arg, int i) {
  const sli_served_product *p = arg;
  const sl_call *call = p->call;
  int64_t rows = sl_call_rows(call, 0, sl_type_rows(&call->in_type[0]));
  sli_range columns = sli_served_columns(sl_type_last(&call->out_type[0]), p->pieces, i);
  bool exact = call->attrs->numbers.exact, few = rows <= EXACT_ROWS &&
                                                 !call->attrs->product.transposed &&
                                                 !call->attrs->numbers.part[0];
  sl_storage storage = sli_storage_of(call->attrs, &call->in_type[1]);
  if (sli_storage_by_digits(storage)) block_columns(p, rows, columns);
  else if (exact && few) exact_few(call, rows, columns);
  else if (exact) exact_columns(call, storage, rows, columns);
  else if (call->attrs->product.transposed) sum_columns(call, rows, columns);
  else dot_columns(call, rows, columns);
}
