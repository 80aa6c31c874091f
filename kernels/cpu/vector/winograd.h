/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of Winograd convolutions, F(2x2, 3x3) of Lavin and Gray (arXiv 1509.09308). A tile of
 * 4x4 inputs d and a kernel g give 2x2 outputs A^T [(G g G^T) . (B^T d B)] A. A chunk has one
 * channel. Its tiles follow each other along a row of an image, then row by row. */

enum { TILE_EDGE = 4 };

/* Splits 2 LANES numbers into those at even and at odd positions. */
static inline void split_mixed(vec a, vec b, vec *even, vec *odd) {
  ivec order = lanes() * 2;
  *even = SHUFFLE2(a, b, order);
  *odd = SHUFFLE2(a, b, order + 1);
}

/* Stores n pairs of numbers from `even` and `odd`. */
static inline void store_mixed(float *to, vec even, vec odd, int64_t n) {
  ivec low = lanes() / 2 + (lanes() & 1) * LANES;
  store(to, SHUFFLE2(even, odd, low), n);
  store(to + LANES, SHUFFLE2(even, odd, low + LANES / 2), n - LANES);
}

/* ---- tiles of the input: B^T d B ------------------------------------------------------------ */

/* A row of tiles: the place of its first tile among those of the block, and in the image. */
typedef struct tile_row {
  int64_t at, image, down;
} tile_row;

static inline tile_row row_of_tiles(const sli_winograd *w, int64_t row) {
  int64_t at = w->first + row;
  return (tile_row){row * w->across, at / w->down, at % w->down};
}

/* Combines the four input rows of a row of tiles: B^T d. `to` has four rows of `row` floats, whose
 * numbers begin after the padding. */
static void combine_rows(const sli_winograd *w, const float *x, int64_t down, const float *zeros,
                         float *to, int64_t row) {
  const float *d[TILE_EDGE];
  for (int k = 0; k < TILE_EDGE; k++) {
    int64_t at = 2 * down - w->pad[0] + k;
    d[k] = at < 0 || at >= w->in[0] ? zeros : x + at * w->in[1];
  }
  to += w->pad[1];
  for (int64_t i = 0, n = w->in[1]; n > 0; i += LANES, n -= LANES) {
    vec v[TILE_EDGE];
    UNROLLED for (int k = 0; k < TILE_EDGE; k++) v[k] = load(d[k] + i, n);
    storeu(to + i, v[0] - v[2]);
    storeu(to + row + i, v[1] + v[2]);
    storeu(to + 2 * row + i, v[2] - v[1]);
    storeu(to + 3 * row + i, v[1] - v[3]);
  }
}

/* Combines the columns of a row of tiles, (...) B, and stores them; n tiles of the channel are left
 * from the first on. */
static void combine_columns(const sli_winograd *w, const float *from, int64_t row, float *to,
                            int64_t n) {
  for (int k = 0; k < TILE_EDGE; k++, from += row)
    for (int64_t j = 0; j < w->across; j += LANES) {
      const float *p = from + 2 * j;
      float *v = to + TILE_EDGE * k * w->v_plane + j;
      vec e0, o0, e1, o1;
      split_mixed(loadu(p), loadu(p + LANES), &e0, &o0);
      split_mixed(loadu(p + 2), loadu(p + 2 + LANES), &e1, &o1);
      store(v, e0 - e1, n - j);
      store(v + w->v_plane, o0 + e1, n - j);
      store(v + 2 * w->v_plane, e1 - o0, n - j);
      store(v + 3 * w->v_plane, o0 - o1, n - j);
    }
}

static void winograd_tiles_chunk(void *arg, int c) {
  const sli_winograd *w = arg;
  int64_t row = SLI_MAX(2 * w->across + 2, w->in[1] + w->pad[1]) + 3 * LANES,
          all = w->rows * w->across;
  float *rows = sli_room(SLI_ROOM_ROWS, (size_t)((TILE_EDGE + 1) * row) * sizeof *rows);
  float *to = w->v + c * w->tiles;
  memset(rows, 0, (size_t)((TILE_EDGE + 1) * row) * sizeof *rows);
  for (int64_t r = 0; r < w->rows; r++) {
    tile_row t = row_of_tiles(w, r);
    const float *x = w->x + (t.image * w->channels + c) * w->in[0] * w->in[1];
    combine_rows(w, x, t.down, rows + TILE_EDGE * row, rows, row);
    combine_columns(w, rows, row, to + t.at, all - t.at);
  }
}

/* ---- outputs: A^T m A ------------------------------------------------------------------------ */

static void winograd_sums_chunk(void *arg, int o) {
  const sli_winograd *w = arg;
  const float *from = w->m + o * w->tiles;
  vec bias = set(w->bias ? w->bias[o] : 0);
  for (int64_t r = 0; r < w->rows; r++) {
    tile_row t = row_of_tiles(w, r);
    float *y = w->y + ((t.image * w->outputs + o) * w->out[0] + 2 * t.down) * w->out[1];
    bool both = 2 * t.down + 1 < w->out[0];
    for (int64_t j = 0, n = w->out[1]; j < w->across; j += LANES, n -= 2 * LANES) {
      const float *m = from + t.at + j;
      vec s[2][TILE_EDGE];
      UNROLLED for (int b = 0; b < TILE_EDGE; b++, m += w->m_plane) {
        vec m1 = loadu(m + TILE_EDGE * w->m_plane), m2 = loadu(m + 2 * TILE_EDGE * w->m_plane);
        s[0][b] = loadu(m) + m1 + m2;
        s[1][b] = m1 - m2 - loadu(m + 3 * TILE_EDGE * w->m_plane);
      }
      UNROLLED for (int a = 0; a < 2; a++) {
        vec even = s[a][0] + s[a][1] + s[a][2] + bias, odd = s[a][1] - s[a][2] - s[a][3] + bias;
        if (!a || both) store_mixed(y + a * w->out[1] + 2 * j, even, odd, n);
      }
    }
  }
}

/* ---- tiles of the outputs' gradient: A dy A^T -------------------------------------------------
 */

static void winograd_spread_chunk(void *arg, int o) {
  const sli_winograd *w = arg;
  float *to = w->m + o * w->tiles;
  int64_t all = w->rows * w->across;
  for (int64_t r = 0; r < w->rows; r++) {
    tile_row t = row_of_tiles(w, r);
    const float *dy = w->dy + ((t.image * w->outputs + o) * w->out[0] + 2 * t.down) * w->out[1];
    bool both = 2 * t.down + 1 < w->out[0];
    for (int64_t j = 0, n = w->out[1]; j < w->across; j += LANES, n -= 2 * LANES) {
      vec e[2], q[2] = {{0}, {0}};
      split_mixed(load(dy + 2 * j, n), load(dy + 2 * j + LANES, n - LANES), &e[0], &q[0]);
      e[1] = q[1];
      if (both) {
        const float *next = dy + w->out[1] + 2 * j;
        split_mixed(load(next, n), load(next + LANES, n - LANES), &e[1], &q[1]);
      }
      vec even[TILE_EDGE] = {e[0], e[0] + e[1], e[0] - e[1], -e[1]};
      vec odd[TILE_EDGE] = {q[0], q[0] + q[1], q[0] - q[1], -q[1]};
      float *m = to + t.at + j;
      UNROLLED for (int k = 0; k < TILE_EDGE; k++, m += TILE_EDGE * w->m_plane) {
        int64_t left = all - t.at - j;
        store(m, even[k], left);
        store(m + w->m_plane, even[k] + odd[k], left);
        store(m + 2 * w->m_plane, even[k] - odd[k], left);
        store(m + 3 * w->m_plane, -odd[k], left);
      }
    }
  }
}

/* ---- kernels: G g G^T ------------------------------------------------------------------------ */

static inline void expand(vec a, vec b, vec c, vec *to, int step) {
  to[0] = a;
  to[step] = 0.5f * (a + c) + 0.5f * b;
  to[2 * step] = 0.5f * (a + c) - 0.5f * b;
  to[3 * step] = c;
}

/* Loads one tap of the kernels of n channels. */
static inline vec load_taps(const float *p, int64_t step, int64_t n) {
  vec v = {0};
  UNROLLED for (int l = 0; l < LANES; l++) v[l] = l < n ? p[l * step] : 0;
  return v;
}

/* Computes row o of U. */
static void winograd_kernels_chunk(void *arg, int o) {
  const sli_winograd *w = arg;
  enum { TAPS = 9 };
  int64_t row = w->turned ? TAPS : w->channels * TAPS, step = w->turned ? w->outputs * TAPS : TAPS;
  const float *from = w->w + o * row;
  float *to = w->u + o * w->channels;
  for (int64_t c = 0, n = w->channels; n > 0; c += LANES, n -= LANES) {
    vec g[TAPS], half[TILE_EDGE * 3], u[TILE_EDGE * TILE_EDGE];
    UNROLLED for (int t = 0; t < TAPS; t++) g[t] =
        load_taps(from + c * step + (w->turned ? TAPS - 1 - t : t), step, n);
    UNROLLED for (int k = 0; k < 3; k++) expand(g[k], g[3 + k], g[6 + k], half + k, 3);
    UNROLLED for (int k = 0; k < TILE_EDGE; k++)
        expand(half[3 * k], half[3 * k + 1], half[3 * k + 2], u + TILE_EDGE * k, 1);
    for (int k = 0; k < TILE_EDGE * TILE_EDGE; k++) store(to + k * w->u_plane + c, u[k], n);
  }
}

static inline void gather_back(const vec *from, int step, vec *to, int to_step) {
  vec sum = 0.5f * (from[step] + from[2 * step]);
  to[0] = from[0] + sum;
  to[to_step] = 0.5f * (from[step] - from[2 * step]);
  to[2 * to_step] = sum + from[3 * step];
}

/* Computes the weight's gradient for output o: G^T u G. */
static void winograd_kernels_b_chunk(void *arg, int o) {
  const sli_winograd *w = arg;
  enum { TAPS = 9 };
  const float *from = w->u + o * w->channels;
  float *to = w->dw + o * w->channels * TAPS;
  for (int64_t c = 0, n = w->channels; n > 0; c += LANES, n -= LANES) {
    vec u[TILE_EDGE * TILE_EDGE], half[3 * TILE_EDGE], g[TAPS];
    for (int k = 0; k < TILE_EDGE * TILE_EDGE; k++) u[k] = load(from + k * w->u_plane + c, n);
    UNROLLED for (int k = 0; k < TILE_EDGE; k++) gather_back(u + k, TILE_EDGE, half + k, TILE_EDGE);
    UNROLLED for (int k = 0; k < 3; k++) gather_back(half + TILE_EDGE * k, 1, g + 3 * k, 1);
    float *d = to + c * TAPS;
    for (int l = 0; l < LANES && l < n; l++, d += TAPS)
      UNROLLED for (int t = 0; t < TAPS; t++) d[t] = w->adds ? d[t] + g[t][l] : g[t][l];
  }
}
