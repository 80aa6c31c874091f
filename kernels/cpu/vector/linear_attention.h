/* SPDX-License-Identifier: Apache-2.0 */
/* Walks of linear attention: a state X [rows, lanes] goes along the positions of a head.
 *
 *   forth   X_r = a X_r + b_r c   y += d_r X_r
 *   back    X_r += b_r c   y += d_r X_r   X_r = a X_r
 *
 * a is the gate of the row or of the lane. y sums over the rows in order. Some rows at a time stay
 * in registers for some positions, which changes no sum. */

enum { WALK_LANES = 2 * LANES, WALK_ROWS = 4, WALK_STEPS = 32 };

/* State and buffers of a head's block of lanes. */
typedef struct walk {
  const sli_walk *w;
  int64_t lanes; /* of the block that exist */
  const float *b, *d;
  _Alignas(64) float x[SLI_MAX_HEAD_DIM][WALK_LANES];
  _Alignas(64) float c[WALK_STEPS][WALK_LANES], y[WALK_STEPS][WALK_LANES];
  _Alignas(64) float a[WALK_STEPS][SLI_MAX_HEAD_DIM + LANES];
} walk;

static inline const float *at_head(const sli_walked *o, int64_t b, int64_t positions, int64_t h) {
  return o->x + b * positions * o->row + h / o->group * o->width;
}

/* Walks `rows` rows from r on, over `steps` positions. Inlined with constant rows and flags. */
static inline __attribute__((always_inline)) void walk_rows(walk *k, int rows, int64_t r,
                                                            int64_t steps, bool back,
                                                            bool by_lane) {
  const int64_t b_row = k->w->b.row, d_row = k->w->d.row;
  vec x[WALK_ROWS][2];
  UNROLLED for (int i = 0; i < rows; i++) {
    x[i][0] = loadu(k->x[r + i]);
    x[i][1] = loadu(k->x[r + i] + LANES);
  }
  for (int64_t n = 0; n < steps; n++) {
    int64_t t = back ? steps - 1 - n : n;
    const float *b = k->b + t * b_row + r, *d = k->d + t * d_row + r, *a = k->a[t];
    vec c0 = loadu(k->c[t]), c1 = loadu(k->c[t] + LANES);
    vec y0 = loadu(k->y[t]), y1 = loadu(k->y[t] + LANES);
    UNROLLED for (int i = 0; i < rows; i++) {
      vec a0 = by_lane ? loadu(a) : set(a[r + i]), a1 = by_lane ? loadu(a + LANES) : a0;
      vec by = set(b[i]), take = set(d[i]);
      x[i][0] = plus_product(back ? x[i][0] : x[i][0] * a0, by, c0);
      x[i][1] = plus_product(back ? x[i][1] : x[i][1] * a1, by, c1);
      y0 = plus_product(y0, take, x[i][0]);
      y1 = plus_product(y1, take, x[i][1]);
      if (back) x[i][0] *= a0, x[i][1] *= a1;
    }
    storeu(k->y[t], y0);
    storeu(k->y[t] + LANES, y1);
  }
  UNROLLED for (int i = 0; i < rows; i++) {
    storeu(k->x[r + i], x[i][0]);
    storeu(k->x[r + i] + LANES, x[i][1]);
  }
}

static void walk_all_rows(walk *k, int64_t steps) {
  const sli_walk *w = k->w;
  int64_t r = 0;
  for (; r + WALK_ROWS <= w->rows; r += WALK_ROWS)
    if (w->back && w->by_lane) walk_rows(k, WALK_ROWS, r, steps, true, true);
    else if (w->back) walk_rows(k, WALK_ROWS, r, steps, true, false);
    else if (w->by_lane) walk_rows(k, WALK_ROWS, r, steps, false, true);
    else walk_rows(k, WALK_ROWS, r, steps, false, false);
  for (; r < w->rows; r++) walk_rows(k, 1, r, steps, w->back, w->by_lane);
}

/* Fills the gates of some positions: those of the block's lanes, or of all rows. */
static void open_gates(walk *k, const float *g, int64_t steps, int64_t lane) {
  const sli_walk *w = k->w;
  int64_t first = w->by_lane ? lane : 0, count = w->by_lane ? k->lanes : w->rows;
  for (int64_t t = 0; t < steps; t++, g += w->g.row)
    for (int64_t i = 0; i < count; i += LANES)
      storeu(k->a[t] + i,
             vexp(w->per_head ? set(*g) : load(g + first + i, SLI_MIN(count - i, (int64_t)LANES))));
}

/* Moves a block of the state between the tile and an array [rows][lanes] with these strides. */
static void move_state(walk *k, float *array, int64_t lane, bool out) {
  const sli_walk *w = k->w;
  for (int64_t r = 0; r < w->rows; r++)
    for (int64_t l = 0; l < k->lanes; l++) {
      float *at = array + r * w->state_row + (lane + l) * w->state_lane;
      if (out) *at = k->x[r][l];
      else k->x[r][l] = *at;
    }
}

/* Walks positions t0 and following of head h; `add`: to y of the heads before it. */
static void walk_steps(walk *k, int64_t b, int64_t h, int64_t lane, int64_t t0, int64_t steps,
                       bool add) {
  const sli_walk *w = k->w;
  const float *c = at_head(&w->c, b, w->positions, h) + t0 * w->c.row + lane;
  float *y = w->y + (b * w->positions + t0) * w->y_row + h / w->y_group * w->lanes + lane;
  k->b = at_head(&w->b, b, w->positions, h) + t0 * w->b.row;
  k->d = at_head(&w->d, b, w->positions, h) + t0 * w->d.row;
  open_gates(k, at_head(&w->g, b, w->positions, h) + t0 * w->g.row, steps, lane);
  for (int64_t t = 0; t < steps; t++)
    for (int64_t i = 0; i < WALK_LANES; i += LANES) {
      storeu(k->c[t] + i, load(c + t * w->c.row + i, k->lanes - i));
      storeu(k->y[t] + i, (vec){0});
    }
  walk_all_rows(k, steps);
  for (int64_t t = 0; t < steps; t++, y += w->y_row)
    for (int64_t i = 0; i < k->lanes; i += LANES) {
      vec v = loadu(k->y[t] + i) * w->scale;
      store(y + i, add ? load(y + i, k->lanes - i) + v : v, k->lanes - i);
    }
}

static void walk_head(walk *k, int64_t b, int64_t h, int64_t lane, bool add) {
  const sli_walk *w = k->w;
  int64_t state = (b * w->states + h / w->state_group) * w->rows * w->lanes + b * w->state_rest;
  bool last = (h + 1) % w->state_group == 0;
  memset(k->x, 0, (size_t)w->rows * sizeof *k->x);
  if (w->from) move_state(k, w->from + state, lane, false);
  for (int64_t n = 0; n < w->positions; n += WALK_STEPS) {
    int64_t steps = SLI_MIN(w->positions - n, (int64_t)WALK_STEPS);
    walk_steps(k, b, h, lane, w->back ? w->positions - n - steps : n, steps, add);
  }
  if (w->to && last) move_state(k, w->to + state, lane, true);
}

/* Runs chunk i: sequence, key head, block of lanes. Heads that share y follow each other. */
static void linear_attention_chunk(void *arg, int i) {
  const sli_walk *w = arg;
  int64_t blocks = (w->lanes + SLI_WALK_LANES - 1) / SLI_WALK_LANES, group = w->heads / w->kv_heads;
  int64_t kv = i / blocks % w->kv_heads, b = i / blocks / w->kv_heads;
  int64_t end = SLI_MIN((i % blocks + 1) * SLI_WALK_LANES, w->lanes);
  walk k = {.w = w};
  for (int64_t lane = i % blocks * SLI_WALK_LANES; lane < end; lane += WALK_LANES) {
    k.lanes = SLI_MIN(end - lane, (int64_t)WALK_LANES);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
      walk_head(&k, b, h, lane, h % w->y_group != 0);
  }
}
