/* SPDX-License-Identifier: Apache-2.0 */
/* Error function, sine and cosine, softplus and floor, written like those of simd.h. */

typedef int32_t ihalf VECTOR(2);

/* ---- error function ---------------------------------------------------------------- */

/* erf t = t + t p(t^2) for |t| up to 1, p fitted at Chebyshev nodes (relative error 1.4e-9). */
static inline vec erf_near(vec t) {
  vec s = t * t;
  vec p = s * 0x1.4b4662p-14f - 0x1.a4b50ep-11f;
  p = p * s + 0x1.5422a6p-8f;
  p = p * s - 0x1.b7fd3cp-6f;
  p = p * s + 0x1.ce2d4p-4f;
  p = p * s - 0x1.81274p-2f;
  p = p * s + 0x1.06eba8p-3f;
  return t + t * p;
}

/* 1 - erf t = e^(t q(t) - t) for t from 0.9, q fitted up to 4 (error 2.7e-9); beyond, it falls
 * below 2e-8 as it should. */
static inline vec erf_tail(vec t) {
  vec q = t * -1.69741961e-05f + 0.000379190169f;
  q = q * t - 0.00386560988f;
  q = q * t + 0.0242180489f;
  q = q * t - 0.1067449f;
  q = q * t - 0.63485831f;
  q = q * t - 0.128716975f;
  return vexp_low(q * t - t);
}

static inline vec verf(vec x) {
  vec size = vabs(x), far = 1.0f - erf_tail(size);
  return pick(size > 0.92f, pick(x < 0.0f, -far, far), erf_near(x));
}

/* Returns the standard normal distribution function at x, (1 + erf(x / sqrt 2)) / 2. */
static inline vec vnormal(vec x) {
  vec t = x * 0x1.6a09e6p-1f, size = vabs(t), tail = 0.5f * erf_tail(size);
  vec far = pick(x < 0.0f, tail, 1.0f - tail);
  return pick(size > 0.92f, far, 0.5f + 0.5f * erf_near(t));
}

/* ---- sine and cosine --------------------------------------------------------------- */

static const float turns_limit = 0x1p26f; /* larger numbers go to the C library */

/* Subtracts the nearest number of quarter turns, n pi / 2, from x, which leaves an angle of at most
 * pi / 4. */
static inline void quarter_turns(dhalf x, fhalf *angle, ihalf *n) {
  dhalf t = x * 0x1.45f306dc9c883p-1 + 0x1.8p52, turns = t - 0x1.8p52;
  dhalf r = x - turns * 0x1.921fb54p+0; /* an exact product: turns has 26 bits, this 27 */
  r = r - turns * 0x1.10b4611a62633p-30;
  *angle = __builtin_convertvector(r, fhalf);
  *n = __builtin_convertvector(turns, ihalf);
}

/* Returns sin(x + ahead pi / 2), by the polynomials of Cephes' sinf and cosf. */
static inline vec sine(vec x, int ahead) {
  fhalf angles[2];
  ihalf n[2];
  vec r;
  ivec turns;
  dvec wide = widen(x);
  quarter_turns(wide.low, &angles[0], &n[0]);
  quarter_turns(wide.high, &angles[1], &n[1]);
  memcpy(&r, angles, sizeof r);
  memcpy(&turns, n, sizeof turns);
  turns += ahead;
  vec s = r * r;
  vec p = s * -1.9515295891e-4f + 8.3321608736e-3f;
  p = r + r * s * (p * s - 1.6666654611e-1f);
  vec q = s * 2.443315711809948e-5f - 1.388731625493765e-3f;
  q = 1.0f - 0.5f * s + s * s * (q * s + 4.166664568298827e-2f);
  vec y = pick((turns & 1) == 1, q, p);
  y = (vec)((ivec)y ^ (turns & 2) << 30);
  if (largest(vabs(x)) < turns_limit) return y;
  for (int l = 0; l < LANES; l++)
    if (!(fabsf(x[l]) < turns_limit)) y[l] = ahead ? cosf(x[l]) : sinf(x[l]);
  return y;
}

static inline vec vsin(vec x) { return sine(x, 0); }

static inline vec vcos(vec x) { return sine(x, 1); }

/* ---- others ------------------------------------------------------------------------ */

/* log(1 + e^x) = max(x, 0) + log(1 + z) with z = e^-|x|. The sum u = 1 + z loses z - (u - 1), which
 * the slope of the logarithm compensates. */
static inline vec vsoftplus(vec x) {
  vec z = vexp_low(-vabs(x)), u = 1.0f + z;
  return pick(x > 0.0f, x, (vec){0}) + (vlog(u) + (z - (u - 1.0f)) / u);
}

/* Rounds down. From 2^23 on, and for NaN, the result is x. */
static inline vec vfloor(vec x) {
  vec y = __builtin_convertvector(__builtin_convertvector(x, ivec), vec);
  y = pick(y > x, y - 1.0f, y);
  y = (vec)((ivec)y | ((ivec)x & INT32_MIN)); /* -0 */
  return pick(vabs(x) < 0x1p23f, y, x);
}
