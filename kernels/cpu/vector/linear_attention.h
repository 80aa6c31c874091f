/* SPDX-License-Identifier: Apache-2.0 */
/* Walks of linear attention and the delta rule: a state X [rows, lanes] moves along the positions
 * of a head. a is the gate of the row or of the lane, p the position's `part`.
 *
 *   FORTH            X_r = a X_r + b_r c   y += d_r X_r
 *   BACK             X_r += b_r c   y += d_r X_r   X_r = a X_r
 *   DELTA            X_r = a X_r   z = c - sum b_r X_r   X_r += b_r p z   y += d_r X_r
 *   DELTA_BACK       X_r += b_r c   y = sum d_r X_r   X_r = a (X_r - d_r p y)
 *   DELTA_KEYS       X_r = a X_r   z += b2_r X_r   X_r += b_r c   y += d_r X_r
 *   DELTA_KEYS_BACK  X_r += b_r c   y += d_r X_r   X_r = a (X_r - b2_r c2)
 *
 * y and z sum over the rows in order. DELTA and DELTA_BACK need a position's sums before it changes
 * the state, so they use four sums, each of every fourth row. The other walks keep some rows in
 * registers for some positions, which changes no sum. */

enum { WALK_LANES = 2 * LANES, WALK_ROWS = 4, WALK_STEPS = 32 };

/* State and buffers of a head's block of lanes. */
typedef struct walk {
  const sli_walk *w;
  int64_t lanes; /* valid lanes of the block */
  const float *b, *d, *b2, *part;
  _Alignas(64) float x[SLI_MAX_STATE_DIM][WALK_LANES];
  _Alignas(64) float c[WALK_STEPS][WALK_LANES], c2[WALK_STEPS][WALK_LANES];
  _Alignas(64) float y[WALK_STEPS][WALK_LANES], z[WALK_STEPS][WALK_LANES];
  _Alignas(64) float a[WALK_STEPS][SLI_MAX_STATE_DIM + LANES];
} walk;

/* Numbers of a block's lanes. */
typedef struct lanes2 {
  vec v[2];
} lanes2;

static inline __attribute__((always_inline)) lanes2 lanes2_at(const float *x) {
  return (lanes2){{loadu(x), loadu(x + LANES)}};
}

static inline __attribute__((always_inline)) void lanes2_to(float *x, lanes2 p) {
  storeu(x, p.v[0]);
  storeu(x + LANES, p.v[1]);
}

/* Adds a row's number times the lanes. */
static inline __attribute__((always_inline)) lanes2 lanes2_plus(lanes2 sum, vec by, lanes2 x) {
  sum.v[0] = plus_product(sum.v[0], by, x.v[0]);
  sum.v[1] = plus_product(sum.v[1], by, x.v[1]);
  return sum;
}

static inline __attribute__((always_inline)) lanes2 lanes2_times(lanes2 x, lanes2 a) {
  return (lanes2){{x.v[0] * a.v[0], x.v[1] * a.v[1]}};
}

/* Walks `rows` rows from r on, over `steps` positions; `reads`: y is computed. Inlined with
 * constant rows and flags. */
static inline __attribute__((always_inline)) void walk_rows(walk *k, int rows, int64_t r,
                                                            int64_t steps, bool back, bool by_lane,
                                                            bool reads) {
  const int64_t b_row = k->w->b.row, d_row = k->w->d.row;
  lanes2 x[WALK_ROWS];
  UNROLLED for (int i = 0; i < rows; i++) x[i] = lanes2_at(k->x[r + i]);
  for (int64_t n = 0; n < steps; n++) {
    int64_t t = back ? steps - 1 - n : n;
    const float *b = k->b + t * b_row + r, *d = reads ? k->d + t * d_row + r : b, *gates = k->a[t];
    lanes2 c = lanes2_at(k->c[t]), y = lanes2_at(k->y[t]);
    UNROLLED for (int i = 0; i < rows; i++) {
      lanes2 a = by_lane ? lanes2_at(gates) : (lanes2){{set(gates[r + i]), set(gates[r + i])}};
      if (!back) x[i] = lanes2_times(x[i], a);
      x[i] = lanes2_plus(x[i], set(b[i]), c);
      if (reads) y = lanes2_plus(y, set(d[i]), x[i]);
      if (back) x[i] = lanes2_times(x[i], a);
    }
    if (reads) lanes2_to(k->y[t], y);
  }
  UNROLLED for (int i = 0; i < rows; i++) lanes2_to(k->x[r + i], x[i]);
}

static inline __attribute__((always_inline)) void delta_keys_rows(walk *k, int rows, int64_t r,
                                                                  int64_t steps, bool back) {
  const int64_t b_row = k->w->b.row, d_row = k->w->d.row, b2_row = k->w->b2.row;
  lanes2 x[WALK_ROWS];
  UNROLLED for (int i = 0; i < rows; i++) x[i] = lanes2_at(k->x[r + i]);
  for (int64_t n = 0; n < steps; n++) {
    int64_t t = back ? steps - 1 - n : n;
    const float *b = k->b + t * b_row + r, *d = k->d + t * d_row + r, *b2 = k->b2 + t * b2_row + r;
    lanes2 a = lanes2_at(k->a[t]), c = lanes2_at(k->c[t]), y = lanes2_at(k->y[t]);
    lanes2 other = lanes2_at(back ? k->c2[t] : k->z[t]);
    UNROLLED for (int i = 0; i < rows; i++) {
      if (!back) {
        x[i] = lanes2_times(x[i], a);
        other = lanes2_plus(other, set(b2[i]), x[i]);
      }
      x[i] = lanes2_plus(x[i], set(b[i]), c);
      y = lanes2_plus(y, set(d[i]), x[i]);
      if (back) x[i] = lanes2_times(lanes2_plus(x[i], set(-b2[i]), other), a);
    }
    lanes2_to(k->y[t], y);
    if (!back) lanes2_to(k->z[t], other);
  }
  UNROLLED for (int i = 0; i < rows; i++) lanes2_to(k->x[r + i], x[i]);
}

/* Returns the sum of four sums. */
static inline __attribute__((always_inline)) lanes2 lanes2_total(const lanes2 *s) {
  return (lanes2){{(s[0].v[0] + s[1].v[0]) + (s[2].v[0] + s[3].v[0]),
                   (s[0].v[1] + s[1].v[1]) + (s[2].v[1] + s[3].v[1])}};
}

/* Returns a row's gate, in all lanes: its own, or the head's. */
static inline __attribute__((always_inline)) lanes2 row_gate(const float *gates, int64_t r,
                                                             bool own) {
  vec a = set(gates[own ? r : 0]);
  return (lanes2){{a, a}};
}

/* Adds the state of row r to `sum`, after decaying it or adding b_r c. */
static inline __attribute__((always_inline)) lanes2 delta_before(walk *k, int64_t r, const float *b,
                                                                 const float *d, lanes2 a, lanes2 c,
                                                                 lanes2 sum, bool back) {
  lanes2 x = lanes2_at(k->x[r]);
  x = back ? lanes2_plus(x, set(b[r]), c) : lanes2_times(x, a);
  lanes2_to(k->x[r], x);
  return lanes2_plus(sum, set(back ? d[r] : b[r]), x);
}

/* Corrects the state of row r by w; returns y with its term. */
static inline __attribute__((always_inline)) lanes2 delta_after(walk *k, int64_t r, const float *b,
                                                                const float *d, lanes2 a, lanes2 w,
                                                                lanes2 y, bool back) {
  lanes2 x = lanes2_plus(lanes2_at(k->x[r]), set(back ? -d[r] : b[r]), w);
  if (back) x = lanes2_times(x, a);
  lanes2_to(k->x[r], x);
  return back ? y : lanes2_plus(y, set(d[r]), x);
}

/* Walks all rows over a position; `own`: each row has a gate. */
static inline __attribute__((always_inline)) void delta_step(walk *k, int64_t t, bool back,
                                                             bool own) {
  const sli_walk *w = k->w;
  const float *b = k->b + t * w->b.row, *d = k->d + t * w->d.row, *gates = k->a[t];
  vec part = set(k->part[t * w->part.row]);
  lanes2 c = lanes2_at(k->c[t]), sums[4] = {{{{0}}}};
  int64_t r = 0, end = w->rows / 4 * 4;
  for (; r < end; r += 4)
    UNROLLED for (int i = 0; i < 4; i++) sums[i] =
        delta_before(k, r + i, b, d, row_gate(gates, r + i, own), c, sums[i], back);
  for (; r < w->rows; r++)
    sums[r % 4] = delta_before(k, r, b, d, row_gate(gates, r, own), c, sums[r % 4], back);
  lanes2 total = lanes2_total(sums);
  if (!back) total = (lanes2){{c.v[0] - total.v[0], c.v[1] - total.v[1]}};
  lanes2_to(back ? k->y[t] : k->z[t], total);
  lanes2 by = {{part * total.v[0], part * total.v[1]}}, y[4] = {{{{0}}}};
  for (r = 0; r < end; r += 4)
    UNROLLED for (int i = 0; i < 4; i++) y[i] =
        delta_after(k, r + i, b, d, row_gate(gates, r + i, own), by, y[i], back);
  for (; r < w->rows; r++)
    y[r % 4] = delta_after(k, r, b, d, row_gate(gates, r, own), by, y[r % 4], back);
  if (!back) lanes2_to(k->y[t], lanes2_total(y));
}

static void walk_rows_kind(walk *walk, int64_t r, int64_t steps, bool four) {
  const sli_walk *w = walk->w;
  bool back = sli_walks_back(w->kind);
  if (w->kind == SLI_WALK_DELTA_KEYS) {
    if (four) delta_keys_rows(walk, WALK_ROWS, r, steps, false);
    else delta_keys_rows(walk, 1, r, steps, false);
  } else if (w->kind == SLI_WALK_DELTA_KEYS_BACK) {
    if (four) delta_keys_rows(walk, WALK_ROWS, r, steps, true);
    else delta_keys_rows(walk, 1, r, steps, true);
  } else if (!four) walk_rows(walk, 1, r, steps, back, w->by_lane, walk->d);
  else if (!walk->d && back) walk_rows(walk, WALK_ROWS, r, steps, true, false, false);
  else if (!walk->d) walk_rows(walk, WALK_ROWS, r, steps, false, false, false);
  else if (back && w->by_lane) walk_rows(walk, WALK_ROWS, r, steps, true, true, true);
  else if (back) walk_rows(walk, WALK_ROWS, r, steps, true, false, true);
  else if (w->by_lane) walk_rows(walk, WALK_ROWS, r, steps, false, true, true);
  else walk_rows(walk, WALK_ROWS, r, steps, false, false, true);
}

static void walk_all_rows(walk *walk, int64_t steps) {
  const sli_walk *w = walk->w;
  if (w->kind == SLI_WALK_DELTA && w->per_head)
    for (int64_t t = 0; t < steps; t++) delta_step(walk, t, false, false);
  else if (w->kind == SLI_WALK_DELTA)
    for (int64_t t = 0; t < steps; t++) delta_step(walk, t, false, true);
  else if (w->kind == SLI_WALK_DELTA_BACK && w->per_head)
    for (int64_t t = steps - 1; t >= 0; t--) delta_step(walk, t, true, false);
  else if (w->kind == SLI_WALK_DELTA_BACK)
    for (int64_t t = steps - 1; t >= 0; t--) delta_step(walk, t, true, true);
  else {
    int64_t r = 0;
    for (; r + WALK_ROWS <= w->rows; r += WALK_ROWS) walk_rows_kind(walk, r, steps, true);
    for (; r < w->rows; r++) walk_rows_kind(walk, r, steps, false);
  }
}

/* Fills the gates of some positions: those of the block's lanes, or of all rows. Delta walks by
 * rows read a head's only gate from the first. */
static void open_gates(walk *walk, const float *g, int64_t steps, int64_t lane) {
  const sli_walk *w = walk->w;
  int64_t first = w->by_lane ? lane : 0, count = w->by_lane ? walk->lanes : w->rows;
  if (w->kind >= SLI_WALK_DELTA && w->per_head && !w->by_lane) count = 1;
  for (int64_t t = 0; t < steps; t++, g += w->g.row)
    for (int64_t i = 0; i < count; i += LANES)
      storeu(walk->a[t] + i,
             vexp(w->per_head ? set(*g) : load(g + first + i, SLI_MIN(count - i, (int64_t)LANES))));
}

/* Loads a block of the state into the tile from an array [rows][lanes] with these strides. */
static void load_state(walk *walk, const float *array, int64_t lane) {
  const sli_walk *w = walk->w;
  for (int64_t r = 0; r < w->rows; r++)
    for (int64_t l = 0; l < walk->lanes; l++)
      walk->x[r][l] = array[r * w->state_row + (lane + l) * w->state_lane];
}

/* Stores the block to such an array, or adds it. */
static void store_state(const walk *walk, float *array, int64_t lane, bool add) {
  const sli_walk *w = walk->w;
  for (int64_t r = 0; r < w->rows; r++)
    for (int64_t l = 0; l < walk->lanes; l++) {
      float *at = array + r * w->state_row + (lane + l) * w->state_lane;
      *at = add ? *at + walk->x[r][l] : walk->x[r][l];
    }
}

/* Positions t0 and following of head h. */
typedef struct walk_part {
  int64_t b, h, lane, t0, steps;
} walk_part;

static inline const float *operand_of(const walk *walk, const sli_walked *o, const walk_part *p) {
  return o->x ? o->x + (p->b * walk->w->positions + p->t0) * o->row + p->h / o->group * o->width
              : NULL;
}

/* Loads the lanes of an operand, or zeros if it is absent. */
static void load_lanes(walk *walk, const sli_walked *o, const walk_part *p,
                       float to[][WALK_LANES]) {
  const float *c = operand_of(walk, o, p);
  for (int64_t t = 0; c && t < p->steps; t++)
    for (int64_t i = 0; i < WALK_LANES; i += LANES)
      storeu(to[t] + i, load(c + t * o->row + p->lane + i, walk->lanes - i));
}

static void store_sum(walk *walk, const sli_walk_sum *s, const walk_part *p,
                      float from[][WALK_LANES]) {
  const sli_walk *w = walk->w;
  bool add = s->onto || p->h % s->group;
  float *y = s->y + (p->b * w->positions + p->t0) * s->row + p->h / s->group * w->lanes + p->lane;
  for (int64_t t = 0; t < p->steps; t++, y += s->row)
    for (int64_t i = 0; i < walk->lanes; i += LANES) {
      vec v = loadu(from[t] + i) * s->factor;
      store(y + i, add ? load(y + i, walk->lanes - i) + v : v, walk->lanes - i);
    }
}

static void walk_steps(walk *walk, const walk_part *p) {
  const sli_walk *w = walk->w;
  walk->b = operand_of(walk, &w->b, p);
  walk->d = operand_of(walk, &w->d, p);
  walk->b2 = operand_of(walk, &w->b2, p);
  walk->part = operand_of(walk, &w->part, p);
  open_gates(walk, operand_of(walk, &w->g, p), p->steps, p->lane);
  load_lanes(walk, &w->c, p, walk->c);
  load_lanes(walk, &w->c2, p, walk->c2);
  memset(walk->y, 0, (size_t)p->steps * sizeof *walk->y);
  memset(walk->z, 0, (size_t)p->steps * sizeof *walk->z);
  walk_all_rows(walk, p->steps);
  if (w->y.y) store_sum(walk, &w->y, p, walk->y);
  if (w->z.y) store_sum(walk, &w->z, p, walk->z);
}

static void walk_head(walk *walk, int64_t b, int64_t h, int64_t lane) {
  const sli_walk *w = walk->w;
  int64_t state = (b * w->states + h / w->state_group) * (w->rows * w->lanes + w->state_gap) +
                  b * w->state_rest;
  bool back = sli_walks_back(w->kind), first = h % w->state_group == 0,
       last = (h + 1) % w->state_group == 0;
  memset(walk->x, 0, (size_t)w->rows * sizeof *walk->x);
  if (w->from && (first || !back)) load_state(walk, w->from + state, lane);
  for (int64_t n = 0; n < w->positions; n += WALK_STEPS) {
    int64_t steps = SLI_MIN(w->positions - n, (int64_t)WALK_STEPS);
    walk_steps(walk, &(walk_part){b, h, lane, back ? w->positions - n - steps : n, steps});
  }
  if (w->to && (last || back)) store_state(walk, w->to + state, lane, back && !first);
}

/* Runs chunk i: sequence, group, block of lanes. The heads of a group are adjacent. */
static void linear_attention_chunk(void *arg, int i) {
  const sli_walk *w = arg;
  int64_t blocks = (w->lanes + SLI_WALK_LANES - 1) / SLI_WALK_LANES, heads = w->heads / w->groups;
  int64_t group = i / blocks % w->groups, b = i / blocks / w->groups;
  int64_t end = SLI_MIN((i % blocks + 1) * SLI_WALK_LANES, w->lanes);
  walk k = {.w = w};
  for (int64_t lane = i % blocks * SLI_WALK_LANES; lane < end; lane += WALK_LANES) {
    k.lanes = SLI_MIN(end - lane, (int64_t)WALK_LANES);
    for (int64_t h = group * heads; h < (group + 1) * heads; h++) walk_head(&k, b, h, lane);
  }
}
