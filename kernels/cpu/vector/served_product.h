/* Products of served graphs, y = x w^T + b: each number is added up in an order that the weight's shape alone says,
 * whatever other rows there are and however the weight lies at rest.
 *
 * Rows go by HEIGHT. Where there are as many as a tile has, or fewer, weights become f32 in registers on their
 * way into the sums; of more rows a stretch of a few columns is unpacked, and all rows read that. */

/* Sums of LANES vectors, one a lane. */
static inline vec sums(vec *v) {
  transpose(v);
  for (int half = LANES / 2; half; half /= 2)
    for (int l = 0; l < half; l++) v[l] += v[l + half];
  return v[0];
}

enum { TILE_COLUMNS = 4, TILE_ROWS = LANES / TILE_COLUMNS, HEIGHT = 16 };

/* Rows of x and columns of w, whose sums go to y. */
typedef struct served_tile {
  sl_rest rest;
  int64_t k, n, rows, columns;      /* of these rows and columns; what there is not of them is the last there is */
  const float *x[HEIGHT];
  const uint8_t *w[TILE_COLUMNS];
  vec acc[(HEIGHT + TILE_ROWS) * TILE_COLUMNS]; /* of each TILE_ROWS of the rows one behind the other */
} served_tile;

/* Adds LANES numbers of each column, times those of `tall` rows from i on. */
static inline __attribute__((always_inline)) void dot_step(int tall, const float *const *x, int64_t i, int64_t n,
                                                           const vec *w, vec *acc) {
#pragma GCC unroll 4
  for (int r = 0; r < tall; r++) {
    vec xv = load(x[r] + i, n);
#pragma GCC unroll 4
    for (int c = 0; c < TILE_COLUMNS; c++) acc[r * TILE_COLUMNS + c] += xv * w[c];
  }
}

/* Numbers `begin` to `end` of x, by those of w, which begin with `begin`. */
static inline __attribute__((always_inline)) void dot_floats(int tall, const float *const *x, const float *const *w,
                                                             int64_t begin, int64_t end, vec *to) {
  vec acc[LANES], wv[TILE_COLUMNS];
#pragma GCC unroll 16
  for (int l = 0; l < tall * TILE_COLUMNS; l++) acc[l] = to[l];
  int64_t i = begin;
  for (; i + LANES <= end; i += LANES) {
#pragma GCC unroll 4
    for (int c = 0; c < TILE_COLUMNS; c++) wv[c] = loadu(w[c] + i - begin);
    dot_step(tall, x, i, LANES, wv, acc);
  }
  if (i < end) {
    for (int c = 0; c < TILE_COLUMNS; c++) wv[c] = load(w[c] + i - begin, end - i);
    dot_step(tall, x, i, end - i, wv, acc);
  }
#pragma GCC unroll 16
  for (int l = 0; l < tall * TILE_COLUMNS; l++) to[l] = acc[l];
}

/* The same by bf16, as it lies. */
static inline __attribute__((always_inline)) void dot_bf16(int tall, const float *const *x, const uint8_t *const *w,
                                                           int64_t k, vec *to) {
  vec acc[LANES], wv[TILE_COLUMNS];
#pragma GCC unroll 16
  for (int l = 0; l < tall * TILE_COLUMNS; l++) acc[l] = to[l];
  for (int64_t i = 0; i < k; i += LANES) {
#pragma GCC unroll 4
    for (int c = 0; c < TILE_COLUMNS; c++) wv[c] = load_bf16((const uint16_t *)(const void *)w[c] + i, k - i);
    dot_step(tall, x, i, k - i, wv, acc);
  }
#pragma GCC unroll 16
  for (int l = 0; l < tall * TILE_COLUMNS; l++) to[l] = acc[l];
}

/* By blocks. */
static inline __attribute__((always_inline)) void dot_blocks(sl_rest rest, int tall, const float *const *x,
                                                             const uint8_t *const *w, int64_t k, vec *to) {
  enum { ROOM = STRETCH_SCALES };
  vec acc[LANES];
  float scales[TILE_COLUMNS][ROOM];
  int64_t each = rest == SL_REST_Q4_1 ? 2 : 1;
#pragma GCC unroll 16
  for (int l = 0; l < tall * TILE_COLUMNS; l++) acc[l] = to[l];
  for (int64_t from = 0; from < k; from += STRETCH) {
    int64_t count = k - from < STRETCH ? k - from : STRETCH;
    for (int c = 0; c < TILE_COLUMNS; c++) stretch_scales(rest, w[c], k, from, count, scales[c]);
    for (int64_t b = 0; b < count / SLI_REST_BLOCK; b++) {
      int64_t i = from + b * SLI_REST_BLOCK;
      vec wv[TILE_COLUMNS][BLOCK_VECTORS], one[TILE_COLUMNS];
#pragma GCC unroll 4
      for (int c = 0; c < TILE_COLUMNS; c++) unpack_block(rest, w[c], i, &scales[c][b * each], wv[c]);
#pragma GCC unroll 8
      for (int v = 0; v < BLOCK_VECTORS; v++) {
#pragma GCC unroll 4
        for (int c = 0; c < TILE_COLUMNS; c++) one[c] = wv[c][v];
        dot_step(tall, x, i + v * LANES, LANES, one, acc);
      }
    }
  }
#pragma GCC unroll 16
  for (int l = 0; l < tall * TILE_COLUMNS; l++) to[l] = acc[l];
}

/* A tile's rows, or one. */
static inline __attribute__((always_inline)) void dot_few(int tall, served_tile *t) {
  const float *w[TILE_COLUMNS];
  for (int c = 0; c < TILE_COLUMNS; c++) w[c] = (const float *)(const void *)t->w[c];
  if (t->rest == SL_REST_F32) dot_floats(tall, t->x, w, 0, t->k, t->acc);
  else if (t->rest == SL_REST_BF16) dot_bf16(tall, t->x, t->w, t->k, t->acc);
  else if (t->rest == SL_REST_Q8_0) dot_blocks(SL_REST_Q8_0, tall, t->x, t->w, t->k, t->acc);
  else dot_blocks(SL_REST_Q4_1, tall, t->x, t->w, t->k, t->acc);
}

/* Up to HEIGHT rows. */
static void dot_many(served_tile *t) {
  _Alignas(64) float unpacked[TILE_COLUMNS][STRETCH];
  const float *w[TILE_COLUMNS];
  for (int64_t i = 0, count; i < t->k; i += count) {
    bool bare = t->rest == SL_REST_F32;
    count = bare || t->k - i < STRETCH ? t->k - i : STRETCH;
    for (int c = 0; c < TILE_COLUMNS; c++) {
      w[c] = bare ? (const float *)(const void *)t->w[c] : unpacked[c];
      if (!bare && (!c || t->w[c] != t->w[c - 1])) unpack_stretch(t->rest, t->w[c], t->k, i, count, unpacked[c]);
      else if (!bare) w[c] = w[c - 1];
    }
    for (int64_t r = 0; r < t->rows; r += TILE_ROWS)
      dot_floats(TILE_ROWS, t->x + r, w, i, i + count, t->acc + r * TILE_COLUMNS);
  }
}

/* y of a tile's rows from `row` on. */
static void dot_finish(const served_tile *t, int64_t row, const float *bias, float *y) {
  vec all[LANES]; /* apart from what is added to */
  memcpy(all, t->acc + row * TILE_COLUMNS, sizeof all);
  vec s = sums(all);
  for (int r = 0; r < TILE_ROWS && row + r < t->rows; r++)
    for (int c = 0; c < t->columns; c++)
      y[(row + r) * t->n + c] = bias ? s[r * TILE_COLUMNS + c] + bias[c] : s[r * TILE_COLUMNS + c];
}

static void dot_tile(served_tile *t, const float *x, const uint8_t *w, size_t row, const float *bias, float *y) {
  for (int r = 0; r < HEIGHT; r++) t->x[r] = x + (r < t->rows ? r : t->rows - 1) * t->k;
  for (int c = 0; c < TILE_COLUMNS; c++) t->w[c] = w + (size_t)(c < t->columns ? c : t->columns - 1) * row;
  for (int64_t a = 0; a < t->rows + TILE_ROWS - 1; a++)
    for (int c = 0; c < TILE_COLUMNS; c++) t->acc[a * TILE_COLUMNS + c] = (vec){0};
  if (t->rows == 1) dot_few(1, t);
  else if (t->rows <= TILE_ROWS) dot_few(TILE_ROWS, t);
  else dot_many(t);
  for (int64_t r = 0; r < t->rows; r += TILE_ROWS) dot_finish(t, r, bias, y);
}

/* Weights [n, k]. */
static void dot_columns(const sl_call *call, int64_t rows, sli_range columns) {
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]);
  size_t row = sl_type_bytes(&call->in_type[1]) / (size_t)n;
  const float *x = call->in[0], *bias = call->in[2];
  const uint8_t *w = call->in[1];
  float *y = call->out[0];
  served_tile t = {.rest = sli_rest_of(&call->in_type[1], k), .k = k, .n = n};
  for (int64_t c = columns.begin; c < columns.end; c += TILE_COLUMNS)
    for (int64_t r = 0; r < rows; r += HEIGHT) {
      t.rows = rows - r < HEIGHT ? rows - r : HEIGHT;
      t.columns = columns.end - c < TILE_COLUMNS ? columns.end - c : TILE_COLUMNS;
      dot_tile(&t, x + r * k, w + (size_t)c * row, row, bias ? bias + c : NULL, y + r * n + c);
    }
}

/* Weights [k, n]: up to 4 vectors of columns, all at once. */
static inline __attribute__((always_inline)) void sum_tile(int tall, const float *x, int64_t k,
                                                           const float *w, int64_t n, int64_t wide,
                                                           const float *bias, float *y) {
  vec acc[4][2] = {0};
  for (int64_t i = 0; i < k; i++) {
    vec w0 = load(w + i * n, wide), w1 = wide > LANES ? load(w + i * n + LANES, wide - LANES) : (vec){0};
#pragma GCC unroll 4
    for (int r = 0; r < tall; r++) {
      acc[r][0] += x[r * k + i] * w0;
      acc[r][1] += x[r * k + i] * w1;
    }
  }
  for (int r = 0; r < tall; r++) {
    vec b0 = bias ? load(bias, wide) : (vec){0};
    store(y + r * n, acc[r][0] + b0, wide);
    if (wide > LANES)
      store(y + r * n + LANES, acc[r][1] + (bias ? load(bias + LANES, wide - LANES) : (vec){0}), wide - LANES);
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

static void linear_served_chunk(void *arg, int i) {
  const sl_call *call = arg;
  int64_t n = sl_type_last(&call->out_type[0]);
  int64_t rows = sl_type_rows(&call->in_type[0]);
  int64_t filled = sl_call_rows(call, 0, rows);
  sli_range columns = sli_chunk_range(n, SLI_SERVED_COLUMNS, i);
  if (call->attrs->transposed) sum_columns(call, filled, columns);
  else dot_columns(call, filled, columns);
}
