/* What attention reads and writes next, asked for while products go on. A head's share of a row is some cache lines, and
 * its rows lie too far apart for processors to foresee them.
 *
 * Each array is a stream of rows, of keys or of queries, in the order in which tiles come to them. */

enum { NEXT_K, NEXT_V, NEXT_DK, NEXT_DV, NEXT_Q, NEXT_O, NEXT_DO, NEXT_DQ, STREAMS, ASKED_ROWS = 4 };

typedef struct ahead {
  const float *at[STREAMS];                /* the next row; NULL: there is no such array */
  int64_t row[STREAMS], wanted[STREAMS];   /* floats from row to row; rows to ask for */
  int64_t dim, keys;                       /* floats of a row; keys before this one are, or have been, wanted */
} ahead;

/* A few rows of each. */
static inline void ask(ahead *x) {
  enum { LINE = 16 };
  for (int i = 0; i < STREAMS; i++)
    for (int r = 0; r < ASKED_ROWS && x->wanted[i] > 0; r++, x->wanted[i]--, x->at[i] += x->row[i])
      for (int64_t d = 0; d < x->dim; d += LINE) __builtin_prefetch(x->at[i] + d);
}

/* Begins a stream, of which no rows are wanted yet. */
static void follow(ahead *x, int stream, const float *array, int64_t from, int64_t row) {
  x->at[stream] = array ? array + from : NULL;
  x->row[stream] = row;
  x->wanted[stream] = 0;
}

/* Keys from `key` on, which is that many floats behind the arrays' beginnings. */
static void follow_keys(ahead *x, const sli_attention *a, int64_t key, int64_t kv, int64_t dkv) {
  x->keys = key;
  x->dim = a->dim;
  follow(x, NEXT_K, a->k, kv, a->kv_row);
  follow(x, NEXT_V, a->v, kv, a->kv_row);
  follow(x, NEXT_DK, a->dk, dkv, a->kv_row);
  follow(x, NEXT_DV, a->dv, dkv, a->kv_row);
}

/* Queries from i on. */
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

/* A tile of keys from k0 on is about to be read: the next one is wanted, as far as there are keys before `limit`. */
static void want_keys(ahead *x, int64_t k0, int64_t limit) {
  int64_t until = SLI_MIN(k0 + 2 * SLI_KEY_TILE, limit);
  if (until <= x->keys) return;
  want(x, NEXT_K, NEXT_DV, until - x->keys);
  x->keys = until;
}

static void want_queries(ahead *x, int64_t queries) {
  want(x, NEXT_Q, NEXT_DQ, SLI_MIN(queries, SLI_QUERY_TILE));
}
