/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of floats, as wide as the level's registers, by GCC's vector extensions. Loads and stores
 * take a count, so that loops need no tail:
 *
 *   for (int64_t i = 0; i < n; i += LANES) store(y + i, f(load(x + i, n - i)), n - i); */

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

#define VECTOR(bytes_per_lane) __attribute__((vector_size(LANES * (bytes_per_lane))))
typedef float vec VECTOR(4);
typedef float vec_unaligned __attribute__((vector_size(LANES * 4), may_alias, aligned(4)));
typedef int32_t ivec VECTOR(4);
typedef uint32_t uvec VECTOR(4);
typedef float fhalf VECTOR(2);
typedef double dhalf VECTOR(4);
typedef double dhalf_unaligned __attribute__((vector_size(LANES * 4), may_alias, aligned(8)));

/* LANES doubles, in two named registers: the compiler would keep a vector of twice the size in
 * memory. */
typedef struct dvec {
  dhalf low, high;
} dvec;

/* Permutes the lanes of one vector, or of two in a row, into the given order. GCC has a builtin for
 * orders that are not constants. clang turns these loops into shuffles if the order turns out to be
 * constant. */
#if defined(__clang__)
#define SHUFFLE2(a, b, order) SHUFFLED(a, b, order, 2 * LANES_)
#define SHUFFLE(a, order) SHUFFLED(a, a, order, LANES_)
#define SHUFFLED(a, b, order, modulo)                                  \
  ({                                                                   \
    __typeof__(a) first_ = (a), second_ = (b), mixed_;                 \
    __typeof__(order) order_ = (order);                                \
    enum { LANES_ = sizeof first_ / sizeof first_[0] };                \
    for (int l_ = 0; l_ < LANES_; l_++) {                              \
      int at_ = (int)order_[l_] & ((modulo)-1);                        \
      mixed_[l_] = at_ < LANES_ ? first_[at_] : second_[at_ - LANES_]; \
    }                                                                  \
    mixed_;                                                            \
  })
#else
#define SHUFFLE(a, order) __builtin_shuffle(a, order)
#define SHUFFLE2(a, b, order) __builtin_shuffle(a, b, order)
#endif

static inline vec set(float x) { return x - (vec){0}; }

/* 0, 1, 2 ... */
static inline ivec lanes(void) {
  ivec lane;
  for (int l = 0; l < LANES; l++) lane[l] = l;
  return lane;
}

/* Assembly constraint for a vector register. */
#if defined(__x86_64__)
#define IN_VECTOR "v"
#elif defined(__aarch64__)
#define IN_VECTOR "w"
#endif

/* Number of vector registers of a level. */
#if defined(__AVX512F__) || defined(__aarch64__)
enum { REGISTERS = 32 };
#else
enum { REGISTERS = 16 };
#endif

/* Returns a product that is rounded before anything is added to it, on all levels and on GPUs. */
static inline vec rounded(vec a, vec b) {
  vec x = a * b;
  __asm__("" : "+x"(x));
  return x;
}

/* Returns acc + a * b, rounded once (fused) if the level fuses, regardless of context. */
static inline vec plus_product(vec acc, vec a, vec b) {
#if defined(__AVX512F__)
  return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)acc);
#elif defined(__AVX2__)
  return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)acc);
#elif defined(__aarch64__) && defined(SLI_FUSED)
  return (vec)vfmaq_f32((float32x4_t)acc, (float32x4_t)a, (float32x4_t)b);
#else
  return acc + a * b;
#endif
}

static inline vec loadu(const float *p) { return *(const vec_unaligned *)p; }

static inline void storeu(float *p, vec v) { *(vec_unaligned *)p = v; }

#if defined(__AVX512F__) && !defined(__SANITIZE_ADDRESS__)
/* Returns a mask of the first n lanes, at most LANES. */
static inline __mmask16 first_lanes(int64_t n) { return (__mmask16)((1u << (n < 0 ? 0 : n)) - 1); }
#endif

/* Loads the first n lanes (all if n >= LANES); the remaining lanes are `rest`. */
static inline vec load_or(const float *p, int64_t n, float rest) {
  if (__builtin_expect(n >= LANES, 1)) return loadu(p);
  vec v = set(rest);
#if defined(__AVX512F__) && !defined(__SANITIZE_ADDRESS__)
  return (vec)_mm512_mask_loadu_ps((__m512)v, first_lanes(n), p);
#endif
  for (int l = 0; l < LANES; l++)
    if (l < n) v[l] = p[l];
  return v;
}

static inline vec load(const float *p, int64_t n) { return load_or(p, n, 0); }

static inline void store(float *p, vec v, int64_t n) {
  if (__builtin_expect(n >= LANES, 1)) {
    storeu(p, v);
    return;
  }
#if defined(__AVX512F__) && !defined(__SANITIZE_ADDRESS__)
  _mm512_mask_storeu_ps(p, first_lanes(n), (__m512)v);
  return;
#endif
  for (int l = 0; l < LANES; l++)
    if (l < n) p[l] = v[l];
}

/* Loads while walking along memory, and prefetches 2 KiB ahead. The hardware prefetcher stops at a
 * 4 KiB page. */
enum { WALK_AHEAD = 512 };

static inline vec load_ahead(const float *p, int64_t n) {
  __builtin_prefetch(p + WALK_AHEAD);
  return load(p, n);
}

static inline void store_ahead(float *p, vec v, int64_t n) {
  __builtin_prefetch(p + WALK_AHEAD, 1);
  store(p, v, n);
}

/* Returns mask ? a : b, lane by lane. */
static inline vec pick(ivec mask, vec a, vec b) {
  return (vec)((mask & (ivec)a) | (~mask & (ivec)b));
}

/* Returns the larger number; b if one of them is NaN. */
static inline vec vmax(vec a, vec b) {
#if defined(__AVX512F__)
  return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
  return (vec)_mm_max_ps((__m128)a, (__m128)b);
#else
  return pick(a > b, a, b);
#endif
}

static inline vec vsqrt(vec x) {
#if defined(__AVX512F__)
  return (vec)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
  return (vec)_mm256_sqrt_ps((__m256)x);
#elif defined(__x86_64__)
  return (vec)_mm_sqrt_ps((__m128)x);
#elif defined(__aarch64__)
  return (vec)vsqrtq_f32((float32x4_t)x);
#else
  for (int l = 0; l < LANES; l++) x[l] = __builtin_sqrtf(x[l]);
  return x;
#endif
}

static inline float sum(vec v) {
  float s[LANES];
  memcpy(s, &v, sizeof s);
  for (int half = LANES / 2; half; half /= 2)
    for (int l = 0; l < half; l++) s[l] += s[l + half];
  return s[0];
}

/* Lanes of a sum along a row, the same number on every level: vector v has the lanes from v LANES
 * on of each SUM_LANES numbers. */
enum { SUM_LANES = 16, SUM_VECTORS = SUM_LANES / LANES };

/* Unrolled before the compiler assigns registers. */
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#define UNROLLED_4 _Pragma("clang loop unroll_count(4)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#define UNROLLED_4 _Pragma("GCC unroll 4")
#endif
#define EACH_VECTOR(v) UNROLLED for (int v = 0; v < SUM_VECTORS; v++)

static inline float sum_lanes(vec *v) {
  UNROLLED for (int half = SUM_VECTORS / 2; half; half /= 2) UNROLLED for (int i = 0; i < half; i++)
      v[i] += v[i + half];
  return sum(v[0]);
}

static inline float largest(vec v) {
  float m = v[0];
  for (int l = 1; l < LANES; l++) m = v[l] > m ? v[l] : m;
  return m;
}

static inline dvec widen(vec x) {
#if defined(__AVX512F__)
  __m512 v = (__m512)x;
  return (dvec){(dhalf)_mm512_cvtps_pd(_mm512_castps512_ps256(v)),
                (dhalf)_mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1))};
#elif defined(__AVX2__)
  __m256 v = (__m256)x;
  return (dvec){(dhalf)_mm256_cvtps_pd(_mm256_castps256_ps128(v)),
                (dhalf)_mm256_cvtps_pd(_mm256_extractf128_ps(v, 1))};
#elif defined(__aarch64__)
  float32x4_t v = (float32x4_t)x;
  return (dvec){(dhalf)vcvt_f64_f32(vget_low_f32(v)), (dhalf)vcvt_high_f64_f32(v)};
#else
  fhalf halves[2];
  memcpy(halves, &x, sizeof halves);
  return (dvec){__builtin_convertvector(halves[0], dhalf),
                __builtin_convertvector(halves[1], dhalf)};
#endif
}

static inline void add_wide(dvec *sum, vec x) {
  dvec y = widen(x);
  sum->low += y.low;
  sum->high += y.high;
}

static inline void add_wide_square(dvec *sum, vec x) {
  dvec y = widen(x);
  sum->low += y.low * y.low;
  sum->high += y.high * y.high;
}

/* Returns the lanes times `factor`, as floats. */
static inline vec narrow_times(const dvec *v, double factor) {
  float y[LANES];
  for (int l = 0; l < LANES / 2; l++) {
    y[l] = (float)(v->low[l] * factor);
    y[l + LANES / 2] = (float)(v->high[l] * factor);
  }
  return loadu(y);
}

/* Returns the sum of SUM_LANES lanes, in order from the first. */
static inline double sum_wide_lanes(const dvec *sums) {
  double s = 0;
  for (int v = 0; v < SUM_VECTORS; v++) {
    for (int l = 0; l < LANES / 2; l++) s += sums[v].low[l];
    for (int l = 0; l < LANES / 2; l++) s += sums[v].high[l];
  }
  return s;
}

/* e^x = 2^n e^r with |r| <= ln 2 / 2; e^r = 1 + r + r^2 p(r), p fitted at Chebyshev nodes (relative
 * error 1.1e-8 before rounding). Returns e^r, and n in the low bits of *n_bits; combined, e^x is
 * within 2 ulp. NaN stays NaN. */
static inline vec exp_fraction(vec x, uvec *n_bits) {
  const float round = 0x1.8p23f; /* x + round rounds x to an integer, in the low bits */
  vec t = x * 0x1.715476p+0f + round;
  vec n = t - round;
  vec r = x - n * 0x1.62e4p-1f;
  r = r - n * 0x1.7f7d1cp-20f;
  vec p = r * 0x1.6d4926p-10f + 0x1.121072p-7f;
  p = p * r + 0x1.5554e4p-5f;
  p = p * r + 0x1.5554d8p-3f;
  p = p * r + 0.5f;
  *n_bits = (uvec)t;
  return p * (r * r) + r + 1.0f;
}

/* Returns e^x; zero below -86.6, infinite above 88.7. */
static inline vec vexp(vec x) {
  uvec n;
  /* half: 2^(n-1), because n may be 128 */
  vec e = exp_fraction(x, &n), half = (vec)((n << 23) + ((127u - 1) << 23));
  vec y = pick(x < -86.6f, (vec){0}, e * half * 2.0f);
  return pick(x > 88.72f, set(__builtin_inff()), y);
}

/* Returns e^x for x up to 88, in fewer steps: for example in a softmax, where x is not above 0. */
static inline vec vexp_low(vec x) {
  uvec n;
  vec e = exp_fraction(x, &n);
  return pick(x < -86.6f, (vec){0}, e * (vec)((n << 23) + (127u << 23)));
}

static inline vec vabs(vec x) { return (vec)((ivec)x & 0x7fffffff); }

/* log x = n ln 2 + log m with m from sqrt(1/2) to sqrt(2); with f = m - 1,
 * log m = f - f^2/2 + f^3 p(f), p fitted by least squares (relative error 9e-10 before rounding).
 * Within 2 ulp. */
static inline vec vlog(vec x) {
  ivec small = x < 0x1p-126f; /* scaled into the normal range */
  vec scaled = pick(small, x * 0x1p23f, x);
  ivec bits = (ivec)scaled - 0x3f3504f3; /* bits relative to those of sqrt(1/2) */
  ivec n = bits >> 23;
  vec f = (vec)((bits & 0x7fffff) + 0x3f3504f3) - 1.0f, f2 = f * f;
  vec e = __builtin_convertvector(n, vec) - pick(small, set(23.0f), (vec){0});
  vec p = f * 0x1.116b4cp-4f - 0x1.dd09b8p-4f;
  p = p * f + 0x1.e79df4p-4f;
  p = p * f - 0x1.fc5d96p-4f;
  p = p * f + 0x1.232eb2p-3f;
  p = p * f - 0x1.555a74p-3f;
  p = p * f + 0x1.99a528p-3f;
  p = p * f - 0x1.00000ap-2f;
  p = p * f + 0x1.555546p-2f;
  vec y = f2 * f * p - e * 0x1.bd0106p-13f - 0.5f * f2; /* ln 2 = 0.693359375 - 0x1.bd0106p-13 */
  y = y + f + e * 0x1.63p-1f;
  y = pick(x == 0.0f, set(-__builtin_inff()), y);
  y = pick(x < __builtin_inff(), y, x); /* infinity and NaN stay unchanged */
  return pick(x < 0.0f, set(__builtin_nanf("")), y);
}

/* tanh: an odd polynomial near 0, 1 - 2/(e^2|x| + 1) elsewhere. */
static inline vec vtanh(vec x) {
  vec z = x * x;
  vec p = z * -0.006104948500369587f + 0.021003641650668124f;
  p = p * z - 0.053852497594481664f;
  p = p * z + 0.13332782265361848f;
  p = p * z - 0.3333332909965717f;
  vec near = x + x * z * p;
  vec size = pick(x < 0.0f, -x, x);
  vec far = 1.0f - 2.0f / (vexp(2.0f * size) + 1.0f);
  far = pick(x < 0.0f, -far, far);
  return pick(size < 0.625f, near, far);
}

/* Zero below -88.7, where e^-x is infinite. */
static inline vec sigmoid(vec x) { return 1.0f / (1.0f + vexp(-x)); }

/* Transposes LANES vectors: interleaves the first half with the second, log2(LANES) times. */
static inline void transpose(vec *v) {
  ivec low, high;
  for (int l = 0; l < LANES; l++) {
    low[l] = l / 2 + l % 2 * LANES;
    high[l] = low[l] + LANES / 2;
  }
  for (int step = 1; step < LANES; step *= 2) {
    vec w[LANES];
    for (int i = 0; i < LANES / 2; i++) {
      w[2 * i] = SHUFFLE2(v[i], v[i + LANES / 2], low);
      w[2 * i + 1] = SHUFFLE2(v[i], v[i + LANES / 2], high);
    }
    for (int i = 0; i < LANES; i++) v[i] = w[i];
  }
}
