/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions: rotates pairs (j, j + D/2) of each head, or of the first D numbers of each. */

/* Rotates the pairs from j on of a head, n of them left. Each sum is fused on its second product,
 * regardless of context. */
static inline void turn_pairs(const float *x, int64_t pairs, int64_t j, int64_t n, vec c, vec s,
                              float *y) {
  vec a = load(x + j, n), b = load(x + pairs + j, n);
  store(y + j, plus_product(-(b * s), a, c), n);
  store(y + pairs + j, plus_product(a * s, b, c), n);
}

/* Rotates the heads of a row. Numbers after the pairs stay unchanged. */
static inline void turn_row(const sl_call *call, const float *x, const float *cosines,
                            const float *sines, float direction, float *y) {
  const sli_rotary *angles = call->state;
  int64_t width = call->in_type[0].dim[2], head = width / call->attrs->rotary.heads;
  int64_t pairs = angles->pairs, rest = head - 2 * pairs;
  for (int64_t h = 0; h < width; h += head) {
    for (int64_t j = 0, n = pairs; n > 0; j += LANES, n -= LANES)
      turn_pairs(x + h, pairs, j, n, load(cosines + j, n), direction * load(sines + j, n), y + h);
    if (rest && x != y) memcpy(y + h + 2 * pairs, x + h + 2 * pairs, (size_t)rest * sizeof *y);
  }
}

static inline void turn(const sl_call *call, int i, float direction) {
  const sli_rotary *angles = call->state;
  const float *x = call->in[0]; /* [B, T, H*D] */
  float *y = call->out[0];      /* [B, T, H*D] */
  int64_t length = call->in_type[0].dim[1], width = call->in_type[0].dim[2];
  int64_t pairs = angles->pairs;
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    int64_t position = sli_position(call, r % length);
    turn_row(call, x + r * width, angles->cos + position * pairs, angles->sin + position * pairs,
             direction, y + r * width);
  }
}

static void rotary_chunk(void *arg, int i) { turn(arg, i, 1); }

static void rotary_b_chunk(void *arg, int i) { turn(arg, i, -1); }
