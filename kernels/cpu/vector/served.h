/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of served graphs. A row's result depends on nothing else in its tick: the order of each
 * sum follows from the row's position and from the shapes of the weights. */

/* ---- positions ---------------------------------------------------------------------------- */

static void rotary_served_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_batch *batch = call->in[1];
  const sli_rotary *angles = call->state;
  int64_t width = call->in_type[0].dim[2], at = sl_batch_position(batch)[i] * angles->pairs;
  turn_row(call, (const float *)call->in[0] + i * width, angles->cos + at, angles->sin + at, 1,
           (float *)call->out[0] + i * width);
}

static void position_served_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_batch *batch = call->in[2];
  int64_t width = call->in_type[0].dim[2];
  const float *x = (const float *)call->in[0] + i * width;
  const float *t = (const float *)call->in[1] + sl_batch_position(batch)[i] * width;
  float *y = (float *)call->out[0] + i * width;
  for (int64_t c = 0, n = width; n > 0; c += LANES, n -= LANES)
    store(y + c, load(x + c, n) + load(t + c, n), n);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* A query visits its pages, which are tiles of keys, in the order that attention.h describes. */

#define INLINE static inline __attribute__((always_inline))

/* Returns the numbers of a page of one KV head: the bytes, if they are in Q8_0. */
INLINE int64_t page_size(sl_storage storage, int64_t dim) {
  return storage == SL_STORAGE_Q8_0 ? sli_page_bytes(2 * SL_PAGE, dim) : sli_page_numbers(dim);
}

/* Returns the offset of a head's keys in the page of a position. The values follow. */
static int64_t page_of(const sli_served_attention *a, const int32_t *table, int64_t position,
                       int64_t head) {
  return (table[position / SL_PAGE] * a->kv_heads + head) * page_size(a->storage, a->dim);
}

/* Loads LANES floats of 8 bits, or n of them. */
INLINE vec load_fp8(const uint8_t *p, int64_t n) {
  uint8_t some[LANES] = {0};
  if (__builtin_expect(n < LANES, 0)) p = memcpy(some, p, (size_t)n);
  ivec none = (widen_u8(p) & 127) == 127;
  return pick(none, set(NAN), load_e4m3(p) * 256);
}

/* Loads LANES numbers of the pages, or n of them; of Q8_0, without their scales. */
INLINE vec page_load(sl_storage storage, const void *pages, int64_t at, int64_t n) {
  if (storage == SL_STORAGE_BF16) return load_bf16((const uint16_t *)pages + at, n);
  if (storage == SL_STORAGE_F32) return load((const float *)pages + at, n);
  if (storage == SL_STORAGE_FP8) return load_fp8((const uint8_t *)pages + at, n);
  return __builtin_convertvector(widen_u8((const uint8_t *)pages + at) - SLI_PAGE_CENTRE, vec);
}

/* Returns the halves of a page in Q8_0 at offset `at`: those of the keys, then of the values. */
INLINE const uint16_t *page_scales(const sli_served_attention *a, int64_t at) {
  return (const uint16_t *)((const uint8_t *)a->pages + at + 2 * SL_PAGE * a->dim);
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

static void keep_fp8(uint8_t *page, int64_t at, const float *k, const float *v, int64_t dim) {
  for (int64_t d = 0; d < dim; d++) {
    page[d * SL_PAGE + at] = sli_float_to_e4m3(k[d]);
    page[(SL_PAGE + at) * dim + d] = sli_float_to_e4m3(v[d]);
  }
}

static void keep_q8_0(const sli_served_attention *a, int64_t page, int64_t at, const float *k,
                      const float *v) {
  int64_t dim = a->dim, blocks = sli_page_blocks(dim);
  uint8_t *keys = (uint8_t *)a->pages + page, *values = keys + (SL_PAGE + at) * dim;
  uint16_t *scales = (uint16_t *)page_scales(a, page);
  for (int64_t b = 0; b < blocks; b++) {
    int64_t d = b * SLI_PAGE_BLOCK, n = SLI_MIN(dim - d, SLI_PAGE_BLOCK);
    scales[b * SL_PAGE + at] =
        sli_float_to_half(sli_page_round(k + d, n, keys + d * SL_PAGE + at, SL_PAGE));
    scales[(blocks * SL_PAGE) + at * blocks + b] =
        sli_float_to_half(sli_page_round(v + d, n, values + d, 1));
  }
}

/* Writes row i's key and value to their page. */
static void served_keys_chunk(void *arg, int i) {
  const sli_served_attention *a = arg;
  int64_t position = sl_batch_position(a->batch)[i];
  const int32_t *table = sl_batch_table(a->batch, sl_batch_sequence_of(a->batch)[i]);
  for (int64_t h = 0; h < a->kv_heads; h++) {
    int64_t page = page_of(a, table, position, h);
    const float *k = a->k + i * a->kv_row + h * a->dim, *v = a->v + i * a->kv_row + h * a->dim;
    int64_t at = position % SL_PAGE;
    if (a->storage == SL_STORAGE_Q8_0) keep_q8_0(a, page, at, k, v);
    else if (a->storage == SL_STORAGE_FP8) keep_fp8((uint8_t *)a->pages + page, at, k, v, a->dim);
    else if (a->storage == SL_STORAGE_BF16)
      keep_bf16((uint16_t *)a->pages + page, at, k, v, a->dim);
    else keep_f32((float *)a->pages + page, at, k, v, a->dim);
  }
}

enum { PAGE_VECTORS = SL_PAGE / LANES, VALUE_VECTORS = 4, KEY_VECTORS = KEY_SUMS / LANES };
_Static_assert((int)SL_PAGE == (int)KT,
               "a page is a tile of keys, so that both have the same sums");

/* Queries that process a page together, so that the page is read once for all of them; their number
 * is limited by the registers for sums. */
#if defined(__AVX512F__)
enum { QUERIES = 4 };
#else
enum { QUERIES = 1 };
#endif

/* State of one query as it proceeds through the pages. */
typedef struct served_query {
  _Alignas(64) float q[SLI_MAX_HEAD_DIM], acc[SLI_MAX_HEAD_DIM], p[SL_PAGE];
  /* the query attends to the page's keys [near, end) and to those before `shown`, all of which are
   * from `first` on */
  int64_t position, first, end, near, shown;
  int64_t at; /* offset of the query in q */
  int form;   /* form of that q (attention_dual) */
  float top, fade;
  vec total; /* the same in all lanes */
} served_query;

/* Keys of one head in a page: their offset, the position of the first key, and their number. */
typedef struct served_page {
  int64_t at, position, keys;
} served_page;

INLINE void fetch_lines(sl_storage storage, const sli_served_attention *a, int64_t at, int64_t n) {
  const char *pages = a->pages;
  const int64_t size = storage == SL_STORAGE_F32    ? 4
                       : storage == SL_STORAGE_BF16 ? 2
                                                    : 1,
                line = 64;
  for (int64_t b = 0; b < n * size; b += line) __builtin_prefetch(pages + at * size + b, 0, 2);
}

/* Prefetches dim d of a page's keys, and value d, while the dims of the previous page are
 * processed. */
INLINE void fetch_dim(sl_storage storage, const sli_served_attention *a, const served_page *page,
                      int64_t d) {
  fetch_lines(storage, a, page->at + d * SL_PAGE, page->keys);
  if (d < page->keys) fetch_lines(storage, a, page->at + SL_PAGE * a->dim + d * a->dim, a->dim);
}

/* Computes the scores of n queries with a page's keys, s[PAGE_VECTORS][n]; prefetches `next`, if
 * not NULL. */
INLINE void page_scores(sl_storage storage, const sli_served_attention *a, int n,
                        const served_query *x, const served_page *page, const served_page *next,
                        vec *s) {
  const bool scaled = storage == SL_STORAGE_Q8_0;
  vec scales[PAGE_VECTORS] = {{0}};
#pragma GCC unroll 16
  for (int i = 0; i < n * PAGE_VECTORS; i++) s[i] = (vec){0};
  for (int64_t d = 0; d < a->dim; d++) {
    vec k = {0};
    for (int v = 0; scaled && d % SLI_PAGE_BLOCK == 0 && v < PAGE_VECTORS; v++)
      scales[v] = load_half(page_scales(a, page->at) + d / SLI_PAGE_BLOCK * SL_PAGE + v * LANES);
    if (next) fetch_dim(storage, a, next, d);
#pragma GCC unroll 16
    for (int i = 0; i < n * PAGE_VECTORS; i++) {
      if (i % n == 0)
        k = page_load(storage, a->pages, page->at + d * SL_PAGE + i / n * LANES, LANES);
      if (i % n == 0 && scaled) k *= scales[i / n];
      s[i] = plus_product(s[i], set(x[i % n].q[d]), k);
    }
  }
}

/* Returns the sum of a page's exponentials, in all lanes, from sums of keys KEY_SUMS apart. */
INLINE vec add_key_sums(vec *part) {
  for (int half = KEY_VECTORS / 2; half; half /= 2)
    for (int v = 0; v < half; v++) part[v] += part[v + half];
#pragma GCC unroll 4
  for (int half = LANES / 2; half; half /= 2) *part += SHUFFLE(*part, lanes() ^ half);
  return *part;
}

/* Merges the scores of a query (every n-th vector) into its softmax over the pages so far. */
INLINE void weigh(served_query *x, int n, vec *s) {
  vec m = set(x->top), part[KEY_VECTORS] = {0};
#pragma GCC unroll 16
  for (int v = 0; v < PAGE_VECTORS; v++) {
    ivec key = lanes() + v * LANES;
    ivec seen = (key >= (int32_t)x->near) | (key < (int32_t)x->shown);
    s[v * n] = pick(seen & (key < (int32_t)x->end), s[v * n], set(-INFINITY));
    m = vmax(s[v * n], m);
  }
#pragma GCC unroll 4
  for (int half = LANES / 2; half; half /= 2) m = vmax(m, SHUFFLE(m, lanes() ^ half));
  float top = m[0];
  vec fade = vexp_low(set(x->top - top));
#pragma GCC unroll 16
  for (int v = 0; v < PAGE_VECTORS; v++) {
    s[v * n] = vexp_low(s[v * n] - top);
    part[v % KEY_VECTORS] += s[v * n];
    storeu(x->p + v * LANES, s[v * n]);
  }
  x->total = plus_product(add_key_sums(part), x->total, fade);
  x->top = top;
  x->fade = fade[0];
}

/* Values of a page: their offset and, of Q8_0, their scales [SL_PAGE][blocks]. */
typedef struct page_values {
  int64_t at;
  const float *scales;
} page_values;

/* Computes acc * fade + the values [first, end), weighted by p, for VALUE_VECTORS from dim d on. */
INLINE void add_dims(sl_storage storage, const sli_served_attention *a, int n, served_query *x,
                     page_values values, int64_t d, bool whole, int64_t first, int64_t end) {
  const int64_t blocks = sli_page_blocks(a->dim);
  vec y[QUERIES * VALUE_VECTORS];
  int64_t left = whole ? VALUE_VECTORS * LANES : a->dim - d;
#pragma GCC unroll 16
  for (int i = 0; i < n * VALUE_VECTORS; i++)
    y[i] = loadu(x[i % n].acc + d + i / n * LANES) * x[i % n].fade;
  for (int64_t j = first; j < end; j++) {
    vec v = {0};
#pragma GCC unroll 16
    for (int i = 0; i < n * VALUE_VECTORS; i++)
      if (i / n * LANES < left) {
        if (i % n == 0)
          v = page_load(storage, a->pages, values.at + j * a->dim + d + i / n * LANES,
                        left - i / n * LANES);
        if (i % n == 0 && storage == SL_STORAGE_Q8_0)
          v *= values.scales[j * blocks + (d + i / n * LANES) / SLI_PAGE_BLOCK];
        y[i] = plus_product(y[i], set(x[i % n].p[j]), v);
      }
  }
#pragma GCC unroll 16
  for (int i = 0; i < n * VALUE_VECTORS; i++) storeu(x[i % n].acc + d + i / n * LANES, y[i]);
}

INLINE void add_values(sl_storage storage, const sli_served_attention *a, int n, served_query *x,
                       page_values values, int64_t first, int64_t end) {
  const int64_t step = VALUE_VECTORS * LANES;
  if (first >= end) return;
  for (int64_t d = 0; d < a->dim; d += step)
    if (a->dim - d >= step) add_dims(storage, a, n, x, values, d, true, first, end);
    else add_dims(storage, a, n, x, values, d, false, first, end);
  for (int i = 0; i < n; i++) x[i].fade = 1;
}

/* Adds values. The range common to all n queries is added for all of them together; each query then
 * adds the values before and after it. */
INLINE void see_values(sl_storage storage, const sli_served_attention *a, int n, served_query *x,
                       page_values values) {
  int64_t first = 0, end = SL_PAGE;
  for (int i = 0; i < n; i++) {
    first = x[i].first > first ? x[i].first : first;
    end = x[i].end < end ? x[i].end : end;
  }
  if (end < first) end = first;
  for (int i = 0; i < n && n > 1; i++)
    add_values(storage, a, 1, &x[i], values, x[i].first, first < x[i].end ? first : x[i].end);
  add_values(storage, a, n, x, values, first, end);
  for (int i = 0; i < n && n > 1; i++)
    add_values(storage, a, 1, &x[i], values, end > x[i].first ? end : x[i].first, x[i].end);
}

INLINE void see_page(sl_storage storage, const sli_served_attention *a, int n, served_query *x,
                     const served_page *page, const served_page *next) {
  vec s[QUERIES * PAGE_VECTORS];
  for (int i = 0; i < n; i++) {
    int64_t near = x[i].position - a->behind - page->position,
            end = x[i].position + 1 - page->position, shown = a->shown - page->position;
    x[i].near = near > 0 ? near : 0;
    x[i].shown = shown > 0 ? shown : 0;
    x[i].first = x[i].shown ? 0 : x[i].near;
    x[i].end = end < page->keys ? end : page->keys;
  }
  page_scores(storage, a, n, x, page, next, s);
  for (int i = 0; i < n * PAGE_VECTORS && a->cap > 0; i++) s[i] = capped(s[i], a->cap);
  for (int i = 0; i < n; i++) weigh(&x[i], n, s + i);
  page_values values = {.at = page->at + SL_PAGE * a->dim};
  _Alignas(64) float scales[SL_PAGE * SLI_MAX_HEAD_DIM / SLI_PAGE_BLOCK];
  if (storage == SL_STORAGE_Q8_0) {
    int64_t count = SL_PAGE * sli_page_blocks(a->dim);
    for (int64_t i = 0; i < count; i += LANES)
      storeu(scales + i, load_half(page_scales(a, page->at) + count + i));
    values.scales = scales;
  }
  see_values(storage, a, n, x, values);
}

/* Processes a page for n queries, QUERIES at a time. */
INLINE void see_page_all(sl_storage storage, const sli_served_attention *a, int n, served_query *x,
                         const served_page *page, const served_page *next) {
  for (; n >= QUERIES; n -= QUERIES, x += QUERIES, next = NULL)
    see_page(storage, a, QUERIES, x, page, next);
#if defined(__AVX512F__)
  if (n == 3) see_page(storage, a, 3, x, page, next);
  if (n == 2) see_page(storage, a, 2, x, page, next);
  if (n == 1) see_page(storage, a, 1, x, page, next);
#endif
}

/* Returns the page of a position of a sequence; its keys end at `last`. */
static served_page find_page(const sli_served_attention *a, const int32_t *table, int64_t kv,
                             int64_t position, int64_t last) {
  int64_t keys = last + 1 - position;
  return (served_page){page_of(a, table, position, kv), position, keys < SL_PAGE ? keys : SL_PAGE};
}

/* Returns the position of the page to visit after the one at `position`; negative if there is none.
 * `begin` is the position of the first page that a window reaches. */
static int64_t page_before(const sli_served_attention *a, int64_t begin, int64_t position) {
  int64_t front = (a->shown + SL_PAGE - 1) / SL_PAGE * SL_PAGE;
  return (position > begin ? position : SLI_MIN(position, front)) - SL_PAGE;
}

static void load_query(const sli_served_attention *a, served_query *x, const float *from) {
  for (int64_t d = 0; d < a->dim; d++) x->q[d] = from[x->at + d] * a->scale;
}

/* Selects the form of each query for a page's keys. */
static void turn_forms(const sli_served_attention *a, int n, served_query *x, int64_t page) {
  for (int i = 0; i < n; i++) {
    int64_t between = x[i].position / a->dual.chunk - page / a->dual.chunk;
    int form = (int)SLI_MIN(between, FORMS - 1);
    if (form > x[i].form) load_query(a, &x[i], a->dual.q[form - 1]);
    x[i].form = SLI_MAX(form, x[i].form);
  }
}

/* Returns the next page to visit, after the one at `position`, that is in the mask. */
static int64_t chosen_before(const sli_served_attention *a, const uint64_t *mask, int64_t begin,
                             int64_t position) {
  do position = page_before(a, begin, position);
  while (mask && position >= 0 && !(mask[position / SL_PAGE / 64] >> position / SL_PAGE % 64 & 1));
  return position;
}

/* Visits the pages of a mask, all if it is NULL. */
INLINE void see_pages(sl_storage storage, const sli_served_attention *a, const int32_t *table,
                      int64_t kv, int n, served_query *x, const uint64_t *mask) {
  int64_t begin = x->position > a->behind ? (x->position - a->behind) / SL_PAGE * SL_PAGE : 0,
          last = x[n - 1].position;
  served_page page = find_page(a, table, kv, last / SL_PAGE * SL_PAGE, last), next;
  for (bool more = true; more; page = next) {
    int64_t before = chosen_before(a, mask, begin, page.position);
    more = before >= 0;
    if (more) next = find_page(a, table, kv, before, last);
    if (a->dual.chunk) turn_forms(a, n, x, page.position);
    see_page_all(storage, a, n, x, &page, more ? &next : NULL);
  }
}

static void see_pages_f32(const sli_served_attention *a, const int32_t *table, int64_t kv, int n,
                          served_query *x, const uint64_t *mask) {
  see_pages(SL_STORAGE_F32, a, table, kv, n, x, mask);
}

static void see_pages_bf16(const sli_served_attention *a, const int32_t *table, int64_t kv, int n,
                           served_query *x, const uint64_t *mask) {
  see_pages(SL_STORAGE_BF16, a, table, kv, n, x, mask);
}

static void see_pages_q8_0(const sli_served_attention *a, const int32_t *table, int64_t kv, int n,
                           served_query *x, const uint64_t *mask) {
  see_pages(SL_STORAGE_Q8_0, a, table, kv, n, x, mask);
}

static void see_pages_fp8(const sli_served_attention *a, const int32_t *table, int64_t kv, int n,
                          served_query *x, const uint64_t *mask) {
  see_pages(SL_STORAGE_FP8, a, table, kv, n, x, mask);
}

static void begin_query(const sli_served_attention *a, int64_t row, int64_t head, served_query *x) {
  x->at = row * a->q_row + head * a->dim;
  x->form = 0;
  load_query(a, x, a->q);
  memset(x->acc, 0, sizeof x->acc);
  x->position = sl_batch_position(a->batch)[row];
  x->top = -FLT_MAX;
  x->total = (vec){0};
}

static void end_query(const sli_served_attention *a, int64_t row, int64_t head,
                      const served_query *x) {
  float *o = a->out + row * a->o_row + head * a->dim, by = 1 / x->total[0];
  for (int64_t d = 0; d < a->dim; d += LANES) store(o + d, loadu(x->acc + d) * by, a->dim - d);
  if (a->lse) a->lse[row * a->heads + head] = x->top + logf(x->total[0]);
}

/* ---- choice of pages ------------------------------------------------------------------------- */

/* A chunk's pages for a head, as attention_choice.h chooses blocks: estimates are the softmax mass
 * that the chunk's last SL_PAGE queries give to a page, and to pages at the same distance. */
typedef struct page_choice {
  const int32_t *table;
  int64_t row, head, kv;
  float *column, *near;
} page_choice;

INLINE float sum_vector(vec x) {
#pragma GCC unroll 4
  for (int half = LANES / 2; half; half /= 2) x += SHUFFLE(x, lanes() ^ half);
  return x[0];
}

/* Adds a query's weights of a page's keys, exp(s - lse), every n-th vector of s. Keys i - l = d
 * before the same place of the page's block are |d| / 64 at the next distance. */
INLINE void add_weights(const page_choice *c, const served_query *x, int64_t page, int n,
                        const vec *s, float lse) {
  const int32_t at = (int32_t)(x->position % SL_PAGE);
  const int64_t apart = x->position / SL_PAGE - page;
  vec all = {0}, farther = {0}, nearer = {0};
#pragma GCC unroll 16
  for (int v = 0; v < PAGE_VECTORS; v++) {
    ivec key = lanes() + v * LANES;
    vec p = vexp_low(pick(key < (int32_t)x->end, s[v * n], set(-INFINITY)) - lse);
    vec d = __builtin_convertvector(at - key, vec) * (1.0f / SL_PAGE);
    all += p;
    farther += p * vmax(d, (vec){0});
    nearer += p * vmax(-d, (vec){0});
  }
  float sum = sum_vector(all), far = sum_vector(farther), close = sum_vector(nearer);
  c->column[page] += sum;
  c->near[apart] += sum - far - close;
  c->near[apart + 1] += far;
  if (apart) c->near[apart - 1] += close;
}

enum { CHOOSING = 32 }; /* queries that walk the pages together */

/* Walks all pages for CHOOSING queries: without `lse` for the sums of the softmax, then for the
 * weights. */
INLINE void walk_pages(sl_storage storage, const sli_served_attention *a, const page_choice *c,
                       served_query *x, const float *lse) {
  int64_t last = x[CHOOSING - 1].position;
  for (int64_t at = last / SL_PAGE * SL_PAGE; at >= 0; at -= SL_PAGE) {
    served_page page = find_page(a, c->table, c->kv, at, last);
    if (a->dual.chunk) turn_forms(a, CHOOSING, x, at);
    for (int i = 0; i < CHOOSING; i += QUERIES) {
      vec s[QUERIES * PAGE_VECTORS];
      page_scores(storage, a, QUERIES, x + i, &page, NULL, s);
      for (int v = 0; v < QUERIES * PAGE_VECTORS && a->cap > 0; v++) s[v] = capped(s[v], a->cap);
      for (int k = 0; k < QUERIES; k++) {
        served_query *q = &x[i + k];
        q->near = q->shown = 0;
        q->end = SLI_MIN(q->position + 1 - at, page.keys);
        if (lse) add_weights(c, q, at / SL_PAGE, QUERIES, s + k, lse[i + k]);
        else weigh(q, QUERIES, s + k);
      }
    }
  }
}

/* Adds the weights of the queries from a row on. */
INLINE void add_rows(sl_storage storage, const sli_served_attention *a, const page_choice *c,
                     int64_t row) {
  served_query x[CHOOSING];
  float lse[CHOOSING];
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < CHOOSING; i++) begin_query(a, row + i, c->head, &x[i]);
    walk_pages(storage, a, c, x, pass ? lse : NULL);
    for (int i = 0; i < CHOOSING && !pass; i++) lse[i] = x[i].top + logf(x[i].total[0]);
  }
}

static void add_rows_f32(const sli_served_attention *a, const page_choice *c, int64_t row) {
  add_rows(SL_STORAGE_F32, a, c, row);
}

static void add_rows_bf16(const sli_served_attention *a, const page_choice *c, int64_t row) {
  add_rows(SL_STORAGE_BF16, a, c, row);
}

static void add_rows_q8_0(const sli_served_attention *a, const page_choice *c, int64_t row) {
  add_rows(SL_STORAGE_Q8_0, a, c, row);
}

static void add_rows_fp8(const sli_served_attention *a, const page_choice *c, int64_t row) {
  add_rows(SL_STORAGE_FP8, a, c, row);
}

/* Writes the mask of the pages of query block `own`. */
static void write_mask(const page_choice *c, choice *x, float share, int64_t own, int64_t words,
                       uint64_t *mask) {
  int64_t count = sli_blocks_of_share(share, own);
  memset(mask, 0, (size_t)words * sizeof *mask);
  for (int64_t n = 0; n <= own; n++) x->estimate[n] = SLI_MAX(c->column[n], c->near[own - n]);
  if (count <= own) mark_best(x, own, count - 2);
  for (int64_t n = 0; n <= own; n++)
    if (count > own || n == 0 || n == own || x->estimate[n] < 0)
      mask[n / 64] |= UINT64_C(1) << n % 64;
}

/* Chooses pages for query block after query block of chunk i: a chunk of positions, a head. */
static void served_choice_chunk(void *arg, int i) {
  const sli_served_attention *a = arg;
  const sli_served_chunks *c = &a->chunks;
  const int64_t pages = c->words * 64, blocks = c->positions / SL_PAGE;
  float *room = c->room + i * SLI_CHOICE_ARRAYS * pages;
  page_choice p = {
      .row = c->row[i / a->heads], .head = i % a->heads, .column = room, .near = room + pages};
  p.kv = p.head / (a->heads / a->kv_heads);
  p.table = sl_batch_table(a->batch, sl_batch_sequence_of(a->batch)[p.row]);
  memset(room, 0, (size_t)(2 * pages) * sizeof *room);
  for (int64_t row = p.row + c->positions - SL_PAGE; row < p.row + c->positions; row += CHOOSING)
    if (a->storage == SL_STORAGE_F32) add_rows_f32(a, &p, row);
    else if (a->storage == SL_STORAGE_BF16) add_rows_bf16(a, &p, row);
    else if (a->storage == SL_STORAGE_FP8) add_rows_fp8(a, &p, row);
    else add_rows_q8_0(a, &p, row);
  choice x = {.estimate = room + 2 * pages, .heap = (int32_t *)(room + 3 * pages)};
  int64_t own = sl_batch_position(a->batch)[p.row] / SL_PAGE;
  uint64_t *mask = c->masks + i * blocks * c->words;
  for (int64_t b = 0; b < blocks; b++)
    write_mask(&p, &x, c->share, own + b, c->words, mask + b * c->words);
  float mass = 0;
  mask += (blocks - 1) * c->words;
  for (int64_t n = 0; n < own + blocks; n++) mass += mask[n / 64] >> n % 64 & 1 ? p.column[n] : 0;
  c->recall[i] = mass / SL_PAGE;
}

/* Returns the mask of a run's pages for a head, or NULL if it attends to all. */
static const uint64_t *mask_of(const sli_served_attention *a, sli_run run, int64_t head) {
  const sli_served_chunks *c = &a->chunks;
  const int64_t blocks = c->positions / SL_PAGE;
  for (int i = 0; i < c->count; i++)
    if (run.row >= c->row[i] && run.row < c->row[i] + c->positions)
      return c->masks +
             ((i * a->heads + head) * blocks + (run.row - c->row[i]) / SL_PAGE) * c->words;
  return NULL;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Attends for some query heads of a run that share a KV head; for heads with pages of their own one
 * by one. */
static void see_run(const sli_served_attention *a, sli_run run, int64_t kv, int64_t head,
                    int heads) {
  enum { MOST = 32 };
  served_query x[MOST];
  const int32_t *table = sl_batch_table(a->batch, sl_batch_sequence_of(a->batch)[run.row]);
  int most = mask_of(a, run, head) ? 1 : MOST / run.rows, n;
  for (; heads; heads -= n, head += n) {
    n = heads < most ? heads : most;
    for (int i = 0; i < run.rows * n; i++) begin_query(a, run.row + i / n, head + i % n, &x[i]);
    const uint64_t *mask = mask_of(a, run, head);
    if (a->storage == SL_STORAGE_F32) see_pages_f32(a, table, kv, run.rows * n, x, mask);
    else if (a->storage == SL_STORAGE_BF16) see_pages_bf16(a, table, kv, run.rows * n, x, mask);
    else if (a->storage == SL_STORAGE_FP8) see_pages_fp8(a, table, kv, run.rows * n, x, mask);
    else see_pages_q8_0(a, table, kv, run.rows * n, x, mask);
    for (int i = 0; i < run.rows * n; i++) end_query(a, run.row + i / n, head + i % n, &x[i]);
  }
}

/* Runs chunk i: a run, a KV head, and a part of its query heads. */
static void served_attention_chunk(void *arg, int i) {
  const sli_served_attention *a = arg;
  int64_t part = i % a->parts, kv = i / a->parts % a->kv_heads, group = a->heads / a->kv_heads;
  int64_t first = group * part / a->parts, end = group * (part + 1) / a->parts;
  see_run(a, a->runs[i / a->parts / a->kv_heads], kv, kv * group + first, (int)(end - first));
}

#undef INLINE
