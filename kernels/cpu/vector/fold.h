/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of up to three numbers over broadcast arrays, summed in doubles over the dims that the
 * output lacks. The functions take rows of contiguous numbers; other rows are copied first, a tile
 * at a time. */

enum { TILE = 512 };

/* Positions in the inputs. */
typedef struct places {
  const float *in[SLI_SPACE_INPUTS];
} places;

/* A fold, and a thread's buffer for a tile of each array. */
typedef struct folding {
  const sli_fold *fold;
  const sli_space *space;
  _Alignas(64) float in[SLI_SPACE_INPUTS][TILE];
  float y[TILE];
  dvec sum[TILE / LANES];
} folding;

static void move(places *p, const sli_space *s, int d, int64_t by) {
  for (int a = 0; a < SLI_SPACE_INPUTS; a++)
    if (p->in[a]) p->in[a] += by * s->step[a][d];
}

/* Advances to the next position of dims [from, to); returns false after the last. */
static bool step_on(places *p, const sli_space *s, int from, int to, int64_t *index) {
  for (int d = to - 1; d >= from; d--) {
    move(p, s, d, 1);
    if (++index[d] < s->dim[d]) return true;
    move(p, s, d, -s->dim[d]);
    index[d] = 0;
  }
  return false;
}

static void copy_row(float *to, const float *p, int64_t step, int64_t n) {
  vec same = set(*p);
  if (!step)
    for (int64_t k = 0; k < n; k += LANES) storeu(to + k, same);
  else
    for (int64_t k = 0; k < n; k++) to[k] = p[k * step];
}

/* Applies the function to at most TILE numbers along dim d (-1: one number), from `at` on. Returns
 * y, or the address of the input if there is no function. */
static const float *fold_row(folding *f, const places *p, int d, int64_t at, int64_t n, float *y) {
  const float *in[SLI_SPACE_INPUTS];
  for (int a = 0; a < SLI_SPACE_INPUTS; a++) {
    int64_t step = d < 0 ? 0 : f->space->step[a][d];
    in[a] = p->in[a] && step == 1 ? p->in[a] + at : f->in[a];
    if (!p->in[a] || step == 1) continue;
    /* otherwise it has been copied before */
    if (step || !at) copy_row(f->in[a], p->in[a] + at * step, step, n);
  }
  if (!f->fold->fn) return in[0];
  f->fold->fn(in[0], in[1], in[2], y, n);
  return y;
}

static void put(const sli_fold *f, const float *y, float factor, int64_t to, int64_t n) {
  float *out = f->out + to;
  for (int64_t k = 0; k < n; k += LANES) {
    vec v = load(y + k, n - k) * factor;
    store(out + k, f->add ? load(out + k, n - k) + v : v, n - k);
  }
}

/* Computes adjacent output elements, for a space without summed dims. */
static void fold_plain(folding *f, const places *p, int64_t to, int64_t n) {
  const sli_fold *of = f->fold;
  bool as_it_is = of->fn && !of->add && of->factor == 1;
  for (int64_t at = 0; at < n; at += TILE) {
    int64_t count = n - at < TILE ? n - at : TILE;
    float *out = of->out + to + at;
    const float *y = fold_row(f, p, f->space->kept - 1, at, count, as_it_is ? out : f->y);
    if (!as_it_is) put(of, y, of->factor, to + at, count);
  }
}

/* Sums for at most TILE adjacent output elements, one summed position after another. */
static void sum_across(folding *f, places p, int64_t n) {
  const sli_space *s = f->space;
  int64_t index[SL_MAX_DIMS] = {0};
  memset(f->sum, 0, sizeof f->sum);
  do {
    places q = p;
    for (int64_t k = 0; k < s->dim[s->ndim - 1]; k++, move(&q, s, s->ndim - 1, 1)) {
      const float *y = fold_row(f, &q, s->kept - 1, 0, n, f->y);
      for (int64_t j = 0; j < n; j += LANES) add_wide(&f->sum[j / LANES], load(y + j, n - j));
    }
  } while (step_on(&p, s, s->kept, s->ndim - 1, index));
}

/* Sums for one output element, along the last summed dim. */
static double sum_along(folding *f, places p) {
  const sli_space *s = f->space;
  int64_t index[SL_MAX_DIMS] = {0}, n = s->dim[s->ndim - 1];
  dvec sum[SUM_VECTORS] = {0};
  do {
    for (int64_t at = 0; at < n; at += TILE) {
      int64_t count = n - at < TILE ? n - at : TILE;
      const float *y = fold_row(f, &p, s->ndim - 1, at, count, f->y);
      for (int64_t k = 0; k < count; k += SUM_LANES)
        EACH_VECTOR(v) add_wide(&sum[v], load(y + k + v * LANES, count - k - v * LANES));
    }
  } while (step_on(&p, s, s->kept, s->ndim - 1, index));
  return sum_wide_lanes(sum);
}

/* Returns true if the summed elements are contiguous in memory and the output's dims are not. */
static bool sums_along(const sli_space *s) {
  for (int a = 0; a < SLI_SPACE_INPUTS; a++)
    if (s->kept && s->step[a][s->kept - 1] == 1) return false;
  return true;
}

static void fold_sums(folding *f, places p, int64_t to, int64_t n) {
  const sli_space *s = f->space;
  bool along = sums_along(s);
  for (int64_t at = 0, count; at < n; at += count) {
    count = along ? 1 : n - at < TILE ? n - at : TILE;
    if (along) f->sum[0].low[0] = sum_along(f, p);
    else sum_across(f, p, count);
    for (int64_t k = 0; k < count; k += LANES)
      storeu(f->y + k, narrow_times(&f->sum[k / LANES], (double)f->fold->factor));
    put(f->fold, f->y, 1, to + at, count);
    if (s->kept) move(&p, s, s->kept - 1, count);
  }
}

/* Runs a chunk along the last dim of the output. */
static void fold_chunk(void *arg, int i) {
  const sli_fold *of = arg;
  const sli_space *s = &of->space;
  folding f;
  f.fold = of, f.space = s;
  sli_range r = sli_chunk_range(s->total, of->block, i);
  int last = s->kept - 1;
  int64_t index[SL_MAX_DIMS] = {0}, rest = r.begin;
  places p = {{of->in[0], of->in[1], of->in[2]}};
  for (int d = last; d >= 0; rest /= s->dim[d--]) {
    index[d] = rest % s->dim[d];
    move(&p, s, d, index[d]);
  }
  for (int64_t at = r.begin, n; at < r.end; at += n) {
    n = last < 0 ? 1 : s->dim[last] - index[last];
    if (n > r.end - at) n = r.end - at;
    if (s->kept == s->ndim) fold_plain(&f, &p, at, n);
    else fold_sums(&f, p, at, n);
    if (last < 0) continue;
    move(&p, s, last, -index[last]);
    index[last] = 0;
    step_on(&p, s, 0, last, index);
  }
}

/* ---- the functions ------------------------------------------------------------------------ */

#define ROW(name, expression)                                                                      \
  static void name##_row(const float *a_, const float *b_, const float *d_, float *y, int64_t n) { \
    const vec zero = {0};                                                                          \
    (void)a_, (void)b_, (void)d_, (void)zero;                                                      \
    for (int64_t k = 0; k < n; k += LANES) {                                                       \
      vec a = load(a_ + k, n - k), b = load(b_ + k, n - k), d = load(d_ + k, n - k);               \
      (void)a, (void)b, (void)d;                                                                   \
      store(y + k, expression, n - k);                                                             \
    }                                                                                              \
  }

/* Turns a mask into integers 0 or 1, stored in place of floats. */
#define AS_MASK(mask) ((vec)((ivec)(mask)&1))

#define BINARY(name, flops, unread, partial, y, da, db) \
  ROW(binary_##name, y)                                 \
  ROW(binary_##name##_a, da)                            \
  ROW(binary_##name##_b, db)
#define COMPARE(name, y)                                                   \
  ROW(compare_##name, AS_MASK(y))                                          \
  static inline vec integers_##name(ivec a, ivec b) { return AS_MASK(y); } \
  ROW(compare_##name##_i, integers_##name((ivec)a, (ivec)b))
#include "ops/binary.def"
#undef BINARY
#undef COMPARE

ROW(where, pick((ivec)a != 0, b, d))
ROW(where_a, pick((ivec)a != 0, d, zero))
ROW(where_b, pick((ivec)a != 0, zero, d))

static sli_row_fn *const where_rows[3] = {where_row, where_a_row, where_b_row};
static sli_row_fn *const binary_rows[SLI_BINARIES][3] = {
#define BINARY(name, ...) \
  [SLI_BINARY_##name] = {binary_##name##_row, binary_##name##_a_row, binary_##name##_b_row},
#define COMPARE(name, y) [SLI_BINARY_##name] = {compare_##name##_row, compare_##name##_i_row, NULL},
#include "ops/binary.def"
#undef BINARY
#undef COMPARE
};
