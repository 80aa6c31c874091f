/* SPDX-License-Identifier: Apache-2.0 */
/* Selection of the blocks of keys that attention is limited to: estimates and lists of a head
 * (ops/attention_blocks.c). */

/* Estimates of a head. Queries of the last block, and those of the previous block that are among
 * the last ones, are counted separately. */
typedef struct choice {
  const sli_block_choice *c;
  float *slash;           /* mass by distance from query to key, from -QT on */
  float *column[2];       /* mass of each block of keys */
  float *near, *estimate; /* fraction by distance in blocks; the estimates of a block of queries */
  int32_t *heap;
  float *keys, *query; /* mean keys [blocks, dim], and the mean query */
  const float *q, *k;  /* row 0 */
} choice;

static choice choice_of(const sli_block_choice *c, int64_t b, int64_t h) {
  const sli_attention *a = &c->a;
  int64_t room = sli_block_room(a->keys, c->blocks, a->dim);
  float *at = c->room + (b * a->heads + h) * room;
  memset(at, 0, (size_t)room * sizeof *at);
  choice x = {.c = c, .slash = at};
  at += a->keys + 2 * QT;
  x.column[0] = at;
  x.column[1] = at + c->blocks;
  x.near = at + 2 * c->blocks;
  x.estimate = at + 3 * c->blocks;
  x.heap = (int32_t *)(at + 4 * c->blocks);
  x.keys = at + 5 * c->blocks;
  x.query = x.keys + c->blocks * a->dim;
  x.q = c->q + b * a->q_batch + h * a->dim;
  x.k = a->k + b * a->kv_batch + h / (a->heads / a->kv_heads) * a->dim;
  return x;
}

/* ---- the last queries ---------------------------------------------------------------------- */

/* Adds a tile of probabilities to the sums by distance and by block. */
static void add_mass(choice *x, float (*p)[QT], int64_t nk, int64_t k0, int64_t q0, int64_t nq) {
  float sum[QT] = {0};
  for (int64_t j = 0; j < nk; j++) {
    float *slash = x->slash + QT + q0 - k0 - j;
    for (int i = 0; i < QT; i += LANES) {
      vec v = loadu(&p[j][i]);
      storeu(slash + i, loadu(slash + i) + v);
      storeu(sum + i, loadu(sum + i) + v);
    }
  }
  for (int64_t l = 0; l < nq; l++) x->column[(q0 + l) / KT < x->c->blocks - 1][k0 / KT] += sum[l];
}

/* Walks a tile of the last queries over all keys twice: for the sums of the softmax, and for the
 * mass. */
static void add_queries(choice *x, tile_state *s, int64_t b, int64_t h, int64_t i0) {
  const sli_attention *a = &x->c->a;
  int64_t nq = SLI_MIN(a->queries - i0, QT);
  tile_mask t;
  turn_queries(false, s->qt, a->q + b * a->q_batch + i0 * a->q_row + h * a->dim, a->q_row, nq,
               a->dim, a->scale);
  begin_tile(s, 0);
  see(&t, a, b, i0, nq);
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t k0 = last_tile(&t); k0 >= 0; k0 -= KT) {
      int64_t nk = SLI_MIN(t.limit - k0, KT);
      scores(false, s->s, nk, x->k + k0 * a->kv_row, a->kv_row, a->dim, s->qt, &s->next);
      hide(s->s, nk, k0, &t, &a->mask);
      if (!pass) {
        soften(s->s, nk, s->top, s->total, s->fade);
        continue;
      }
      for (int i = 0; i < QT; i += LANES)
        for (int64_t j = 0; j < nk; j++)
          storeu(&s->s[j][i], vexp_low(loadu(&s->s[j][i]) - loadu(s->top + i)));
      add_mass(x, s->s, nk, k0, t.q0, nq);
    }
    for (int64_t l = 0; l < QT; l++) s->top[l] = l < nq ? s->top[l] + logf(s->total[l]) : INFINITY;
  }
}

/* ---- estimates ----------------------------------------------------------------------------- */

/* A distance d crosses 64 - |d - 64 g| rows of the blocks that are g apart. */
static void add_distances(choice *x) {
  const sli_attention *a = &x->c->a;
  for (int64_t g = 0; g < x->c->blocks; g++)
    for (int64_t far = 1 - KT; far < KT; far++) {
      int64_t d = g * KT + far;
      if (d < 0 || d >= a->keys) continue;
      x->near[g] += x->slash[QT + d] * (float)(KT - llabs(far)) / (float)(KT * a->queries);
    }
}

static void mean_of(float *to, const float *x, int64_t row, int64_t rows, int64_t dim) {
  for (int64_t d = 0; d < dim; d++) to[d] = 0;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t d = 0; d < dim; d++) to[d] += x[r * row + d];
  for (int64_t d = 0; d < dim; d++) to[d] /= (float)rows;
}

static int64_t rows_of_block(const choice *x, int64_t block) {
  return SLI_MIN(x->c->a.keys - block * KT, KT);
}

static float dot_of(const float *x, const float *y, int64_t dim) {
  vec t[SUM_VECTORS] = {0};
  for (int64_t d = 0; d < dim; d += SUM_LANES) EACH_VECTOR(v) {
      int64_t at = d + v * LANES;
      t[v] = plus_product(t[v], load(x + at, dim - at), load(y + at, dim - at));
    }
  return sum_lanes(t);
}

/* Fills the estimates of the blocks of keys up to the query block itself. */
static void estimate(choice *x, int64_t own) {
  const sli_attention *a = &x->c->a;
  float top = -FLT_MAX, total = 0;
  mean_of(x->query, x->q + own * KT * a->q_row, a->q_row, rows_of_block(x, own), a->dim);
  for (int64_t n = 0; n <= own; n++) {
    x->estimate[n] = a->scale * dot_of(x->query, x->keys + n * a->dim, a->dim);
    top = SLI_MAX(top, x->estimate[n]);
  }
  for (int64_t n = 0; n <= own; n++) total += x->estimate[n] = expf(x->estimate[n] - top);
  for (int64_t n = 0; n <= own; n++) {
    float column = (x->column[0][n] + x->column[1][n]) / (float)a->queries;
    x->estimate[n] = SLI_MAX(x->estimate[n] / total, SLI_MAX(column, x->near[own - n]));
  }
}

/* ---- lists --------------------------------------------------------------------------------- */

/* Returns true if block m ranks below block n. */
static bool is_below(const choice *x, int32_t m, int32_t n) {
  float a = x->estimate[m], b = x->estimate[n];
  return a < b || (!(b < a) && m < n);
}

/* Restores the heap after a change of its top, which is the lowest entry. */
static void sink(choice *x, int64_t count) {
  int32_t *heap = x->heap, own = heap[0];
  int64_t at = 0;
  for (int64_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && is_below(x, heap[child + 1], heap[child])) child++;
    if (!is_below(x, heap[child], own)) break;
    heap[at] = heap[child];
  }
  heap[at] = own;
}

static void rise(choice *x, int64_t at) {
  int32_t *heap = x->heap, own = heap[at];
  for (; at && is_below(x, own, heap[(at - 1) / 2]); at = (at - 1) / 2)
    heap[at] = heap[(at - 1) / 2];
  heap[at] = own;
}

/* Marks `count` blocks between the first block and the query block by a negative estimate. */
static void mark_best(choice *x, int64_t own, int64_t count) {
  int64_t held = 0;
  for (int32_t n = 1; n < own && count; n++) {
    if (held < count) {
      x->heap[held] = n;
      rise(x, held++);
    } else if (is_below(x, x->heap[0], n)) {
      x->heap[0] = n;
      sink(x, count);
    }
  }
  for (int64_t i = 0; i < held; i++) x->estimate[x->heap[i]] = -1;
}

/* Writes the list of a block of queries. Returns the mass of the last queries that it covers. */
static float write_list(choice *x, int64_t own, int32_t *list) {
  const sli_block_choice *c = x->c;
  int64_t count = sli_blocks_chosen(c->attrs, own), held = 0;
  float mass = 0;
  if (count <= own) {
    estimate(x, own);
    mark_best(x, own, count - 2);
  }
  for (int64_t n = own; n >= 0; n--) {
    if (count <= own && n && n < own && x->estimate[n] >= 0) continue;
    if (list) list[held++] = (int32_t)n;
    if (own >= c->blocks - 2) mass += x->column[own < c->blocks - 1][n];
  }
  while (list && held < c->width) list[held++] = -1;
  return mass;
}

/* Runs chunk i: batch, head. */
static void choose_blocks_chunk(void *arg, int i) {
  const sli_block_choice *c = arg;
  const sli_attention *a = &c->a;
  int64_t h = i % a->heads, b = i / a->heads, dim = a->dim;
  choice x = choice_of(c, b, h);
  tile_state s;
  s.next = (ahead){0};
  for (int64_t i0 = 0; i0 < a->queries; i0 += QT) add_queries(&x, &s, b, h, i0);
  add_distances(&x);
  for (int64_t n = 0; n < c->blocks; n++)
    mean_of(x.keys + n * dim, x.k + n * KT * a->kv_row, a->kv_row, rows_of_block(&x, n), dim);
  float mass = 0;
  int32_t *lists = c->chosen ? c->chosen + i * c->blocks * c->width : NULL;
  for (int64_t own = 0; own < c->blocks; own++)
    mass += write_list(&x, own, lists ? lists + own * c->width : NULL);
  if (c->recall) c->recall[i] = mass / (float)a->queries;
}
