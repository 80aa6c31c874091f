/* SPDX-License-Identifier: Apache-2.0 */
/* Vectorised unpacking of stored weights, with the same bits as sli_storage_unpack. */

enum { BLOCK_VECTORS = SLI_STORAGE_BLOCK / LANES };

/* Widen LANES small integers. GCC 12 compiles a convertvector of bytes number by number. */
#if defined(__AVX512F__)
static inline ivec widen_u8(const void *p) {
  return (ivec)_mm512_cvtepu8_epi32(_mm_loadu_si128(p));
}
static inline uvec widen_u16(const void *p) {
  return (uvec)_mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
}
#elif defined(__AVX2__)
static inline ivec widen_u8(const void *p) {
  return (ivec)_mm256_cvtepu8_epi32(_mm_loadl_epi64(p));
}
static inline uvec widen_u16(const void *p) {
  return (uvec)_mm256_cvtepu16_epi32(_mm_loadu_si128(p));
}
#elif defined(__aarch64__)
static inline ivec widen_u8(const void *p) {
  uint32_t bytes;
  memcpy(&bytes, p, sizeof bytes);
  uint16x8_t halves = vmovl_u8(vcreate_u8(bytes));
  return (ivec)vmovl_u16(vget_low_u16(halves));
}
static inline uvec widen_u16(const void *p) { return (uvec)vmovl_u16(vld1_u16(p)); }
#else
static inline ivec widen_u8(const void *p) {
  const uint8_t *q = p;
  return (ivec){q[0], q[1], q[2], q[3]};
}
static inline uvec widen_u16(const void *p) {
  const uint16_t *q = p;
  return (uvec){q[0], q[1], q[2], q[3]};
}
#endif

static inline vec load_bf16(const uint16_t *p, int64_t n) {
  if (__builtin_expect(n >= LANES, 1)) return (vec)(widen_u16(p) << 16);
  uvec bits = {0};
  for (int l = 0; l < LANES; l++)
    if (l < n) bits[l] = (uint32_t)p[l] << 16;
  return (vec)bits;
}

/* Converts the lower 16 bits of each lane from halves. */
static inline vec halves_to_floats(uvec bits) {
  vec size = (vec)((bits & 0x7fff) << 13) * 0x1p112f;
  uvec odd = (uvec)((bits & 0x7c00) == 0x7c00) & 0x7f800000; /* infinite, or no number */
  return (vec)((uvec)size | odd | (bits & 0x8000) << 16);
}

/* Loads halves. */
static inline vec load_half(const uint16_t *p) {
#if defined(__AVX512F__)
  return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
#elif defined(__F16C__)
  return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
#elif defined(__aarch64__)
  return (vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else
  return halves_to_floats(widen_u16(p));
#endif
}

static inline vec load_f16(const uint16_t *p, int64_t n) {
  if (__builtin_expect(n >= LANES, 1)) return load_half(p);
  uint16_t some[LANES] = {0};
  memcpy(some, p, (size_t)n * sizeof *p);
  return load_half(some);
}

/* Unpack a block by its scale, or by its factor and offset. */
static inline __attribute__((always_inline)) void unpack_q8_0(const uint8_t *q, const float *scale,
                                                              vec *w) {
#pragma GCC unroll 8
  for (int v = 0; v < BLOCK_VECTORS; v++)
    w[v] = __builtin_convertvector(widen_u8(q + v * LANES) - 128, vec) * scale[0];
}

static inline __attribute__((always_inline)) void unpack_q4_1(const uint8_t *q, const float *scale,
                                                              vec *w) {
#if defined(__AVX512F__)
  const vec numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  ivec bits = widen_u8(q);
  __m512 values = (__m512)(numbers * scale[0] + scale[1]); /* table lookup by four bits */
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

/* Unpacks `columns` numbers of row `row`, starting at a block, of weights stored in groups. */
static void unpack_blocks(sl_storage storage, const sl_type *lies, const void *weights, int64_t row,
                          int64_t column, int64_t columns, float *to) {
  sli_grouped group = sli_storage_grouped(lies, weights, row);
  _Alignas(64) uint8_t numbers[SLI_STORAGE_BLOCK];
  uint16_t halves[LANES] = {0};
  int64_t first = column / SLI_STORAGE_BLOCK;
  for (int64_t b = 0; b < columns / SLI_STORAGE_BLOCK; b++) {
    float scales[LANES];
    vec w[BLOCK_VECTORS];
    sli_storage_block_of(storage, group, row, first + b, numbers, halves);
    storeu(scales, load_half(halves));
    if (storage == SL_STORAGE_Q8_0) unpack_q8_0(numbers, scales, w);
    else unpack_q4_1(numbers, scales, w);
    for (int v = 0; v < BLOCK_VECTORS; v++) storeu(to + b * SLI_STORAGE_BLOCK + v * LANES, w[v]);
  }
}

/* Unpacks numbers of rows in groups, block by block. */
static void unpack_grouped(sl_storage storage, const sl_type *lies, const void *weights,
                           int64_t row, int64_t column, int64_t columns, float *to) {
  sli_grouped group = sli_storage_grouped(lies, weights, row);
  const int64_t numbers = sli_storage_block(storage);
  uint8_t quads[256];
  for (int64_t c = 0; c < columns; c += numbers) {
    uint16_t halves[2] = {0};
    sli_storage_block_of(storage, group, row, (column + c) / numbers, quads, halves);
    sli_storage_unpack_block(storage, quads, halves, to + c);
  }
}

static void unpack_bf16(const uint16_t *from, int64_t n, float *to) {
  for (int64_t i = 0; i < n; i += LANES) store(to + i, load_bf16(from + i, n - i), n - i);
}

static void unpack_f16(const uint16_t *from, int64_t n, float *to) {
  for (int64_t i = 0; i < n; i += LANES) store(to + i, load_f16(from + i, n - i), n - i);
}

/* ---- floats of 8 and 4 bits ----------------------------------------------------------------- */

/* Converts LANES floats of 8 bits, none of them NaN, and divides them by 256: halves have the same
 * bits of exponent and fraction, one place further down, and a bias that is 8 more. */
#if defined(__AVX512F__)
static inline vec load_e4m3(const uint8_t *p) {
  __m256i bytes = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p)), 8);
  return (vec)_mm512_cvtph_ps(
      _mm256_and_si256(_mm256_srai_epi16(bytes, 1), _mm256_set1_epi16((short)0xbfff)));
}
#elif defined(__F16C__)
static inline vec load_e4m3(const uint8_t *p) {
  __m128i bytes = _mm_slli_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)p)), 8);
  return (vec)_mm256_cvtph_ps(
      _mm_and_si128(_mm_srai_epi16(bytes, 1), _mm_set1_epi16((short)0xbfff)));
}
#else
static inline vec load_e4m3(const uint8_t *p) {
  uvec v = (uvec)widen_u8(p);
  return halves_to_floats((v & 0x80) << 8 | (v & 0x7f) << 7);
}
#endif

/* Converts LANES floats of 4 bits, two to a byte. */
#if defined(__AVX512F__)
static inline vec load_e2m1(const uint8_t *p) {
  const __m512i word = {0, 0, 0, 0, 0x100000001, 0x100000001, 0x100000001, 0x100000001};
  const vec values = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6};
  __m512i words = _mm512_castsi128_si512(_mm_loadl_epi64((const void *)p));
  uvec four = (uvec)_mm512_permutexvar_epi32(word, words) >> ((uvec)lanes() % 8 * 4);
  return (vec)_mm512_permutexvar_ps((__m512i)four, (__m512)values);
}
#elif defined(__AVX2__)
static inline vec load_e2m1(const uint8_t *p) {
  const vec values = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  uint32_t word;
  memcpy(&word, p, sizeof word);
  uvec four = ((uvec){0} + word) >> ((uvec)lanes() * 4);
  vec size = (vec)_mm256_permutevar8x32_ps((__m256)values, (__m256i)four);
  return (vec)((uvec)size | (four & 8) << 28);
}
#else
/* Twice the sizes are whole. */
static inline vec load_e2m1(const uint8_t *p) {
  uvec four = (uvec){p[0], p[0], p[1], p[1]} >> (uvec){0, 4, 0, 4};
  uvec exponent = four >> 1 & 3, normal = (uvec)(exponent != 0),
       doubled = ((four & 1) + (normal & 2)) << (exponent + normal);
  vec size = __builtin_convertvector((ivec)doubled, vec) * 0.5f;
  return (vec)((uvec)size | (four & 8) << 28);
}
#endif

/* Scales of a block: one, times 256, or from SCALES_FROM on one of each run of NVFP4. A vector of
 * scales begins so far ahead of them that it ends with the block. */
enum { RUNS = SLI_SMALL_BLOCK / SLI_NVFP4_RUN, SCALES_FROM = LANES > RUNS ? 4 : 0 };
typedef struct small_scales {
  _Alignas(64) float of[16];
} small_scales;

static inline __attribute__((always_inline)) void find_scales(sl_storage storage,
                                                              const uint8_t *block,
                                                              small_scales *s) {
  if (storage == SL_STORAGE_SCALED) {
    s->of[0] = sli_small_float(block + SLI_SMALL_BLOCK) * 256;
    return;
  }
  float factor = sli_small_float(block + SLI_NVFP4_FACTOR);
  for (int i = 0; i < RUNS; i += LANES) {
    vec v = load_e4m3(block + SLI_NVFP4_SCALES - SCALES_FROM + i) * 256;
    storeu(s->of + i, factor < 0 ? v / set(-factor) : v * set(factor));
  }
}

/* Returns LANES numbers of a block, from number i on. */
static inline __attribute__((always_inline)) vec load_small(sl_storage storage,
                                                            const uint8_t *block,
                                                            const small_scales *s, int i) {
  return storage == SL_STORAGE_SCALED
             ? load_e4m3(block + i) * s->of[0]
             : load_e2m1(block + i / 2) * s->of[SCALES_FROM + i / SLI_NVFP4_RUN];
}

/* Unpacks n numbers of a row, from a block on. */
static void unpack_small(sl_storage storage, const uint8_t *block, int64_t n, float *to) {
  for (; n > 0; n -= SLI_SMALL_BLOCK, block += sli_storage_block_bytes(storage)) {
    small_scales s;
    find_scales(storage, block, &s);
    for (int i = 0; i < SLI_SMALL_BLOCK && i < n; i += LANES, to += LANES)
      storeu(to, load_small(storage, block, &s, i));
  }
}

/* Unpacks `columns` numbers of row `row` of weights [n, k], starting at a block. */
static void unpack_columns(sl_storage storage, const sl_type *lies, const void *weights, int64_t k,
                           int64_t row, int64_t column, int64_t columns, float *to) {
  int64_t block = sli_storage_block(storage);
  const char *bytes = (const char *)weights + row * sl_type_last(lies) * (int64_t)sizeof(int32_t);
  if (storage == SL_STORAGE_Q8_0 || storage == SL_STORAGE_Q4_1)
    unpack_blocks(storage, lies, weights, row, column, columns, to);
  else if (sli_storage_in_groups(storage))
    unpack_grouped(storage, lies, weights, row, column, columns, to);
  else if (storage == SL_STORAGE_BF16)
    unpack_bf16((const uint16_t *)weights + row * k + column, columns, to);
  else if (storage == SL_STORAGE_F16)
    unpack_f16((const uint16_t *)(const void *)bytes + column, columns, to);
  else if (sli_storage_small(storage))
    unpack_small(storage,
                 (const uint8_t *)bytes + column / block * sli_storage_block_bytes(storage),
                 columns, to);
  else memcpy(to, (const float *)weights + row * k + column, (size_t)columns * sizeof *to);
}

/* Unpacks some rows of a tile. */
static void unpack_stored_chunk(void *arg, int i) {
  const sli_unpacking *u = arg;
  sli_range r = sli_chunk_range(u->rows, SLI_UNPACKED_ROWS, i);
  for (int64_t row = r.begin; row < r.end; row++)
    unpack_columns(u->storage, u->layout, u->weights, u->k, u->row + row, u->column, u->columns,
                   u->to + row * u->columns);
}

/* Copies the table row of token i from a frozen table. With a part of the table, tokens outside it
 * give 0. */
static void embedding_stored_chunk(void *arg, int i) {
  const sl_call *call = arg;
  int64_t id = ((const int32_t *)call->in[0])[i] - call->attrs->place.first;
  int64_t vocab = call->in_type[1].dim[0], width = sl_type_last(&call->out_type[0]);
  float *y = (float *)call->out[0] + i * width, other = call->attrs->place.partial ? 0 : NAN;
  if (id >= 0 && id < vocab)
    unpack_columns((sl_storage)call->attrs->weight.storage, &call->in_type[1], call->in[1], width,
                   id, 0, width, y);
  else
    for (int64_t c = 0; c < width; c++) y[c] = other;
}

/* Copies the table row of token i. With a part of the table, tokens outside it give -0, which
 * changes no number that it is added to. */
static void embedding_served_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_type *lies = &call->in_type[1];
  int64_t id = ((const int32_t *)call->in[0])[i] - call->attrs->place.first, vocab = lies->dim[0];
  int64_t width = sl_type_last(&call->out_type[0]);
  float *y = (float *)call->out[0] + i * width, other = call->attrs->place.partial ? -0.0f : NAN;
  sl_storage storage = sli_storage_of(call->attrs, lies);
  if (id < 0 || id >= vocab)
    for (int64_t c = 0; c < width; c++) y[c] = other;
  else unpack_columns(storage, lies, call->in[1], width, id, 0, width, y);
}
