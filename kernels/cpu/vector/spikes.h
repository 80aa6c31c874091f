/* SPDX-License-Identifier: Apache-2.0 */
/* Rows rounded to spikes, and weights rounded to int8. Both have the same bits on every level. */

/* Rounds to the nearest integer, ties to even; 0 has no sign. NaN stays NaN. */
static inline vec nearest(vec x) {
  vec size = vabs(x), r = (size + 0x1p23f) - 0x1p23f;
  r = pick(size < 0x1p23f, r, size);
  return (vec)((ivec)r | ((ivec)x & INT32_MIN)) + 0.0f;
}

/* Returns the number of bits set in each lane. Lanes are not negative. */
static inline ivec set_bits(ivec x) {
  x -= x >> 1 & 0x55555555;
  x = (x & 0x33333333) + (x >> 2 & 0x33333333);
  x = (x + (x >> 4)) & 0x0f0f0f0f;
  x += x >> 8;
  return (x + (x >> 16)) & 0x3f;
}

static inline float threshold_of(const float *x, int64_t width, float k) {
  vec s[SUM_VECTORS] = {0};
  for (int64_t c = 0; c < width; c += SUM_LANES) EACH_VECTOR(v) {
      int64_t at = c + v * LANES;
      s[v] += vabs(load_ahead(x + at, width - at));
    }
  float at = sum_lanes(s) / (float)width / k;
  return at < SLI_SPIKE_LEAST ? SLI_SPIKE_LEAST : at > SLI_SPIKE_MOST ? SLI_SPIKE_MOST : at;
}

/* Adds a row's integers to its counts: nonzero integers, and the set bits of their magnitudes. */
static inline void count_spikes(vec s, ivec counts[2]) {
  const float most = 0x1p30f;
  ivec size = __builtin_convertvector(pick(vabs(s) < most, vabs(s), set(most)), ivec);
  counts[0] -= size > 0;
  counts[1] += set_bits(size);
}

static inline float total_of(ivec v) {
  int64_t total = 0;
  for (int l = 0; l < LANES; l++) total += v[l];
  return (float)total;
}

static void spikes_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *x = call->in[0];                    /* [R, C] */
  float *y = call->out[0], *counts = call->out[1]; /* [R, C], [R, 3] */
  int64_t width = sl_type_last(&call->in_type[0]);
  float k = call->attrs->spikes.k > 0 ? call->attrs->spikes.k : SLI_SPIKE_K;
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    float at = threshold_of(x + r * width, width, k);
    ivec count[2] = {{0}};
    for (int64_t c = r * width, n = width; n > 0; c += LANES, n -= LANES) {
      vec s = nearest(load(x + c, n) / at);
      if (counts) count_spikes(s, count);
      if (y) store_ahead(y + c, s * at, n);
    }
    if (!counts) continue;
    counts[r * SLI_SPIKE_COUNTS] = (float)width - total_of(count[0]);
    counts[r * SLI_SPIKE_COUNTS + 1] = total_of(count[1]);
    counts[r * SLI_SPIKE_COUNTS + 2] = (float)width;
  }
}

static void quantize_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *w = call->in[0]; /* [R, C] */
  float *y = call->out[0];
  int64_t width = sl_type_last(&call->in_type[0]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++)
    for (int64_t g = 0; g < width; g += SLI_INT8_GROUP) {
      int64_t from = r * width + g, n = width - g;
      if (n > SLI_INT8_GROUP) n = SLI_INT8_GROUP;
      vec most = {0};
      for (int64_t c = 0; c < n; c += LANES)
        most = vmax(vabs(load_ahead(w + from + c, n - c)), most);
      float scale = largest(most) / SLI_INT8_MOST, by = scale > 0 ? scale : 1;
      for (int64_t c = 0; c < n; c += LANES)
        store_ahead(y + from + c, nearest(load(w + from + c, n - c) / by) * scale, n - c);
    }
}
