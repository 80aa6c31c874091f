/* SPDX-License-Identifier: Apache-2.0 */
/* Software prefetch for attention, issued while products run. A head's part of a row is some cache
 * lines, and its rows are too far apart for the hardware prefetcher.
 *
 * Each array is a stream of rows, of keys or of queries, in the order of the tiles. */

enum {
  NEXT_K,
  NEXT_V,
  NEXT_DK,
  NEXT_DV,
  NEXT_Q,
  NEXT_O,
  NEXT_DO,
  NEXT_DQ,
  STREAMS,
  ASKED_ROWS = 4
};

typedef struct ahead {
  const float *at[STREAMS];              /* next row; NULL: no such array */
  int64_t row[STREAMS], wanted[STREAMS]; /* floats from row to row; rows to prefetch */
  /* floats of a row; keys before this one have been requested */
  int64_t dim, keys;
} ahead;

/* Prefetches a few rows of each stream. */
static inline void ask(ahead *x) {
  enum { LINE = 16 };
  for (int i = 0; i < STREAMS; i++)
    for (int r = 0; r < ASKED_ROWS && x->wanted[i] > 0; r++, x->wanted[i]--, x->at[i] += x->row[i])
      for (int64_t d = 0; d < x->dim; d += LINE) __builtin_prefetch(x->at[i] + d);
}

/* Starts a stream with no rows requested. */
static void follow(ahead *x, int stream, const float *array, int64_t from, int64_t row) {
  x->at[stream] = array ? array + from : NULL;
  x->row[stream] = row;
  x->wanted[stream] = 0;
}

/* Starts the key streams at `key`, at offsets kv and dkv in the arrays. */
static void follow_keys(ahead *x, const sli_attention *a, int64_t key, int64_t kv, int64_t dkv) {
  x->keys = key;
  x->dim = a->dim;
  follow(x, NEXT_K, a->k, kv, a->kv_row);
  follow(x, NEXT_V, a->v, kv, a->kv_row);
  follow(x, NEXT_DK, a->dk, dkv, a->kv_row);
  follow(x, NEXT_DV, a->dv, dkv, a->kv_row);
}

/* Starts the query streams at query i. */
static void follow_queries(ahead *x, const sli_attention *a, int64_t b, int64_t h, int64_t i) {
  int64_t o = b * a->o_batch + i * a->o_row + h * a->dim;
  follow(x, NEXT_Q, a->q, b * a->q_batch + i * a->q_row + h * a->dim, a->q_row);
  follow(x, NEXT_O, a->out ? a->out : a->o, o, a->o_row);
  follow(x, NEXT_DO, a->do_, o, a->o_row);
  follow(x, NEXT_DQ, a->dq, b * a->dq_batch + i * a->dq_row + h * a->dim, a->dq_row);
}

static void want(ahead *x, int first, int last, int64_t rows) {
  for (int i = first; i <= last; i++)
    if (x->at[i]) x->wanted[i] += rows;
}

/* Requests the tile of keys after k0, as far as keys before `limit` exist, when tile k0 is about to
 * be read. */
static void want_keys(ahead *x, int64_t k0, int64_t limit) {
  int64_t until = SLI_MIN(k0 + 2 * SLI_KEY_TILE, limit);
  if (until <= x->keys) return;
  want(x, NEXT_K, NEXT_DV, until - x->keys);
  x->keys = until;
}

static void want_queries(ahead *x, int64_t queries) {
  want(x, NEXT_Q, NEXT_DQ, SLI_MIN(queries, SLI_QUERY_TILE));
}
