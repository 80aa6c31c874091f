/* Rows of served graphs. What one of them gives depends on nothing else in its tick: each number is
 * added up in an order that the row's own position and the shapes of weights say. */

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
