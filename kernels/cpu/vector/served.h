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

#define INLINE static inline __attribute__((always_inline))

/* Where in the pages the keys of one head of a position's page begin; behind them come its values. */
static int64_t page_of(const sli_served_attention *a, const int32_t *table, int64_t position, int64_t head) {
  return (table[position / SL_PAGE] * a->kv_heads + head) * sli_page_numbers(a->dim);
}

/* LANES numbers of the pages, or n of them. */
INLINE vec page_load(bool bf16, const void *pages, int64_t at, int64_t n) {
  return bf16 ? load_bf16((const uint16_t *)pages + at, n) : load((const float *)pages + at, n);
}

static void keep_f32(float *page, int64_t at, const float *k, const float *v, int64_t dim) {
  for (int64_t d = 0; d < dim; d++) page[d * SL_PAGE + at] = k[d];
  memcpy(page + (SL_PAGE + at) * dim, v, (size_t)dim * sizeof *v);
}

static void keep_bf16(uint16_t *page, int64_t at, const float *k, const float *v, int64_t dim) {
  for (int64_t d = 0; d < dim; d += LANES) {
    uvec keys = round_bits(load(k + d, dim - d)), values = round_bits(load(v + d, dim - d));
    for (int64_t l = 0; l < LANES && d + l < dim; l++) {
      page[(d + l) * SL_PAGE + at] = (uint16_t)keys[l];
      page[(SL_PAGE + at) * dim + d + l] = (uint16_t)values[l];
    }
  }
}

/* Row i's key and value go to their place. */
static void served_keys_chunk(void *arg, int i) {
  const sli_served_attention *a = arg;
  int64_t position = sl_batch_position(a->batch)[i];
  const int32_t *table = sl_batch_table(a->batch, sl_batch_sequence_of(a->batch)[i]);
  for (int64_t h = 0; h < a->kv_heads; h++) {
    int64_t page = page_of(a, table, position, h);
    const float *k = a->k + i * a->kv_row + h * a->dim, *v = a->v + i * a->kv_row + h * a->dim;
    if (a->bf16) keep_bf16((uint16_t *)a->pages + page, position % SL_PAGE, k, v, a->dim);
    else keep_f32((float *)a->pages + page, position % SL_PAGE, k, v, a->dim);
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
INLINE void page_scores(bool bf16, const sli_served_attention *a, const float *q, int64_t keys, int64_t first,
                        int64_t end, vec *s) {
  for (int v = 0; v < PAGE_VECTORS; v++) s[v] = (vec){0};
  for (int64_t d = 0; d < a->dim; d++) {
    float x = q[d] * a->scale;
    for (int v = 0; v < PAGE_VECTORS; v++) s[v] += x * page_load(bf16, a->pages, keys + d * SL_PAGE + v * LANES, LANES);
  }
  for (int v = 0; v < PAGE_VECTORS; v++) {
    ivec key = lanes() + v * LANES;
    s[v] = pick((key >= (int32_t)first) & (key < (int32_t)end), s[v], set(-INFINITY));
  }
}

/* acc = acc * fade + the values from `first` to before `end` by their p. */
INLINE void add_values(bool bf16, const sli_served_attention *a, float *acc, int64_t values, const float *p,
                       int64_t first, int64_t end, float fade) {
  int64_t dim = a->dim;
  for (int64_t d = 0; d < dim; d += 4 * LANES) {
    vec x[4];
    for (int v = 0; v < 4; v++) x[v] = loadu(acc + d + v * LANES) * fade;
    for (int64_t j = first; j < end; j++)
      for (int v = 0; v < 4; v++)
        if (d + v * LANES < dim)
          x[v] += p[j] * page_load(bf16, a->pages, values + j * dim + d + v * LANES, dim - d - v * LANES);
    for (int v = 0; v < 4; v++) storeu(acc + d + v * LANES, x[v]);
  }
}

INLINE void see_page(bool bf16, const sli_served_attention *a, served_query *x, const float *q, int64_t page,
                     int64_t first, int64_t end) {
  vec s[PAGE_VECTORS];
  _Alignas(64) float p[SL_PAGE];
  page_scores(bf16, a, q, page, first, end, s);
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
  add_values(bf16, a, x->acc, page + SL_PAGE * a->dim, p, first, end, fade[0]);
}

/* One head of queries that have these pages' keys. */
INLINE void see_run(bool bf16, const sli_served_attention *a, sli_run run, int64_t head, served_query *x) {
  const int32_t *positions = sl_batch_position(a->batch) + run.row;
  const int32_t *table = sl_batch_table(a->batch, sl_batch_sequence_of(a->batch)[run.row]);
  int64_t kv = head / (a->heads / a->kv_heads), last = positions[run.rows - 1];
  int64_t begin = positions[0] > a->behind ? (positions[0] - a->behind) / SL_PAGE * SL_PAGE : 0;
  for (int64_t at = begin; at <= last; at += SL_PAGE) {
    int64_t page = page_of(a, table, at, kv);
    for (int r = 0; r < run.rows; r++) {
      int64_t first = positions[r] - a->behind - at, end = positions[r] + 1 - at;
      first = first > 0 ? first : 0;
      end = end < SL_PAGE ? end : SL_PAGE;
      if (first >= end) continue;
      see_page(bf16, a, &x[r], a->q + (run.row + r) * a->q_row + head * a->dim, page, first, end);
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
  if (a->bf16) see_run(true, a, run, head, x);
  else see_run(false, a, run, head, x);
  for (int r = 0; r < run.rows; r++) {
    float *o = a->out + (run.row + r) * a->o_row + head * a->dim, by = 1 / sum(x[r].total);
    for (int64_t d = 0; d < a->dim; d += LANES) store(o + d, loadu(x[r].acc + d) * by, a->dim - d);
  }
}

#undef INLINE
