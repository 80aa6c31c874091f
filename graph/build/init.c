/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values of parameters.
 *
 * Element i of a parameter is a function of (seed, name, i): word i % 4 of Philox block i / 4,
 * whose key is the seed and whose counter holds the block's number and the name's hash. The values
 * therefore do not depend on how parameters are sharded over devices, or on the order in which they
 * are filled.
 *
 * Initialization of 10^9 parameters must be fast. The work is done on short arrays of LANES blocks
 * in plain loops, which compilers vectorize. The logarithm, sine and cosine of Box & Muller's
 * method are polynomials inside these loops. Only the rounds of Philox are written separately for
 * each vector length, since compilers generate slow code for 32 x 32 -> 64 bit multiplication.
 * Every element sees the same operations at any vector length, so all machines agree on the bits;
 * to keep it so, operations must not be contracted to fused multiply-adds (CMakeLists.txt). */
#include "graph/build/build.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "base/philox.h"

enum { LANES = 64, VALUES = 4 * LANES };

/* Inlines everything into run_plain(), run_avx2() and run_avx512(), each compiled for its
 * target. */
#define INLINE static inline __attribute__((always_inline))

/* Fills in the counters of the blocks from `first` on: word w of block l is at [w][l]. */
INLINE void count_blocks(uint64_t first, uint64_t name, uint32_t x[4][LANES]) {
  for (int l = 0; l < LANES; l++) {
    x[0][l] = (uint32_t)(first + (uint64_t)l);
    x[1][l] = (uint32_t)((first + (uint64_t)l) >> 32);
    x[2][l] = (uint32_t)name;
    x[3][l] = (uint32_t)(name >> 32);
  }
}

/* Replaces counters by random words. */
typedef void encrypt_fn(uint32_t x[4][LANES], uint32_t k0, uint32_t k1);

INLINE void encrypt_plain(uint32_t x[4][LANES], uint32_t k0, uint32_t k1) {
  for (int r = 0; r < SLI_PHILOX_ROUNDS; r++, sli_philox_bump(&k0, &k1))
    for (int l = 0; l < LANES; l++)
      sli_philox_round(&x[0][l], &x[1][l], &x[2][l], &x[3][l], k0, k1);
}

/* Returns the top 24 bits as k / 2^24, k in [0, 2^24): exact in f32. */
INLINE float fraction(uint32_t word) { return (float)(int32_t)(word >> 8) * 0x1p-24f; }

INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

INLINE float of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Returns -2 ln(u) for u = fraction(word) + 2^-24 in [2^-24, 1]. u = m 2^e with m in [sqrt(1/2),
 * sqrt(2)), and ln(m) = 2 artanh((m - 1) / (m + 1)) as a series. Powers of two and the sign are
 * in the constants, which changes no bits. */
INLINE float minus_2_log(uint32_t word) {
  uint32_t root = 0x3f3504f3; /* bits of sqrt(1/2) */
  uint32_t above = bits_of((float)(int32_t)((word >> 8) + 1)) - (24u << 23) - root;
  int32_t e = (int32_t)above >> 23;
  float m = of_bits((above & 0x7fffff) + root);
  float s = (m - 1) / (m + 1), q = s * s;
  float p = -4.0f / 9;
  p = p * q - 4.0f / 7;
  p = p * q - 4.0f / 5;
  p = p * q - 4.0f / 3;
  p = p * q - 4;
  return (float)e * -1.38629436111989f + s * p;
}

/* Returns cos and sin of 2 pi u for u = fraction(word): the nearest quarter turn, and Taylor
 * series for the rest, at most pi/4 either way. */
INLINE void turn(uint32_t word, float *cosine, float *sine) {
  uint32_t quarter = word + (1u << 29);      /* in its top two bits */
  int32_t rest = (int32_t)(word << 2) >> 10; /* in 2^-24 turns */
  float x = (float)rest * (6.28318530717959f * 0x1p-24f), q = x * x;
  float c = 1.0f / 40320, s = 1.0f / 362880;
  c = c * q - 1.0f / 720;
  c = c * q + 1.0f / 24;
  c = c * q - 0.5f;
  c = c * q + 1;
  s = s * q - 1.0f / 5040;
  s = s * q + 1.0f / 120;
  s = s * q - 1.0f / 6;
  s = (s * q + 1) * x;
  int odd = (int32_t)(quarter << 1) < 0;
  float a = odd ? s : c, b = odd ? c : s;
  *cosine = of_bits(bits_of(a) ^ ((quarter + (1u << 30)) & 1u << 31));
  *sine = of_bits(bits_of(b) ^ (quarter & 1u << 31));
}

/* Makes two normal numbers from two words (Box & Muller 1958). */
INLINE void normal_pair(const uint32_t a[LANES], const uint32_t b[LANES], float scale,
                        float x[LANES], float y[LANES]) {
  float radius[LANES], c, s;
  for (int l = 0; l < LANES; l++) radius[l] = minus_2_log(a[l]);
  for (int l = 0; l < LANES; l++) radius[l] = scale * sqrtf(radius[l]);
  for (int l = 0; l < LANES; l++) turn(b[l], &c, &s), x[l] = radius[l] * c, y[l] = radius[l] * s;
}

INLINE void find_normal(uint32_t x[4][LANES], float scale, float y[4][LANES]) {
  normal_pair(x[0], x[1], scale, y[0], y[1]);
  normal_pair(x[2], x[3], scale, y[2], y[3]);
}

INLINE void find_uniform(uint32_t x[4][LANES], float scale, float y[4][LANES]) {
  for (int w = 0; w < 4; w++)
    for (int l = 0; l < LANES; l++)
      y[w][l] = scale * (2 * fraction(x[w][l]) + 0x1p-24f - 1); /* odd / 2^24 */
}

/* Interleaves values, so that the values of a block are adjacent. */
INLINE void put_in_order(float y[4][LANES], float out[VALUES]) {
  for (int l = 0; l < LANES; l++) {
    out[4 * l] = y[0][l];
    out[4 * l + 1] = y[1][l];
    out[4 * l + 2] = y[2][l];
    out[4 * l + 3] = y[3][l];
  }
}

/* Computes the VALUES elements from 4 * `first` on. */
INLINE void run(encrypt_fn *encrypt, uint64_t first, uint64_t name, uint64_t seed, sl_init init,
                float out[VALUES]) {
  uint32_t words[4][LANES];
  float values[4][LANES];
  count_blocks(first, name, words);
  encrypt(words, (uint32_t)seed, (uint32_t)(seed >> 32));
  if (init.kind == SL_INIT_NORMAL) find_normal(words, init.scale, values);
  else find_uniform(words, init.scale, values);
  put_in_order(values, out);
}

typedef void run_fn(uint64_t first, uint64_t name, uint64_t seed, sl_init init, float *out);

static void run_plain(uint64_t first, uint64_t name, uint64_t seed, sl_init init, float *out) {
  run(encrypt_plain, first, name, seed, init, out);
}

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

/* Returns the lower and the upper halves of products of words with m. Every other word is
 * multiplied at a time, as 64 bits, and the halves are then merged. */
AVX512 INLINE void multiply_16(__m512i x, uint32_t m, __m512i *low, __m512i *high) {
  __m512i by = _mm512_set1_epi64(m);
  __m512i even = _mm512_mul_epu32(x, by), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), by);
  *low = _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);
  *high = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
}

/* Runs sli_philox_round on vectors. With AVX2 each word occupies 64 bits, of which only the lower
 * half is used, since products take lower halves. Even words are in one vector, odd words in
 * another; they are merged only at the end. */
AVX2 INLINE void encrypt_avx2(uint32_t x[4][LANES], uint32_t key0, uint32_t key1) {
  __m256i m0 = _mm256_set1_epi64x(SLI_PHILOX_M0), m1 = _mm256_set1_epi64x(SLI_PHILOX_M1);
  for (int l = 0; l < LANES; l += 8) {
    __m256i c[4][2];
    uint32_t k0 = key0, k1 = key1;
    for (int w = 0; w < 4; w++) {
      c[w][0] = _mm256_loadu_si256((const __m256i *)&x[w][l]);
      c[w][1] = _mm256_srli_epi64(c[w][0], 32);
    }
    for (int r = 0; r < SLI_PHILOX_ROUNDS; r++, sli_philox_bump(&k0, &k1))
      for (int v = 0; v < 2; v++) {
        __m256i a = _mm256_mul_epu32(c[0][v], m0), b = _mm256_mul_epu32(c[2][v], m1);
        __m256i b_key = _mm256_xor_si256(c[1][v], _mm256_set1_epi32((int)k0));
        __m256i a_key = _mm256_xor_si256(c[3][v], _mm256_set1_epi32((int)k1));
        c[0][v] = _mm256_xor_si256(_mm256_srli_epi64(b, 32), b_key);
        c[2][v] = _mm256_xor_si256(_mm256_srli_epi64(a, 32), a_key);
        c[1][v] = b, c[3][v] = a;
      }
    for (int w = 0; w < 4; w++)
      _mm256_storeu_si256((__m256i *)&x[w][l],
                          _mm256_blend_epi32(c[w][0], _mm256_slli_epi64(c[w][1], 32), 0xaa));
  }
}

AVX512 INLINE void encrypt_avx512(uint32_t x[4][LANES], uint32_t k0, uint32_t k1) {
  enum { SIDE = LANES / 16 };
  __m512i c[4][SIDE], a, b, a_high, b_high;
  for (int w = 0; w < 4; w++)
    for (int v = 0; v < SIDE; v++) c[w][v] = _mm512_loadu_si512(&x[w][16 * v]);
  for (int r = 0; r < SLI_PHILOX_ROUNDS; r++, sli_philox_bump(&k0, &k1))
    for (int v = 0; v < SIDE; v++) {
      multiply_16(c[0][v], SLI_PHILOX_M0, &a, &a_high);
      multiply_16(c[2][v], SLI_PHILOX_M1, &b, &b_high);
      c[0][v] = _mm512_ternarylogic_epi32(b_high, c[1][v], _mm512_set1_epi32((int)k0), 0x96);
      c[2][v] = _mm512_ternarylogic_epi32(a_high, c[3][v], _mm512_set1_epi32((int)k1), 0x96);
      c[1][v] = b, c[3][v] = a;
    }
  for (int w = 0; w < 4; w++)
    for (int v = 0; v < SIDE; v++) _mm512_storeu_si512(&x[w][16 * v], c[w][v]);
}

AVX2 static void run_avx2(uint64_t first, uint64_t name, uint64_t seed, sl_init init, float *out) {
  run(encrypt_avx2, first, name, seed, init, out);
}

AVX512 static void run_avx512(uint64_t first, uint64_t name, uint64_t seed, sl_init init,
                              float *out) {
  run(encrypt_avx512, first, name, seed, init, out);
}

static run_fn *choose_run(void) {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return run_avx512;
  return __builtin_cpu_supports("avx2") ? run_avx2 : run_plain;
}
#else
static run_fn *choose_run(void) { return run_plain; }
#endif

/* Fills elements from `first`, a multiple of VALUES, to `end`. */
static void fill_range(const sli_init_item *item, uint64_t seed, int64_t first, int64_t end) {
  if (item->init.kind == SL_INIT_GIVEN) {
    const sl_given *given = item->init.given;
    given->read(given->ctx, first, end - first, item->out + first);
    return;
  }
  if (item->init.kind == SL_INIT_CONSTANT) {
    for (int64_t i = first; i < end; i++) item->out[i] = item->init.scale;
    return;
  }
  run_fn *fill = choose_run();
  uint64_t hash = sli_hash(SLI_HASH_SEED, item->name, strlen(item->name));
  for (int64_t i = first; i < end; i += VALUES) {
    float values[VALUES];
    fill((uint64_t)i / 4, hash, seed, item->init, values);
    memcpy(item->out + i, values, (size_t)SLI_MIN(end - i, (int64_t)VALUES) * sizeof *item->out);
  }
}

void sli_init_values(const sl_type *type, sl_init init, const char *name, uint64_t seed,
                     float *out) {
  fill_range(&(sli_init_item){type, init, name, out}, seed, 0, sl_type_elements(type));
}

/* ---- several parameters, on several threads ---------------------------------------------- */

/* Pieces are longer than a large page: the first thread to touch a page clears it, and two
 * concurrent threads would both clear it. */
enum { PIECE = 8192 * VALUES, WORTH_A_THREAD = 4096 * VALUES, MOST_THREADS = 16 };

/* Pieces of all items in order; a free thread takes the next. */
typedef struct filling {
  int count;
  const sli_init_item *items;
  uint64_t seed;
  atomic_llong next; /* next piece; relaxed: only a counter */
} filling;

static int64_t piece_count(const sli_init_item *item) {
  return (sl_type_elements(item->type) + PIECE - 1) / PIECE;
}

static void *fill_pieces(void *arg) {
  filling *f = arg;
  int64_t wanted = atomic_fetch_add_explicit(&f->next, 1, memory_order_relaxed), before = 0;
  for (int i = 0; i < f->count;) {
    const sli_init_item *item = &f->items[i];
    int64_t first = (wanted - before) * PIECE, n = sl_type_elements(item->type);
    if (first < n) {
      fill_range(item, f->seed, first, SLI_MIN(first + PIECE, n));
      wanted = atomic_fetch_add_explicit(&f->next, 1, memory_order_relaxed);
    } else {
      before += piece_count(item);
      i++;
    }
  }
  return NULL;
}

void sli_init_all(int count, const sli_init_item *items, uint64_t seed) {
  filling f = {.count = count, .items = items, .seed = seed};
  pthread_t threads[MOST_THREADS];
  int64_t elements = 0;
  for (int i = 0; i < count; i++) elements += sl_type_elements(items[i].type);
  cpu_set_t cores;
  int64_t most = sched_getaffinity(0, sizeof cores, &cores) ? 1 : CPU_COUNT(&cores), helpers = 0;
  most = SLI_MIN(SLI_MIN(most, (int64_t)MOST_THREADS), elements / WORTH_A_THREAD) - 1;
  while (helpers < most && !pthread_create(&threads[helpers], NULL, fill_pieces, &f)) helpers++;
  fill_pieces(&f);
  for (int64_t h = 0; h < helpers; h++) pthread_join(threads[h], NULL);
}
