/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions: rotates pairs (j, j + D/2) of each head. */

static inline void turn(const sl_call *call, int i, float direction) {
  const sli_rotary *angles = call->state;
  const float *x = call->in[0]; /* [B, T, H*D] */
  float *y = call->out[0];      /* [B, T, H*D] */
  int64_t length = call->in_type[0].dim[1], width = call->in_type[0].dim[2];
  int64_t pairs = angles->pairs;
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    int64_t position = sli_position(call, r % length);
    const float *cosines = angles->cos + position * pairs, *sines = angles->sin + position * pairs;
    for (int64_t head = 0; head < width; head += 2 * pairs) {
      const float *a = x + r * width + head, *b = a + pairs;
      float *ya = y + r * width + head, *yb = ya + pairs;
      for (int64_t j = 0, n = pairs; n > 0; j += LANES, n -= LANES) {
        vec c = load(cosines + j, n), s = direction * load(sines + j, n);
        vec av = load(a + j, n), bv = load(b + j, n);
        store(ya + j, av * c - bv * s, n);
        store(yb + j, bv * c + av * s, n);
      }
    }
  }
}

static void rotary_chunk(void *arg, int i) { turn(arg, i, 1); }

static void rotary_b_chunk(void *arg, int i) { turn(arg, i, -1); }
