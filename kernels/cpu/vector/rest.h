/* Weights at rest, vector by vector: what sli_rest_unpack gives, with the same bits. */

enum { BLOCK_VECTORS = SLI_REST_BLOCK / LANES };

/* LANES small integers as wide ones: GCC 12 takes convertvector of bytes apart, number by number. */
#if defined(__AVX512F__)
static inline ivec widen_u8(const void *p) { return (ivec)_mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }
static inline ivec widen_i8(const void *p) { return (ivec)_mm512_cvtepi8_epi32(_mm_loadu_si128(p)); }
static inline uvec widen_u16(const void *p) { return (uvec)_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)); }
#elif defined(__AVX2__)
static inline ivec widen_u8(const void *p) { return (ivec)_mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }
static inline ivec widen_i8(const void *p) { return (ivec)_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)); }
static inline uvec widen_u16(const void *p) { return (uvec)_mm256_cvtepu16_epi32(_mm_loadu_si128(p)); }
#else
static inline ivec widen_u8(const void *p) {
  const uint8_t *q = p;
  return (ivec){q[0], q[1], q[2], q[3]};
}
static inline ivec widen_i8(const void *p) {
  const int8_t *q = p;
  return (ivec){q[0], q[1], q[2], q[3]};
}
static inline uvec widen_u16(const void *p) {
  const uint16_t *q = p;
  return (uvec){q[0], q[1], q[2], q[3]};
}
#endif

static inline vec load_bf16(const uint16_t *p, int64_t n) {
  if (__builtin_expect(n >= LANES, 1))
    return (vec)(widen_u16(p) << 16);
  uvec bits = {0};
  for (int l = 0; l < LANES; l++)
    if (l < n) bits[l] = (uint32_t)p[l] << 16;
  return (vec)bits;
}

/* Halves, none of which is infinite. */
static inline vec load_half(const uint16_t *p) {
#if defined(__AVX512F__)
  return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
#else
  uvec bits = widen_u16(p);
  vec size = (vec)((bits & 0x7fff) << 13) * 0x1p112f;
  return (vec)((uvec)size | (bits & 0x8000) << 16);
#endif
}

/* n of them, as f32; to[] has room for LANES. */
static inline void unpack_scales(const uint16_t *from, int64_t n, float *to) {
  if (n < LANES) {
    uint16_t few[LANES] = {0};
    for (int l = 0; l < LANES; l++)
      if (l < n) few[l] = from[l];
    storeu(to, load_half(few));
    return;
  }
  for (int64_t i = 0; i + LANES < n; i += LANES) storeu(to + i, load_half(from + i));
  storeu(to + n - LANES, load_half(from + n - LANES));
}

/* A block by its scale, or by what multiplies and what is added. */
static inline __attribute__((always_inline)) void unpack_q8_0(const uint8_t *q, const float *scale, vec *w) {
#pragma GCC unroll 8
  for (int v = 0; v < BLOCK_VECTORS; v++)
    w[v] = __builtin_convertvector(widen_i8(q + v * LANES), vec) * scale[0];
}

static inline __attribute__((always_inline)) void unpack_q4_1(const uint8_t *q, const float *scale, vec *w) {
#if defined(__AVX512F__)
  const vec numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  ivec bits = widen_u8(q);
  __m512 values = (__m512)(numbers * scale[0] + scale[1]); /* looked up by four bits */
  w[0] = (vec)_mm512_permutexvar_ps((__m512i)bits, values);
  w[1] = (vec)_mm512_permutexvar_ps((__m512i)(bits >> 4), values);
#else
#pragma GCC unroll 4
  for (int v = 0; v < BLOCK_VECTORS / 2; v++) {
    ivec bits = widen_u8(q + v * LANES);
    w[v] = __builtin_convertvector(bits & 15, vec) * scale[0] + scale[1];
    w[v + BLOCK_VECTORS / 2] = __builtin_convertvector(bits >> 4, vec) * scale[0] + scale[1];
  }
#endif
}

/* Numbers of a row that are unpacked together, at most, and their blocks' scales. */
enum { STRETCH = 768, STRETCH_SCALES = 2 * STRETCH / SLI_REST_BLOCK };

/* A row's scales of the stretch from number i on, `count` numbers. */
static inline __attribute__((always_inline)) void stretch_scales(sl_rest rest, const uint8_t *row, int64_t k,
                                                                 int64_t i, int64_t count, float *scales) {
  int64_t each = rest == SL_REST_Q4_1 ? 2 : 1;
  const void *halves = row + sli_rest_scales_at(rest, k);
  unpack_scales((const uint16_t *)halves + i / SLI_REST_BLOCK * each, count / SLI_REST_BLOCK * each, scales);
}

static inline __attribute__((always_inline)) void unpack_block(sl_rest rest, const uint8_t *row, int64_t i,
                                                               const float *scale, vec *w) {
  if (rest == SL_REST_Q8_0) unpack_q8_0(row + i, scale, w);
  else unpack_q4_1(row + i / 2, scale, w);
}

static inline __attribute__((always_inline)) void unpack_blocks(sl_rest rest, const uint8_t *row, int64_t k, int64_t i,
                                                                int64_t count, float *to) {
  float scales[STRETCH_SCALES];
  int64_t each = rest == SL_REST_Q4_1 ? 2 : 1;
  stretch_scales(rest, row, k, i, count, scales);
  for (int64_t b = 0; b < count / SLI_REST_BLOCK; b++) {
    vec w[BLOCK_VECTORS];
    unpack_block(rest, row, i + b * SLI_REST_BLOCK, scales + b * each, w);
    for (int v = 0; v < BLOCK_VECTORS; v++) storeu(to + b * SLI_REST_BLOCK + v * LANES, w[v]);
  }
}

/* Numbers i to i + count of a row of k, at most STRETCH. */
static void unpack_stretch(sl_rest rest, const void *row, int64_t k, int64_t i, int64_t count, float *to) {
  const uint16_t *words = row;
  if (rest == SL_REST_Q8_0) unpack_blocks(SL_REST_Q8_0, row, k, i, count, to);
  else if (rest == SL_REST_Q4_1) unpack_blocks(SL_REST_Q4_1, row, k, i, count, to);
  else if (rest == SL_REST_BF16)
    for (int64_t j = 0; j < count; j += LANES) store(to + j, load_bf16(words + i + j, count - j), count - j);
  else memcpy(to, (const float *)row + i, (size_t)count * sizeof *to);
}

/* Row i's token, out of the table. Of a part of it all others are -0, which changes no number that it is added to. */
static void embedding_served_chunk(void *arg, int i) {
  const sl_call *call = arg;
  int64_t id = ((const int32_t *)call->in[0])[i] - call->attrs->first, vocab = call->in_type[1].dim[0];
  int64_t width = sl_type_last(&call->out_type[0]);
  float *y = (float *)call->out[0] + i * width, other = call->attrs->partial ? -0.0f : NAN;
  if (id < 0 || id >= vocab) {
    for (int64_t c = 0; c < width; c++) y[c] = other;
    return;
  }
  sl_rest rest = sli_rest_of(&call->in_type[1], width);
  const char *row = (const char *)call->in[1] + (size_t)id * sl_type_bytes(&call->in_type[1]) / (size_t)vocab;
  for (int64_t c = 0; c < width; c += STRETCH)
    unpack_stretch(rest, row, width, c, width - c < STRETCH ? width - c : STRETCH, y + c);
}
