/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of attention to chosen tokens and of the loss of their indexer
 * (ops/attention_chosen.c). */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/dot.h"
#include "kernels/cpu/kernels.h"
#include "ops/attention_shape.h"

/* Returns the length of a list, which ends with -1 or after `most`. */
static int64_t length_of(const int32_t *list, int64_t most) {
  int64_t n = 0;
  while (n < most && list[n] >= 0) n++;
  return n;
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { TILE = 64, ROWS = 16 };

typedef struct attention {
  int64_t rows, context, heads, keys, values, count; /* rows: B T */
  float scale;
  const float *q, *k, *v, *o, *lse, *dout;
  const int32_t *chosen;
  float *out, *out_lse, *dq, *dk, *dv;
} attention;

static attention attention_of(const sl_call *call) {
  const sl_type *q = &call->in_type[0], *v = &call->in_type[2];
  int64_t heads = call->attrs->attention.heads, keys = q->dim[2] / heads;
  return (attention){.rows = q->dim[0] * q->dim[1],
                     .context = q->dim[1],
                     .heads = heads,
                     .keys = keys,
                     .values = v->dim[2] / heads,
                     .count = call->in_type[3].dim[2],
                     .scale = sli_attention_scale(call->attrs, keys),
                     .q = call->in[0],
                     .k = call->in[1],
                     .v = call->in[2],
                     .chosen = call->in[3]};
}

/* Return the numbers of a head in a row of q or k, and of v or o. */
static int64_t key_at(const attention *a, int64_t row, int64_t h) {
  return (row * a->heads + h) * a->keys;
}
static int64_t value_at(const attention *a, int64_t row, int64_t h) {
  return (row * a->heads + h) * a->values;
}

/* Attends for a head of a row: `first` is the first row of its sequence. */
static void attend_row(const attention *a, int64_t row, int64_t h) {
  const float *q = a->q + key_at(a, row, h);
  const int32_t *list = a->chosen + row * a->count;
  int64_t n = length_of(list, a->count), first = row / a->context * a->context;
  float *out = a->out ? a->out + value_at(a, row, h) : NULL, p[TILE], top = -INFINITY, total = 0;
  int64_t values = out ? a->values : 0;
  if (out) memset(out, 0, (size_t)values * sizeof *out);
  for (int64_t j0 = 0; j0 < n; j0 += TILE) {
    int64_t m = SLI_MIN(n - j0, TILE);
    float most = top;
    for (int64_t j = 0; j < m; j++) {
      p[j] = a->scale * sli_dot(q, a->k + key_at(a, first + list[j0 + j], h), a->keys);
      most = p[j] > most ? p[j] : most;
    }
    float fade = expf(top - most);
    top = most;
    total *= fade;
    for (int64_t d = 0; d < values; d++) out[d] *= fade;
    for (int64_t j = 0; j < m; j++) {
      total += p[j] = expf(p[j] - top);
      if (out) sli_add_row(out, p[j], a->v + value_at(a, first + list[j0 + j], h), values);
    }
  }
  for (int64_t d = 0; n && d < values; d++) out[d] /= total;
  if (a->out_lse) a->out_lse[row * a->heads + h] = n ? top + logf(total) : 0;
}

/* Runs chunk i: a head of some rows. */
static void attend_chunk(void *arg, int i) {
  const attention *a = arg;
  sli_range r = sli_chunk_range(a->rows, ROWS, (int)(i / a->heads));
  for (int64_t row = r.begin; row < r.end; row++) attend_row(a, row, i % a->heads);
}

static void chosen_cpu(const sl_call *call) {
  attention a = attention_of(call);
  a.out = call->out[0];
  a.out_lse = call->out[1];
  sl_team_for(call->team, sli_chunk_count(a.rows, ROWS) * (int)a.heads, attend_chunk, &a);
}

const sl_kernel sli_cpu_attention_chosen = {.backend = "cpu", .run = chosen_cpu};

static void clear(float *x, int64_t n) {
  if (x) memset(x, 0, (size_t)n * sizeof *x);
}

/* Adds the gradients of a head of a row. */
static void attend_row_b(const attention *a, int64_t row, int64_t h) {
  const float *q = a->q + key_at(a, row, h), *dout = a->dout + value_at(a, row, h);
  const int32_t *list = a->chosen + row * a->count;
  int64_t n = length_of(list, a->count), first = row / a->context * a->context;
  float lse = a->lse[row * a->heads + h],
        mean = sli_dot(a->o + value_at(a, row, h), dout, a->values);
  for (int64_t j = 0; j < n; j++) {
    int64_t k = key_at(a, first + list[j], h), v = value_at(a, first + list[j], h);
    float p = expf(a->scale * sli_dot(q, a->k + k, a->keys) - lse),
          ds = a->scale * p * (sli_dot(dout, a->v + v, a->values) - mean);
    if (a->dq) sli_add_row(a->dq + key_at(a, row, h), ds, a->k + k, a->keys);
    if (a->dk) sli_add_row(a->dk + k, ds, q, a->keys);
    if (a->dv) sli_add_row(a->dv + v, p, dout, a->values);
  }
}

/* Runs chunk i: a head of a sequence. */
static void attend_b_chunk(void *arg, int i) {
  const attention *a = arg;
  int64_t h = i % a->heads, first = i / a->heads * a->context;
  for (int64_t row = first; row < first + a->context; row++) {
    clear(a->dq ? a->dq + key_at(a, row, h) : NULL, a->keys);
    clear(a->dk ? a->dk + key_at(a, row, h) : NULL, a->keys);
    clear(a->dv ? a->dv + value_at(a, row, h) : NULL, a->values);
  }
  for (int64_t row = first; row < first + a->context; row++) attend_row_b(a, row, h);
}

static void chosen_b_cpu(const sl_call *call) {
  attention a = attention_of(call);
  a.o = call->in[4];
  a.lse = call->in[5];
  a.dout = call->in[6];
  a.dq = call->out[0];
  a.dk = call->out[1];
  a.dv = call->out[2];
  sl_team_for(call->team, (int)(a.rows / a.context * a.heads), attend_b_chunk, &a);
}

const sl_kernel sli_cpu_attention_chosen_b = {.backend = "cpu", .run = chosen_b_cpu};

/* ---- the indexer's loss ---------------------------------------------------------------------- */

enum { STRETCHES = 8 }; /* of a sequence: every STRETCHES-th row */

typedef struct index_loss {
  int64_t sequences, context, index_heads, index_dim, heads, keys, count; /* count 0: no list */
  float scale;
  const float *q, *k, *w, *queries, *all_keys, *dloss;
  const int32_t *chosen;
  float *loss, *dq, *dk, *dw;
  float *scratch; /* per stretch: p and scores [most], and a summand of dk [T, D] */
} index_loss;

static int64_t most_of(const index_loss *a) { return a->count ? a->count : a->context; }

static index_loss loss_of(const sl_call *call, int chosen) {
  const sl_type *in = call->in_type;
  int64_t heads = call->attrs->attention.heads;
  bool listed = call->nin > chosen && in[chosen].ndim >= 0;
  return (index_loss){.sequences = in[2].dim[0],
                      .context = in[2].dim[1],
                      .index_heads = in[2].dim[2],
                      .index_dim = in[1].dim[2],
                      .heads = heads,
                      .keys = in[3].dim[2] / heads,
                      .count = listed ? in[chosen].dim[2] : 0,
                      .scale = sli_attention_scale(call->attrs, in[3].dim[2] / heads)};
}

static void give(index_loss *a, const sl_call *call, int chosen) {
  a->q = call->in[0];
  a->k = call->in[1];
  a->w = call->in[2];
  a->queries = call->in[3];
  a->all_keys = call->in[4];
  a->chosen = a->count ? call->in[chosen] : NULL;
  a->scratch = call->scratch;
}

/* A row, the first row of its sequence, and the n positions that it sees. */
typedef struct seen {
  int64_t row, first, n;
  const int32_t *list;
} seen;

static seen seen_of(const index_loss *a, int64_t row) {
  seen s = {row, row / a->context * a->context, row % a->context + 1, NULL};
  if (!a->count) return s;
  s.list = a->chosen + row * a->count;
  s.n = length_of(s.list, a->count);
  return s;
}

static int64_t row_of(const seen *s, int64_t j) { return s->first + (s->list ? s->list[j] : j); }

/* Turns n numbers into their softmax times a factor, added to `to`. */
static void add_softmax(const float *x, int64_t n, float factor, float *to) {
  float top = -INFINITY, total = 0;
  for (int64_t j = 0; j < n; j++) top = x[j] > top ? x[j] : top;
  for (int64_t j = 0; j < n; j++) total += expf(x[j] - top);
  for (int64_t j = 0; j < n; j++) to[j] += factor * expf(x[j] - top) / total;
}

/* Computes the attention's mean probabilities, and then the indexer's scores. */
static void score_row(const index_loss *a, const seen *s, float *p, float *scores) {
  memset(p, 0, (size_t)s->n * sizeof *p);
  for (int64_t h = 0; h < a->heads; h++) {
    const float *q = a->queries + (s->row * a->heads + h) * a->keys;
    for (int64_t j = 0; j < s->n; j++)
      scores[j] =
          a->scale * sli_dot(q, a->all_keys + (row_of(s, j) * a->heads + h) * a->keys, a->keys);
    add_softmax(scores, s->n, 1 / (float)a->heads, p);
  }
  const float *q = a->q + s->row * a->index_heads * a->index_dim,
              *w = a->w + s->row * a->index_heads;
  for (int64_t j = 0; j < s->n; j++) {
    const float *k = a->k + row_of(s, j) * a->index_dim;
    scores[j] = 0;
    for (int64_t i = 0; i < a->index_heads; i++)
      scores[j] += w[i] * fmaxf(sli_dot(q + i * a->index_dim, k, a->index_dim), 0);
  }
}

/* Returns the logarithm of the sum of exponentials. */
static float lse_of(const float *x, int64_t n) {
  float top = -INFINITY, total = 0;
  for (int64_t j = 0; j < n; j++) top = x[j] > top ? x[j] : top;
  for (int64_t j = 0; j < n; j++) total += expf(x[j] - top);
  return top + logf(total);
}

static void loss_chunk(void *arg, int i) {
  const index_loss *a = arg;
  float *p = a->scratch + i * 2 * most_of(a), *scores = p + most_of(a);
  for (int64_t t = i % STRETCHES; t < a->context; t += STRETCHES) {
    seen s = seen_of(a, i / STRETCHES * a->context + t);
    score_row(a, &s, p, scores);
    float lse = lse_of(scores, s.n), sum = 0;
    for (int64_t j = 0; j < s.n; j++)
      if (p[j] > 0) sum += p[j] * (logf(p[j]) - scores[j] + lse);
    a->loss[s.row] = s.n ? sum : 0;
  }
}

static void loss_cpu(const sl_call *call) {
  index_loss a = loss_of(call, 5);
  give(&a, call, 5);
  a.loss = call->out[0];
  sl_team_for(call->team, (int)a.sequences * STRETCHES, loss_chunk, &a);
}

static size_t loss_scratch(const sl_call *call, int threads) {
  index_loss a = loss_of(call, 5);
  (void)threads;
  return (size_t)(a.sequences * STRETCHES * 2 * most_of(&a)) * sizeof(float);
}

const sl_kernel sli_cpu_index_loss = {.backend = "cpu", .run = loss_cpu, .scratch = loss_scratch};

/* Adds the gradients of a row; ds has those of its scores. */
static void add_row_b(const index_loss *a, const seen *s, const float *ds, float *dk) {
  int64_t at = s->row * a->index_heads, D = a->index_dim;
  clear(a->dq ? a->dq + at * D : NULL, a->index_heads * D);
  clear(a->dw ? a->dw + at : NULL, a->index_heads);
  for (int64_t j = 0; j < s->n; j++)
    for (int64_t i = 0; i < a->index_heads; i++) {
      const float *q = a->q + (at + i) * D, *k = a->k + row_of(s, j) * D;
      float dot = sli_dot(q, k, D), by = ds[j] * a->w[at + i];
      if (dot <= 0) continue;
      if (a->dw) a->dw[at + i] += ds[j] * dot;
      if (a->dq) sli_add_row(a->dq + (at + i) * D, by, k, D);
      sli_add_row(dk + (row_of(s, j) - s->first) * D, by, q, D);
    }
}

/* Returns the numbers of scratch of a stretch. */
static int64_t stretch_of(const index_loss *a) {
  return 2 * most_of(a) + a->context * a->index_dim;
}

static void loss_b_chunk(void *arg, int i) {
  const index_loss *a = arg;
  float *p = a->scratch + i * stretch_of(a), *scores = p + most_of(a), *dk = scores + most_of(a);
  clear(dk, a->context * a->index_dim);
  for (int64_t t = i % STRETCHES; t < a->context; t += STRETCHES) {
    seen s = seen_of(a, i / STRETCHES * a->context + t);
    float total = 0;
    score_row(a, &s, p, scores);
    for (int64_t j = 0; j < s.n; j++) total += p[j];
    float lse = lse_of(scores, s.n), by = a->dloss[s.row];
    for (int64_t j = 0; j < s.n; j++) p[j] = by * (total * expf(scores[j] - lse) - p[j]);
    add_row_b(a, &s, p, dk);
  }
}

/* Sums the stretches' parts of dk for chunk i of the keys. */
static void join_chunk(void *arg, int i) {
  const index_loss *a = arg;
  int64_t n = a->context * a->index_dim;
  sli_range r = sli_chunk_range(n, SLI_CHUNK_ELEMENTS, i % sli_chunk_count(n, SLI_CHUNK_ELEMENTS));
  int64_t b = i / sli_chunk_count(n, SLI_CHUNK_ELEMENTS);
  for (int64_t e = r.begin; e < r.end; e++) {
    float sum = 0;
    for (int64_t k = 0; k < STRETCHES; k++)
      sum += a->scratch[(b * STRETCHES + k) * stretch_of(a) + 2 * most_of(a) + e];
    a->dk[b * n + e] = sum;
  }
}

static void loss_b_cpu(const sl_call *call) {
  index_loss a = loss_of(call, 6);
  give(&a, call, 6);
  a.dloss = call->in[5];
  a.dq = call->out[0];
  a.dk = call->out[1];
  a.dw = call->out[2];
  int parts = sli_chunk_count(a.context * a.index_dim, SLI_CHUNK_ELEMENTS);
  sl_team_for(call->team, (int)a.sequences * STRETCHES, loss_b_chunk, &a);
  if (a.dk) sl_team_for(call->team, (int)a.sequences * parts, join_chunk, &a);
}

static size_t loss_b_scratch(const sl_call *call, int threads) {
  index_loss a = loss_of(call, 6);
  (void)threads;
  return (size_t)(a.sequences * STRETCHES * stretch_of(&a)) * sizeof(float);
}

const sl_kernel sli_cpu_index_loss_b = {
    .backend = "cpu", .run = loss_b_cpu, .scratch = loss_b_scratch};
