/* Rows of served graphs. What one of them gives depends on nothing else in its tick: each number is
 * added up in an order that the row's own position and the shapes of weights say. */

/* ---- products: y = x w^T + b ------------------------------------------------------------ */

/* Sums of LANES vectors, one a lane. */
static inline vec sums(vec *v) {
  transpose(v);
  for (int half = LANES / 2; half; half /= 2)
    for (int l = 0; l < half; l++) v[l] += v[l + half];
  return v[0];
}

enum { TILE_COLUMNS = 4, TILE_ROWS = LANES / TILE_COLUMNS };

/* One step of a tile, whose rows and columns begin at these places. */
static inline __attribute__((always_inline)) void dot_step(int tall, const float *const *x, const float *const *w,
                                                           int64_t i, int64_t n, vec *acc) {
  vec wv[TILE_COLUMNS];
#pragma GCC unroll 4
  for (int c = 0; c < TILE_COLUMNS; c++) wv[c] = load(w[c] + i, n);
#pragma GCC unroll 4
  for (int r = 0; r < tall; r++) {
    vec xv = load(x[r] + i, n);
#pragma GCC unroll 4
    for (int c = 0; c < TILE_COLUMNS; c++) acc[r * TILE_COLUMNS + c] += xv * wv[c];
  }
}

/* TILE_ROWS rows (or one: `tall`) by TILE_COLUMNS columns: what there is not of either is computed of
 * the last there is. */
static inline __attribute__((always_inline)) void dot_tile(int tall, const float *x, int64_t k, int64_t rows,
                                                           const float *w, int64_t columns,
                                                           const float *bias, float *y, int64_t n) {
  vec acc[LANES];
  const float *xs[TILE_ROWS], *ws[TILE_COLUMNS];
#pragma GCC unroll 16
  for (int l = 0; l < LANES; l++) acc[l] = (vec){0};
  for (int r = 0; r < tall; r++) xs[r] = x + (r < rows ? r : rows - 1) * k;
  for (int c = 0; c < TILE_COLUMNS; c++) ws[c] = w + (c < columns ? c : columns - 1) * k;
  int64_t i = 0;
  for (; i + LANES <= k; i += LANES) dot_step(tall, xs, ws, i, LANES, acc);
  if (i < k) dot_step(tall, xs, ws, i, k - i, acc);
  vec all[LANES]; /* apart from what is added to, which stays in registers */
  memcpy(all, acc, sizeof all);
  vec s = sums(all);
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < columns; c++)
      y[r * n + c] = bias ? s[r * TILE_COLUMNS + c] + bias[c] : s[r * TILE_COLUMNS + c];
}

/* Weights [n, k]. */
static void dot_columns(const sl_call *call, int64_t rows, sli_range columns) {
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]);
  const float *x = call->in[0], *w = call->in[1], *bias = call->in[2];
  float *y = call->out[0];
  for (int64_t c = columns.begin; c < columns.end; c += TILE_COLUMNS) {
    int64_t wide = columns.end - c < TILE_COLUMNS ? columns.end - c : TILE_COLUMNS;
    const float *b = bias ? bias + c : NULL;
    int64_t r = 0;
    for (; r + 1 < rows; r += TILE_ROWS) {
      int64_t tall = rows - r < TILE_ROWS ? rows - r : TILE_ROWS;
      dot_tile(TILE_ROWS, x + r * k, k, tall, w + c * k, wide, b, y + r * n + c, n);
    }
    if (r < rows) dot_tile(1, x + r * k, k, 1, w + c * k, wide, b, y + r * n + c, n);
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
  const sl_batch *batch = call->in[call->nin - 1];
  int64_t filled = rows == batch->most_rows ? batch->rows : batch->picks;
  sli_range columns = sli_chunk_range(n, SLI_SERVED_COLUMNS, i);
  if (call->attrs->transposed) sum_columns(call, filled, columns);
  else dot_columns(call, filled, columns);
}

/* ---- positions ---------------------------------------------------------------------------- */

static void rotary_served_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_batch *batch = call->in[1];
  const sli_rotary *angles = call->state;
  int64_t width = call->in_type[0].dim[2], pairs = angles->pairs;
  const float *x = (const float *)call->in[0] + i * width;
  float *y = (float *)call->out[0] + i * width;
  int64_t at = sl_batch_position(batch)[i] * pairs;
  for (int64_t head = 0; head < width; head += 2 * pairs)
    for (int64_t j = 0, n = pairs; n > 0; j += LANES, n -= LANES) {
      vec c = load(angles->cos + at + j, n), s = load(angles->sin + at + j, n);
      vec a = load(x + head + j, n), b = load(x + head + pairs + j, n);
      store(y + head + j, a * c - b * s, n);
      store(y + head + pairs + j, b * c + a * s, n);
    }
}

static void position_served_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_batch *batch = call->in[2];
  int64_t width = call->in_type[0].dim[2];
  const float *x = (const float *)call->in[0] + i * width;
  const float *t = (const float *)call->in[1] + sl_batch_position(batch)[i] * width;
  float *y = (float *)call->out[0] + i * width;
  for (int64_t c = 0, n = width; n > 0; c += LANES, n -= LANES) store(y + c, load(x + c, n) + load(t + c, n), n);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* A page's keys of one head, and behind them its values. */
static float *page_of(const sli_served_attention *a, const int32_t *table, int64_t position, int64_t head) {
  return a->pages + (table[position / SL_PAGE] * a->kv_heads + head) * sli_page_floats(a->dim);
}

/* Row i's key and value go to their place. */
static void served_keys_chunk(void *arg, int i) {
  const sli_served_attention *a = arg;
  int64_t position = sl_batch_position(a->batch)[i], at = position % SL_PAGE;
  const int32_t *table = sl_batch_table(a->batch, sl_batch_sequence_of(a->batch)[i]);
  for (int64_t h = 0; h < a->kv_heads; h++) {
    float *page = page_of(a, table, position, h), *values = page + SL_PAGE * a->dim;
    const float *k = a->k + i * a->kv_row + h * a->dim, *v = a->v + i * a->kv_row + h * a->dim;
    for (int64_t d = 0; d < a->dim; d++) page[d * SL_PAGE + at] = k[d];
    memcpy(values + at * a->dim, v, (size_t)a->dim * sizeof *v);
  }
}

enum { PAGE_VECTORS = SL_PAGE / LANES };

/* One query on its way through the pages. */
typedef struct served_query {
  _Alignas(64) float acc[SLI_MAX_HEAD_DIM];
  float top;
  vec total;
} served_query;

/* Scores of a page's keys, of which the query sees those from `first` to before `end`. */
static void page_scores(const float *q, const float *keys, int64_t dim, float scale, int64_t first,
                        int64_t end, vec *s) {
  for (int v = 0; v < PAGE_VECTORS; v++) s[v] = (vec){0};
  for (int64_t d = 0; d < dim; d++) {
    float x = q[d] * scale;
    for (int v = 0; v < PAGE_VECTORS; v++) s[v] += x * loadu(keys + d * SL_PAGE + v * LANES);
  }
  for (int v = 0; v < PAGE_VECTORS; v++) {
    ivec key = lanes() + v * LANES;
    s[v] = pick((key >= (int32_t)first) & (key < (int32_t)end), s[v], set(-INFINITY));
  }
}

/* acc = acc * fade + the values from `first` to before `end` by their p. */
static void add_values(float *acc, const float *values, int64_t dim, const float *p, int64_t first,
                       int64_t end, float fade) {
  for (int64_t d = 0; d < dim; d += 4 * LANES) {
    vec x[4];
    for (int v = 0; v < 4; v++) x[v] = loadu(acc + d + v * LANES) * fade;
    for (int64_t j = first; j < end; j++)
      for (int v = 0; v < 4; v++)
        if (d + v * LANES < dim) x[v] += p[j] * load(values + j * dim + d + v * LANES, dim - d - v * LANES);
    for (int v = 0; v < 4; v++) storeu(acc + d + v * LANES, x[v]);
  }
}

static void see_page(const sli_served_attention *a, served_query *x, const float *q, const float *page,
                     int64_t first, int64_t end) {
  vec s[PAGE_VECTORS];
  _Alignas(64) float p[SL_PAGE];
  page_scores(q, page, a->dim, a->scale, first, end, s);
  vec m = set(x->top);
  for (int v = 0; v < PAGE_VECTORS; v++) m = vmax(s[v], m);
  float top = largest(m);
  vec fade = vexp(set(x->top - top));
  x->total = x->total * fade;
  for (int v = 0; v < PAGE_VECTORS; v++) {
    s[v] = vexp(s[v] - top);
    x->total += s[v];
    storeu(p + v * LANES, s[v]);
  }
  x->top = top;
  add_values(x->acc, page + SL_PAGE * a->dim, a->dim, p, first, end, fade[0]);
}

/* One head of queries that have these pages' keys. */
static void see_run(const sli_served_attention *a, sli_run run, int64_t head, served_query *x) {
  const int32_t *positions = sl_batch_position(a->batch) + run.row;
  const int32_t *table = sl_batch_table(a->batch, sl_batch_sequence_of(a->batch)[run.row]);
  int64_t kv = head / (a->heads / a->kv_heads), last = positions[run.rows - 1];
  int64_t begin = positions[0] > a->behind ? (positions[0] - a->behind) / SL_PAGE * SL_PAGE : 0;
  for (int64_t at = begin; at <= last; at += SL_PAGE) {
    const float *page = page_of(a, table, at, kv);
    for (int r = 0; r < run.rows; r++) {
      int64_t first = positions[r] - a->behind - at, end = positions[r] + 1 - at;
      first = first > 0 ? first : 0;
      end = end < SL_PAGE ? end : SL_PAGE;
      if (first >= end) continue;
      see_page(a, &x[r], a->q + (run.row + r) * a->q_row + head * a->dim, page, first, end);
    }
  }
}

/* A run of rows, and a head. */
static void served_attention_chunk(void *arg, int i) {
  const sli_served_attention *a = arg;
  sli_run run = a->runs[i / a->heads];
  int64_t head = i % a->heads;
  served_query x[SLI_SERVED_RUN];
  for (int r = 0; r < run.rows; r++) {
    memset(x[r].acc, 0, sizeof x[r].acc);
    x[r].top = -FLT_MAX;
    x[r].total = (vec){0};
  }
  see_run(a, run, head, x);
  for (int r = 0; r < run.rows; r++) {
    float *o = a->out + (run.row + r) * a->o_row + head * a->dim, by = 1 / sum(x[r].total);
    for (int64_t d = 0; d < a->dim; d += LANES) store(o + d, loadu(x[r].acc + d) * by, a->dim - d);
  }
}
