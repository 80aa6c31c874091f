/* SPDX-License-Identifier: Apache-2.0 */
/* Attention to visible keys, limited by a window, padding and documents, matches PyTorch
 * (reference/masks.txt). Hidden tiles are not read. A document gives the same output in a row of
 * several as alone, and documents are separated in pieces as in whole rows.
 * labels: unthreaded */
#include <unistd.h>

#include "kernels/cpu/chunk.h"
#include "ops/attention_shape.h"
#include "ops/ops.h"
#include "tests/support/claims.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/reference_file.h"

/* ---- PyTorch's figures ------------------------------------------------------------------- */

enum { WORDS = 9 };
static const char *const words[WORDS] = {"ids", "q", "k", "v", "o", "do", "dq", "dk", "dv"};
static sl_attrs attrs;
static sl_type types[WORDS];
static void *arrays[WORDS];
static int cases;
static bool bf16;

/* Returns the tolerance: operands rounded to 8 bits change sums in proportion to their largest
 * terms. */
static float slack(const float *want, int64_t n) {
  float most = 1;
  for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(want[i]));
  return bf16 ? 0x1p-6f * most : 0;
}

static void check_near(const char *word, const float *got, const sl_type *type, const float *want) {
  float more = slack(want, sl_type_elements(type));
  for (int64_t i = 0; i < sl_type_elements(type); i++)
    CHECK(fabsf(got[i] - want[i]) <= 1e-6f * (1 + fabsf(want[i])) + more,
          "case %d, %s: element %lld is %.9g, should be %.9g (CPU level %d)", cases, word,
          (long long)i, (double)got[i], (double)want[i], sli_cpu_level());
}

static void give(kernel *k, int i, const void *data) {
  memcpy(k->in[i], data, sl_type_bytes(&k->in_type[i]));
}

static void check_case(void) {
  const sl_type in[] = {types[1], types[2], types[3], types[0]};
  kernel k = kernel_create(&sl_op_attention, attrs, 4, in, 2);
  for (int i = 0; i < 3; i++) give(&k, i, arrays[i + 1]);
  give(&k, 3, arrays[0]);
  kernel_run(&k, NULL);
  check_near("o", k.out[0], &types[4], arrays[4]);
  const sl_type back[] = {types[1],      types[2], types[3], types[4],
                          k.out_type[1], types[5], types[0]};
  kernel b = kernel_create(&sl_op_attention_b, attrs, 7, back, 3);
  const void *data[] = {arrays[1], arrays[2], arrays[3], k.out[0], k.out[1], arrays[5], arrays[0]};
  for (int i = 0; i < 7; i++) give(&b, i, data[i]);
  kernel_run(&b, NULL);
  for (int o = 0; o < 3; o++) check_near(words[6 + o], b.out[o], &types[6 + o], arrays[6 + o]);
  kernel_destroy(&k);
  kernel_destroy(&b);
  cases++;
}

static void begin_case(const char *line) {
  int full;
  long long window, B, T, D;
  CHECK(sscanf(line, "case %d %d %d %lld %lld %lld %lld", &attrs.attention.heads,
               &attrs.attention.kv_heads, &full, &window, &B, &T, &D) == 7,
        "%s", line);
  attrs.attention.full = full;
  attrs.numbers.bf16 = bf16;
  attrs.attention.window = window;
  sl_type q = F32(B, T, attrs.attention.heads * D), kv = F32(B, T, attrs.attention.kv_heads * D);
  const sl_type all[WORDS] = {I32(B, T), q, kv, kv, q, q, q, kv, kv};
  for (int w = 0; w < WORDS; w++) {
    free(arrays[w]);
    arrays[w] = array_create(&all[w]);
    types[w] = all[w];
  }
}

static void read_line(char *line) {
  char *word = strsep(&line, " ");
  if (!strcmp(word, "case")) {
    line[-1] = ' ';
    begin_case(word);
    return;
  }
  int w = 0;
  while (w < WORDS && strcmp(words[w], word)) w++;
  CHECK(w < WORDS, "%s is not known", word);
  for (int64_t i = 0; i < sl_type_elements(&types[w]); i++) {
    double x = strtod(line, &line);
    if (w) ((float *)arrays[w])[i] = (float)x;
    else ((int32_t *)arrays[w])[i] = (int32_t)x;
  }
  if (w == WORDS - 1) check_case();
}

static void check_figures(void) {
  const char *source = getenv("SLUICE_SOURCE");
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/reference/masks.txt", source ? source : ".");
  cases = 0;
  reference_lines(path, read_line);
  CHECK(cases == 9, "%d cases", cases);
  for (int w = 0; w < WORDS; w++) free(arrays[w]), arrays[w] = NULL;
}

/* ---- hidden tiles -------------------------------------------------------------------------- */

enum { LENGTH = 8 * SLI_KEY_TILE, WIDTH = 16 };

static bool all_finite(const float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(x[i])) return false;
  return true;
}

static void fill(kernel *k, int64_t bad) {
  for (int i = 0; i < 3; i++) array_random(k->in[i], &k->in_type[i], 0);
  for (int i = 1; i < 3; i++)
    for (int64_t e = 0; e < bad * WIDTH; e++) ((float *)k->in[i])[e] = NAN;
}

/* The first `bad` keys are NaN; queries from `from` on must not read them. */
static void check_untouched(sl_attrs a, const int32_t *ids, int64_t bad, int64_t from) {
  sl_type x = F32(1, LENGTH, WIDTH);
  const sl_type in[] = {x, x, x, I32(1, LENGTH)};
  kernel k = kernel_create(&sl_op_attention, a, ids ? 4 : 3, in, 2);
  fill(&k, bad);
  if (ids) give(&k, 3, ids);
  kernel_run(&k, NULL);
  CHECK(all_finite((float *)k.out[0] + from * WIDTH, (LENGTH - from) * WIDTH),
        "queries from %lld on look at keys out of sight", (long long)from);
  const sl_type back[] = {x, x, x, x, k.out_type[1], x, in[3]};
  kernel b = kernel_create(&sl_op_attention_b, a, ids ? 7 : 6, back, 3);
  for (int i = 0; i < 3; i++) give(&b, i, k.in[i]);
  for (int i = 0; i < 2; i++) give(&b, 3 + i, k.out[i]);
  array_random(b.in[5], &x, 0);
  if (ids) give(&b, 6, ids);
  kernel_run(&b, NULL);
  for (int o = 0; o < 3; o++)
    CHECK(all_finite((float *)b.out[o] + from * WIDTH, (LENGTH - from) * WIDTH),
          "gradient %d from %lld on has seen what is out of sight", o, (long long)from);
  kernel_destroy(&k);
  kernel_destroy(&b);
}

static void check_tiles(void) {
  int32_t ids[LENGTH] = {0};
  for (int t = LENGTH / 2; t < LENGTH; t++) ids[t] = 1;
  check_untouched((sl_attrs){.attention.heads = 1, .attention.window = 65}, NULL, LENGTH / 2,
                  LENGTH / 2 + 64);
  check_untouched((sl_attrs){.attention.heads = 1, .attention.window = 65, .attention.full = true},
                  NULL, LENGTH / 2,
                  LENGTH / 2 + 128); /* earlier queries are visible to keys up to there */
  check_untouched((sl_attrs){.attention.heads = 1}, ids, LENGTH / 2, LENGTH / 2);
  check_untouched((sl_attrs){.attention.heads = 1, .attention.full = true}, ids, LENGTH / 2,
                  LENGTH / 2);
  for (int t = 0; t < LENGTH / 2; t++) ids[t] = -1;
  check_untouched((sl_attrs){.attention.heads = 1, .attention.full = true}, ids, LENGTH / 2, 0);
}

/* ---- documents ------------------------------------------------------------------------------- */

static kernel attend(sl_attrs a, int64_t n, void *const *from, const int32_t *ids) {
  sl_type x = F32(1, n, WIDTH);
  const sl_type in[] = {x, x, x, I32(1, n)};
  kernel k = kernel_create(&sl_op_attention, a, ids ? 4 : 3, in, 2);
  for (int i = 0; i < 3; i++) give(&k, i, from[i]);
  if (ids) give(&k, 3, ids);
  kernel_run(&k, NULL);
  return k;
}

static void check_alone(sl_attrs a) {
  enum { DOCUMENTS = 4 };
  static const int64_t lengths[DOCUMENTS] = {50, 1, 71, 20};
  int32_t ids[142];
  float x[3][142 * WIDTH];
  sl_type whole = F32(1, 142, WIDTH);
  for (int i = 0; i < 3; i++) array_random(x[i], &whole, 0);
  for (int d = 0, t = 0; d < DOCUMENTS; d++)
    for (int64_t i = 0; i < lengths[d]; i++) ids[t++] = d;
  kernel packed = attend(a, 142, (void *[]){x[0], x[1], x[2]}, ids);
  int64_t at = 0;
  for (int d = 0; d < DOCUMENTS; at += lengths[d++] * WIDTH) {
    kernel alone = attend(a, lengths[d], (void *[]){x[0] + at, x[1] + at, x[2] + at}, NULL);
    check_near("a document", (float *)packed.out[0] + at, &alone.out_type[0], alone.out[0]);
    kernel_destroy(&alone);
  }
  kernel_destroy(&packed);
}

static void check_documents(void) {
  enum { N = 12, CUTS = 3 };
  static const int32_t tokens[N] = {5, 7, 7, 5, 5, 7, 1, 2, 3, 7, 7, 4};
  static const int32_t ids[N] = {0, 0, 1, 2, 2, 2, 3, 3, 3, 3, 4, 5};
  static const int32_t positions[N] = {0, 1, 0, 0, 1, 2, 0, 1, 2, 3, 0, 0};
  static const int64_t cuts[CUTS][4] = {{12}, {1, 2, 4, 5}, {6, 6}};
  for (int c = 0; c < CUTS; c++) {
    int32_t record[2] = {9, 9};
    int64_t row = 0;
    for (int p = 0; p < 4 && cuts[c][p]; row += cuts[c][p++]) {
      kernel k =
          kernel_create(&sl_op_documents_piece, (sl_attrs){.tokens.end = 7, .place.length = N}, 1,
                        &I32(1, cuts[c][p]), 3);
      k.tick = (sl_tick){.piece = p, .row = row, .rows = cuts[c][p]};
      give(&k, 0, tokens + row);
      memcpy(k.out[2], record, sizeof record);
      kernel_run(&k, NULL);
      memcpy(record, k.out[2], sizeof record);
      CHECK(!memcmp(k.out[0], ids + row, sl_type_bytes(&k.out_type[0])), "ids of piece %d", p);
      CHECK(!memcmp(k.out[1], positions + row, sl_type_bytes(&k.out_type[1])), "positions");
      kernel_destroy(&k);
    }
  }
  kernel k = kernel_create(&sl_op_documents, (sl_attrs){.tokens.end = 7}, 1, &I32(1, N), 2);
  give(&k, 0, tokens);
  kernel_run(&k, NULL);
  CHECK(!memcmp(k.out[0], ids, sizeof ids), "ids of a row");
  CHECK(!memcmp(k.out[1], positions, sizeof positions), "positions in a row");
  kernel_destroy(&k);
}

static void check_all(uint64_t seed) {
  seed_random(seed);
  bf16 = true;
  check_figures();
  bf16 = false;
  check_figures();
  check_tiles();
  check_alone((sl_attrs){.attention.heads = 2});
  check_alone((sl_attrs){.attention.heads = 2, .attention.full = true});
  check_alone((sl_attrs){.attention.heads = 2, .attention.window = 30});
}

int main(void) {
  RUN(check_documents);
  RUN_AS("check_all", on_every_level(check_all, 1));
  return 0;
}
