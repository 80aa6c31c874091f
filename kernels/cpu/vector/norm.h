/* Layer norm and RMS norm: forward and input gradients go by rows, weight
 * gradients by columns. */

static inline float row_sum(const float *x, int64_t n) {
  vec s0 = {0}, s1 = {0};
  int64_t c = 0;
  for (; c + 2 * LANES <= n; c += 2 * LANES) {
    s0 += loadu(x + c);
    s1 += loadu(x + c + LANES);
  }
  for (; c < n; c += LANES) s0 += load(x + c, n - c);
  return sum(s0 + s1);
}

/* Sum of (x - shift)^2. */
static inline float row_squares(const float *x, int64_t n, float shift) {
  vec s0 = {0}, s1 = {0};
  int64_t c = 0;
  for (; c + 2 * LANES <= n; c += 2 * LANES) {
    vec a = loadu(x + c) - shift, b = loadu(x + c + LANES) - shift;
    s0 += a * a;
    s1 += b * b;
  }
  for (; c < n; c += LANES) {
    vec a = load_or(x + c, n - c, shift) - shift;
    s0 += a * a;
  }
  return sum(s0 + s1);
}

static inline float norm_eps(const sl_call *call) {
  return call->attrs->eps > 0 ? call->attrs->eps : 1e-5f;
}

static void layernorm_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *x = call->in[0], *g = call->in[1], *b = call->in[2]; /* [R, C], [C], [C] */
  float *y = call->out[0], *mean = call->out[1], *rstd = call->out[2]; /* [R, C], [R], [R] */
  int64_t width = sl_type_last(&call->in_type[0]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    const float *xr = x + r * width;
    float m = row_sum(xr, width) / (float)width;
    float s = 1.0f / sqrtf(row_squares(xr, width, m) / (float)width + norm_eps(call));
    for (int64_t c = 0, n = y ? width : 0; n > 0; c += LANES, n -= LANES)
      store(y + r * width + c, (load(xr + c, n) - m) * s * load(g + c, n) + load(b + c, n), n);
    if (mean) mean[r] = m;
    if (rstd) rstd[r] = s;
  }
}

/* With xhat = (x - mean) rstd and d = dy g:
 * dx = rstd (d - mean(d) - xhat mean(d xhat)). */
static void layernorm_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *x = call->in[0], *g = call->in[1], *mean = call->in[2], *rstd = call->in[3];
  const float *dy = call->in[4]; /* [R, C] */
  float *dx = call->out[0];      /* [R, C] */
  int64_t width = sl_type_last(&call->in_type[0]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    const float *xr = x + r * width, *dyr = dy + r * width;
    float *dxr = dx + r * width, m = mean[r], s = rstd[r];
    vec sum_d = {0}, sum_dx = {0};
    for (int64_t c = 0, n = width; n > 0; c += LANES, n -= LANES) {
      vec d = load(dyr + c, n) * load(g + c, n);
      sum_d += d;
      sum_dx += d * (load(xr + c, n) - m);
    }
    float d_mean = sum(sum_d) / (float)width;
    float slope = sum(sum_dx) * s * s / (float)width;
    for (int64_t c = 0, n = width; n > 0; c += LANES, n -= LANES) {
      vec d = load(dyr + c, n) * load(g + c, n);
      store(dxr + c, s * (d - d_mean - (load(xr + c, n) - m) * slope), n);
    }
  }
}

/* Columns of a chunk, as vectors. */
enum { COLUMN_VECTORS = SLI_CHUNK_COLUMNS / LANES };

static inline void store_columns(float *out, const vec *v, sli_range columns, bool accumulate) {
  if (!out) return;
  for (int64_t j = 0, c = columns.begin; c < columns.end; j++, c += LANES) {
    int64_t n = columns.end - c;
    store(out + c, accumulate ? load(out + c, n) + v[j] : v[j], n);
  }
}

/* Adds row r's share of dg and db; `full` chunks need no tail. */
static inline __attribute__((always_inline)) void norm_w_row(const float *x, const float *dy,
                                                             float m, float s, int64_t n,
                                                             vec *dg, vec *db) {
  for (int j = 0; j < COLUMN_VECTORS && j * LANES < n; j++) {
    vec d = load(dy + j * LANES, n - j * LANES);
    dg[j] += d * (load_or(x + j * LANES, n - j * LANES, m) - m) * s;
    db[j] += d;
  }
}

/* dg = sum over rows of dy (x - mean) rstd, db = sum of dy. */
static inline __attribute__((always_inline)) void norm_w(const sl_call *call, int i,
                                                         const float *x, const float *mean,
                                                         const float *rstd, const float *dy,
                                                         float *dg, float *db) {
  int64_t width = sl_type_last(&call->in_type[0]), rows = sl_type_rows(&call->in_type[0]);
  sli_range columns = sli_columns(&call->in_type[0], i);
  int64_t n = columns.end - columns.begin;
  vec sum_g[COLUMN_VECTORS] = {{0}}, sum_b[COLUMN_VECTORS] = {{0}};
  x += columns.begin;
  dy += columns.begin;
  for (int64_t r = 0; r < rows; r++, x += width, dy += width) {
    float m = mean ? mean[r] : 0;
    if (n == SLI_CHUNK_COLUMNS)
      norm_w_row(x, dy, m, rstd[r], SLI_CHUNK_COLUMNS, sum_g, sum_b);
    else
      norm_w_row(x, dy, m, rstd[r], n, sum_g, sum_b);
  }
  store_columns(dg, sum_g, columns, sli_accumulates(call, 0));
  store_columns(db, sum_b, columns, sli_accumulates(call, 1));
}

static void layernorm_w_chunk(void *arg, int i) {
  const sl_call *call = arg;
  norm_w(call, i, call->in[0], call->in[1], call->in[2], call->in[3], call->out[0],
         call->out[1]);
}

static void rmsnorm_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *x = call->in[0], *g = call->in[1]; /* [R, C], [C] */
  float *y = call->out[0], *rstd = call->out[1];  /* [R, C], [R] */
  int64_t width = sl_type_last(&call->in_type[0]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    const float *xr = x + r * width;
    float s = 1.0f / sqrtf(row_squares(xr, width, 0) / (float)width + norm_eps(call));
    for (int64_t c = 0, n = y ? width : 0; n > 0; c += LANES, n -= LANES)
      store(y + r * width + c, load(xr + c, n) * s * load(g + c, n), n);
    if (rstd) rstd[r] = s;
  }
}

/* With d = dy g: dx = rstd (d - x rstd^2 mean(d x)). */
static void rmsnorm_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *x = call->in[0], *g = call->in[1], *rstd = call->in[2], *dy = call->in[3];
  float *dx = call->out[0]; /* [R, C] */
  int64_t width = sl_type_last(&call->in_type[0]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    const float *xr = x + r * width, *dyr = dy + r * width;
    float *dxr = dx + r * width, s = rstd[r];
    vec sum_dx = {0};
    for (int64_t c = 0, n = width; n > 0; c += LANES, n -= LANES)
      sum_dx += load(dyr + c, n) * load(g + c, n) * load(xr + c, n);
    float slope = sum(sum_dx) * s * s / (float)width;
    for (int64_t c = 0, n = width; n > 0; c += LANES, n -= LANES)
      store(dxr + c, s * (load(dyr + c, n) * load(g + c, n) - load(xr + c, n) * slope), n);
  }
}

static void rmsnorm_w_chunk(void *arg, int i) {
  const sl_call *call = arg;
  norm_w(call, i, call->in[0], NULL, call->in[1], call->in[2], call->out[0], NULL);
}

static void bias_w_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *dy = call->in[0]; /* [R, N] */
  int64_t width = sl_type_last(&call->in_type[0]), rows = sl_type_rows(&call->in_type[0]);
  sli_range columns = sli_columns(&call->in_type[0], i);
  int64_t n = columns.end - columns.begin;
  vec total[COLUMN_VECTORS] = {{0}};
  dy += columns.begin;
  for (int64_t r = 0; r < rows; r++, dy += width)
    for (int j = 0; j < COLUMN_VECTORS && j * LANES < n; j++)
      total[j] += load(dy + j * LANES, n - j * LANES);
  store_columns(call->out[0], total, columns, sli_accumulates(call, 0));
}
