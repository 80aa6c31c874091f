/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of tokens by an indexer equals a plain reference, of whole sequences and over the
 * pages of a server, where a row's choice does not depend on the other rows. Numbers are whole, so
 * scores are exact and many are equal.
 * labels: unthreaded random */
#include <sluice/attention.h>

#include "base/base.h"
#include "ops/pages.h"
#include "ops/storage.h"
#include "ops/batch.h"
#include "tests/support/kernel_call.h"
#include "tests/support/seeds.h"

enum { SEQUENCES = 3, OWN = 3, PAGES = 11, HEADS = 3, DIM = 37, MOST = 150 };

static const int32_t tables[SEQUENCES][OWN] = {{4, 9, 0}, {7, 1, 10}, {2, 3, 8}};
static float q[SEQUENCES][MOST][HEADS * DIM], k[SEQUENCES][MOST][DIM], w[SEQUENCES][MOST][HEADS];

/* Keys begin with 127, the number that pages in Q8_0 keep exactly. */
static void draw(void) {
  for (int s = 0; s < SEQUENCES; s++)
    for (int t = 0; t < MOST; t++) {
      for (int i = 0; i < HEADS * DIM; i++) q[s][t][i] = (float)(random_below(5) - 2);
      for (int i = 0; i < DIM; i++) k[s][t][i] = i % 32 ? (float)(random_below(5) - 2) : 127;
      for (int i = 0; i < HEADS; i++) w[s][t][i] = (float)(random_below(5) - 2);
    }
}

/* Sets chosen[n] for the `count` best of positions 0..t. */
static void reference(int s, int t, int64_t count, bool *chosen) {
  double scores[MOST];
  for (int j = 0; j <= t; j++) {
    scores[j] = 0;
    chosen[j] = false;
    for (int h = 0; h < HEADS; h++) {
      double dot = 0;
      for (int d = 0; d < DIM; d++) dot += (double)q[s][t][h * DIM + d] * (double)k[s][j][d];
      scores[j] += dot > 0 ? (double)w[s][t][h] * dot : 0;
    }
  }
  for (int64_t n = 0; n < count && n <= t; n++) {
    int best = -1;
    for (int j = 0; j <= t; j++)
      if (!chosen[j] && (best < 0 || scores[j] > scores[best])) best = j;
    chosen[best] = true;
  }
}

static void check_list(int s, int t, int64_t count, const int32_t *list) {
  bool chosen[MOST];
  int64_t n = 0;
  reference(s, t, count, chosen);
  for (int32_t j = 0; j <= t; j++)
    if (chosen[j]) CHECK(n < count && list[n++] == j, "row %d of %d: not %d", t, s, (int)j);
  for (; n < count; n++) CHECK(list[n] == -1, "row %d of %d: more positions", t, s);
}

static void check_whole(int64_t count) {
  const sl_type in[] = {SL_TYPE(SL_F32, SEQUENCES, MOST, HEADS * DIM),
                        SL_TYPE(SL_F32, SEQUENCES, MOST, DIM),
                        SL_TYPE(SL_F32, SEQUENCES, MOST, HEADS)};
  kernel c =
      kernel_create(&sl_op_choose_tokens,
                    (sl_attrs){.attention.heads = HEADS, .attention.tokens = count}, 3, in, 1);
  memcpy(c.in[0], q, sizeof q);
  memcpy(c.in[1], k, sizeof k);
  memcpy(c.in[2], w, sizeof w);
  kernel_run(&c, NULL);
  for (int r = 0; r < SEQUENCES * MOST; r++)
    check_list(r / MOST, r % MOST, count, (const int32_t *)c.out[0] + r * count);
  kernel_destroy(&c);
}

/* Serves ticks that take up to `most` more rows of each sequence, until all have been taken. */
static void check_served(int64_t count, sl_storage storage, int most) {
  int done[SEQUENCES] = {0}, left = SEQUENCES * MOST;
  void *pages = NULL;
  while (left > 0) {
    int rows[SEQUENCES], all = 0;
    for (int s = 0; s < SEQUENCES; s++) {
      int taken = (int)random_below(most + 1);
      rows[s] = SLI_MIN(taken, MOST - done[s]);
      all += rows[s];
    }
    if (!all) continue;
    const sl_type in[] = {
        SL_TYPE(SL_F32, 1, all, HEADS * DIM), SL_TYPE(SL_F32, 1, all, DIM),
        SL_TYPE(SL_F32, 1, all, HEADS),
        SL_TYPE(SL_I32, (int64_t)(sl_batch_bytes(all, SEQUENCES, all, OWN) / sizeof(int32_t)))};
    sl_attrs attrs = {.attention.heads = HEADS,
                      .attention.tokens = count,
                      .pages.count = PAGES,
                      .place.length = OWN * SL_PAGE};
    attrs.pages.storage = storage;
    kernel c = kernel_create(&sl_op_choose_tokens_served, attrs, 4, in, 2);
    sl_batch *b = c.in[3];
    *b = (sl_batch){.most_rows = all,
                    .most_sequences = SEQUENCES,
                    .most_picks = all,
                    .pages = OWN,
                    .sequences = SEQUENCES};
    for (int s = 0; s < SEQUENCES; s++) {
      memcpy((int32_t *)sl_batch_table(b, s), tables[s], sizeof tables[s]);
      for (int r = 0; r < rows[s]; r++, b->rows++) {
        int t = done[s] + r;
        ((int32_t *)sl_batch_position(b))[b->rows] = t;
        ((int32_t *)sl_batch_sequence_of(b))[b->rows] = s;
        memcpy((float *)c.in[0] + b->rows * HEADS * DIM, q[s][t], sizeof q[s][t]);
        memcpy((float *)c.in[1] + b->rows * DIM, k[s][t], sizeof k[s][t]);
        memcpy((float *)c.in[2] + b->rows * HEADS, w[s][t], sizeof w[s][t]);
      }
    }
    size_t bytes = sl_type_bytes(&c.out_type[1]);
    if (pages) memcpy(c.out[1], pages, bytes);
    else pages = malloc(bytes);
    kernel_run(&c, NULL);
    memcpy(pages, c.out[1], bytes);
    for (int s = 0, row = 0; s < SEQUENCES; done[s] += rows[s], left -= rows[s], s++)
      for (int r = 0; r < rows[s]; r++, row++)
        check_list(s, done[s] + r, count, (const int32_t *)c.out[0] + row * count);
    kernel_destroy(&c);
  }
  free(pages);
}

static void check_seed(uint64_t seed) {
  seed_random(seed);
  draw();
  check_whole(1 + random_below(20));
  check_whole(MOST);
  for (int s = 0; s < 3; s++) check_served(1 + random_below(20), (sl_storage)s, 40);
  check_served(MOST + 7, SL_STORAGE_F32, 90);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 2);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(check_seed, seed);
  return 0;
}
