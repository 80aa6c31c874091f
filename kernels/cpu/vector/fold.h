/* Functions of up to three numbers over arrays that broadcast, summed over the dims that the output
 * has not; sums are of doubles. */

#define ALWAYS static inline __attribute__((always_inline))
typedef vec fold_fn(vec a, vec b, vec d);

ALWAYS vec load_step(const float *p, int64_t step, int64_t n) {
  if (!p) return (vec){0};
  if (step == 1) return load(p, n);
  if (!step) return set(*p);
  vec v = {0};
  for (int l = 0; l < LANES; l++)
    if (l < n) v[l] = p[l * step];
  return v;
}

/* Places in the inputs. */
typedef struct places {
  const float *in[SLI_SPACE_INPUTS];
} places;

static inline void move(places *p, const sli_space *s, int d, int64_t by) {
  for (int a = 0; a < SLI_SPACE_INPUTS; a++)
    if (p->in[a]) p->in[a] += by * s->step[a][d];
}

ALWAYS vec fold_at(const places *p, const sli_space *s, int d, int64_t at, int64_t n, fold_fn *fn) {
  vec v[SLI_SPACE_INPUTS];
  for (int a = 0; a < SLI_SPACE_INPUTS; a++) {
    int64_t step = d < 0 ? 0 : s->step[a][d];
    v[a] = load_step(p->in[a] ? p->in[a] + at * step : NULL, step, n);
  }
  return fn(v[0], v[1], v[2]);
}

static inline vec first_lanes(vec v, int64_t n) {
  if (n >= LANES) return v;
  for (int l = 0; l < LANES; l++)
    if (l >= n) v[l] = 0;
  return v;
}

/* The next position of dims [from, to); false after the last. */
static inline bool step_on(places *p, const sli_space *s, int from, int to, int64_t *index) {
  for (int d = to - 1; d >= from; d--) {
    move(p, s, d, 1);
    if (++index[d] < s->dim[d]) return true;
    move(p, s, d, -s->dim[d]);
    index[d] = 0;
  }
  return false;
}

/* Sums for n neighbours in the output, position by position of what is summed. */
ALWAYS vec fold_across(places p, const sli_fold *f, int64_t at, int64_t n, fold_fn *fn) {
  const sli_space *s = &f->space;
  int64_t index[SL_MAX_DIMS] = {0};
  dvec sum = {0};
  do {
    places q = p;
    for (int64_t k = 0; k < s->dim[s->ndim - 1]; k++, move(&q, s, s->ndim - 1, 1))
      sum += __builtin_convertvector(fold_at(&q, s, s->kept - 1, at, n, fn), dvec);
  } while (step_on(&p, s, s->kept, s->ndim - 1, index));
  return __builtin_convertvector(sum * (double)f->factor, vec);
}

/* The sum for one, along the last dim of what is summed. */
ALWAYS double fold_along(places p, const sli_space *s, int64_t at, fold_fn *fn) {
  int64_t index[SL_MAX_DIMS] = {0}, n = s->dim[s->ndim - 1];
  dvec sum = {0};
  if (s->kept) move(&p, s, s->kept - 1, at);
  do {
    for (int64_t k = 0; k < n; k += LANES)
      sum += __builtin_convertvector(first_lanes(fold_at(&p, s, s->ndim - 1, k, n - k, fn), n - k),
                                     dvec);
  } while (step_on(&p, s, s->kept, s->ndim - 1, index));
  return dsum(&sum);
}

/* Is what is summed side by side in memory, and what the output has not? */
static inline bool sums_along(const sli_space *s) {
  for (int a = 0; a < SLI_SPACE_INPUTS; a++)
    if (s->kept && s->step[a][s->kept - 1] == 1) return false;
  return true;
}

ALWAYS void fold_run(const sli_fold *f, places p, int64_t to, int64_t n, fold_fn *fn) {
  const sli_space *s = &f->space;
  float *out = f->out + to;
  bool plain = s->kept == s->ndim, along = !plain && sums_along(s);
  for (int64_t at = 0; at < n; at += along ? 1 : LANES) {
    int64_t left = along ? 1 : n - at;
    vec y;
    if (plain) y = fold_at(&p, s, s->kept - 1, at, left, fn) * f->factor;
    else if (along) y = set((float)(fold_along(p, s, at, fn) * (double)f->factor));
    else y = fold_across(p, f, at, left, fn);
    store(out + at, f->add ? load(out + at, left) + y : y, left);
  }
}

/* Runs along the last dim of the output. */
ALWAYS void fold_chunk(void *arg, int i, fold_fn *fn) {
  const sli_fold *f = arg;
  const sli_space *s = &f->space;
  sli_range r = sli_chunk_range(s->total, f->block, i);
  int last = s->kept - 1;
  int64_t index[SL_MAX_DIMS] = {0}, rest = r.begin;
  places p = {{f->in[0], f->in[1], f->in[2]}};
  for (int d = last; d >= 0; rest /= s->dim[d--]) {
    index[d] = rest % s->dim[d];
    move(&p, s, d, index[d]);
  }
  for (int64_t at = r.begin, n; at < r.end; at += n) {
    n = last < 0 ? 1 : s->dim[last] - index[last];
    if (n > r.end - at) n = r.end - at;
    fold_run(f, p, at, n, fn);
    if (last < 0) continue;
    move(&p, s, last, -index[last]);
    index[last] = 0;
    step_on(&p, s, 0, last, index);
  }
}

#define FOLD(name, expression)                                                 \
  ALWAYS vec name##_of(vec a, vec b, vec d) {                                  \
    const vec zero = {0};                                                      \
    (void)a, (void)b, (void)d, (void)zero;                                     \
    return expression;                                                         \
  }                                                                            \
  static void name##_chunk(void *arg, int i) { fold_chunk(arg, i, name##_of); }

/* Masks are integers, 0 or 1, in the place of numbers. */
#define AS_MASK(mask) ((vec)((ivec)(mask) & 1))

#define BINARY(name, flops, unread, partial, y, da, db)                        \
  FOLD(binary_##name, y)                                                       \
  FOLD(binary_##name##_a, da)                                                  \
  FOLD(binary_##name##_b, db)
#define COMPARE(name, y)                                                       \
  FOLD(compare_##name, AS_MASK(y))                                             \
  ALWAYS vec integers_##name(ivec a, ivec b) { return AS_MASK(y); }            \
  FOLD(compare_##name##_i, integers_##name((ivec)a, (ivec)b))
#include "kernels/binary.def"
#undef BINARY
#undef COMPARE

FOLD(fold_first, a)
FOLD(where, pick((ivec)a != 0, b, d))
FOLD(where_a, pick((ivec)a != 0, d, zero))
FOLD(where_b, pick((ivec)a != 0, zero, d))

static sli_chunk_fn *const binary_chunks[SLI_BINARIES][3] = {
#define BINARY(name, ...)                                                      \
  [SLI_BINARY_##name] = {binary_##name##_chunk, binary_##name##_a_chunk, binary_##name##_b_chunk},
#define COMPARE(name, y) \
  [SLI_BINARY_##name] = {compare_##name##_chunk, compare_##name##_i_chunk, NULL},
#include "kernels/binary.def"
#undef BINARY
#undef COMPARE
};
