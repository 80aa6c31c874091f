/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by tiles, which never holds more than one tile of scores.
 *
 * All tiles are transposed: a tile of scores is [keys, queries], with 32 queries side by side in
 * the vectors. The running maximum and sum of the softmax (Milakov & Gimelshein, arXiv 1805.02867)
 * are then plain vertical vector operations, one per key. All products have one form,
 *
 *   C[m, n] += sum over k of A(m, k) B[k, n]
 *
 * where A is read one number at a time through two strides (so K, V and their transposes are read
 * in place) and B and C are read along n.
 *
 *   forward, per tile of queries         S = K Q^T   O^T += V^T P
 *   backward                             S = K Q^T   dP = V dO^T
 *     dV += P dO   dK += dS Q   dQ^T += K^T dS   with dS = P (dP - delta)
 *
 * The backward pass recomputes P as e^(S - lse); delta is the row's dO . O. Key tiles outside the
 * mask of all queries of a tile are never read. That saves nearly half of the work of causal
 * attention, and makes the work linear with a window. Tiles of the first keys, which all queries
 * see, come last.
 *
 * The order of all sums follows from positions alone, so whole sequences, pieces, shares of a piece
 * and pages (served.h) have the same bits.
 *
 * Keys: tiles of KT keys begin at multiples of KT. A query visits them backwards, starting at the
 * tile of its position, or with `full` at the last tile that its mask allows.
 *
 * o: the sums are rescaled to the largest score so far once per tile; then the values of the tile
 * are added in the order of its keys. Keys outside a mask add 0.
 *
 * total: the sum of a tile's exponentials has KEY_SUMS parts, one for each remainder of the key's
 * number, in the order of the keys. Halves of the parts are then added onto each other.
 *
 * dQ: keys from the first to the last. dK, dV: tiles of QT queries from the last to the first;
 * within each tile, the heads that share the key in order, and each head's queries in order. Pieces
 * that begin at multiples of QT have the bits of the whole sequence.
 *
 * For bf16 products, A and B are words of two neighbours along k, rounded just before a tile's
 * product reads them; scores, the softmax and all sums stay f32. In the forward pass a chunk is
 * some consecutive query tiles of a head, so that the next tile's reads are known. In the backward
 * pass a chunk is a KV head, because dK and dV are sums over all queries. */

/* Transposes a tile's queries into the columns of a right operand. */
static void turn_queries(bool bf16, float (*to)[QT], const float *from, int64_t row,
                         int64_t queries, int64_t dim, float scale) {
  transpose_in(to, from, row, queries, dim, scale);
  if (bf16) words_here(to, dim);
}

/* Computes one tile of scores: keys k0.. against the tile's queries. */
static void scores(bool bf16, float (*s)[QT], int64_t nk, const float *k, int64_t k_row,
                   int64_t dim, float (*qt)[QT], ahead *next) {
  _Alignas(64) float words[KT * SLI_MAX_HEAD_DIM / 2];
  if (bf16) words_along(words, k, k_row, nk, dim);
  if (bf16)
    product(true, false, nk, QT, words_for(dim), words, words_row(dim), 1, qt[0], QT, s[0], QT,
            next);
  else product(false, false, nk, QT, dim, k, k_row, 1, qt[0], QT, s[0], QT, next);
}

/* Caps scores: c tanh(s / c). */
static inline vec capped(vec s, float cap) { return cap * vtanh(s * (1 / cap)); }

static void cap_scores(float (*s)[QT], int64_t nk, float cap) {
  for (int64_t j = 0; j < nk && cap > 0; j++)
    for (int i = 0; i < QT; i += LANES) storeu(&s[j][i], capped(loadu(&s[j][i]), cap));
}

/* Attention mask of a tile of queries: the position of its first query, the keys [begin, limit)
 * with `begin` a multiple of KT, and those before `front`, also a multiple of KT. With ids: the ids
 * of keys and of the queries [QT], and the smallest and the largest id that is not negative. */
typedef struct tile_mask {
  int64_t q0, begin, limit, front;
  const int32_t *ids;
  int32_t own[QT], low, high;
} tile_mask;

static void see_ids(tile_mask *t, int64_t nq) {
  t->low = INT32_MAX;
  t->high = -1;
  for (int64_t l = 0; l < QT; l++) {
    int32_t id = t->own[l] = l < nq ? t->ids[t->q0 + l] : -1;
    if (id < 0) continue;
    t->low = id < t->low ? id : t->low;
    t->high = id > t->high ? id : t->high;
  }
}

static void see(tile_mask *t, const sli_attention *a, int64_t b, int64_t i0, int64_t nq) {
  const sli_mask *s = &a->mask;
  t->q0 = a->q0 + i0;
  int64_t limit = t->q0 + nq + s->ahead;
  t->begin = t->q0 > s->behind ? (t->q0 - s->behind) / KT * KT : 0;
  t->front = (s->shown + KT - 1) / KT * KT;
  if (t->front >= t->begin) t->front = 0, t->begin = s->shown ? 0 : t->begin;
  t->limit = limit < a->keys ? limit : a->keys;
  t->ids = s->ids ? s->ids + b * s->ids_row : NULL;
  if (t->ids) see_ids(t, nq);
}

/* Returns the first key of the last tile of keys; less than `begin` if there is none. */
static int64_t last_tile(const tile_mask *t) {
  return t->limit > t->begin ? (t->limit - 1) / KT * KT : t->begin - KT;
}

/* Returns true if this tile of keys may contain a query's id. */
static bool meets(const tile_mask *t, int64_t k0, int64_t nk) {
  int32_t low = INT32_MAX, high = -1;
  for (int64_t j = k0; j < k0 + nk; j++) {
    low = t->ids[j] >= 0 && t->ids[j] < low ? t->ids[j] : low;
    high = t->ids[j] > high ? t->ids[j] : high;
  }
  return low <= t->high && t->low <= high;
}

/* Masks keys after the queries in the lanes. The first query attends up to key `last`. */
static void hide_later(float (*s)[QT], int64_t nk, int64_t k0, int64_t last) {
  for (int64_t j = last - k0 + 1 > 0 ? last - k0 + 1 : 0; j < nk; j++)
    for (int i = 0; i < QT; i += LANES)
      storeu(&s[j][i],
             pick(lanes() + (int32_t)(last + i - k0 - j) < 0, set(-INFINITY), loadu(&s[j][i])));
}

/* Masks keys before the queries in the lanes, except the first `shown` ones. The first query
 * attends from key `first` on. */
static void hide_earlier(float (*s)[QT], int64_t nk, int64_t k0, int64_t first, int64_t shown) {
  for (int64_t j = SLI_MAX(shown - k0, 0); j < nk && k0 + j < first + QT - 1; j++)
    for (int i = 0; i < QT; i += LANES)
      storeu(&s[j][i],
             pick(lanes() + (int32_t)(first + i - k0 - j) > 0, set(-INFINITY), loadu(&s[j][i])));
}

static void hide_others(float (*s)[QT], int64_t nk, int64_t k0, const tile_mask *t) {
  for (int64_t j = 0; j < nk; j++) {
    int32_t id = t->ids[k0 + j];
    for (int i = 0; i < QT; i += LANES) {
      ivec own;
      memcpy(&own, t->own + i, sizeof own);
      ivec seen = (own == id) & (own >= 0);
      storeu(&s[j][i], pick(seen, loadu(&s[j][i]), set(-INFINITY)));
    }
  }
}

/* Masks the scores of all keys that a query must not attend to. */
static void hide(float (*s)[QT], int64_t nk, int64_t k0, const tile_mask *t, const sli_mask *mask) {
  hide_later(s, nk, k0, t->q0 + mask->ahead);
  hide_earlier(s, nk, k0, t->q0 - mask->behind, mask->shown);
  if (t->ids) hide_others(s, nk, k0, t);
}

/* Parts of the sum of a tile's exponentials. */
enum { KEY_SUMS = 16 };

/* Replaces the scores of LANES queries by exponentials relative to m. Returns their sum. */
static inline __attribute__((always_inline)) vec exponentials(float *s, int64_t nk, vec m) {
  vec part[KEY_SUMS];
  for (int64_t l = 0; l < KEY_SUMS; l++) {
    part[l] = (vec){0};
    for (int64_t j = l; j < nk; j += KEY_SUMS) {
      vec p = vexp_low(loadu(s + j * QT) - m);
      storeu(s + j * QT, p);
      part[l] += p;
    }
  }
  for (int half = KEY_SUMS / 2; half; half /= 2)
    for (int l = 0; l < half; l++) part[l] += part[l + half];
  return part[0];
}

/* Turns scores into probabilities relative to the new maximum; `fade` is the factor for the earlier
 * sums. */
static void soften(float (*s)[QT], int64_t nk, float *top, float *total, float *fade) {
  enum { N = QT / LANES };
  vec m[N];
  for (int i = 0; i < N; i++) m[i] = loadu(top + i * LANES);
  for (int64_t j = 0; j < nk; j++)
    for (int i = 0; i < N; i++) m[i] = vmax(loadu(&s[j][i * LANES]), m[i]);
  for (int i = 0; i < N; i++) {
    float *own = s[0] + i * LANES;
    vec t = nk == KT ? exponentials(own, KT, m[i]) : exponentials(own, nk, m[i]);
    vec f = vexp_low(loadu(top + i * LANES) - m[i]);
    storeu(top + i * LANES, m[i]);
    storeu(fade + i * LANES, f);
    storeu(total + i * LANES, plus_product(t, loadu(total + i * LANES), f));
  }
}

static void scale_columns(float (*acc)[QT], int64_t dim, const float *by) {
  for (int64_t d = 0; d < dim; d++)
    for (int i = 0; i < QT; i += LANES) storeu(&acc[d][i], loadu(&acc[d][i]) * loadu(by + i));
}

/* Inverts the totals. A query without keys has total 0 and gets zeros. */
static void invert(float *total) {
  for (int i = 0; i < QT; i += LANES) {
    vec t = loadu(total + i);
    storeu(total + i, pick(t == 0.0f, (vec){0}, 1.0f / t));
  }
}

/* Returns the stride between heads in arrays with one number per query and head. */
static int64_t row_of_head(const sli_attention *a) {
  return a->part.lse_row ? a->part.lse_row : a->queries;
}

/* Returns the lse of a tile of queries. */
static float *lse_of(const sli_attention *a, int64_t b, int64_t h, int64_t i0) {
  return a->lse + (b * a->heads + h) * row_of_head(a) + i0;
}

/* Restores the state after earlier keys, which count as one key with score lse and value out. */
static void resume(const sli_attention *a, const float *out, const float *lse, int64_t nq,
                   float (*acc)[QT], float *top, float *total) {
  transpose_in(acc, out, a->o_row, nq, a->dim, 1);
  for (int64_t l = 0; l < nq; l++) {
    top[l] = lse[l];
    total[l] = 1;
  }
}

/* State of a tile of queries as it proceeds through the keys. */
typedef struct tile_state {
  _Alignas(64) float qt[SLI_MAX_HEAD_DIM][QT], acc[SLI_MAX_HEAD_DIM][QT], s[KT][QT];
  _Alignas(64) float top[QT], total[QT], fade[QT];
  ahead next;
} tile_state;

static void begin_tile(tile_state *x, int64_t dim) {
  memset(x->acc, 0, (size_t)dim * sizeof *x->acc);
  memset(x->total, 0, sizeof x->total);
  /* below all scores, but finite, so that a hidden score minus it is not NaN */
  for (int l = 0; l < QT; l++) x->top[l] = -FLT_MAX;
}

static void weigh_values(tile_state *x, const sli_attention *a, int64_t nk, const float *v,
                         int64_t row) {
  _Alignas(64) float words[KT / 2 * SLI_MAX_HEAD_DIM];
  if (!a->bf16) {
    product(false, true, a->dim, QT, nk, v, 1, row, x->s[0], QT, x->acc[0], QT, &x->next);
    return;
  }
  int64_t down = down_row(a->dim);
  words_down(words, down, v, row, nk, a->dim);
  words_here(x->s, nk);
  product(true, true, a->dim, QT, words_for(nk), words, 1, down, x->s[0], QT, x->acc[0], QT,
          &x->next);
}

/* Attends to keys k0 and following; `first`: it is the first tile visited. */
static void attend(tile_state *x, const sli_attention *a, const tile_mask *t, bool first,
                   int64_t k0, int64_t nk, const float *k, const float *v, int64_t row) {
  scores(a->bf16, x->s, nk, k, row, a->dim, x->qt, &x->next);
  cap_scores(x->s, nk, a->mask.cap);
  hide(x->s, nk, k0, t, &a->mask);
  soften(x->s, nk, x->top, x->total, x->fade);
  if (!first || a->resumes) scale_columns(x->acc, a->dim, x->fade);
  weigh_values(x, a, nk, v, row);
}

static void end_tile(tile_state *x, const sli_attention *a, int64_t b, int64_t h, int64_t i0,
                     int64_t nq) {
  if (a->lse)
    for (int64_t l = 0; l < nq; l++)
      lse_of(a, b, h, i0)[l] = x->total[l] == 0 ? 0 : x->top[l] + logf(x->total[l]);
  if (!a->out) return;
  invert(x->total);
  transpose_out(a->out + b * a->o_batch + i0 * a->o_row + h * a->dim, a->o_row, x->acc, nq, a->dim,
                x->total);
}

/* Walk over blocks of keys, backwards: all blocks, or those of a list, until it stops
 * descending. */
typedef struct block_walk {
  const int32_t *at, *end; /* NULL: all */
} block_walk;

static block_walk walk_of(const sli_attention *a, int64_t b, int64_t h, int64_t i0) {
  if (!a->chosen.of) return (block_walk){NULL, NULL};
  int64_t own = (b * a->heads + h) * a->chosen.blocks + (a->q0 + i0) / KT;
  const int32_t *list = a->chosen.of + own * a->chosen.width;
  return (block_walk){list, list + a->chosen.width};
}

/* Returns the first key of the block before k0; negative if there is none. */
static int64_t block_before(block_walk *w, const tile_mask *t, int64_t k0) {
  if (!w->at) return k0 > t->begin ? k0 - KT : SLI_MIN(k0, t->front) - KT;
  int64_t next = w->at < w->end ? (int64_t)*w->at++ * KT : -KT;
  return next < k0 ? next : -KT;
}

/* Prefetches the block that begins at `next`. The previous block of the walk is at k0. */
static void want_block(ahead *x, const block_walk *w, int64_t k0, int64_t next) {
  if (w->at) x->keys = (sli_range){k0, k0};
  want_keys(x, next, next + KT);
}

/* Forms of queries (attention_dual), by the chunks of keys in between, at most 2. */
enum { FORMS = 3 };
static int form_of(const sli_attention *a, const tile_mask *t, int64_t k0) {
  int64_t between = a->dual.chunk ? t->q0 / a->dual.chunk - k0 / a->dual.chunk : 0;
  return (int)SLI_MIN(between, FORMS - 1);
}

static const float *form_at(const sli_attention *a, int form) {
  return form ? a->dual.q[form - 1] : a->q;
}

/* Computes a tile of queries; `more`: another tile of the head follows. */
static void attention_tile(tile_state *x, const sli_attention *a, int64_t b, int64_t h, int64_t i0,
                           bool more) {
  int64_t dim = a->dim, nq = a->queries - i0 < QT ? a->queries - i0 : QT;
  int64_t kv = b * a->kv_batch + h / (a->heads / a->kv_heads) * dim;
  int64_t q = b * a->q_batch + i0 * a->q_row + h * dim;
  int form = 0;
  tile_mask t;
  turn_queries(a->bf16, x->qt, a->q + q, a->q_row, nq, dim, a->scale);
  begin_tile(x, dim);
  if (a->resumes)
    resume(a, a->out + b * a->o_batch + i0 * a->o_row + h * dim, lse_of(a, b, h, i0), nq, x->acc,
           x->top, x->total);
  see(&t, a, b, i0, nq);
  int64_t last = last_tile(&t);
  if (!x->next.dim) follow_keys(&x->next, a, (sli_range){last, t.limit}, kv, 0);
  if (more) want_queries(&x->next, a, b, h, i0 + QT);
  block_walk w = walk_of(a, b, h, i0);
  for (int64_t next, k0 = block_before(&w, &t, last + KT); k0 >= 0; k0 = next) {
    int64_t nk = t.limit - k0 < KT ? t.limit - k0 : KT, at = kv + k0 * a->kv_row;
    next = block_before(&w, &t, k0);
    if (next >= 0) want_block(&x->next, &w, k0, next);
    else if (more) want_keys(&x->next, t.limit, SLI_MIN(t.limit + QT, a->keys));
    if (t.ids && !meets(&t, k0, nk)) continue;
    if (form_of(a, &t, k0) != form) {
      form = form_of(a, &t, k0);
      turn_queries(a->bf16, x->qt, form_at(a, form) + q, a->q_row, nq, dim, a->scale);
    }
    attend(x, a, &t, k0 == last, k0, nk, a->k + at, a->v + at, a->kv_row);
  }
  end_tile(x, a, b, h, i0, nq);
}

/* Runs chunk i: batch, head, some tiles of queries. */
static void attention_chunk(void *arg, int i) {
  const sli_attention *a = arg;
  int chunks = sli_chunks_of_head(a);
  sli_range tiles = sli_chunk_range(sli_query_tiles(a), a->part.tiles, i % chunks);
  int64_t h = i / chunks % a->heads, b = i / chunks / a->heads;
  tile_state x;
  x.next = (ahead){0};
  if (a->bf16) begin_tiles();
  for (int64_t t = tiles.begin; t < tiles.end; t++)
    attention_tile(&x, a, b, h, t * QT, t + 1 < tiles.end);
  if (a->bf16) end_tiles();
}

/* ---- keys that arrive some at a time ------------------------------------------------ */

/* Restore and save a tile's state. */
static void resume_tile(tile_state *x, const sli_attention *a, const float *seen, const float *out,
                        int64_t nq) {
  transpose_in(x->acc, out, a->o_row, nq, a->dim, 1);
  memcpy(x->top, seen, (size_t)nq * sizeof *seen);
  memcpy(x->total, seen + row_of_head(a), (size_t)nq * sizeof *seen);
}

static void leave_tile(tile_state *x, const sli_attention *a, float *seen, float *out, int64_t nq) {
  float ones[QT];
  for (int l = 0; l < QT; l++) ones[l] = 1;
  transpose_out(out, a->o_row, x->acc, nq, a->dim, ones);
  memcpy(seen, x->top, (size_t)nq * sizeof *seen);
  memcpy(seen + row_of_head(a), x->total, (size_t)nq * sizeof *seen);
}

/* Joins the rows of a tile: `own` rows from x, then those that arrived earlier, from `tail`. The
 * first row of `tail` has place `first`. */
static void put_together(float *to, const float *x, const float *tail, int64_t row, int64_t dim,
                         int64_t own, int64_t first, int64_t nk) {
  for (int64_t j = 0; j < nk; j++)
    memcpy(to + j * dim, j < own ? x + j * row : tail + (j - first) * row,
           (size_t)dim * sizeof *to);
}

/* Attends to the tile whose last keys have been waiting. */
static void attend_joined(tile_state *x, const sli_sweep *w, const tile_mask *t, bool first,
                          int64_t k0, int64_t nk, int64_t b, int64_t h) {
  const sli_attention *a = &w->a;
  float k[KT * SLI_MAX_HEAD_DIM], v[KT * SLI_MAX_HEAD_DIM];
  int64_t head = h / (a->heads / a->kv_heads) * a->dim, own = a->part.has.end - k0;
  int64_t at = b * a->kv_batch + head + (k0 - a->part.has.begin) * a->kv_row;
  const float *tail = w->tail + b * w->tail_batch + head;
  int64_t place = w->tail_place;
  put_together(k, a->k + at, tail, a->kv_row, a->dim, own, place, nk);
  put_together(v, a->v + at, tail + (a->v - a->k), a->kv_row, a->dim, own, place, nk);
  attend(x, a, t, first, k0, nk, k, v, a->dim);
}

/* Returns the tiles of keys that a call completes, as the first keys of the first and the last
 * tile. */
static sli_range completed(const sli_attention *a, const tile_mask *t) {
  int64_t begin = (a->part.has.begin + KT - 1) / KT * KT, end = (a->part.has.end - 1) / KT * KT;
  return (sli_range){SLI_MAX(begin, t->begin), SLI_MIN(end, last_tile(t))};
}

/* Runs chunk i: batch, head, tile of queries. Attends to the key tiles that are complete now. */
static void attention_sweep_chunk(void *arg, int i) {
  const sli_sweep *w = arg;
  const sli_attention *a = &w->a;
  int64_t tiles = sli_query_tiles(a), dim = a->dim;
  int64_t tile = i % tiles, h = i / tiles % a->heads, b = i / tiles / a->heads;
  int64_t i0 = tile * QT, nq = a->queries - i0 < QT ? a->queries - i0 : QT;
  int64_t kv = b * a->kv_batch + h / (a->heads / a->kv_heads) * dim;
  float *seen = w->seen + (b * a->heads + h) * 2 * row_of_head(a) + i0;
  float *out = a->out + b * a->o_batch + i0 * a->o_row + h * dim;
  tile_mask t;
  tile_state x;
  if (a->bf16) begin_tiles();
  turn_queries(a->bf16, x.qt, a->q + b * a->q_batch + i0 * a->q_row + h * dim, a->q_row, nq, dim,
               a->scale);
  begin_tile(&x, dim);
  x.next = (ahead){0};
  if (!w->begins) resume_tile(&x, a, seen, out, nq);
  see(&t, a, b, i0, nq);
  sli_range now = completed(a, &t);
  for (int64_t k0 = now.end; k0 >= now.begin; k0 -= KT) {
    int64_t nk = SLI_MIN(t.limit - k0, KT), at = kv + (k0 - a->part.has.begin) * a->kv_row;
    bool first = k0 == last_tile(&t);
    if (t.ids && !meets(&t, k0, nk)) continue;
    if (k0 + nk > a->part.has.end) attend_joined(&x, w, &t, first, k0, nk, b, h);
    else attend(&x, a, &t, first, k0, nk, a->k + at, a->v + at, a->kv_row);
  }
  if (w->ends) end_tile(&x, a, b, h, i0, nq);
  else leave_tile(&x, a, seen, out, nq);
  if (a->bf16) end_tiles();
}
