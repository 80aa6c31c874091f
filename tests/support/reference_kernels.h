/* SPDX-License-Identifier: Apache-2.0 */
/* References of the ops, in double precision: no tiles, no vectors, no running sums. A reference
 * gets its inputs as doubles (ids too) and writes all outputs. */
#ifndef SLUICE_TESTS_SUPPORT_REFERENCE_KERNELS_H
#define SLUICE_TESTS_SUPPORT_REFERENCE_KERNELS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/ops.h>

#include "base/base.h"
#include "base/philox.h"

#include "ops/layout.h"

typedef void reference_fn(const sl_attrs *attrs, const sl_type *type, double *const *in,
                          double *const *out);

static inline double ref_eps(const sl_attrs *attrs) {
  return attrs->norm.eps > 0 ? (double)attrs->norm.eps : (double)1e-5f;
}

/* ---- products -------------------------------------------------------------------- */

static inline void ref_linear(const sl_attrs *attrs, const sl_type *type, double *const *in,
                              double *const *out) {
  int64_t rows = sl_type_rows(&type[0]), K = sl_type_last(&type[0]);
  int64_t N = type[1].dim[attrs->product.transposed ? 1 : 0];
  const double *x = in[0], *w = in[1], *bias = in[2];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t n = 0; n < N; n++) {
      double y = bias ? bias[n] : 0;
      for (int64_t k = 0; k < K; k++)
        y += x[r * K + k] * (attrs->product.transposed ? w[k * N + n] : w[n * K + k]);
      out[0][r * N + n] = y;
    }
}

/* ---- random numbers -------------------------------------------------------------- */

/* Computes dropout of an unsharded call at the first tick, without a key or seed of its own. */
static inline void ref_dropout(const sl_attrs *attrs, const sl_type *type, double *const *in,
                               double *const *out) {
  uint64_t key = sli_hash_word(sli_hash_word(SLI_HASH_SEED, 0), 0);
  for (int64_t i = 0; i < sl_type_elements(&type[0]); i++) {
    uint32_t words[4] = {(uint32_t)(i / 4)};
    sli_philox(words, key);
    bool kept = words[i % 4] * 0x1p-32 >= (double)attrs->distribution.dropped;
    out[0][i] = kept ? in[0][i] / (1 - (double)attrs->distribution.dropped) : 0;
  }
}

/* ---- views ----------------------------------------------------------------------- */

static inline void ref_reshape(const sl_attrs *attrs, const sl_type *type, double *const *in,
                               double *const *out) {
  (void)attrs;
  for (int64_t i = 0; i < sl_type_elements(&type[0]); i++) out[0][i] = in[0][i];
}

/* Moves each element of x to its permuted position. */
static inline void ref_permute(const sl_attrs *attrs, const sl_type *type, double *const *in,
                               double *const *out) {
  int n = type[0].ndim;
  for (int64_t i = 0; i < sl_type_elements(&type[0]); i++) {
    int64_t place[SL_MAX_DIMS], rest = i, to = 0;
    for (int d = n - 1; d >= 0; rest /= type[0].dim[d--]) place[d] = rest % type[0].dim[d];
    for (int d = 0; d < n; d++)
      to = to * type[0].dim[attrs->shape.dims[d]] + place[attrs->shape.dims[d]];
    out[0][to] = in[0][i];
  }
}

/* Copies one range of one dim. */
static inline void ref_slice(const sl_attrs *attrs, const sl_type *type, double *const *in,
                             double *const *out) {
  const sl_part *part = attrs->user;
  int64_t outer = 1, inner = 1, n = type[0].dim[part->axis], count = part->count[0];
  for (int d = 0; d < part->axis; d++) outer *= type[0].dim[d];
  for (int d = part->axis + 1; d < type[0].ndim; d++) inner *= type[0].dim[d];
  for (int64_t o = 0; o < outer; o++)
    for (int64_t e = 0; e < count * inner; e++)
      out[0][o * count * inner + e] = in[0][(o * n + part->begin[0]) * inner + e];
}

/* Splits into parts of two and the rest. */
static inline void ref_split(const sl_attrs *attrs, const sl_type *type, double *const *in,
                             double *const *out) {
  int axis = __builtin_ctz(attrs->along.axes);
  const int64_t n = type[0].dim[axis], *of = ((const sl_lengths *)attrs->user)->lengths;
  for (int o = 0; o < 2; o++) {
    sl_part part = {
        .axis = axis, .nranges = 1, .begin = {o ? of[0] : 0}, .count = {o ? n - of[0] : of[0]}};
    ref_slice(&(sl_attrs){.user = &part}, type, in, out + o);
  }
}

static inline void ref_sum(const sl_attrs *attrs, const sl_type *type, double *const *in,
                           double *const *out) {
  (void)attrs;
  for (int64_t i = 0; i < sl_type_elements(&type[0]); i++) {
    out[0][i] = 0;
    for (int k = 0; in[k]; k++) out[0][i] += in[k][i];
  }
}

/* Concatenates as many inputs as there are pointers. */
static inline void ref_concat(const sl_attrs *attrs, const sl_type *type, double *const *in,
                              double *const *out) {
  int axis = __builtin_ctz(attrs->along.axes);
  int64_t outer = 1, inner = 1, at = 0, sum = 0;
  for (int d = 0; d < axis; d++) outer *= type[0].dim[d];
  for (int d = axis + 1; d < type[0].ndim; d++) inner *= type[0].dim[d];
  for (int i = 0; in[i]; i++) sum += type[i].dim[axis];
  for (int i = 0; in[i]; at += type[i++].dim[axis])
    for (int64_t o = 0; o < outer; o++)
      for (int64_t e = 0; e < type[i].dim[axis] * inner; e++)
        out[0][(o * sum + at) * inner + e] = in[i][o * type[i].dim[axis] * inner + e];
}

/* ---- tables ---------------------------------------------------------------------- */

static inline void ref_embedding(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                 double *const *out) {
  (void)attrs;
  int64_t rows = sl_type_elements(&type[0]), C = type[1].dim[1];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < C; c++) out[0][r * C + c] = in[1][(int64_t)in[0][r] * C + c];
}

static inline void ref_splice(const sl_attrs *attrs, const sl_type *type, double *const *in,
                              double *const *out) {
  (void)attrs;
  int64_t rows = sl_type_elements(&type[2]), C = type[1].dim[1];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < C; c++)
      out[0][r * C + c] = in[2][r] < 0 ? in[0][r * C + c] : in[1][(int64_t)in[2][r] * C + c];
}

static inline void ref_position(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                double *const *out) {
  (void)attrs;
  int64_t B = type[0].dim[0], T = type[0].dim[1], C = type[0].dim[2];
  for (int64_t b = 0; b < B; b++)
    for (int64_t t = 0; t < T; t++)
      for (int64_t c = 0; c < C; c++)
        out[0][(b * T + t) * C + c] = in[0][(b * T + t) * C + c] + in[1][t * C + c];
}

/* ---- element by element ----------------------------------------------------------- */

#define REF_EACH(name, expression)                                                             \
  static inline void ref_##name(const sl_attrs *attrs, const sl_type *type, double *const *in, \
                                double *const *out) {                                          \
    (void)attrs;                                                                               \
    int64_t n = sl_type_elements(&type[0]);                                                    \
    for (int64_t i = 0; i < n; i++) out[0][i] = (expression);                                  \
  }
#define X0 in[0][i]
#define X1 in[1][i]
REF_EACH(copy, X0)
REF_EACH(add, X0 + X1)
REF_EACH(mul, X0 *X1)
REF_EACH(gelu, 0.5 * X0 * (1 + tanh(sqrt(2 / M_PI) * (X0 + 0.044715 * X0 * X0 * X0))))
REF_EACH(relu, X0 > 0 ? X0 : 0)
REF_EACH(tanh, tanh(X0))
REF_EACH(swiglu, X0 / (1 + exp(-X0)) * X1)
#undef X0
#undef X1

/* ---- norms ------------------------------------------------------------------------ */

static inline void ref_layernorm(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                 double *const *out) {
  int64_t R = sl_type_rows(&type[0]), C = sl_type_last(&type[0]);
  for (int64_t r = 0; r < R; r++) {
    const double *x = in[0] + r * C;
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < C; c++) mean += x[c] / (double)C;
    for (int64_t c = 0; c < C; c++) variance += (x[c] - mean) * (x[c] - mean) / (double)C;
    double rstd = 1 / sqrt(variance + ref_eps(attrs));
    for (int64_t c = 0; c < C; c++) out[0][r * C + c] = (x[c] - mean) * rstd * in[1][c] + in[2][c];
    out[1][r] = mean;
    out[2][r] = rstd;
  }
}

static inline void ref_rmsnorm(const sl_attrs *attrs, const sl_type *type, double *const *in,
                               double *const *out) {
  int64_t R = sl_type_rows(&type[0]), C = sl_type_last(&type[0]);
  for (int64_t r = 0; r < R; r++) {
    const double *x = in[0] + r * C;
    double square = 0;
    for (int64_t c = 0; c < C; c++) square += x[c] * x[c] / (double)C;
    double rstd = 1 / sqrt(square + ref_eps(attrs));
    for (int64_t c = 0; c < C; c++) out[0][r * C + c] = x[c] * rstd * in[1][c];
    out[1][r] = rstd;
  }
}

/* ---- attention -------------------------------------------------------------------- */

static inline void ref_rotary(const sl_attrs *attrs, const sl_type *type, double *const *in,
                              double *const *out) {
  int64_t B = type[0].dim[0], T = type[0].dim[1], C = type[0].dim[2], D = C / attrs->rotary.heads;
  const sl_rope *rope = attrs->user;
  int64_t turned = rope && rope->part > 0 ? (int64_t)(rope->part * (double)D) : D, P = turned / 2;
  double frequency[P], scale = sli_rope_frequencies(attrs, P, frequency);
  for (int64_t r = 0; r < B * T; r++)
    for (int64_t h = 0; h < attrs->rotary.heads; h++) {
      const double *x = in[0] + r * C + h * D;
      double *y = out[0] + r * C + h * D;
      for (int64_t j = 0; j < P; j++) {
        double angle = (double)(r % T) * frequency[j];
        y[j] = scale * (x[j] * cos(angle) - x[j + P] * sin(angle));
        y[j + P] = scale * (x[j + P] * cos(angle) + x[j] * sin(angle));
      }
      for (int64_t j = turned; j < D; j++) y[j] = x[j];
    }
}

/* Says whether query i attends to key j. ids: [keys] of the sequence, or NULL. */
static inline bool ref_sees(const sl_attrs *attrs, const double *ids, int64_t i, int64_t j) {
  int64_t far = attrs->attention.window ? attrs->attention.window : INT64_MAX;
  bool near = attrs->attention.full ? llabs(i - j) < far
                                    : j <= i && (i - j < far || j < attrs->attention.shown);
  return near && (!ids || (ids[j] >= 0 && ids[j] == ids[i]));
}

/* Turns a query's scores of visible keys into weights p[keys]. Returns the log of their sum; 0
 * if there are none. */
static inline double ref_weights(double *p, int64_t keys) {
  double top = -INFINITY, total = 0;
  for (int64_t j = 0; j < keys; j++) top = fmax(top, p[j]);
  for (int64_t j = 0; j < keys; j++) total += p[j] = top > -INFINITY ? exp(p[j] - top) : 0;
  for (int64_t j = 0; j < keys && total > 0; j++) p[j] /= total;
  return total > 0 ? top + log(total) : 0;
}

/* Caps the scores of visible keys. */
static inline void ref_cap(double cap, double *p, int64_t keys) {
  for (int64_t j = 0; j < keys && cap > 0; j++)
    if (p[j] > -INFINITY) p[j] = cap * tanh(p[j] / cap);
}

/* Lists of key blocks for each block of queries; a list ends where its numbers stop decreasing. */
typedef struct ref_lists {
  const double *of; /* [batch, heads, blocks, width]; NULL: all keys */
  int64_t blocks, width;
} ref_lists;

static inline bool ref_lists_key(const ref_lists *lists, int64_t head, int64_t i, int64_t j) {
  if (!lists->of) return true;
  const double *list = lists->of + (head * lists->blocks + i / 64) * lists->width;
  double limit = (double)(i / 64 + 1);
  for (int64_t n = 0; n < lists->width && list[n] >= 0 && list[n] < limit; n++) {
    if (list[n] == (double)(j / 64)) return true;
    limit = list[n];
  }
  return false;
}

/* Computes attention; q rows are q_row apart, k and v rows kv_row. */
static inline void ref_attend(const sl_attrs *attrs, int64_t batch, int64_t T, int64_t heads,
                              int64_t kv_heads, int64_t D, const double *q, const double *k,
                              const double *v, const double *ids, ref_lists lists, int64_t q_row,
                              int64_t kv_row, double *o, double *lse) {
  double *p = malloc((size_t)T * sizeof *p);
  double scale = attrs->attention.scale != 0 ? (double)attrs->attention.scale : 1 / sqrt((double)D);
  for (int64_t b = 0; b < batch; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t i = 0; i < T; i++) {
        int64_t g = h / (heads / kv_heads);
        const double *qi = q + (b * T + i) * q_row + h * D;
        for (int64_t j = 0; j < T; j++) {
          p[j] = -INFINITY;
          if (!ref_sees(attrs, ids ? ids + b * T : NULL, i, j)) continue;
          if (!ref_lists_key(&lists, b * heads + h, i, j)) continue;
          p[j] = 0;
          for (int64_t d = 0; d < D; d++)
            p[j] += qi[d] * k[(b * T + j) * kv_row + g * D + d] * scale;
        }
        ref_cap(lists.of ? 0 : (double)attrs->attention.cap, p, T);
        lse[(b * heads + h) * T + i] = ref_weights(p, T);
        for (int64_t d = 0; d < D; d++) {
          double y = 0;
          for (int64_t j = 0; j < T; j++)
            if (p[j] > 0) y += p[j] * v[(b * T + j) * kv_row + g * D + d];
          o[((b * T + i) * heads + h) * D + d] = y;
        }
      }
  free(p);
}

/* Computes attention; ids are in[3], or in[1] if inputs are packed, or NULL. */
static inline void ref_attention(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                 double *const *out) {
  int64_t kv_heads = attrs->attention.kv_heads ? attrs->attention.kv_heads : attrs->attention.heads;
  int64_t T = type[0].dim[1], C = type[0].dim[2], D = C / attrs->attention.heads;
  ref_attend(attrs, type[0].dim[0], T, attrs->attention.heads, kv_heads, D, in[0], in[1], in[2],
             in[3], (ref_lists){0}, C, kv_heads * D, out[0], out[1]);
}

static inline void ref_attention_blocks(const sl_attrs *attrs, const sl_type *type,
                                        double *const *in, double *const *out) {
  int64_t kv_heads = attrs->attention.kv_heads ? attrs->attention.kv_heads : attrs->attention.heads;
  int64_t T = type[0].dim[1], C = type[0].dim[2], D = C / attrs->attention.heads;
  ref_attend(attrs, type[0].dim[0], T, attrs->attention.heads, kv_heads, D, in[0], in[1], in[2],
             NULL, (ref_lists){in[3], type[3].dim[2], type[3].dim[3]}, C, kv_heads * D, out[0],
             out[1]);
}

/* Attention to chosen positions: in[3] has a list per row, which ends with -1. */
static inline void ref_attention_chosen(const sl_attrs *attrs, const sl_type *type,
                                        double *const *in, double *const *out) {
  int64_t H = attrs->attention.heads, T = type[0].dim[1], E = type[0].dim[2] / H,
          V = type[2].dim[2] / H;
  int64_t K = type[3].dim[2], N = type[0].dim[0] * T * H;
  double scale = attrs->attention.scale != 0 ? (double)attrs->attention.scale : 1 / sqrt((double)E);
  double *p = malloc((size_t)K * sizeof *p);
  for (int64_t row = 0; row < N; row++) {
    const double *list = in[3] + row / H * K;
    int64_t n = 0, h = row % H, first = row / H / T * T;
    for (; n < K && list[n] >= 0; n++) {
      p[n] = 0;
      for (int64_t d = 0; d < E; d++)
        p[n] += scale * in[0][row * E + d] * in[1][((first + (int64_t)list[n]) * H + h) * E + d];
    }
    out[1][row] = n ? ref_weights(p, n) : 0;
    for (int64_t d = 0; d < V; d++) {
      double y = 0;
      for (int64_t j = 0; j < n; j++)
        y += p[j] * in[2][((first + (int64_t)list[j]) * H + h) * V + d];
      out[0][row * V + d] = y;
    }
  }
  free(p);
}

/* Divergence of the softmax of an indexer's scores from the mean attention; in[5]: lists, or all
 * positions up to a row's. */
static inline void ref_index_loss(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                  double *const *out) {
  int64_t H = attrs->attention.heads, I = type[2].dim[2], D = type[1].dim[2], T = type[2].dim[1];
  int64_t E = type[3].dim[2] / H, K = in[5] ? type[5].dim[2] : T;
  double scale = attrs->attention.scale != 0 ? (double)attrs->attention.scale : 1 / sqrt((double)E);
  double *p = malloc((size_t)(3 * K) * sizeof *p), *s = p + K, *one = s + K;
  for (int64_t row = 0; row < type[2].dim[0] * T; row++) {
    int64_t n = in[5] ? 0 : row % T + 1, first = row / T * T;
    while (in[5] && n < K && in[5][row * K + n] >= 0) n++;
    for (int64_t j = 0; j < n; j++) p[j] = s[j] = 0;
    for (int64_t h = 0; h < H + I; h++)
      for (int64_t j = 0; j < n; j++) {
        int64_t key = first + (in[5] ? (int64_t)in[5][row * K + j] : j), i = h - H;
        double dot = 0;
        for (int64_t d = 0; d < (h < H ? E : D); d++)
          dot += h < H ? in[3][(row * H + h) * E + d] * in[4][(key * H + h) * E + d]
                       : in[0][(row * I + i) * D + d] * in[1][key * D + d];
        one[j] = dot * scale;
        if (i >= 0 && dot > 0) s[j] += in[2][row * I + i] * dot;
        if (j < n - 1 || i >= 0) continue;
        ref_weights(one, n);
        for (int64_t k = 0; k < n; k++) p[k] += one[k] / (double)H;
      }
    double sum = 0;
    if (n) ref_weights(s, n);
    for (int64_t j = 0; j < n; j++) sum += p[j] * (log(p[j]) - log(s[j]));
    out[0][row] = sum;
  }
  free(p);
}

/* Dual chunk attention: a query's score with a key uses one of its forms, in[0], in[3] or in[4]. */
static inline void ref_attention_dual(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                      double *const *out) {
  static const int forms[] = {0, 3, 4};
  int64_t H = attrs->attention.heads,
          KV = attrs->attention.kv_heads ? attrs->attention.kv_heads : H, B = type[0].dim[0];
  int64_t T = type[0].dim[1], D = type[0].dim[2] / H;
  double *p = malloc((size_t)T * sizeof *p);
  for (int64_t row = 0; row < B * H * T; row++) {
    int64_t i = row % T, h = row / T % H, b = row / T / H, kv = h / (H / KV);
    for (int64_t j = 0; j < T; j++) {
      int64_t between = i / attrs->attention.chunk - j / attrs->attention.chunk;
      double s = 0;
      for (int64_t d = 0; d < D && j <= i; d++)
        s += in[forms[between < 2 ? between : 2]][((b * T + i) * H + h) * D + d] *
             in[1][((b * T + j) * KV + kv) * D + d] / sqrt((double)D);
      p[j] = ref_sees(attrs, NULL, i, j) ? s : -INFINITY;
    }
    out[1][row] = ref_weights(p, T);
    for (int64_t d = 0; d < D; d++) {
      double y = 0;
      for (int64_t j = 0; j < T; j++) y += p[j] * in[2][((b * T + j) * KV + kv) * D + d];
      out[0][((b * T + i) * H + h) * D + d] = y;
    }
  }
  free(p);
}

/* Attention with sinks in[3]. */
static inline void ref_attention_sinks(const sl_attrs *attrs, const sl_type *type,
                                       double *const *in, double *const *out) {
  int64_t H = attrs->attention.heads,
          KV = attrs->attention.kv_heads ? attrs->attention.kv_heads : H, B = type[0].dim[0];
  int64_t T = type[0].dim[1], D = type[0].dim[2] / H;
  double scale = attrs->attention.scale != 0 ? (double)attrs->attention.scale : 1 / sqrt((double)D);
  double *p = malloc((size_t)(T + 1) * sizeof *p);
  for (int64_t row = 0; row < B * H * T; row++) {
    int64_t i = row % T, h = row / T % H, b = row / T / H, kv = h / (H / KV);
    for (int64_t j = 0; j < T; j++) {
      double s = 0;
      for (int64_t d = 0; d < D; d++)
        s += scale * in[0][((b * T + i) * H + h) * D + d] * in[1][((b * T + j) * KV + kv) * D + d];
      p[j] = ref_sees(attrs, in[4] ? in[4] + b * T : NULL, i, j) ? s : -INFINITY;
    }
    ref_cap((double)attrs->attention.cap, p, T);
    p[T] = in[3][(b * T + i) * H + h];
    out[1][row] = ref_weights(p, T + 1);
    for (int64_t d = 0; d < D; d++) {
      double y = 0;
      for (int64_t j = 0; j < T; j++) y += p[j] * in[2][((b * T + j) * KV + kv) * D + d];
      out[0][((b * T + i) * H + h) * D + d] = y;
    }
  }
  free(p);
}

static inline void ref_attention_packed(const sl_attrs *attrs, const sl_type *type,
                                        double *const *in, double *const *out) {
  int64_t heads = attrs->attention.heads,
          kv_heads = attrs->attention.kv_heads ? attrs->attention.kv_heads : heads;
  int64_t T = type[0].dim[1], C = type[0].dim[2], D = C / (heads + 2 * kv_heads);
  ref_attend(attrs, type[0].dim[0], T, heads, kv_heads, D, in[0], in[0] + heads * D,
             in[0] + (heads + kv_heads) * D, in[1], (ref_lists){0}, C, C, out[0], out[1]);
}

/* Gated linear attention as a sum over all pairs of positions. */
static inline void ref_linear_attention(const sl_attrs *attrs, const sl_type *type,
                                        double *const *in, double *const *out) {
  int64_t B = type[0].dim[0], T = type[0].dim[1], H = attrs->attention.heads;
  int64_t KV = attrs->attention.kv_heads ? attrs->attention.kv_heads : H, dk = type[0].dim[2] / H;
  int64_t dv = type[2].dim[2] / KV, G = type[3].dim[2] / KV;
  double scale =
      attrs->attention.scale != 0 ? (double)attrs->attention.scale : 1 / sqrt((double)dk);
  for (int64_t e = 0; e < B * T * H * dv; e++) {
    int64_t j = e % dv, h = e / dv % H, t = e / dv / H % T, b = e / dv / H / T, kv = h / (H / KV);
    out[0][e] = 0;
    for (int64_t i = 0; i < dk; i++) {
      double decay = 0;
      for (int64_t s = t; s >= 0; s--) {
        int64_t row = (b * T + s) * KV + kv;
        out[0][e] += scale * in[0][((b * T + t) * H + h) * dk + i] * exp(decay) *
                     in[1][row * dk + i] * in[2][row * dv + j];
        decay += in[3][row * G + (G == 1 ? 0 : i)];
      }
    }
  }
}

/* Computes the gated delta rule position by position. */
static inline void ref_delta_rule(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                  double *const *out) {
  int64_t B = type[0].dim[0], T = type[0].dim[1], H = attrs->attention.heads;
  int64_t few = attrs->attention.kv_heads ? attrs->attention.kv_heads : H,
          dk = type[0].dim[2] / few;
  int64_t dv = type[2].dim[2] / H, G = type[3].dim[2] / H; /* gates of a head */
  double scale =
      attrs->attention.scale != 0 ? (double)attrs->attention.scale : 1 / sqrt((double)dk);
  for (int64_t e = 0; e < B * H * dv; e++) { /* one column of a state */
    int64_t j = e % dv, h = e / dv % H, b = e / dv / H;
    double S[dk];
    for (int64_t i = 0; i < dk; i++) S[i] = 0;
    for (int64_t t = 0; t < T; t++) {
      int64_t row = b * T + t, at = (row * few + h / (H / few)) * dk, to = (row * H + h) * dv + j;
      double has = 0, sum = 0;
      for (int64_t i = 0; i < dk; i++)
        has += in[1][at + i] * (S[i] *= exp(in[3][(row * H + h) * G + (G == 1 ? 0 : i)]));
      out[1][to] = in[2][to] - has;
      for (int64_t i = 0; i < dk; i++) {
        S[i] += in[1][at + i] * in[4][row * H + h] * out[1][to];
        sum += in[0][at + i] * S[i];
      }
      out[0][to] = scale * sum;
    }
  }
}

static inline void ref_causal_conv(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                   double *const *out) {
  (void)attrs;
  int64_t T = type[0].dim[1], C = type[0].dim[2], W = sl_type_last(&type[1]);
  for (int64_t e = 0; e < sl_type_elements(&type[0]); e++) {
    int64_t c = e % C, t = e / C % T;
    out[0][e] = in[2] ? in[2][c] : 0;
    int64_t before = in[4] ? (int64_t)in[4][e / C] : t; /* preceding rows of the same document */
    for (int64_t j = 0; j < W && j <= t && j <= before; j++)
      out[0][e] += in[1][c * W + W - 1 - j] * in[0][e - j * C];
  }
}

/* ---- losses ----------------------------------------------------------------------- */

static inline void ref_cross_entropy(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                     double *const *out) {
  (void)attrs;
  int64_t R = sl_type_rows(&type[0]), V = sl_type_last(&type[0]);
  double loss = 0;
  for (int64_t r = 0; r < R; r++) {
    const double *x = in[0] + r * V;
    double total = 0;
    for (int64_t c = 0; c < V; c++) total += exp(x[c]);
    out[1][r] = log(total);
    loss += log(total) - x[(int64_t)in[1][r]];
  }
  out[0][0] = loss / (double)R;
}

static inline void ref_log_probability(const sl_attrs *attrs, const sl_type *type,
                                       double *const *in, double *const *out) {
  (void)attrs;
  int64_t R = sl_type_rows(&type[0]), V = sl_type_last(&type[0]);
  for (int64_t r = 0; r < R; r++) {
    double total = 0;
    for (int64_t c = 0; c < V; c++) total += exp(in[0][r * V + c]);
    out[0][r] = in[0][r * V + (int64_t)in[1][r]] - log(total);
    out[1][r] = log(total);
  }
}

static inline void ref_mse(const sl_attrs *attrs, const sl_type *type, double *const *in,
                           double *const *out) {
  (void)attrs;
  int64_t n = sl_type_elements(&type[0]);
  double total = 0;
  for (int64_t i = 0; i < n; i++) total += (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]);
  out[0][0] = total / (double)n;
}

#endif
