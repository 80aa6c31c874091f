/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm and RMS norm by rows, and the sums over rows for the gradients of their weights and of
 * a bias. */

static inline float row_sum(const float *x, int64_t n) {
  vec s0[SUM_VECTORS] = {0}, s1[SUM_VECTORS] = {0};
  int64_t c = 0;
  for (; c + 2 * SUM_LANES <= n; c += 2 * SUM_LANES) EACH_VECTOR(v) {
      s0[v] += load_ahead(x + c + v * LANES, LANES);
      s1[v] += load_ahead(x + c + SUM_LANES + v * LANES, LANES);
    }
  for (; c < n; c += SUM_LANES) EACH_VECTOR(v) s0[v] += load(x + c + v * LANES, n - c - v * LANES);
  EACH_VECTOR(v) s0[v] += s1[v];
  return sum_lanes(s0);
}

/* Returns the sum of (x - shift)^2. */
static inline float row_squares(const float *x, int64_t n, float shift) {
  vec s0[SUM_VECTORS] = {0}, s1[SUM_VECTORS] = {0};
  int64_t c = 0;
  for (; c + 2 * SUM_LANES <= n; c += 2 * SUM_LANES) EACH_VECTOR(v) {
      vec a = loadu(x + c + v * LANES) - shift, b = loadu(x + c + SUM_LANES + v * LANES) - shift;
      s0[v] = plus_product(s0[v], a, a);
      s1[v] = plus_product(s1[v], b, b);
    }
  for (; c < n; c += SUM_LANES) EACH_VECTOR(v) {
      vec a = load_or(x + c + v * LANES, n - c - v * LANES, shift) - shift;
      s0[v] = plus_product(s0[v], a, a);
    }
  EACH_VECTOR(v) s0[v] += s1[v];
  return sum_lanes(s0);
}

static inline float norm_eps(const sl_call *call) {
  return call->attrs->norm.eps > 0 ? call->attrs->norm.eps : 1e-5f;
}

static void layernorm_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *x = call->in[0], *g = call->in[1], *b = call->in[2];    /* [R, C], [C], [C] */
  float *y = call->out[0], *mean = call->out[1], *rstd = call->out[2]; /* [R, C], [R], [R] */
  int64_t width = sl_type_last(&call->in_type[0]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    const float *xr = x + r * width;
    float m = row_sum(xr, width) / (float)width;
    float s = 1.0f / sqrtf(row_squares(xr, width, m) / (float)width + norm_eps(call));
    for (int64_t c = 0, n = y ? width : 0; n > 0; c += LANES, n -= LANES)
      store_ahead(y + r * width + c,
                  plus_product(load(b + c, n), (load(xr + c, n) - m) * s, load(g + c, n)), n);
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
    vec sum_d[SUM_VECTORS] = {0}, sum_dx[SUM_VECTORS] = {0};
    for (int64_t c = 0; c < width; c += SUM_LANES) EACH_VECTOR(v) {
        int64_t at = c + v * LANES, n = width - at;
        vec dy = load_ahead(dyr + at, n), by = load(g + at, n);
        sum_d[v] = plus_product(sum_d[v], dy, by);
        sum_dx[v] = plus_product(sum_dx[v], dy * by, load_ahead(xr + at, n) - m);
      }
    float d_mean = sum_lanes(sum_d) / (float)width;
    float slope = sum_lanes(sum_dx) * s * s / (float)width;
    for (int64_t c = 0, n = width; n > 0; c += LANES, n -= LANES) {
      vec d = plus_product(set(-d_mean), load(dyr + c, n), load(g + c, n));
      store_ahead(dxr + c, s * plus_product(d, m - load(xr + c, n), set(slope)), n);
    }
  }
}

/* ---- sums over rows ----------------------------------------------------------- */

/* Returns the place in the scratch of the sums of chunk i for output o: [width]. */
static inline float *partial(const sl_call *call, int i, int o) {
  int64_t width = sl_type_last(&call->in_type[0]);
  return (float *)call->scratch + ((int64_t)i * call->nout + o) * width;
}

static inline sli_range partial_rows(const sl_call *call, int i) {
  int64_t rows = sl_type_rows(&call->in_type[0]);
  return sli_chunk_range(rows, sli_partial_rows(rows), i);
}

/* out += the sums of all chunks, in order, for chunk i of the columns. */
static void add_partials_chunk(void *arg, int i) {
  const sl_call *call = arg;
  int chunks = sli_partials(sl_type_rows(&call->in_type[0]));
  sli_range columns = sli_columns(&call->in_type[0], i);
  for (int o = 0; o < call->nout; o++) {
    float *out = call->out[o];
    for (int64_t c = columns.begin, n = columns.end - c; out && n > 0; c += LANES, n -= LANES) {
      vec s = load(partial(call, 0, o) + c, n);
      for (int k = 1; k < chunks; k++) s += load(partial(call, k, o) + c, n);
      store(out + c, sli_accumulates(call, o) ? load(out + c, n) + s : s, n);
    }
  }
}

/* Adds some rows to dg and db (NULL: not needed). Inlined with a constant number of rows, so that
 * the sums are read and written once for all of them. */
static inline __attribute__((always_inline)) void norm_w_rows(int rows, const float *x,
                                                              const float *dy, int64_t width,
                                                              const float *mean, const float *rstd,
                                                              float *dg, float *db) {
  for (int64_t c = 0, n = width; n > 0; c += LANES, n -= LANES) {
    vec g = load(dg + c, n), b = db ? load(db + c, n) : (vec){0};
    for (int r = 0; r < rows; r++) {
      float m = mean ? mean[r] : 0;
      __builtin_prefetch(x + (rows + r) * width + c);
      __builtin_prefetch(dy + (rows + r) * width + c);
      vec d = load(dy + r * width + c, n);
      g += d * (load_or(x + r * width + c, n, m) - m) * rstd[r];
      b += d;
    }
    store(dg + c, g, n);
    if (db) store(db + c, b, n);
  }
}

/* dg = sum over rows of dy (x - mean) rstd, db = sum of dy. */
static inline __attribute__((always_inline)) void norm_w(const sl_call *call, int i, const float *x,
                                                         const float *mean, const float *rstd,
                                                         const float *dy) {
  int64_t width = sl_type_last(&call->in_type[0]);
  float *dg = partial(call, i, 0), *db = mean ? partial(call, i, 1) : NULL;
  sli_range rows = partial_rows(call, i);
  memset(dg, 0, (size_t)width * sizeof *dg);
  if (db) memset(db, 0, (size_t)width * sizeof *db);
  int64_t r = rows.begin;
  for (; r + 4 <= rows.end; r += 4)
    norm_w_rows(4, x + r * width, dy + r * width, width, mean ? mean + r : NULL, rstd + r, dg, db);
  for (; r < rows.end; r++)
    norm_w_rows(1, x + r * width, dy + r * width, width, mean ? mean + r : NULL, rstd + r, dg, db);
}

static void layernorm_w_chunk(void *arg, int i) {
  const sl_call *call = arg;
  norm_w(call, i, call->in[0], call->in[1], call->in[2], call->in[3]);
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
      store_ahead(y + r * width + c, load(xr + c, n) * s * load(g + c, n), n);
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
    vec sum_dx[SUM_VECTORS] = {0};
    for (int64_t c = 0; c < width; c += SUM_LANES) EACH_VECTOR(v) {
        int64_t at = c + v * LANES, n = width - at;
        vec d = load_ahead(dyr + at, n) * load(g + at, n);
        sum_dx[v] = plus_product(sum_dx[v], d, load_ahead(xr + at, n));
      }
    float slope = sum_lanes(sum_dx) * s * s / (float)width;
    for (int64_t c = 0, n = width; n > 0; c += LANES, n -= LANES)
      store_ahead(dxr + c,
                  s * plus_product(load(dyr + c, n) * load(g + c, n), -load(xr + c, n), set(slope)),
                  n);
  }
}

static void rmsnorm_w_chunk(void *arg, int i) {
  const sl_call *call = arg;
  norm_w(call, i, call->in[0], NULL, call->in[1], call->in[2]);
}

static inline __attribute__((always_inline)) void bias_w_rows(int rows, const float *dy,
                                                              int64_t width, float *db) {
  for (int64_t c = 0, n = width; n > 0; c += LANES, n -= LANES) {
    vec b = load(db + c, n);
    for (int r = 0; r < rows; r++) {
      __builtin_prefetch(dy + (rows + r) * width + c);
      b += load(dy + r * width + c, n);
    }
    store(db + c, b, n);
  }
}

static void bias_w_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *dy = call->in[0]; /* [R, N] */
  int64_t width = sl_type_last(&call->in_type[0]);
  float *db = partial(call, i, 0);
  sli_range rows = partial_rows(call, i);
  memset(db, 0, (size_t)width * sizeof *db);
  int64_t r = rows.begin;
  for (; r + 4 <= rows.end; r += 4) bias_w_rows(4, dy + r * width, width, db);
  for (; r < rows.end; r++) bias_w_rows(1, dy + r * width, width, db);
}
