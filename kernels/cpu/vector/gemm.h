/* SPDX-License-Identifier: Apache-2.0 */
/* Products of f32 matrices where no library is at hand.
 *
 * B goes by panels of a few columns and stretches along k that fit the L1 cache, packed unless A
 * has too few rows to repay it. The sum of an element runs along k in order, whatever the chunks
 * are. */

enum { GEMM_DEPTH = 4096 / BLOCK_COLUMNS, GEMM_REPAYS = 8 };

/* Packs `steps` rows of a panel of B. */
static void pack_panel(const sli_gemm *g, int64_t k, int64_t steps, int64_t column, int64_t columns,
                       float *to) {
  if (g->b_transposed) {
    sli_turn t = {g->b + column * g->b_row + k, g->b_row, columns, steps, to, BLOCK_COLUMNS};
    turn_chunk(&t, 0);
    return;
  }
  for (int64_t r = 0; r < steps; r++, to += BLOCK_COLUMNS)
    for (int64_t c = 0; c < columns; c += LANES)
      store(to + c, load(g->b + (k + r) * g->b_row + column + c, columns - c), columns - c);
}

static void gemm_chunk(void *arg, int i) {
  const sli_gemm *g = arg;
  _Alignas(64) float packed[GEMM_DEPTH * BLOCK_COLUMNS];
  bool packs = g->b_transposed || g->rows >= GEMM_REPAYS;
  (void)i;
  for (int64_t column = 0; column < g->columns; column += BLOCK_COLUMNS)
    for (int64_t k = 0; k < g->k; k += GEMM_DEPTH) {
      int64_t columns = SLI_MIN(g->columns - column, (int64_t)BLOCK_COLUMNS),
              steps = SLI_MIN(g->k - k, (int64_t)GEMM_DEPTH);
      ahead nothing = {0};
      if (packs) pack_panel(g, k, steps, column, columns, packed);
      blocks(false, g->add || k, g->rows, columns, steps, g->a + k, g->a_row, 1,
             packs ? packed : g->b + k * g->b_row + column, packs ? BLOCK_COLUMNS : g->b_row,
             g->c + column, g->c_row, &nothing);
    }
}
