/* SPDX-License-Identifier: Apache-2.0 */
/* Software prefetch for attention, issued while products run. A head's part of a row is a few cache
 * lines, and its rows are too far apart for the hardware prefetcher.
 *
 * Each array is a stream of rows of keys or queries, those of the next tile. */

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
  const float *array[STREAMS], *at[STREAMS]; /* NULL: no such array; next row to prefetch */
  int64_t from[STREAMS], row[STREAMS];       /* offset of row 0; floats between rows */
  int64_t wanted[STREAMS];                   /* rows to prefetch */
  int64_t dim;                               /* floats per row */
  sli_range keys;                            /* keys already requested or read */
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
  x->array[stream] = array;
  x->from[stream] = from;
  x->row[stream] = row;
  x->wanted[stream] = 0;
}

/* Starts the key streams, with key 0 at offsets kv and dkv in the arrays; `keys` are being read. */
static void follow_keys(ahead *x, const sli_attention *a, sli_range keys, int64_t kv, int64_t dkv) {
  x->keys = keys;
  x->dim = a->dim;
  follow(x, NEXT_K, a->k, kv, a->kv_row);
  follow(x, NEXT_V, a->v, kv, a->kv_row);
  follow(x, NEXT_DK, a->dk, dkv, a->kv_row);
  follow(x, NEXT_DV, a->dv, dkv, a->kv_row);
}

static void want(ahead *x, int first, int last, int64_t from, int64_t rows) {
  for (int i = first; i <= last; i++) {
    x->wanted[i] = x->array[i] ? rows : 0;
    if (x->array[i]) x->at[i] = x->array[i] + (x->from[i] + from * x->row[i]);
  }
}

/* Requests those of the keys that have not been requested before. */
static void want_keys(ahead *x, int64_t begin, int64_t end) {
  if (begin < x->keys.begin) {
    want(x, NEXT_K, NEXT_DV, begin, SLI_MIN(end, x->keys.begin) - begin);
    x->keys.begin = begin;
  } else if (end > x->keys.end) {
    begin = SLI_MAX(begin, x->keys.end);
    want(x, NEXT_K, NEXT_DV, begin, end - begin);
    x->keys.end = end;
  }
}

/* Requests the tile of queries that begins at i. */
static void want_queries(ahead *x, const sli_attention *a, int64_t b, int64_t h, int64_t i) {
  int64_t o = b * a->o_batch + h * a->dim;
  follow(x, NEXT_Q, a->q, b * a->q_batch + h * a->dim, a->q_row);
  follow(x, NEXT_O, a->out ? a->out : a->o, o, a->o_row);
  follow(x, NEXT_DO, a->do_, o, a->o_row);
  follow(x, NEXT_DQ, a->dq, b * a->dq_batch + h * a->dim, a->dq_row);
  want(x, NEXT_Q, NEXT_DQ, i, SLI_MIN(a->queries - i, SLI_QUERY_TILE));
}
