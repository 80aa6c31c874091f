/* Products of matrices in f32.
 *
 * A tile of C, TALL rows by up to WIDE vectors of columns, stays in registers while its sums grow. What it reads of B
 * lies in a panel: the columns of a tile, row behind row, zeros behind the last. What it reads of A are its rows as
 * they are, or, where A is stored the other way round, a strip: TALL of its columns, row behind row. A panel is
 * packed once for all rows of a piece, a strip once for all panels.
 *
 * A sum goes number by number through DEPTH of them, and such sums are added up one behind the other. So a number of C
 * depends on its row, its column and k alone, whatever its piece is, and however many rows there are.
 *
 * Operands come from outside the caches, and processors fetch ahead along rows alone. So every STEP numbers a tile
 * fetches what comes next: rows of A for the tile below it, and some of B for the next panel. */
#if defined(__AVX512F__)

enum { TALL = 8, WIDE = 3, DEPTH = SLI_PRODUCT_DEPTH, STEP = 16, STRIPS_AHEAD = 2 * STEP };

/* Rows of lines that will be read, and how many lines a tile fetches of them for every STEP numbers. */
typedef struct coming {
  const float *row;
  int64_t stride, lines, line, left; /* left: all lines not fetched yet */
  int each;
} coming;

/* A tile: numbers of A are a_row and a_step floats apart, along its rows and along k. */
typedef struct product_tile {
  int64_t k, a_row, a_step, n, columns;
  const float *a, *panel, *bias; /* bias: NULL, unless k ends here */
  float *c;
  bool add;         /* to what is in C */
  bool below;       /* fetch A's rows for the next tile */
  coming *b;
} product_tile;

static inline void fetch_some(coming *b) {
  for (int i = 0; i < b->each && b->left; i++, b->left--) {
    __builtin_prefetch(b->row + b->line * STEP, 0, 2);
    if (++b->line == b->lines) b->line = 0, b->row += b->stride;
  }
}

static inline __attribute__((always_inline)) void multiply_step(int tall, int wide, const product_tile *t, int64_t k,
                                                                vec *acc) {
  vec b[WIDE];
#pragma GCC unroll 4
  for (int v = 0; v < wide; v++) b[v] = loadu(t->panel + (k * wide + v) * LANES);
#pragma GCC unroll 8
  for (int r = 0; r < tall; r++) {
    vec a = set(t->a[r * t->a_row + k * t->a_step]);
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) acc[r * wide + v] = plus_product(acc[r * wide + v], a, b[v]);
  }
}

static inline __attribute__((always_inline)) void finish_row(int wide, const product_tile *t, float *c,
                                                             const vec *acc) {
#pragma GCC unroll 4
  for (int v = 0; v < wide; v++) {
    int64_t at = v * LANES, left = t->columns - at;
    vec y = acc[v];
    if (t->add) y = load(c + at, left) + y;
    if (t->bias) y += load(t->bias + at, left);
    store(c + at, y, left);
  }
}

static inline __attribute__((always_inline)) void multiply_tile(int tall, int wide, const product_tile *given) {
  const product_tile t = *given;
  vec acc[TALL * WIDE];
#pragma GCC unroll 24
  for (int i = 0; i < tall * wide; i++) acc[i] = (vec){0};
#pragma GCC unroll 8
  for (int r = 0; r < tall; r++)
    for (int v = 0; v < wide; v++) __builtin_prefetch(t.c + r * t.n + v * LANES, 1);
  for (int64_t begin = 0; begin < t.k; begin += STEP) {
    int64_t end = begin + STEP < t.k ? begin + STEP : t.k;
    for (int r = 0; t.below && r < tall; r++) __builtin_prefetch(t.a + (r + tall) * t.a_row + begin, 0, 2);
    fetch_some(t.b);
    for (int64_t k = begin; k < end; k++) multiply_step(tall, wide, &t, k, acc);
  }
#pragma GCC unroll 8
  for (int r = 0; r < tall; r++) finish_row(wide, &t, t.c + r * t.n, acc + r * wide);
}

#define TILE(tall, wide) \
  static void tile_##tall##_##wide(const product_tile *t) { multiply_tile(tall, wide, t); }
#define TILES(tall) TILE(tall, 1) TILE(tall, 2) TILE(tall, 3)
TILES(8) TILES(4) TILES(2) TILES(1)

/* Tiles of 1, 2, 4 and 8 rows. */
static void (*const tiles[4][WIDE])(const product_tile *t) = {{tile_1_1, tile_1_2, tile_1_3},
                                                              {tile_2_1, tile_2_2, tile_2_3},
                                                              {tile_4_1, tile_4_2, tile_4_3},
                                                              {tile_8_1, tile_8_2, tile_8_3}};

/* ---- panels and strips --------------------------------------------------------------- */

static int64_t panel_columns(int64_t left) {
  return left < WIDE * LANES ? left : WIDE * LANES;
}

/* Of [k, n]: numbers `depth` of `columns` columns. */
static void pack_plain(const float *b, int64_t n, sli_range depth, int64_t columns, float *panel) {
  for (int64_t k = depth.begin; k < depth.end; k++)
    for (int64_t v = 0; v < columns; v += LANES, panel += LANES) storeu(panel, load(b + k * n + v, columns - v));
}

/* Of [n, k]: squares of LANES by LANES numbers. */
static void pack_turned(const float *b, int64_t row, sli_range depth, int64_t columns, float *panel) {
  int64_t wide = (columns + LANES - 1) / LANES;
  for (int64_t k = depth.begin; k < depth.end; k += LANES)
    for (int64_t v = 0; v < wide; v++) {
      vec square[LANES];
      for (int l = 0; l < LANES; l++) {
        int64_t there = v * LANES + l < columns ? depth.end - k : 0;
        square[l] = load(b + (v * LANES + l) * row + k, there);
      }
      transpose(square);
      for (int l = 0; l < LANES; l++) storeu(panel + ((k - depth.begin + l) * wide + v) * LANES, square[l]);
    }
}

static void pack_panel(const sli_multiplying *m, sli_range depth, int64_t column, int64_t columns, float *panel) {
  if (m->b_transposed) pack_turned(m->b + column * m->k, m->k, depth, columns, panel);
  else pack_plain(m->b + column, m->n, depth, columns, panel);
}

/* Where the panel of these columns will be read, by so many tiles before it. */
static coming next_panel(const sli_multiplying *m, sli_range depth, int64_t column, int64_t end, int64_t before) {
  if (column >= end) return (coming){0};
  int64_t columns = panel_columns(end - column), numbers = depth.end - depth.begin;
  bool turned = m->b_transposed;
  int64_t stride = turned ? m->k : m->n;
  coming b = {.row = m->b + (turned ? column * stride + depth.begin : depth.begin * stride + column),
              .stride = stride, .lines = ((turned ? numbers : columns) + STEP - 1) / STEP};
  b.left = b.lines * (turned ? columns : numbers);
  int64_t turns = before * ((numbers + STEP - 1) / STEP);
  b.each = (int)((b.left + turns - 1) / turns);
  return b;
}

/* Two strips, of LANES columns of A [k, m] from a on; as many as are there. */
static void pack_strips(const float *a, int64_t m, int64_t numbers, int64_t there, float *strips) {
  float *second = strips + TALL * numbers;
  for (int64_t k = 0; k < numbers; k++) {
    __builtin_prefetch(a + k * m + STRIPS_AHEAD, 0, 2);
    __m512 v = (__m512)load(a + k * m, there);
    _mm256_storeu_ps(strips + k * TALL, _mm512_castps512_ps256(v));
    if (there > TALL) _mm256_storeu_ps(second + k * TALL, _mm512_extractf32x8_ps(v, 1));
  }
}

static void pack_rows_of(const sli_multiplying *m, sli_range depth, sli_range rows, float *strips) {
  int64_t numbers = depth.end - depth.begin;
  for (int64_t r = rows.begin; r < rows.end; r += LANES)
    pack_strips(m->a + depth.begin * m->m + r, m->m, numbers, rows.end - r, strips + (r - rows.begin) * numbers);
}

/* ---- a piece ------------------------------------------------------------------------- */

/* Row r of a piece that begins with row 0 of C's rows here. */
static void place_tile(const sli_multiplying *m, product_tile *t, sli_range depth, int64_t from, int64_t r,
                       const float *strips) {
  if (m->a_transposed) t->a = strips + (r - from) / TALL * TALL * t->k + (r - from) % TALL;
  else t->a = m->a + r * m->k + depth.begin;
}

/* All rows of a piece by one panel. */
static void multiply_panel(const sli_multiplying *m, product_tile *t, sli_range depth, sli_range rows,
                           int64_t column, const float *strips) {
  int64_t wide = (t->columns + LANES - 1) / LANES;
  for (int64_t r = rows.begin, tall; r < rows.end; r += tall) {
    int kind = rows.end - r >= TALL ? 3 : 31 - __builtin_clz((unsigned)(rows.end - r));
    tall = 1 << kind;
    place_tile(m, t, depth, rows.begin, r, strips);
    t->c = m->c + r * m->n + column;
    tiles[kind][wide - 1](t);
  }
}

static void multiply_depth(const sli_multiplying *m, sli_range depth, sli_range rows, sli_range columns) {
  float *panel = m->room, *strips = panel + WIDE * LANES * DEPTH;
  bool turned = m->a_transposed, last = depth.end == m->k;
  coming b;
  product_tile t = {.k = depth.end - depth.begin, .a_row = turned ? 1 : m->k, .a_step = turned ? TALL : 1, .n = m->n,
                    .panel = panel, .add = m->add || depth.begin, .b = &b};
  if (turned) pack_rows_of(m, depth, rows, strips);
  for (int64_t c = columns.begin; c < columns.end; c += t.columns) {
    t.columns = panel_columns(columns.end - c);
    t.below = !turned && c == columns.begin;
    t.bias = m->bias && last ? m->bias + c : NULL;
    b = next_panel(m, depth, c + t.columns, columns.end, (rows.end - rows.begin + TALL - 1) / TALL);
    pack_panel(m, depth, c, t.columns, panel);
    multiply_panel(m, &t, depth, rows, c, strips);
  }
}

static void product_chunk(void *arg, int i) {
  const sli_multiplying *m = arg;
  int tall = sli_chunk_count(m->m, m->rows);
  sli_range rows = sli_chunk_range(m->m, m->rows, i % tall);
  sli_range columns = sli_chunk_range(m->n, m->columns, i / tall);
  for (int d = 0; d < sli_chunk_count(m->k, DEPTH); d++)
    multiply_depth(m, sli_chunk_range(m->k, DEPTH, d), rows, columns);
}
#endif
