/* SPDX-License-Identifier: Apache-2.0 */
/* Products in f32 on tiles of bf16.
 *
 * A number is the exact sum of three bf16 numbers, because 24 bits are three times eight. The first
 * part is the number rounded, the second the remainder rounded, the third the last remainder. A
 * product of two numbers is nine products of parts, of which six are enough. The other three
 * together are below 2^-23 of the result, and usually a tenth of that; an f32 is rounded by up to
 * 2^-24 (Henry, Tang, Heinecke, Leveraging the bfloat16 artificial intelligence datatype for
 * higher-precision computations, arXiv 1904.06376). Products treat parts below 2^-126 as 0, so
 * numbers below 2^-110 lose some of their bits. Infinite numbers, and those from 0x1.ffp127 on,
 * become NaN in their second part.
 *
 * A chunk proceeds along k in stretches, whose parts stay in the caches, and through a stretch
 * strip by strip. The tile unit runs beside the vector units but looks only a few tiles ahead. The
 * next strip and the next stretch's panels are therefore split between its products, some rows at a
 * time. */

/* ---- splitting -------------------------------------------------------------------- */

/* Rounds to nearest (ties away from 0), carrying into the exponent; the lower half is 0. */
static inline uvec upper_half(vec x) { return ((uvec)x + 0x8000u) & 0xffff0000u; }

/* Stores the parts of two numbers per lane, as words. Parts are a square apart. The third part is
 * cut, not rounded: its lower half is empty, except for a NaN, which must stay a NaN. */
static inline void store_parts(uint16_t *to, vec low, vec high) {
  for (int part = 0; part + 1 < SLI_PARTS; part++, to += SLI_SQUARE) {
    uvec l = upper_half(low), h = upper_half(high);
    store_pairs(to, (vec)(l >> 16 | h));
    low -= (vec)l;
    high -= (vec)h;
  }
  store_pairs(to, (vec)((uvec)low >> 16 | ((uvec)high & 0xffff0000u)));
}

/* Unit of splitting: 16 lines by 32 steps of k, half of a square. */
enum { HALF = 16 };
typedef struct piece {
  const float *from;
  int64_t row, second; /* stride between rows; distance from a word's first number to its second */
  uint16_t *to;
} piece;

/* Splits rows of words. A word has steps k and k + 16, not neighbours as elsewhere, so that no
 * number changes its lane. A row runs along k in a strip, across k in a panel. */
static inline void split_rows(const piece *p, int first, int end, int pitch) {
  for (int r = first; r < end; r++)
    for (int w = 0; w < HALF; w += LANES) {
      const float *from = p->from + r * p->row + w;
      store_parts(p->to + r * pitch + 2 * w, loadu(from), loadu(from + p->second));
    }
}

/* Transposes the words' first numbers, or their second, of a piece stored the other way round. */
static inline void turn_half(const float *from, int64_t row, float *to) {
  for (int r = 0; r < HALF; r += LANES)
    for (int w = 0; w < HALF; w += LANES)
      turn_square(from + w * row + r, row, to + r * HALF + w, HALF);
}

/* ---- piece by piece ---------------------------------------------------------------- */

/* Order of a side's pieces: by stretch, then by strip (or panel), then by square. A piece is
 * prefetched when the one PIECES_AHEAD before it is split. */
enum { PIECES_AHEAD = 8 };

typedef struct place {
  int64_t line, k;
} place;

typedef struct splitter {
  const sli_side *side;
  bool strips;       /* strips; otherwise panels */
  bool turns;        /* rows of words are columns in memory */
  int64_t k;         /* total steps */
  place next, ahead; /* next to split; next to prefetch */
  uint16_t *to;      /* place of the next square */
  int room;          /* which of two buffers */
  _Alignas(64) float turned[2][HALF * HALF], whole[SLI_SQUARE];
} splitter;

static inline int64_t stretch_end(int64_t k, int64_t all) {
  return SLI_MIN(k - k % SLI_DEPTH + SLI_DEPTH, all);
}

static inline int64_t squares_from(int64_t k, int64_t all) {
  return k < all ? sli_strips(stretch_end(k, all) - k) : 0;
}

/* Advances to the next piece, and returns what ended before it. */
enum { END_OF_NONE, END_OF_STRIP, END_OF_STRETCH };
static inline int go_on(const splitter *s, place *p) {
  p->line += HALF;
  if (p->line % SLI_STRIP) return END_OF_NONE;
  int64_t begin = p->k - p->k % SLI_DEPTH, end = stretch_end(p->k, s->k);
  p->k += SLI_STRIP;
  if (p->k < end) {
    p->line -= SLI_STRIP;
    return END_OF_NONE;
  }
  bool more = p->line < s->side->lines;
  p->k = more ? begin : end;
  if (!more) p->line = 0;
  return more ? END_OF_STRIP : END_OF_STRETCH;
}

static inline const float *numbers_at(const splitter *s, place p) {
  const sli_side *side = s->side;
  return side->from + (side->along_k ? p.line * side->row + p.k : p.k * side->row + p.line);
}

/* Pads a piece with zeros at the edge of the matrix. */
static __attribute__((noinline)) void fill_up(splitter *s, piece *p) {
  int64_t lines = SLI_MAX(SLI_MIN(s->side->lines - s->next.line, HALF), 0),
          steps = SLI_MIN(s->k - s->next.k, SLI_STRIP);
  int64_t rows = s->side->along_k ? lines : steps, columns = s->side->along_k ? steps : lines;
  memset(s->whole, 0, sizeof s->whole);
  for (int64_t r = 0; r < rows && columns; r++)
    memcpy(s->whole + r * SLI_STRIP, p->from + r * p->row, (size_t)columns * sizeof *s->whole);
  p->from = s->whole;
  p->row = SLI_STRIP;
}

static inline piece begin_piece(splitter *s) {
  piece p = {.from = numbers_at(s, s->next), .row = s->side->row, .to = s->to};
  if (s->next.line % SLI_STRIP) p.to += s->strips ? HALF * SLI_STRIP : SLI_STRIP;
  if (s->next.line + HALF > s->side->lines || s->next.k + SLI_STRIP > s->k) fill_up(s, &p);
  p.second = s->side->along_k ? HALF : HALF * p.row;
  return p;
}

/* Ends a piece. A buffer holds a strip, or all panels of a stretch. */
static inline void end_piece(splitter *s) {
  if (s->next.line % SLI_STRIP) s->to += SLI_PARTS * SLI_SQUARE;
  int ended = go_on(s, &s->next);
  if (ended < (s->strips ? END_OF_STRIP : END_OF_STRETCH)) return;
  s->room ^= 1;
  s->to =
      s->side->room + s->room * (s->strips ? 1 : sli_strips(s->side->lines)) * SLI_STRETCH_NUMBERS;
}

/* Returns the address of the next piece to prefetch, or any address if there is none. */
static inline const float *look_ahead(splitter *s) {
  if (s->ahead.k >= s->k) return s->side->from;
  const float *from = numbers_at(s, s->ahead);
  go_on(s, &s->ahead);
  return from;
}

/* Prefetches one of `parts` equal parts of its rows. */
static inline void ask_share(const splitter *s, const float *from, int part, int parts) {
  int rows = s->side->along_k ? HALF : SLI_STRIP;
  for (int r = rows * part / parts; r < rows * (part + 1) / parts; r++) {
    __builtin_prefetch(from + r * s->side->row, 0, 2);
    if (s->side->along_k) __builtin_prefetch(from + r * s->side->row + HALF, 0, 2);
  }
}

static inline void begin_splitting(splitter *s, const sli_side *side, bool strips, int64_t k) {
  s->side = side;
  s->strips = strips;
  s->turns = strips != side->along_k;
  s->k = k;
  s->next = s->ahead = (place){0};
  s->to = side->room;
  s->room = 0;
  for (int i = 0; i < PIECES_AHEAD; i++) ask_share(s, look_ahead(s), 0, 1);
}

/* ---- beside products ------------------------------------------------------------------ */

/* The six products of parts, smallest first; consecutive products share an operand. */
enum { PART_PRODUCTS = 6 };
static const struct {
  int8_t a, b;
} part_products[PART_PRODUCTS] = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}};

static inline void add_part_product(quarters *q, int p, const uint16_t *a, const uint16_t *b) {
  int left = part_products[p].a, right = part_products[p].b;
  add_squares(q, a + left * SLI_SQUARE, p && left == part_products[p - 1].a, b + right * SLI_SQUARE,
              p && right == part_products[p - 1].b);
}

/* Splits the next piece, some rows after each product of two squares (no products if `q` is NULL).
 * Inlined with constant flags. */
static inline __attribute__((always_inline)) void split_shares(splitter *s, bool strips, bool turns,
                                                               quarters *q, const uint16_t *a,
                                                               const uint16_t *b) {
  piece p = begin_piece(s);
  const float *ahead = look_ahead(s);
  int pitch = strips ? SLI_STRIP : 2 * SLI_STRIP, halves = turns ? 2 : 0,
      shares = PART_PRODUCTS - halves;
#pragma GCC unroll 6
  for (int i = 0; i < PART_PRODUCTS; i++) {
    if (q) add_part_product(q, i, a, b);
    ask_share(s, ahead, i, PART_PRODUCTS);
    if (i < halves) {
      turn_half(p.from + i * p.second, p.row, s->turned[i]);
      continue;
    }
    if (turns && i == halves) p = (piece){s->turned[0], HALF, HALF * HALF, p.to};
    split_rows(&p, HALF * (i - halves) / shares, HALF * (i - halves + 1) / shares, pitch);
  }
  end_piece(s);
}

static __attribute__((noinline)) void split_beside(splitter *s, quarters *q, const uint16_t *a,
                                                   const uint16_t *b) {
  if (s->strips && s->turns) split_shares(s, true, true, q, a, b);
  else if (s->strips) split_shares(s, true, false, q, a, b);
  else if (s->turns) split_shares(s, false, true, q, a, b);
  else split_shares(s, false, false, q, a, b);
}

static inline void split_alone(splitter *s) { split_beside(s, NULL, NULL, NULL); }

/* ---- a chunk ------------------------------------------------------------------------- */

/* State of a chunk. While a strip is multiplied, the next strip is split, along with some of the
 * next stretch's panels. During the very first strip the first panels are split too, each before it
 * is needed. */
typedef struct split_run {
  const sli_split_product *p;
  splitter a, b;
  int64_t squares;        /* squares of a strip and of a panel, in this stretch */
  int64_t a_left, b_left; /* pieces to split while this strip is multiplied */
  /* pieces of this stretch's panels that are split, plus those of the next one */
  int64_t b_split;
} split_run;

/* Returns the splitter of the next piece, or NULL if there is none. */
static inline splitter *next_splitter(split_run *r) {
  if (r->a_left > 0) return r->a_left--, &r->a;
  if (r->b_left > 0) return r->b_left--, r->b_split++, &r->b;
  return NULL;
}

static inline void multiply_block(split_run *r, const uint16_t *a, const uint16_t *b,
                                  const tile_block *block) {
  quarters q;
  begin_block(&q, block);
  for (int64_t k = 0; k < r->squares;
       k++, a += SLI_PARTS * SLI_SQUARE, b += SLI_PARTS * SLI_SQUARE) {
    splitter *s = next_splitter(r);
    if (s) split_beside(s, &q, a, b);
    else
      for (int p = 0; p < PART_PRODUCTS; p++) add_part_product(&q, p, a, b);
  }
  end_block(&q, block);
}

/* Multiplies a strip of `rows` rows by all panels; `block` is the first block of C. */
static void multiply_strip(split_run *r, const uint16_t *a, const uint16_t *b, int64_t rows,
                           tile_block block) {
  for (int64_t n = 0, pieces = 2 * r->squares; n < r->p->b.lines;
       n += SLI_STRIP, pieces += 2 * r->squares) {
    int64_t columns = SLI_MIN(r->p->b.lines - n, SLI_STRIP);
    tile_block at = block;
    edge e;
    for (; r->b_split < pieces; r->b_split++, r->b_left--) split_alone(&r->b);
    begin_edge(&e, &at, rows, columns);
    multiply_block(r, a, b, &at);
    end_edge(&e);
    b += r->squares * SLI_PARTS * SLI_SQUARE;
    block.c += SLI_STRIP;
    if (block.sums) block.sums += SLI_STRIP;
    if (block.bias) block.bias += SLI_STRIP;
  }
}

/* Returns the source and the destination of the sums of a strip's first block. */
static tile_block first_block(const sli_split_product *p, int64_t k, int64_t strip) {
  int64_t row = strip * SLI_STRIP, sums_row = sli_strips(p->b.lines) * SLI_STRIP;
  float *c = p->c + row * p->c_row;
  bool last = stretch_end(k, p->k) == p->k;
  tile_block b = {.bias = p->bias,
                  .c = c,
                  .c_row = p->c_row,
                  .streams = last && p->streams && can_stream(c, p->c_row)};
  if (k) b.sums = p->sums + row * sums_row, b.sums_row = sums_row;
  else if (p->adds) b.sums = c, b.sums_row = p->c_row;
  if (!last) b.c = p->sums + row * sums_row, b.c_row = sums_row;
  return b;
}

/* Multiplies the stretch from step k on; each strip and panel of the following stretch has `next`
 * squares. Strips and stretches alternate between their buffers. */
static void multiply_stretch(split_run *r, int64_t k, int64_t next) {
  const sli_split_product *p = r->p;
  int64_t strips = sli_strips(p->a.lines), panels = sli_strips(p->b.lines),
          pieces = 2 * next * panels;
  int64_t stretch = k / SLI_DEPTH;
  const uint16_t *b = p->b.room + stretch % 2 * panels * SLI_STRETCH_NUMBERS;
  for (int64_t i = 0; i < strips; i++) {
    r->a_left = 2 * (i + 1 < strips ? r->squares : next);
    r->b_left += pieces * (i + 1) / strips - pieces * i / strips;
    multiply_strip(r, p->a.room + (stretch * strips + i) % 2 * SLI_STRETCH_NUMBERS, b,
                   SLI_MIN(p->a.lines - i * SLI_STRIP, SLI_STRIP), first_block(p, k, i));
    for (splitter *s; (s = next_splitter(r));) split_alone(s);
  }
  r->b_split -= 2 * r->squares * panels;
}

static void split_product_chunk(void *arg, int i) {
  (void)i;
  const sli_split_product *p = arg;
  split_run r;
  begin_tiles();
  begin_splitting(&r.a, &p->a, true, p->k);
  begin_splitting(&r.b, &p->b, false, p->k);
  r.p = p;
  r.squares = squares_from(0, p->k);
  r.b_split = 0;
  r.b_left = 2 * r.squares * sli_strips(p->b.lines);
  for (int64_t piece = 0; piece < 2 * r.squares; piece++) split_alone(&r.a);
  for (int64_t k = 0, next; k < p->k; k = stretch_end(k, p->k), r.squares = next) {
    next = squares_from(stretch_end(k, p->k), p->k);
    multiply_stretch(&r, k, next);
  }
  end_tiles();
}
