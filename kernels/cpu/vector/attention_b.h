/* SPDX-License-Identifier: Apache-2.0 */
/* Backward pass of attention: recomputes p = e^(s - lse), and from it the gradients of queries,
 * keys and values (attention.h). */

/* Computes what score_gradients() computes, times the derivative of the cap, 1 - (s/c)^2. s is
 * capped, or hidden far below. */
static void capped_gradients(float (*s)[QT], float (*ds)[QT], int64_t nk, const float *lse,
                             const float *delta, float scale, float cap) {
  for (int i = 0; i < QT; i += LANES) {
    vec l = loadu(lse + i), dl = loadu(delta + i);
    for (int64_t j = 0; j < nk; j++) {
      vec t = vmax(loadu(&s[j][i]), set(-cap)) * (1 / cap), p = vexp_low(loadu(&s[j][i]) - l);
      storeu(&s[j][i], p);
      storeu(&ds[j][i], p * (loadu(&ds[j][i]) - dl) * scale * (1.0f - t * t));
    }
  }
}

/* Computes p = e^(s - lse) and ds = p (ds - delta) scale. */
static void score_gradients(float (*s)[QT], float (*ds)[QT], int64_t nk, const float *lse,
                            const float *delta, float scale) {
  for (int i = 0; i < QT; i += LANES) {
    vec l = loadu(lse + i), dl = loadu(delta + i);
    for (int64_t j = 0; j < nk; j++) {
      vec p = vexp_low(loadu(&s[j][i]) - l);
      storeu(&s[j][i], p);
      storeu(&ds[j][i], p * (loadu(&ds[j][i]) - dl) * scale);
    }
  }
}

/* State of a tile of queries in the backward pass through the keys. */
typedef struct tile_back {
  _Alignas(64) float qt[SLI_MAX_HEAD_DIM][QT], dot[SLI_MAX_HEAD_DIM][QT], dqt[SLI_MAX_HEAD_DIM][QT];
  _Alignas(64) float s[KT][QT], ds[KT][QT], lse[QT], delta[QT];
  ahead next;
  const float *q, *dout; /* [nq, dim] */
  int64_t begun;         /* keys from this one on have gradients */
  int64_t q_row, dout_row, nq;
  _Alignas(64) float words[2][QT / 2 * SLI_MAX_HEAD_DIM]; /* q and dout in bf16 */
} tile_back;

/* Rounds q and dout into right operands. */
static void put_words(tile_back *x, int64_t dim) {
  int64_t down = down_row(dim);
  words_down(x->words[0], down, x->q, x->q_row, x->nq, dim);
  words_down(x->words[1], down, x->dout, x->dout_row, x->nq, dim);
  x->q = x->words[0];
  x->dout = x->words[1];
  x->q_row = x->dout_row = down;
}

static void begin_back(tile_back *x, const sli_attention *a, int64_t b, int64_t h, int64_t i0) {
  int64_t dim = a->dim, nq = x->nq = a->queries - i0 < QT ? a->queries - i0 : QT;
  const float *o = a->o + b * a->o_batch + i0 * a->o_row + h * dim; /* [nq, dim] */
  x->q = a->q + b * a->q_batch + i0 * a->q_row + h * dim;
  x->dout = a->do_ + b * a->o_batch + i0 * a->o_row + h * dim;
  x->q_row = a->q_row;
  x->dout_row = a->o_row;
  memset(x->lse, 0, sizeof x->lse);
  memset(x->delta, 0, sizeof x->delta);
  for (int64_t l = 0; l < nq; l++) {
    vec t[SUM_VECTORS] = {0};
    for (int64_t d = 0; d < dim; d += SUM_LANES) EACH_VECTOR(v) {
        int64_t at = l * a->o_row + d + v * LANES, n = dim - d - v * LANES;
        t[v] = plus_product(t[v], load(o + at, n), load(x->dout + at, n));
      }
    x->delta[l] = sum_lanes(t);
    x->lse[l] = lse_of(a, b, h, i0)[l];
  }
  turn_queries(a->bf16, x->qt, x->q, a->q_row, nq, dim, a->scale);
  turn_queries(a->bf16, x->dot, x->dout, a->o_row, nq, dim, 1);
  if (a->bf16) put_words(x, dim);
}

/* Adds a key tile's contributions: to dq, and to dk and dv (NULL: not needed). */
static void add_gradients(tile_back *x, const sli_attention *a, int64_t nk, const float *k,
                          float *dk, float *dv) {
  int64_t dim = a->dim, row = a->kv_row;
  if (dv)
    product(false, true, nk, dim, x->nq, x->s[0], QT, 1, x->dout, x->dout_row, dv, row, &x->next);
  if (dk) product(false, true, nk, dim, x->nq, x->ds[0], QT, 1, x->q, x->q_row, dk, row, &x->next);
  if (a->dq) product(false, true, dim, QT, nk, k, 1, row, x->ds[0], QT, x->dqt[0], QT, &x->next);
}

static void add_gradients_bf16(tile_back *x, const sli_attention *a, int64_t nk, const float *k,
                               float *dk, float *dv) {
  _Alignas(64) float left[KT * QT / 2], keys[KT / 2 * SLI_MAX_HEAD_DIM];
  int64_t dim = a->dim, down = down_row(dim), along = words_row(QT), words = words_for(x->nq);
  words_along(left, x->s[0], QT, nk, QT);
  if (dv)
    product(true, true, nk, dim, words, left, along, 1, x->dout, x->dout_row, dv, a->kv_row,
            &x->next);
  words_along(left, x->ds[0], QT, nk, QT);
  if (dk)
    product(true, true, nk, dim, words, left, along, 1, x->q, x->q_row, dk, a->kv_row, &x->next);
  if (!a->dq) return;
  words_down(keys, down, k, a->kv_row, nk, dim);
  words_here(x->ds, nk);
  product(true, true, dim, QT, words_for(nk), keys, 1, down, x->ds[0], QT, x->dqt[0], QT, &x->next);
}

/* Clears rows of keys, for this head. */
static void zero_rows(float *head, int64_t row, int64_t begin, int64_t end, int64_t dim) {
  for (int64_t r = begin; head && r < end; r++)
    memset(head + r * row, 0, (size_t)dim * sizeof *head);
}

/* Clears dk and dv of keys from `begin` on that have no gradients yet. */
static void begin_keys(tile_back *x, const sli_attention *a, int64_t dkv, int64_t begin) {
  if (begin >= x->begun || a->part.adds_dkv) return;
  zero_rows(a->dk ? a->dk + dkv : NULL, a->kv_row, begin, x->begun, a->dim);
  zero_rows(a->dv ? a->dv + dkv : NULL, a->kv_row, begin, x->begun, a->dim);
  x->begun = begin;
}

/* Reverses a walk: it stops where the list stops descending from `limit`. */
static block_walk upwards(block_walk w, int64_t limit) {
  const int32_t *first = w.at, *end = first;
  for (; end < w.end && *end >= 0 && (int64_t)*end * KT < limit; end++) limit = (int64_t)*end * KT;
  return (block_walk){first, end};
}

/* Returns the first key of the block after k0; `end` or more if there is none. */
static int64_t block_after(block_walk *w, const tile_mask *t, int64_t k0, int64_t end) {
  if (!w->at) return k0 + KT == t->front ? t->begin : k0 + KT;
  return w->at < w->end ? (int64_t) * --w->end * KT : end;
}

/* Adds one query head's tile to dq, and to the KV head's dk and dv; `more`: another follows. */
static void attention_b_tile(tile_back *x, const sli_attention *a, int64_t b, int64_t h, int64_t i0,
                             bool more) {
  int64_t dim = a->dim, head = h / (a->heads / a->kv_heads) * dim, row = a->kv_row,
          dkv = b * a->part.dkv_batch + head;
  float *dq = a->dq ? a->dq + b * a->dq_batch + i0 * a->dq_row + h * dim : NULL, ones[QT];
  for (int l = 0; l < QT; l++) ones[l] = 1;
  tile_mask t;
  begin_back(x, a, b, h, i0);
  memset(x->dqt, 0, (size_t)dim * sizeof *x->dqt);
  if (dq && a->resumes) transpose_in(x->dqt, dq, a->dq_row, x->nq, dim, 1);
  see(&t, a, b, i0, x->nq);
  int64_t begin = SLI_MAX(t.begin, a->part.has.begin), end = SLI_MIN(t.limit, a->part.has.end);
  begin_keys(x, a, dkv, t.front ? 0 : begin);
  if (!x->next.dim)
    follow_keys(&x->next, a, (sli_range){begin, SLI_MIN(begin + KT, end)},
                b * a->kv_batch + head - a->part.has.begin * row, dkv);
  block_walk w = upwards(walk_of(a, b, h, i0), end);
  for (int64_t next, k0 = w.at      ? block_after(&w, &t, 0, end)
                          : t.front ? 0
                                    : begin;
       k0 < end; k0 = next) {
    int64_t nk = end - k0 < KT ? end - k0 : KT,
            at = b * a->kv_batch + head + (k0 - a->part.has.begin) * row;
    float *dk = a->dk ? a->dk + dkv + k0 * row : NULL, *dv = a->dv ? a->dv + dkv + k0 * row : NULL;
    next = block_after(&w, &t, k0, end);
    if (next < end) want_keys(&x->next, next, SLI_MIN(next + KT, end));
    else if (more) want_keys(&x->next, SLI_MAX(begin - KT, a->part.has.begin), begin);
    if (t.ids && !meets(&t, k0, nk)) continue;
    scores(a->bf16, x->s, nk, a->k + at, row, dim, x->qt, &x->next);
    cap_scores(x->s, nk, a->mask.cap);
    hide(x->s, nk, k0, &t, &a->mask);
    scores(a->bf16, x->ds, nk, a->v + at, row, dim, x->dot, &x->next);
    if (a->mask.cap > 0) capped_gradients(x->s, x->ds, nk, x->lse, x->delta, a->scale, a->mask.cap);
    else score_gradients(x->s, x->ds, nk, x->lse, x->delta, a->scale);
    if (a->bf16) add_gradients_bf16(x, a, nk, a->k + at, dk, dv);
    else add_gradients(x, a, nk, a->k + at, dk, dv);
  }
  if (dq) transpose_out(dq, a->dq_row, x->dqt, x->nq, dim, ones);
}

/* Returns the view of one form of the queries (attention_dual): its keys and its dq. */
static sli_attention form_view(const sli_attention *a, int64_t i0, int form) {
  sli_attention v = *a;
  int64_t chunk = a->dual.chunk, own = (a->q0 + i0) / chunk;
  int64_t end = form ? SLI_MAX(own + 1 - form, 0) * chunk : a->keys;
  v.part.has = (sli_range){form < FORMS - 1 ? SLI_MAX(own - form, 0) * chunk : 0, end};
  v.k += v.part.has.begin * a->kv_row;
  v.v += v.part.has.begin * a->kv_row;
  if (!form) return v;
  v.q = a->dual.q[form - 1];
  v.dq = a->dual.dq[form - 1];
  return v;
}

/* Adds a tile's gradients for all its forms. */
static void attention_b_forms(tile_back *x, const sli_attention *a, int64_t b, int64_t h,
                              int64_t i0, bool more) {
  if (!a->dual.chunk) {
    attention_b_tile(x, a, b, h, i0, more);
    return;
  }
  for (int form = 0; form < FORMS; form++) {
    sli_attention v = form_view(a, i0, form);
    attention_b_tile(x, &v, b, h, i0, more && form == FORMS - 1);
  }
}

/* Runs chunk i: batch, KV head. */
static void attention_b_chunk(void *arg, int i) {
  const sli_attention *a = arg;
  int64_t head = i % a->kv_heads, b = i / a->kv_heads, group = a->heads / a->kv_heads;
  int64_t dkv = b * a->part.dkv_batch + head * a->dim;
  tile_back x;
  x.begun = a->part.has.end;
  x.next = (ahead){0};
  if (a->bf16) begin_tiles();
  for (int64_t n = group * sli_query_tiles(a); n--;) {
    int64_t h = head * group + group - 1 - n % group, i0 = n / group * QT;
    if (n % group) want_queries(&x.next, a, b, h + 1, i0);
    else if (n) want_queries(&x.next, a, b, head * group, i0 - QT);
    attention_b_forms(&x, a, b, h, i0, n > 0);
  }
  if (a->bf16) end_tiles();
  begin_keys(&x, a, dkv, a->part.has.begin);
}
