/* SPDX-License-Identifier: Apache-2.0 */
/* Ring attention, forward and backward, as P devices take its steps, and piece by piece, as P
 * devices split the positions of each piece. The error against double precision with 8 devices is
 * no larger than with 2, contiguous or zigzag, with grouped key/value heads. Piece by piece, each
 * query has the same bits as on one device.
 * labels: unthreaded */
#include "ops/ops.h"
#include "tests/support/kernel_call.h"

enum { S = 192, HEADS = 4, KV = 2, D = 16, Q_ROW = HEADS * D, KV_ROW = 2 * KV * D };

typedef struct arrays {
  float *q, *kv, *dout;      /* [S][rows] of the whole sequence */
  float *o, *lse, *dq, *dkv; /* as computed by the devices; lse [HEADS][S] */
  double *want_o, *want_dq, *want_dkv;
} arrays;

static float *numbers(int64_t n) {
  float *p = calloc((size_t)n, sizeof *p);
  CHECK(p, "no memory");
  for (int64_t i = 0; i < n; i++) p[i] = (float)random_unit();
  return p;
}

/* ---- in double precision ------------------------------------------------------------------- */

static double dot(const float *a, const float *b, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += (double)a[i] * b[i];
  return sum;
}

/* Computes one query: its weights over all keys up to it, its output and its gradients. */
static void one_query(arrays *x, int head, int t) {
  const double scale = 1 / sqrt(D);
  const float *q = x->q + t * Q_ROW + head * D, *go = x->dout + t * Q_ROW + head * D;
  int of = head / (HEADS / KV) * D;
  double weight[S], most = -INFINITY, sum = 0, along = 0;
  for (int j = 0; j <= t; j++) {
    weight[j] = scale * dot(q, x->kv + j * KV_ROW + of, D);
    most = fmax(most, weight[j]);
  }
  for (int j = 0; j <= t; j++) sum += weight[j] = exp(weight[j] - most);
  for (int j = 0; j <= t; j++) {
    weight[j] /= sum;
    along += weight[j] * dot(go, x->kv + j * KV_ROW + KV * D + of, D);
  }
  for (int j = 0; j <= t; j++) {
    const float *k = x->kv + j * KV_ROW + of, *v = k + KV * D;
    double ds = scale * weight[j] * (dot(go, v, D) - along);
    for (int d = 0; d < D; d++) {
      x->want_o[t * Q_ROW + head * D + d] += weight[j] * v[d];
      x->want_dq[t * Q_ROW + head * D + d] += ds * k[d];
      x->want_dkv[j * KV_ROW + of + d] += ds * q[d];
      x->want_dkv[j * KV_ROW + KV * D + of + d] += weight[j] * go[d];
    }
  }
}

/* ---- on devices ------------------------------------------------------------------------------ */

/* A run of positions; in zigzag, device r has runs r and 2P-1-r of 2P. */
typedef struct run {
  int begin, count;
} run;

static run run_of(int number, int runs) {
  int begin = S * number / runs;
  return (run){begin, S * (number + 1) / runs - begin};
}

/* ---- chunk by chunk -------------------------------------------------------------------------- */

static kernel begin_step(const sl_op *op, const sli_spans *spans, run q, run k, int nin) {
  const sl_attrs attrs = {.attention.heads = HEADS, .attention.kv_heads = KV, .user = spans};
  const sl_type qs = SL_TYPE(SL_F32, 1, q.count, Q_ROW), kvs = SL_TYPE(SL_F32, 1, k.count, KV_ROW),
                lse = SL_TYPE(SL_F32, 1, HEADS, q.count), none = {.ndim = -1};
  const sl_type forth[] = {qs, kvs, none, qs, lse}, back[] = {qs, kvs, qs, lse, qs, none, qs};
  return kernel_create(op, attrs, nin, nin == 5 ? forth : back, 2);
}

static void rows(void *to, const float *from, run r, int row) {
  memcpy(to, from + r.begin * row, (size_t)(r.count * row) * sizeof(float));
}

/* Copies log-sums, which are stored head by head. */
static void copy_lse(const arrays *x, run q, float *there, bool out) {
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i < q.count; i++) {
      float *whole = &x->lse[h * S + q.begin + i], *own = &there[h * q.count + i];
      if (out) *own = *whole;
      else *whole = *own;
    }
}

static void step(arrays *x, run q, run k, bool fresh) {
  const sli_spans spans = {1, S, {{0, q.count, 0, k.count, q.begin, k.begin, fresh}}, false};
  kernel s = begin_step(&sl_op_attention_step, &spans, q, k, 5);
  rows(s.in[0], x->q, q, Q_ROW);
  rows(s.in[1], x->kv, k, KV_ROW);
  rows(s.in[3], x->o, q, Q_ROW);
  copy_lse(x, q, s.in[4], true);
  kernel_run(&s, NULL);
  memcpy(x->o + q.begin * Q_ROW, s.out[0], (size_t)(q.count * Q_ROW) * sizeof(float));
  copy_lse(x, q, s.out[1], false);
  kernel_destroy(&s);
}

static void step_back(arrays *x, run q, run k) {
  const sli_spans spans = {1, S, {{0, q.count, 0, k.count, q.begin, k.begin, false}}, false};
  kernel s = begin_step(&sl_op_attention_step_b, &spans, q, k, 7);
  rows(s.in[0], x->q, q, Q_ROW);
  rows(s.in[1], x->kv, k, KV_ROW);
  rows(s.in[2], x->o, q, Q_ROW);
  copy_lse(x, q, s.in[3], true);
  rows(s.in[4], x->dout, q, Q_ROW);
  rows(s.in[6], x->dq, q, Q_ROW);
  kernel_run(&s, NULL);
  memcpy(x->dq + q.begin * Q_ROW, s.out[0], (size_t)(q.count * Q_ROW) * sizeof(float));
  for (int i = 0; i < k.count * KV_ROW; i++) x->dkv[k.begin * KV_ROW + i] += ((float *)s.out[1])[i];
  kernel_destroy(&s);
}

/* Steps all runs of queries over the keys of earlier runs, beginning with their own. */
static void all_steps(arrays *x, int runs, bool back) {
  for (int behind = 0; behind < runs; behind++)
    for (int i = behind; i < runs; i++) {
      run q = run_of(i, runs), k = run_of(i - behind, runs);
      if (back) step_back(x, q, k);
      else step(x, q, k, !behind);
    }
}

/* ---- piece by piece -------------------------------------------------------------------------- */

enum { PIECES = 3 };

static run piece_of(int k) {
  static const int starts[] = {0, 50, 131, S};
  return (run){starts[k], starts[k + 1] - starts[k]};
}

/* A device's queries of a piece: one run, or two (the second may be empty). */
typedef struct queries {
  run of[2];
} queries;

static queries queries_of(run piece, int P, int member, bool zigzag) {
  queries q = {{{0, 0}, {0, 0}}};
  for (int i = 0; i < 1 + zigzag; i++) {
    int runs = zigzag ? 2 * P : P, number = i ? runs - 1 - member : member;
    int begin = piece.count * number / runs, end = piece.count * (number + 1) / runs;
    q.of[i] = (run){piece.begin + begin, end - begin};
  }
  return q;
}

/* A device's records, which last from piece to piece. */
typedef struct device {
  float *record, *sent_back;
} device;

static kernel begin_share(const sl_op *op, run piece, const queries *q, int nin) {
  sl_attrs attrs = {.attention.heads = HEADS,
                    .attention.kv_heads = KV,
                    .place.length = S,
                    .place.first = q->of[0].begin - piece.begin};
  if (q->of[1].count) {
    attrs.place.run = q->of[0].count;
    attrs.place.skip = q->of[1].begin - q->of[0].begin - q->of[0].count;
  }
  int n = q->of[0].count + q->of[1].count;
  const sl_type qs = SL_TYPE(SL_F32, 1, n, Q_ROW), kvs = SL_TYPE(SL_F32, 1, piece.count, KV_ROW),
                all = SL_TYPE(SL_F32, 1, S, KV_ROW), lse = SL_TYPE(SL_F32, 1, HEADS, n);
  const sl_type forth[] = {qs, kvs}, back[] = {qs, all, qs, lse, qs, kvs};
  kernel k = kernel_create(op, attrs, nin, nin == 2 ? forth : back, 3);
  k.tick = (sl_tick){.row = piece.begin, .rows = piece.count};
  return k;
}

/* Copies rows of queries between the whole sequence and a call. */
static void copy_queries(float *whole, const queries *q, float *there, bool out) {
  for (int i = 0; i < 2; there += q->of[i++].count * Q_ROW) {
    float *own = whole + q->of[i].begin * Q_ROW;
    memcpy(out ? there : own, out ? own : there, (size_t)(q->of[i].count * Q_ROW) * sizeof(float));
  }
}

static void copy_all_lse(const arrays *x, const queries *q, float *there, bool out) {
  int n = q->of[0].count + q->of[1].count, row = 0;
  for (int i = 0; i < 2; row += q->of[i++].count)
    for (int h = 0; h < HEADS; h++)
      for (int j = 0; j < q->of[i].count; j++) {
        float *whole = &x->lse[h * S + q->of[i].begin + j], *own = &there[h * n + row + j];
        if (out) *own = *whole;
        else *whole = *own;
      }
}

static void share(arrays *x, device *d, run piece, const queries *q) {
  kernel s = begin_share(&sl_op_attention_share, piece, q, 2);
  copy_queries(x->q, q, s.in[0], true);
  rows(s.in[1], x->kv, piece, KV_ROW);
  free(s.out[2]);
  s.out[2] = d->record;
  kernel_run(&s, NULL);
  copy_queries(x->o, q, s.out[0], false);
  copy_all_lse(x, q, s.out[1], false);
  s.out[2] = NULL;
  kernel_destroy(&s);
}

static void share_back(arrays *x, device *d, run piece, const queries *q) {
  kernel s = begin_share(&sl_op_attention_share_b, piece, q, 6);
  copy_queries(x->q, q, s.in[0], true);
  memcpy(s.in[1], d->record, S * KV_ROW * sizeof(float));
  copy_queries(x->o, q, s.in[2], true);
  copy_all_lse(x, q, s.in[3], true);
  copy_queries(x->dout, q, s.in[4], true);
  free(s.out[2]);
  s.out[2] = d->sent_back;
  kernel_run(&s, NULL);
  copy_queries(x->dq, q, s.out[0], false);
  for (int i = 0; i < piece.count * KV_ROW; i++)
    x->dkv[piece.begin * KV_ROW + i] += ((float *)s.out[1])[i];
  s.out[2] = NULL;
  kernel_destroy(&s);
}

static void all_pieces(arrays *x, int P, bool zigzag) {
  device of[8];
  for (int m = 0; m < P; m++) of[m] = (device){numbers(S * KV_ROW), numbers(S * KV_ROW)};
  for (int i = 0; i < 2 * PIECES; i++) {
    run piece = piece_of(i < PIECES ? i : 2 * PIECES - 1 - i);
    for (int m = 0; m < P; m++) {
      queries q = queries_of(piece, P, m, zigzag);
      if (i < PIECES) share(x, &of[m], piece, &q);
      else share_back(x, &of[m], piece, &q);
    }
  }
  for (int m = 0; m < P; m++) {
    free(of[m].record);
    free(of[m].sent_back);
  }
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Returns the root mean square of the error relative to that of the expected values. */
static double lost(const float *got, const double *want, int n) {
  double error = 0, size = 0;
  for (int i = 0; i < n; i++) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return sqrt(error / size);
}

static void zero(float *p, int n) { memset(p, 0, (size_t)n * sizeof *p); }

static void begin_anew(arrays *x) {
  zero(x->o, S * Q_ROW);
  zero(x->lse, HEADS * S);
  zero(x->dq, S * Q_ROW);
  zero(x->dkv, S * KV_ROW);
}

/* Checks that the error is at most what `first` says of one device; with first[0] == 0 this call
 * sets it. */
static void check_lost(const arrays *x, const char *what, double first[3]) {
  double now[] = {lost(x->o, x->want_o, S * Q_ROW), lost(x->dq, x->want_dq, S * Q_ROW),
                  lost(x->dkv, x->want_dkv, S * KV_ROW)};
  printf("%s: o %.2e, dq %.2e, dkv %.2e\n", what, now[0], now[1], now[2]);
  if (first[0] == 0) memcpy(first, now, sizeof now);
  for (int i = 0; i < 3; i++)
    CHECK(now[i] < 1e-6 && now[i] < 1.5 * first[i], "%s lose %.2e, one loses %.2e", what, now[i],
          first[i]);
}

static void chunks_lose_no_more(arrays *x) {
  double first[3] = {0};
  for (int runs = 1; runs <= 16; runs *= 2) { /* in zigzag P devices have 2 P */
    char what[32];
    snprintf(what, sizeof what, "%d runs", runs);
    begin_anew(x);
    all_steps(x, runs, false);
    all_steps(x, runs, true);
    check_lost(x, what, first);
  }
}

static void pieces_lose_no_more(arrays *x) {
  double first[3] = {0};
  float *one = numbers(S * Q_ROW), *one_dq = numbers(S * Q_ROW);
  for (int P = 1; P <= 8; P *= 2)
    for (int zigzag = 0; zigzag < 2; zigzag++) {
      char what[48];
      snprintf(what, sizeof what, "pieces, %d devices%s", P, zigzag ? ", zigzag" : "");
      begin_anew(x);
      all_pieces(x, P, zigzag);
      check_lost(x, what, first);
      if (P == 1 && !zigzag) {
        memcpy(one, x->o, S * Q_ROW * sizeof *one);
        memcpy(one_dq, x->dq, S * Q_ROW * sizeof *one);
      }
      CHECK(!memcmp(one, x->o, S * Q_ROW * sizeof *one) &&
                !memcmp(one_dq, x->dq, S * Q_ROW * sizeof *one),
            "%s: a query's numbers have other bits", what);
    }
  free(one);
  free(one_dq);
}

int main(void) {
  seed_random(7);
  arrays x = {numbers(S * Q_ROW),
              numbers(S * KV_ROW),
              numbers(S * Q_ROW),
              numbers(S * Q_ROW),
              numbers(HEADS * S),
              numbers(S * Q_ROW),
              numbers(S * KV_ROW),
              calloc(S * Q_ROW, sizeof(double)),
              calloc(S * Q_ROW, sizeof(double)),
              calloc(S * KV_ROW, sizeof(double))};
  for (int h = 0; h < HEADS; h++)
    for (int t = 0; t < S; t++) one_query(&x, h, t); /* the reference */
  RUN(chunks_lose_no_more, &x);
  RUN(pieces_lose_no_more, &x);
  float *f[] = {x.q, x.kv, x.dout, x.o, x.lse, x.dq, x.dkv};
  for (int i = 0; i < 7; i++) free(f[i]);
  free(x.want_o);
  free(x.want_dq);
  free(x.want_dkv);
  return 0;
}
