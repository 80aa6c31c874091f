/* SPDX-License-Identifier: Apache-2.0 */
/* Sluice's products of f32 matrices, with one summation order.
 *
 * An element is a sum over groups of steps of k (sli_gemm). Within a group one chain of fused
 * products runs along k, starting at 0 or, in the first group, at the bias. A binary tree over the
 * groups' numbers adds the sums of the groups: after group i a sum of 2^b groups is in slot b for
 * each bit b that is set in i + 1. The bits depend neither on the cut into chunks, blocks and tiles
 * nor on the level, if it fuses. Sums of leaves (sli_gemm.leaves) are rounded and added in f64
 * instead.
 *
 * A and B are packed: A by tiles, some of which stay in the L2 cache, B by panels, one of which
 * stays in L1. While they are multiplied, a tile of C is in registers. Between blocks of k the sums
 * are kept in separate buffers, tile after tile. */

enum { GEMM_ROWS = REGISTERS / 2 - 2, GEMM_PANEL = 2 * LANES, GEMM_TILE = GEMM_ROWS * GEMM_PANEL };
enum { GEMM_DEPTH = 6144 / GEMM_PANEL };
/* tiles of A that stay in the L2 cache; panels of B that are packed together */
enum { GEMM_TILES = (96 << 10) / (GEMM_DEPTH * GEMM_ROWS), GEMM_PANELS = 256 / GEMM_PANEL };
enum { GEMM_HEIGHT = 384, GEMM_WIDTH = 512 };
enum { GEMM_RUNS = 32, GEMM_SLOTS = 6 }; /* runs of steps packed together; slots of sums */
/* floats from tile to tile of A, and from panel to panel of B: odd numbers of cache lines */
enum { TILE_PITCH = GEMM_DEPTH * GEMM_ROWS + 16, PANEL_PITCH = GEMM_DEPTH * GEMM_PANEL + 16 };
enum { CACHE_LINE = 64 / sizeof(float), PACK_AHEAD = 8 }; /* floats; rows to prefetch ahead */

/* A block of C and its buffers. */
typedef struct gemm_block {
  const sli_gemm *g;
  int64_t row, rows, column, columns, tiles, panels;
  float *a, *b, *sums;
  int64_t area; /* floats in the sums of all tiles */
} gemm_block;

/* Some steps of k within a group, and the place where they are packed. */
typedef struct gemm_steps {
  int64_t begin, count, group, at;
  bool first, last; /* steps of the group */
} gemm_steps;

/* Steps that are packed together. */
typedef struct gemm_pack {
  gemm_steps run[GEMM_RUNS];
  int64_t runs, steps;
} gemm_pack;

static inline int64_t first_row(const gemm_block *block, int64_t tile) {
  return tile * block->rows / block->tiles;
}

/* ---- operands ---------------------------------------------------------------------- */

/* Packs a tile of A, step by step, in squares of LANES rows and steps. The excess rows of a square
 * fall on the next step, which is written later. */
static void pack_tile(const gemm_block *block, const gemm_steps *s, int64_t tile) {
  const sli_gemm *g = block->g;
  float *to = block->a + tile * TILE_PITCH + s->at * GEMM_ROWS;
  const float *from[GEMM_ROWS + LANES];
  for (int64_t r = 0; r < GEMM_ROWS + LANES; r++)
    from[r] =
        g->a + SLI_MIN(block->row + first_row(block, tile) + r, g->rows - 1) * g->a_row + s->begin;
  for (int64_t k = 0; k < s->count; k += LANES, to += LANES * GEMM_ROWS)
    for (int64_t r = (GEMM_ROWS - 1) / LANES * LANES; r >= 0; r -= LANES) {
      vec v[LANES];
      for (int l = 0; l < LANES; l++) v[l] = load(from[r + l] + k, s->count - k);
      transpose(v);
      for (int l = 0; l < LANES && l < s->count - k; l++) storeu(to + l * GEMM_ROWS + r, v[l]);
    }
}

/* Packs steps of a transposed A, which are its rows, for all tiles. */
static void pack_turned(const gemm_block *block, const gemm_steps *s) {
  const sli_gemm *g = block->g;
  const float *from = g->a + s->begin * g->a_row + block->row;
  for (int64_t k = 0; k < s->count; k++, from += g->a_row) {
    float *to = block->a + (s->at + k) * GEMM_ROWS;
    for (int64_t r = 0; r < block->rows; r += CACHE_LINE)
      __builtin_prefetch(from + PACK_AHEAD * g->a_row + r);
    for (int64_t t = 0; t < block->tiles; t++, to += TILE_PITCH)
      for (int64_t r = first_row(block, t), i = 0; i < GEMM_ROWS; i += LANES)
        storeu(to + i, load(from + r + i, block->rows - r - i));
  }
}

/* Packs A by tiles. */
static void pack_left(const gemm_block *block, const gemm_pack *k) {
  if (block->g->a_transposed) {
    for (int64_t i = 0; i < k->runs; i++) pack_turned(block, &k->run[i]);
    return;
  }
  for (int64_t t = 0; t < block->tiles; t++)
    for (int64_t i = 0; i < k->runs; i++) pack_tile(block, &k->run[i], t);
}

/* Packs steps of some columns of a transposed B, which are its rows. */
static void pack_turned_right(const gemm_block *block, const gemm_steps *s, int64_t column,
                              int64_t columns) {
  const sli_gemm *g = block->g;
  float *to = block->b + s->at * GEMM_PANEL;
  for (int64_t c = 0; c < columns; c += GEMM_PANEL, to += PANEL_PITCH) {
    int64_t rows = SLI_MIN(columns - c, (int64_t)GEMM_PANEL);
    sli_turn t = {
        g->b + (column + c) * g->b_row + s->begin, g->b_row, rows, s->count, to, GEMM_PANEL};
    turn_chunk(&t, 0);
  }
}

/* Packs steps of some columns of B by panels. Zeros fill the columns that the last one lacks. */
static void pack_right(const gemm_block *block, const gemm_steps *s, int64_t column,
                       int64_t columns) {
  const sli_gemm *g = block->g;
  const float *from = g->b + s->begin * g->b_row + column;
  for (int64_t k = 0; k < s->count; k++, from += g->b_row) {
    float *to = block->b + (s->at + k) * GEMM_PANEL;
    for (int64_t c = 0; c < columns; c += GEMM_PANEL, to += PANEL_PITCH) {
      __builtin_prefetch(from + PACK_AHEAD * g->b_row + c);
      storeu(to, load(from + c, columns - c));
      storeu(to + LANES, load(from + c + LANES, columns - c - LANES));
    }
  }
}

/* ---- tiles ------------------------------------------------------------------------- */

/* Multiplies a tile of A by a panel of B. Inlined with constant `rows`. Without unrolled steps some
 * processors reach three quarters of their rate. */
static inline __attribute__((always_inline)) void multiply_tile(int rows, bool add, int64_t steps,
                                                                const float *a, const float *b,
                                                                int64_t b_row, float *sum) {
  vec c0[GEMM_ROWS], c1[GEMM_ROWS];
  UNROLLED for (int r = 0; r < rows; r++) {
    c0[r] = add ? loadu(sum + r * GEMM_PANEL) : (vec){0};
    c1[r] = add ? loadu(sum + r * GEMM_PANEL + LANES) : (vec){0};
  }
  UNROLLED_4 for (int64_t k = 0; k < steps; k++, a += GEMM_ROWS, b += b_row) {
    vec b0 = loadu(b), b1 = loadu(b + LANES);
    UNROLLED for (int r = 0; r < rows; r++) {
      vec factor = set(a[r]);
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

#define TILE_FUNCTION(rows)                                                                       \
  static void tile_##rows(bool add, int64_t steps, const float *a, const float *b, int64_t b_row, \
                          float *sum) {                                                           \
    multiply_tile(rows, add, steps, a, b, b_row, sum);                                            \
  }
TILES(TILE_FUNCTION)

#define TILE_ROW(rows) [rows] = tile_##rows,
static tile_fn *const tile_functions[GEMM_ROWS + 1] = {TILES(TILE_ROW)};

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

/* Adds a tile's sum over a leaf to C, rounded. */
static void add_leaf(const sli_gemm *g, int64_t row, int64_t rows, int64_t column, int64_t columns,
                     const float *sum, bool add) {
  double *c = g->leaves + row * g->c_row + column;
  const dhalf shift = SLI_LEAF_SHIFT - (dhalf){0};
  for (int64_t r = 0; r < rows; r++, c += g->c_row, sum += GEMM_PANEL) {
    int64_t i = 0;
    for (; i + LANES <= columns; i += LANES) {
      dvec v = widen(loadu(sum + i));
      dhalf_unaligned *low = (dhalf_unaligned *)(c + i), *high = low + 1;
      v.low = (v.low + shift) - shift;
      v.high = (v.high + shift) - shift;
      if (add) v.low += *low, v.high += *high;
      *low = v.low;
      *high = v.high;
    }
    for (; i < columns; i++) c[i] = (add ? c[i] : 0) + sli_leaf_round(sum[i]);
  }
}

/* Prefetches a tile of C for writing. */
static inline void prefetch_tile(const sli_gemm *g, int64_t row, int64_t rows, int64_t column) {
  int64_t width = g->leaves ? sizeof(double) : sizeof(float), row_bytes = g->c_row * width;
  const char *c = g->leaves ? (const char *)g->leaves : (const char *)g->c;
  c += row * row_bytes + column * width;
  for (int64_t r = 0; r < rows; r++, c += row_bytes)
    for (int64_t i = 0; i < GEMM_PANEL * width; i += CACHE_LINE * sizeof(float))
      __builtin_prefetch(c + i, 1);
}

/* Adds a group's sum to those of earlier groups, in the slots that follow at distances of `area`
 * floats. */
static void add_group(int64_t group, bool last, float *sum, int64_t count, int64_t area) {
  int64_t left = group;
  float *slot = sum + area;
  for (; left & 1 || (last && left); left >>= 1, slot += area)
    if (left & 1) add_sums(sum, slot, count);
  if (!last) memcpy(slot, sum, (size_t)count * sizeof *sum);
}

/* Fills a tile's sum with the bias. */
static void begin_with(const float *bias, int64_t columns, int64_t rows, float *sum) {
  for (int64_t r = 0; r < rows; r++, sum += GEMM_PANEL)
    for (int64_t i = 0; i < GEMM_PANEL; i += LANES) storeu(sum + i, load(bias + i, columns - i));
}

/* Multiplies a tile of A by a panel of B: `b`, packed if `b_row` is 0. */
static void run_tile(const gemm_block *block, const gemm_pack *k, int64_t panel, int64_t tile,
                     const float *b, int64_t b_row) {
  _Alignas(64) float own[GEMM_SLOTS * GEMM_TILE];
  const sli_gemm *g = block->g;
  int64_t row = first_row(block, tile), rows = first_row(block, tile + 1) - row;
  float *sum = block->sums ? block->sums + (panel * block->tiles + tile) * GEMM_TILE : own;
  int64_t column = block->column + panel * GEMM_PANEL,
          columns = SLI_MIN(block->columns - panel * GEMM_PANEL, (int64_t)GEMM_PANEL);
  prefetch_tile(g, block->row + row, rows, column);
  for (const gemm_steps *s = k->run; s < k->run + k->runs; s++) {
    bool biased = s->first && !s->group && g->bias;
    if (biased) begin_with(g->bias + column, columns, rows, sum);
    tile_functions[rows](
        !s->first || biased, s->count, block->a + tile * TILE_PITCH + s->at * GEMM_ROWS,
        b + (b_row ? s->begin * b_row : s->at * GEMM_PANEL), b_row ? b_row : GEMM_PANEL, sum);
    if (!s->last) continue;
    if (g->leaves) {
      add_leaf(g, block->row + row, rows, column, columns, sum, g->add || s->group);
      continue;
    }
    bool ends = (s->group + 1) * g->chunk >= g->k;
    add_group(s->group, ends, sum, rows * GEMM_PANEL, block->area);
    if (ends) write_tile(g, block->row + row, rows, column, columns, sum);
  }
}

/* ---- blocks ------------------------------------------------------------------------ */

/* Multiplies some tiles of A by some columns of B, whose panels are `pitch` floats apart. */
static void run_tiles(const gemm_block *block, const gemm_pack *k, int64_t tile, int64_t panel,
                      int64_t columns, const float *b, int64_t b_row, int64_t pitch) {
  int64_t end = SLI_MIN(tile + GEMM_TILES, block->tiles);
  for (; columns > 0; columns -= GEMM_PANEL, panel++, b += pitch)
    for (int64_t t = tile; t < end; t++) run_tile(block, k, panel, t, b, b_row);
}

/* Multiplies by some columns of B, packed if several tiles read them or a panel is not whole. */
static void run_strip(const gemm_block *block, const gemm_pack *k, int64_t panel, int64_t columns) {
  const sli_gemm *g = block->g;
  int64_t column = block->column + panel * GEMM_PANEL;
  bool packs = g->b_transposed || block->tiles > 1 || columns % GEMM_PANEL;
  for (int64_t i = 0; i < k->runs && packs; i++)
    (g->b_transposed ? pack_turned_right : pack_right)(block, &k->run[i], column, columns);
  for (int64_t tile = 0; tile < block->tiles; tile += GEMM_TILES)
    run_tiles(block, k, tile, panel, columns, packs ? block->b : g->b + column,
              packs ? 0 : g->b_row, packs ? PANEL_PITCH : GEMM_PANEL);
}

static void run_pack(const gemm_block *block, const gemm_pack *k) {
  enum { STRIP = GEMM_PANELS * GEMM_PANEL };
  pack_left(block, k);
  for (int64_t panel = 0; panel < block->panels; panel += GEMM_PANELS)
    run_strip(block, k, panel, SLI_MIN(block->columns - panel * GEMM_PANEL, (int64_t)STRIP));
}

static int64_t groups_of(const sli_gemm *g) { return (g->k + g->chunk - 1) / g->chunk; }

/* Returns the steps of one part of k that belong to a group. */
static gemm_steps steps_of(const sli_gemm *g, int64_t group, int part) {
  if (!g->part[0]) {
    int64_t begin = group * g->chunk;
    return (gemm_steps){.begin = begin, .count = part ? 0 : SLI_MIN(g->chunk, g->k - begin)};
  }
  int64_t begin = 0, count = g->part[part] / groups_of(g);
  for (int p = 0; p < part; p++) begin += g->part[p];
  return (gemm_steps){.begin = begin + group * count, .count = count};
}

/* A place along k: a group, a part of it, and the steps done in that part. */
typedef struct gemm_place {
  int64_t group, done;
  int part;
} gemm_place;

static bool is_last_part(const sli_gemm *g, const gemm_place *at) {
  for (int part = at->part + 1; part < SL_PART_RANGES; part++)
    if (steps_of(g, at->group, part).count) return false;
  return true;
}

/* Takes and returns at most `most` steps. */
static gemm_steps take_steps(const sli_gemm *g, gemm_place *at, int64_t most) {
  gemm_steps s = steps_of(g, at->group, at->part);
  bool first = !at->done && !at->part, ends = s.count - at->done <= most;
  s.first = first;
  s.last = ends && is_last_part(g, at);
  s.group = at->group;
  s.begin += at->done;
  s.count = ends ? s.count - at->done : most;
  at->done = ends ? 0 : at->done + s.count;
  at->part = s.last ? 0 : at->part + ends;
  at->group += s.last;
  return s;
}

/* Takes steps to pack together; for leaves, whole leaves if they fit. */
static gemm_pack take_pack(const sli_gemm *g, gemm_place *at) {
  gemm_pack k = {0};
  int64_t least = g->leaves ? SLI_MIN(g->chunk, (int64_t)GEMM_DEPTH) : 1;
  while (k.steps + least <= GEMM_DEPTH && k.runs < GEMM_RUNS && at->group < groups_of(g)) {
    gemm_steps s = take_steps(g, at, GEMM_DEPTH - k.steps);
    s.at = k.steps;
    k.steps += s.count;
    k.run[k.runs] = s;
    k.runs += s.count > 0;
  }
  return k;
}

/* Returns the number of slots of sums: for the current group and for earlier groups. */
static int64_t slots_of(const sli_gemm *g) {
  int64_t slots = 1;
  for (int64_t groups = g->leaves ? 0 : groups_of(g) - 1; groups; groups /= 2) slots++;
  return slots;
}

/* Returns true if all steps, or all steps of a leaf, are packed together. */
static bool is_short(const sli_gemm *g) {
  if (g->leaves) return g->chunk <= GEMM_DEPTH;
  return g->k <= GEMM_DEPTH && groups_of(g) * (g->part[0] ? SL_PART_RANGES : 1) <= GEMM_RUNS &&
         slots_of(g) <= GEMM_SLOTS;
}

static void run_block(const sli_gemm *g, int64_t row, int64_t column, int64_t columns) {
  gemm_block p = {.g = g,
                  .row = row,
                  .rows = SLI_MIN(g->rows - row, (int64_t)GEMM_HEIGHT),
                  .column = column,
                  .columns = columns,
                  .panels = (columns + GEMM_PANEL - 1) / GEMM_PANEL,
                  .b = sli_room(SLI_ROOM_PANELS, (size_t)GEMM_PANELS * PANEL_PITCH * sizeof(float)),
                  .area = GEMM_TILE};
  p.tiles = (p.rows + GEMM_ROWS - 1) / GEMM_ROWS;
  p.a = sli_room(SLI_ROOM_ROWS, (size_t)(p.tiles * TILE_PITCH) * sizeof(float));
  if (!is_short(g)) {
    p.area = p.panels * p.tiles * GEMM_TILE;
    p.sums = sli_room(SLI_ROOM_SUMS, (size_t)(slots_of(g) * p.area) * sizeof(float));
  }
  for (gemm_place at = {0}; at.group < groups_of(g);) {
    gemm_pack k = take_pack(g, &at);
    run_pack(&p, &k);
  }
}

static void gemm_chunk(void *arg, int i) {
  const sli_gemm *g = arg;
  int64_t width = is_short(g) ? g->columns : GEMM_WIDTH;
  (void)i;
  for (int64_t row = 0; row < g->rows; row += GEMM_HEIGHT)
    for (int64_t column = 0; column < g->columns; column += width)
      run_block(g, row, column, SLI_MIN(width, g->columns - column));
}
