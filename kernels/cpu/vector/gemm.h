/* SPDX-License-Identifier: Apache-2.0 */
/* Products of f32 matrices of our own, in one order of sums.
 *
 * An element is a sum over groups of steps of k (sli_gemm). Within a group one chain of fused
 * products runs along k, from 0, or in the first group from the bias. The groups' sums are added by
 * a binary tree over their numbers: after group i a sum of 2^b groups is in slot b for each bit b
 * that is set in i + 1. The bits depend on neither the cut into chunks, blocks and tiles nor the
 * level, if it fuses.
 *
 * A block of A goes to a buffer that stays in the L2 cache, a panel of B to one for L1. A tile of C
 * is in registers while they are multiplied. Sums rest between blocks of k in buffers of their own,
 * tile after tile. */

enum { GEMM_ROWS = REGISTERS / 2 - 2, GEMM_PANEL = 2 * LANES, GEMM_TILE = GEMM_ROWS * GEMM_PANEL };
enum { GEMM_DEPTH = 6144 / GEMM_PANEL, GEMM_HEIGHT = (96 << 10) / GEMM_DEPTH, GEMM_WIDTH = 256 };
/* floats from row to row of packed rows, and from tile to tile of packed columns: odd numbers of
 * cache lines */
enum { ROW_PITCH = GEMM_DEPTH + 16, TILE_PITCH = GEMM_DEPTH * GEMM_ROWS + 16 };

enum { PACK_AHEAD = 16 }; /* rows of B: each is in another page, where no prefetcher follows */

/* A block of C and its buffers. */
typedef struct gemm_block {
  const sli_gemm *g;
  int64_t row, rows, column, columns, tiles, panels;
  float *a, *b, *sums;
  int64_t area; /* floats of all tiles' sums */
} gemm_block;

/* Some steps of k within a group. */
typedef struct gemm_steps {
  int64_t begin, count, group;
  bool first, last; /* of the group */
} gemm_steps;

static inline int64_t first_row(const gemm_block *p, int64_t tile) {
  return tile * p->rows / p->tiles;
}

/* ---- operands ---------------------------------------------------------------------- */

/* Packs a block of A: rows one after another, or a transposed A by tiles of columns. */
static void pack_left(const gemm_block *p, const gemm_steps *s) {
  const sli_gemm *g = p->g;
  if (!g->a_transposed) {
    for (int64_t r = 0; r < p->rows; r++)
      memcpy(p->a + r * ROW_PITCH, g->a + (p->row + r) * g->a_row + s->begin,
             (size_t)s->count * sizeof *p->a);
    return;
  }
  for (int64_t k = 0; k < s->count; k++) {
    const float *from = g->a + (s->begin + k) * g->a_row + p->row;
    float *to = p->a + k * GEMM_ROWS;
    for (int64_t t = 0; t < p->tiles; t++, to += TILE_PITCH)
      for (int64_t r = first_row(p, t), i = 0; i < GEMM_ROWS; i += LANES)
        storeu(to + i, load(from + r + i, p->rows - r - i));
  }
}

/* Packs a panel of B. Zeros fill the columns that it lacks. */
static void pack_right(const gemm_block *p, const gemm_steps *s, int64_t column, int64_t columns) {
  const sli_gemm *g = p->g;
  float *to = p->b;
  if (columns < GEMM_PANEL) memset(to, 0, (size_t)(s->count * GEMM_PANEL) * sizeof *to);
  if (g->b_transposed) {
    sli_turn t = {g->b + column * g->b_row + s->begin, g->b_row, columns, s->count, to, GEMM_PANEL};
    turn_chunk(&t, 0);
    return;
  }
  const float *from = g->b + s->begin * g->b_row + column;
  for (int64_t k = 0; k < s->count; k++, to += GEMM_PANEL, from += g->b_row)
    for (int64_t c = 0; c < columns; c += LANES) {
      __builtin_prefetch(from + PACK_AHEAD * g->b_row + c);
      store(to + c, load(from + c, columns - c), columns - c);
    }
}

/* ---- tiles ------------------------------------------------------------------------- */

/* Multiplies a tile of A by a panel of B. Inlined with constant `rows` and steps of A. */
static inline __attribute__((always_inline)) void multiply_tile(int rows, int64_t a_row,
                                                                int64_t a_col, bool add,
                                                                int64_t steps, const float *a,
                                                                const float *b, int64_t b_row,
                                                                float *sum) {
  vec c0[GEMM_ROWS], c1[GEMM_ROWS];
  UNROLLED for (int r = 0; r < rows; r++) {
    c0[r] = add ? loadu(sum + r * GEMM_PANEL) : (vec){0};
    c1[r] = add ? loadu(sum + r * GEMM_PANEL + LANES) : (vec){0};
  }
  for (int64_t k = 0; k < steps; k++, a += a_col, b += b_row) {
    vec b0 = loadu(b), b1 = loadu(b + LANES);
    UNROLLED for (int r = 0; r < rows; r++) {
      vec factor = set(a[r * a_row]);
      c0[r] = plus_product(c0[r], factor, b0);
      c1[r] = plus_product(c1[r], factor, b1);
    }
  }
  UNROLLED for (int r = 0; r < rows; r++) {
    storeu(sum + r * GEMM_PANEL, c0[r]);
    storeu(sum + r * GEMM_PANEL + LANES, c1[r]);
  }
}

typedef void tile_fn(bool add, int64_t steps, const float *a, const float *b, int64_t b_row,
                     float *sum);

#define TILES(X) X(1) X(2) X(3) X(4) X(5) X(6) TILES_OF_MANY(X)
#if defined(__AVX512F__) || defined(__aarch64__)
#define TILES_OF_MANY(X) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#else
#define TILES_OF_MANY(X)
#endif

#define TILE_FUNCTIONS(rows)                                                                      \
  static void rows_##rows(bool add, int64_t steps, const float *a, const float *b, int64_t b_row, \
                          float *sum) {                                                           \
    multiply_tile(rows, ROW_PITCH, 1, add, steps, a, b, b_row, sum);                              \
  }                                                                                               \
  static void columns_##rows(bool add, int64_t steps, const float *a, const float *b,             \
                             int64_t b_row, float *sum) {                                         \
    multiply_tile(rows, 1, GEMM_ROWS, add, steps, a, b, b_row, sum);                              \
  }
TILES(TILE_FUNCTIONS)

#define TILE_ROW(rows) [rows] = {rows_##rows, columns_##rows},
static tile_fn *const tile_functions[GEMM_ROWS + 1][2] = {TILES(TILE_ROW)};

static inline void add_sums(float *to, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; i += LANES) storeu(to + i, loadu(from + i) + loadu(to + i));
}

/* Writes a tile's sum to C. */
static void write_tile(const sli_gemm *g, int64_t row, int64_t rows, int64_t column,
                       int64_t columns, const float *sum) {
  float *c = g->c + row * g->c_row + column;
  for (int64_t r = 0; r < rows; r++, c += g->c_row, sum += GEMM_PANEL)
    for (int64_t i = 0; i < columns; i += LANES) {
      int64_t n = columns - i;
      vec v = loadu(sum + i);
      if (g->add) v += load(c + i, n);
      store(c + i, v, n);
    }
}

/* Adds a group's sum to those of the groups before it; returns true if it is the last one. `slots`:
 * the tile's sum in slot 0. */
static bool add_group(const gemm_block *p, int64_t group, float *slots, float *sum, int64_t count) {
  bool last = (group + 1) * p->g->chunk >= p->g->k;
  int64_t left = group;
  float *slot = slots;
  for (; left & 1 || (last && left); left >>= 1, slot += p->area)
    if (left & 1) add_sums(sum, slot, count);
  if (!last) memcpy(slot, sum, (size_t)count * sizeof *sum);
  return last;
}

/* Fills a tile's sum with the bias. */
static void begin_with(const float *bias, int64_t columns, int64_t rows, float *sum) {
  for (int64_t r = 0; r < rows; r++, sum += GEMM_PANEL)
    for (int64_t i = 0; i < GEMM_PANEL; i += LANES) storeu(sum + i, load(bias + i, columns - i));
}

static void run_tile(const gemm_block *p, const gemm_steps *s, int64_t panel, int64_t tile,
                     const float *b, int64_t b_row) {
  _Alignas(64) float whole[GEMM_TILE];
  int64_t row = first_row(p, tile), rows = first_row(p, tile + 1) - row;
  float *slots = p->sums ? p->sums + (panel * p->tiles + tile) * GEMM_TILE : whole;
  float *sum = s->first && s->last ? whole : slots;
  int64_t column = p->column + panel * GEMM_PANEL,
          columns = SLI_MIN(p->columns - panel * GEMM_PANEL, (int64_t)GEMM_PANEL);
  bool turned = p->g->a_transposed, biased = s->first && !s->group && p->g->bias;
  if (biased) begin_with(p->g->bias + column, columns, rows, sum);
  tile_functions[rows][turned](!s->first || biased, s->count,
                               p->a + (turned ? tile * TILE_PITCH : row * ROW_PITCH), b, b_row,
                               sum);
  if (s->last && add_group(p, s->group, slots + p->area, sum, rows * GEMM_PANEL))
    write_tile(p->g, p->row + row, rows, column, columns, sum);
}

/* ---- blocks ------------------------------------------------------------------------ */

static void run_steps(const gemm_block *p, const gemm_steps *s) {
  const sli_gemm *g = p->g;
  pack_left(p, s);
  for (int64_t panel = 0; panel < p->panels; panel++) {
    int64_t column = p->column + panel * GEMM_PANEL, columns = p->columns - panel * GEMM_PANEL;
    bool packs = g->b_transposed || p->tiles > 1 || columns < GEMM_PANEL;
    if (packs) pack_right(p, s, column, SLI_MIN(columns, (int64_t)GEMM_PANEL));
    for (int64_t tile = 0; tile < p->tiles; tile++)
      run_tile(p, s, panel, tile, packs ? p->b : g->b + s->begin * g->b_row + column,
               packs ? GEMM_PANEL : g->b_row);
  }
}

static int64_t groups_of(const sli_gemm *g) { return (g->k + g->chunk - 1) / g->chunk; }

/* Returns the steps of one part of k that a group has. */
static gemm_steps steps_of(const sli_gemm *g, int64_t group, int part) {
  if (!g->part[0]) {
    int64_t begin = group * g->chunk;
    return (gemm_steps){.begin = begin, .count = part ? 0 : SLI_MIN(g->chunk, g->k - begin)};
  }
  int64_t begin = 0, count = g->part[part] / groups_of(g);
  for (int p = 0; p < part; p++) begin += g->part[p];
  return (gemm_steps){.begin = begin + group * count, .count = count};
}

static void run_group(const gemm_block *p, int64_t group) {
  gemm_steps last = steps_of(p->g, group, 0);
  for (int part = 1; part < SL_PART_RANGES; part++) {
    gemm_steps s = steps_of(p->g, group, part);
    if (s.count) last = s;
  }
  bool first = true;
  for (int part = 0; part < SL_PART_RANGES; part++) {
    gemm_steps all = steps_of(p->g, group, part);
    int64_t blocks = (all.count + GEMM_DEPTH - 1) / GEMM_DEPTH;
    for (int64_t i = 0; i < blocks; i++, first = false) {
      int64_t begin = i * all.count / blocks, end = (i + 1) * all.count / blocks;
      bool ends = all.begin == last.begin && i + 1 == blocks;
      gemm_steps s = {all.begin + begin, end - begin, group, first, ends};
      run_steps(p, &s);
    }
  }
}

/* Returns true if each sum is made in one go. */
static bool is_short(const sli_gemm *g) {
  return groups_of(g) == 1 && g->k <= GEMM_DEPTH && !g->part[1];
}

static void make_slots(gemm_block *p) {
  int64_t slots = 1;
  for (int64_t groups = groups_of(p->g) - 1; groups; groups /= 2) slots++;
  p->area = p->panels * p->tiles * GEMM_TILE;
  p->sums = sli_room(SLI_ROOM_SUMS, (size_t)(slots * p->area) * sizeof(float));
}

static void run_block(const sli_gemm *g, int64_t row, int64_t column, int64_t columns) {
  gemm_block p = {.g = g,
                  .row = row,
                  .rows = SLI_MIN(g->rows - row, (int64_t)GEMM_HEIGHT),
                  .column = column,
                  .columns = columns,
                  .panels = (columns + GEMM_PANEL - 1) / GEMM_PANEL,
                  .b = sli_room(SLI_ROOM_PANELS, GEMM_DEPTH * GEMM_PANEL * sizeof(float))};
  p.tiles = (p.rows + GEMM_ROWS - 1) / GEMM_ROWS;
  p.a = sli_room(SLI_ROOM_ROWS,
                 (size_t)(p.tiles * (TILE_PITCH + GEMM_ROWS * 16) + LANES) * sizeof(float));
  if (!is_short(g)) make_slots(&p);
  for (int64_t group = 0; group < groups_of(g); group++) run_group(&p, group);
}

static void gemm_chunk(void *arg, int i) {
  const sli_gemm *g = arg;
  int64_t width = is_short(g) ? g->columns : GEMM_WIDTH;
  (void)i;
  for (int64_t row = 0; row < g->rows; row += GEMM_HEIGHT)
    for (int64_t column = 0; column < g->columns; column += width)
      run_block(g, row, column, SLI_MIN(width, g->columns - column));
}
