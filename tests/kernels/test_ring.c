/* Attention chunk by chunk, forth and back, as P devices take its steps: what is lost against double
 * precision is no more with 8 devices than with 2, contiguous or zigzag, for few key and value heads.
 * labels: unthreaded */
#include "kernels/kernels.h"
#include "tests/support/kernel_call.h"

enum { S = 192, HEADS = 4, KV = 2, D = 16, Q_ROW = HEADS * D, KV_ROW = 2 * KV * D };

typedef struct arrays {
  float *q, *kv, *dout;              /* [S][rows] of the whole sequence */
  float *o, *lse, *dq, *dkv;         /* as the devices find it; lse [HEADS][S] */
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

/* Of one query: its weights of all keys up to it, and what follows. */
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

/* ---- as devices do it ------------------------------------------------------------------------ */

/* A run of positions; zigzag, a device has number r and number 2P-1-r of 2P. */
typedef struct run {
  int begin, count;
} run;

static run run_of(int number, int runs) {
  int begin = S * number / runs;
  return (run){begin, S * (number + 1) / runs - begin};
}

static kernel begin_step(const sl_op *op, const sli_spans *spans, run q, run k, int nin) {
  const sl_attrs attrs = {.heads = HEADS, .kv_heads = KV, .user = spans};
  const sl_type qs = SL_TYPE(SL_F32, 1, q.count, Q_ROW), kvs = SL_TYPE(SL_F32, 1, k.count, KV_ROW),
                lse = SL_TYPE(SL_F32, 1, HEADS, q.count), none = {.ndim = -1};
  const sl_type forth[] = {qs, kvs, none, qs, lse}, back[] = {qs, kvs, qs, lse, qs, none, qs};
  return kernel_create(op, attrs, nin, nin == 5 ? forth : back, 2);
}

static void rows(void *to, const float *from, run r, int row) {
  memcpy(to, from + r.begin * row, (size_t)(r.count * row) * sizeof(float));
}

/* Logarithms lie head by head. */
static void copy_lse(const arrays *x, run q, float *there, bool out) {
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i < q.count; i++) {
      float *whole = &x->lse[h * S + q.begin + i], *own = &there[h * q.count + i];
      if (out) *own = *whole;
      else *whole = *own;
    }
}

static void step(arrays *x, run q, run k, bool fresh) {
  const sli_spans spans = {1, S, {{0, q.count, 0, k.count, q.begin, k.begin, fresh}}};
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
  const sli_spans spans = {1, S, {{0, q.count, 0, k.count, q.begin, k.begin, false}}};
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

/* All runs of queries with the keys that lie `behind` so many runs: their own first. */
static void all_steps(arrays *x, int runs, bool back) {
  for (int behind = 0; behind < runs; behind++)
    for (int i = behind; i < runs; i++) {
      run q = run_of(i, runs), k = run_of(i - behind, runs);
      if (back) step_back(x, q, k);
      else step(x, q, k, !behind);
    }
}

/* Root mean square of what is lost, by that of what should be. */
static double lost(const float *got, const double *want, int n) {
  double error = 0, size = 0;
  for (int i = 0; i < n; i++) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return sqrt(error / size);
}

static void zero(float *p, int n) { memset(p, 0, (size_t)n * sizeof *p); }

int main(void) {
  seed_random(7);
  arrays x = {numbers(S * Q_ROW), numbers(S * KV_ROW), numbers(S * Q_ROW), numbers(S * Q_ROW),
              numbers(HEADS * S), numbers(S * Q_ROW), numbers(S * KV_ROW),
              calloc(S * Q_ROW, sizeof(double)), calloc(S * Q_ROW, sizeof(double)),
              calloc(S * KV_ROW, sizeof(double))};
  double first[3];
  for (int h = 0; h < HEADS; h++)
    for (int t = 0; t < S; t++) one_query(&x, h, t);
  for (int runs = 1; runs <= 16; runs *= 2) { /* zigzag, P devices have 2 P */
    zero(x.o, S * Q_ROW);
    zero(x.lse, HEADS * S);
    zero(x.dq, S * Q_ROW);
    zero(x.dkv, S * KV_ROW);
    all_steps(&x, runs, false);
    all_steps(&x, runs, true);
    double now[] = {lost(x.o, x.want_o, S * Q_ROW), lost(x.dq, x.want_dq, S * Q_ROW),
                    lost(x.dkv, x.want_dkv, S * KV_ROW)};
    printf("%d runs: o %.2e, dq %.2e, dkv %.2e\n", runs, now[0], now[1], now[2]);
    for (int i = 0; i < 3; i++) {
      if (runs == 1) first[i] = now[i];
      CHECK(now[i] < 1e-6 && now[i] < 1.5 * first[i], "%d runs lose %.2e, one loses %.2e", runs, now[i],
            first[i]);
    }
  }
  float *f[] = {x.q, x.kv, x.dout, x.o, x.lse, x.dq, x.dkv};
  for (int i = 0; i < 7; i++) free(f[i]);
  free(x.want_o);
  free(x.want_dq);
  free(x.want_dkv);
  return 0;
}
