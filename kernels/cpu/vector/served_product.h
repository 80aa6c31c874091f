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

/* Tile of a few rows by LANES columns. Rows of w are read along k and transposed in registers, so
 * that each lane has a column's chain of fused products, as in gemm.h. */
enum { EXACT_ROWS = 4 };

/* Multiplies by steps `begin` to `end` of k, from the sums in acc. */
static inline __attribute__((always_inline)) void exact_steps(int tall, const float *x, int64_t k,
                                                              const float *const *w, int64_t begin,
                                                              int64_t end, vec *acc) {
  for (int64_t i = begin; i < end; i += LANES) {
    vec v[LANES];
    int64_t n = end - i < LANES ? end - i : LANES;
    for (int l = 0; l < LANES; l++) {
      v[l] = load(w[l] + i, n);
      __builtin_prefetch(w[l] + i + LINE);
    }
    transpose(v);
    for (int64_t l = 0; l < n; l++)
      for (int r = 0; r < tall; r++) acc[r] = plus_product(acc[r], set(x[r * k + i + l]), v[l]);
  }
}

/* Adds a group's sum to the earlier ones by the tree over the groups' numbers. */
static inline __attribute__((always_inline)) void exact_group(int tall, int64_t group, bool last,
                                                              vec (*slots)[EXACT_ROWS], vec *sum) {
  int slot = 0;
  for (int64_t left = group; left & 1 || (last && left); left >>= 1, slot++)
    for (int r = 0; r < tall && left & 1; r++) sum[r] = slots[slot][r] + sum[r];
  for (int r = 0; r < tall; r++) slots[slot][r] = sum[r];
}

static inline __attribute__((always_inline)) void exact_tile(int tall, const sl_call *call,
                                                             const float *x, int64_t column,
                                                             int64_t columns, float *y) {
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]),
          chunk = call->attrs->numbers.chunk ? call->attrs->numbers.chunk : k;
  const float *bias = call->in[2], *w[LANES];
  vec slots[SLI_MOST_GROUPS][EXACT_ROWS], sum[EXACT_ROWS] = {0};
  for (int l = 0; l < LANES; l++)
    w[l] = (const float *)call->in[1] + (column + (l < columns ? l : columns - 1)) * k;
  for (int64_t group = 0, begin = 0; begin < k; group++, begin += chunk) {
    int64_t end = begin + chunk < k ? begin + chunk : k;
    for (int r = 0; r < tall; r++)
      sum[r] = bias && !group ? load(bias + column, columns) : (vec){0};
    exact_steps(tall, x, k, w, begin, end, sum);
    exact_group(tall, group, end == k, slots, sum);
  }
  for (int r = 0; r < tall; r++) store(y + r * n + column, sum[r], columns);
}

static void exact_few(const sl_call *call, int64_t rows, sli_range columns) {
  for (int64_t c = columns.begin; c < columns.end; c += LANES) {
    int64_t wide = columns.end - c < LANES ? columns.end - c : LANES;
    switch (rows) {
    case 1: exact_tile(1, call, call->in[0], c, wide, call->out[0]); break;
    case 2: exact_tile(2, call, call->in[0], c, wide, call->out[0]); break;
    case 3: exact_tile(3, call, call->in[0], c, wide, call->out[0]); break;
    case 4: exact_tile(4, call, call->in[0], c, wide, call->out[0]); break;
    default: break; /* no rows */
    }
  }
}

/* Multiplies in the summation order of training's exact product. */
static void exact_columns(const sl_call *call, int64_t rows, sli_range columns) {
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]);
  const sl_attrs *a = call->attrs;
  const float *bias = call->in[2], *w = call->in[1];
  sli_gemm g = {.rows = rows,
                .columns = columns.end - columns.begin,
                .k = k,
                .a = call->in[0],
                .a_row = k,
                .b = w + columns.begin * (a->product.transposed ? 1 : k),
                .b_row = a->product.transposed ? n : k,
                .b_transposed = !a->product.transposed,
                .bias = bias ? bias + columns.begin : NULL,
                .c = (float *)call->out[0] + columns.begin,
                .c_row = n,
                .chunk = a->numbers.chunk ? a->numbers.chunk : k};
  memcpy(g.part, a->numbers.part, sizeof g.part);
  gemm_chunk(&g, 0);
}

/* ---- exact products with weights in blocks -------------------------------------------------- */

/* A quad of a group of rows of w is a vector whose lanes are columns (ops/storage.h). So a block of
 * some columns is unpacked number by number, and each column's chain of fused products is in a
 * lane, without transposing. */
enum { LANE_VECTORS = 4, LANE_COLUMNS = LANE_VECTORS * LANES, LANE_ROWS = 4, LANE_HEIGHT = 64 };

static inline ivec load_quad(const uint8_t *p, int64_t n) {
  ivec all, some = {0};
  if (__builtin_expect(n >= LANES, 1)) {
    memcpy(&all, p, sizeof all);
    return all;
  }
  memcpy(&some, p, (size_t)n * sizeof(int32_t));
  return some;
}

/* Unpacks the block of n columns of a group, [SLI_STORAGE_BLOCK][LANE_COLUMNS]. */
static inline __attribute__((always_inline)) void unpack_lanes(sl_storage storage,
                                                               const uint8_t *block, int64_t wide,
                                                               int64_t place, int64_t n,
                                                               float *to) {
  const bool nibbles = storage == SL_STORAGE_Q4_1;
  const uint8_t *halves = block + wide * (nibbles ? 16 : 32) + 2 * place;
  vec d = load_f16((const uint16_t *)(const void *)halves, n),
      m = nibbles ? load_f16((const uint16_t *)(const void *)(halves + 2 * wide), n) : (vec){0};
  for (int j = 0; j < (nibbles ? 4 : 8); j++, to += 4 * LANE_COLUMNS) {
    ivec q = load_quad(block + (j * wide + place) * 4, n);
    UNROLLED for (int b = 0; b < 4; b++, q >>= 8) {
      float *at = to + b * LANE_COLUMNS;
      if (nibbles) {
        storeu(at, plus_product(m, __builtin_convertvector(q & 15, vec), d));
        storeu(at + 16 * LANE_COLUMNS,
               plus_product(m, __builtin_convertvector(q >> 4 & 15, vec), d));
      } else storeu(at, __builtin_convertvector((q & 255) - 128, vec) * d);
    }
  }
}

static void unpack_columns_block(const sl_type *lies, sl_storage storage, const void *weights,
                                 sli_range columns, int64_t b, float *to) {
  for (int64_t c = columns.begin; c < columns.end; c += LANES, to += LANES) {
    sli_grouped g = sli_storage_grouped(lies, weights, c);
    int64_t place = c % SLI_STORAGE_GROUP, n = SLI_MIN(g.wide - place, (int64_t)LANES);
    int64_t bytes = g.wide * sli_storage_bytes(storage);
    const uint8_t *block = g.blocks + b * bytes;
    if (!place) fetch(block, bytes);
    if (storage == SL_STORAGE_Q4_1) unpack_lanes(SL_STORAGE_Q4_1, block, g.wide, place, n, to);
    else unpack_lanes(SL_STORAGE_Q8_0, block, g.wide, place, n, to);
  }
}

/* Adds the products of `steps` numbers to the sums of `tall` rows, [tall][LANE_VECTORS]. */
static inline __attribute__((always_inline)) void lane_steps(int tall, const float *x, int64_t k,
                                                             const float *w, int64_t steps,
                                                             vec *sums) {
  vec acc[LANE_ROWS * LANE_VECTORS];
  UNROLLED for (int a = 0; a < tall * LANE_VECTORS; a++) acc[a] = sums[a];
  for (int64_t i = 0; i < steps; i++, w += LANE_COLUMNS) {
    vec wv[LANE_VECTORS];
    UNROLLED for (int v = 0; v < LANE_VECTORS; v++) wv[v] = loadu(w + v * LANES);
    UNROLLED for (int a = 0; a < tall * LANE_VECTORS; a++) acc[a] =
        plus_product(acc[a], set(x[a / LANE_VECTORS * k + i]), wv[a % LANE_VECTORS]);
  }
  UNROLLED for (int a = 0; a < tall * LANE_VECTORS; a++) sums[a] = acc[a];
}

static void lane_rows(int64_t rows, const float *x, int64_t k, const float *w, int64_t steps,
                      vec *sums) {
  for (; rows >= LANE_ROWS; rows -= LANE_ROWS, x += LANE_ROWS * k, sums += LANE_ROWS * LANE_VECTORS)
    lane_steps(LANE_ROWS, x, k, w, steps, sums);
  for (; rows; rows--, x += k, sums += LANE_VECTORS) lane_steps(1, x, k, w, steps, sums);
}

/* Adds a group's sums to those of earlier groups, as exact_group does. */
static void lane_group(int64_t n, int64_t group, bool last, vec *slots, vec *sums) {
  for (int64_t e = 0; e < n; e++) {
    vec s = sums[e], *slot = slots + e;
    for (int64_t left = group; left & 1 || (last && left); left >>= 1, slot += n)
      if (left & 1) s = *slot + s;
    *slot = sums[e] = s;
  }
}

/* Computes some columns of up to LANE_HEIGHT rows. */
static void exact_lanes(const sl_call *call, sl_storage storage, int64_t row, int64_t rows,
                        sli_range columns, vec *sums) {
  _Alignas(64) float w[SLI_STORAGE_BLOCK * LANE_COLUMNS];
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]),
          chunk = call->attrs->numbers.chunk ? call->attrs->numbers.chunk : k,
          all = rows * LANE_VECTORS;
  const float *bias = call->in[2], *x = (const float *)call->in[0] + row * k;
  float *y = (float *)call->out[0] + row * n;
  vec *slots = sums + all;
  for (int64_t e = 0; e < all; e++) {
    int64_t c = columns.begin + e % LANE_VECTORS * LANES;
    sums[e] = bias ? load(bias + c, columns.end - c) : (vec){0};
  }
  for (int64_t i = 0, group = 0; i < k;) {
    int64_t within = i % SLI_STORAGE_BLOCK, end = SLI_MIN((group + 1) * chunk, k),
            steps = SLI_MIN(end - i, SLI_STORAGE_BLOCK - within);
    if (!within)
      unpack_columns_block(&call->in_type[1], storage, call->in[1], columns, i / SLI_STORAGE_BLOCK,
                           w);
    lane_rows(rows, x + i, k, w + within * LANE_COLUMNS, steps, sums);
    i += steps;
    if (i < end) continue;
    lane_group(all, group++, i == k, slots, sums);
    if (i < k) memset(sums, 0, (size_t)all * sizeof *sums);
  }
  for (int64_t e = 0; e < all; e++) {
    int64_t c = columns.begin + e % LANE_VECTORS * LANES;
    if (c < columns.end) store(y + e / LANE_VECTORS * n + c, sums[e], columns.end - c);
  }
}

static void exact_stored(const sl_call *call, sl_storage storage, int64_t rows, sli_range columns) {
  vec *sums =
      sli_room(SLI_ROOM_SUMS, sizeof(vec) * LANE_HEIGHT * LANE_VECTORS * (SLI_MOST_GROUPS + 1));
  for (int64_t c = columns.begin; c < columns.end; c += LANE_COLUMNS)
    for (int64_t r = 0; r < rows; r += LANE_HEIGHT)
      exact_lanes(call, storage, r, SLI_MIN(rows - r, (int64_t)LANE_HEIGHT),
                  (sli_range){c, SLI_MIN(c + LANE_COLUMNS, columns.end)}, sums);
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
  if (exact && sli_storage_exact(storage)) exact_stored(call, storage, rows, columns);
  else if (exact && few) exact_few(call, rows, columns);
  else if (exact) exact_columns(call, rows, columns);
  else if (sli_storage_by_digits(storage)) block_columns(p, rows, columns);
  else if (call->attrs->product.transposed) sum_columns(call, rows, columns);
  else dot_columns(call, rows, columns);
}
