/* SPDX-License-Identifier: Apache-2.0 */
/* Attention to chosen blocks has the bits of plain attention when all blocks are chosen, forward
 * and backward, and matches a plain reference when few are (also in test_rows.c). The choice keeps
 * its budget, picks the blocks with the best estimates in f64, and has the recall of a plain
 * softmax.
 * labels: random unthreaded */
#include <math.h>

#include "base/base.h"
#include "kernels/cpu/team.h"
#include "ops/attention_blocks.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/reference_kernels.h"
#include "tests/support/seeds.h"

#ifdef SLUICE_EMULATED
enum { CASES = 1, MOST_LENGTH = 260 };
#else
enum { CASES = 3, MOST_LENGTH = 450 };
#endif

typedef struct shape {
  sl_attrs attrs;
  int64_t batch, length, dim, blocks;
  sl_type in[7]; /* q, k, v, blocks, o, lse, do */
} shape;

static shape shape_of(int64_t batch, int64_t length, int heads, int kv_heads, int64_t dim,
                      int64_t width) {
  shape s = {.attrs = {.attention.heads = heads, .attention.kv_heads = kv_heads},
             .batch = batch,
             .length = length,
             .dim = dim,
             .blocks = sli_blocks(length)};
  s.in[0] = s.in[4] = s.in[6] = SL_TYPE(SL_F32, batch, length, heads * dim);
  s.in[1] = s.in[2] = SL_TYPE(SL_F32, batch, length, kv_heads * dim);
  s.in[3] = SL_TYPE(SL_I32, batch, heads, s.blocks, width);
  s.in[5] = SL_TYPE(SL_F32, batch, heads, length);
  return s;
}

static shape shape_random(void) {
  int kv_heads = 1 + (int)random_below(2), group = 1 + (int)random_below(3);
  int64_t length = 1 + random_below(MOST_LENGTH);
  shape s = shape_of(1 + random_below(2), length, kv_heads * group, kv_heads, 1 + random_below(40),
                     sli_blocks(length) + random_below(2));
  s.attrs.attention.scale = random_below(2) ? 0.5f : 0;
  return s;
}

/* Fills the lists: each block of queries keeps its own block, the first one, and one in `keep` of
 * the rest. */
static void fill_lists(const shape *s, int32_t *list, int keep) {
  for (int64_t row = 0; row < sl_type_rows(&s->in[3]); row++, list += s->in[3].dim[3]) {
    int64_t own = row % s->blocks, n = 0;
    for (int64_t b = own; b >= 0; b--)
      if (b == own || !b || !random_below(keep)) list[n++] = (int32_t)b;
    while (n < s->in[3].dim[3]) list[n++] = -1;
  }
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Runs the op and its gradients, with block lists or as plain attention. */
static void run_both_ways(const shape *s, const kernel *from, bool blocks, kernel made[2]) {
  const sl_op *ops[][2] = {{&sl_op_attention, &sl_op_attention_b},
                           {&sl_op_attention_blocks, &sl_op_attention_blocks_b}};
  for (int back = 0; back < 2; back++) {
    sl_type in[7];
    int n = 0, of[7];
    for (int i = 0; i < (back ? 7 : 4); i++)
      if (blocks || i != 3) in[n] = s->in[i], of[n++] = i;
    made[back] = kernel_create(ops[blocks][back], s->attrs, n, in, back ? 3 : 2);
    for (int i = 0; i < n; i++) {
      const void *data = of[i] == 4 || of[i] == 5 ? made[0].out[of[i] - 4] : from->in[of[i]];
      memcpy(made[back].in[i], data, sl_type_bytes(&in[i]));
    }
    kernel_run(&made[back], NULL);
  }
}

static void check_all(shape s) {
  kernel from = kernel_create(&sl_op_attention_blocks_b, s.attrs, 7, s.in, 0), plain[2], own[2];
  for (int i = 0; i < 7; i++) array_random(from.in[i], &s.in[i], 1);
  fill_lists(&s, from.in[3], 1);
  run_both_ways(&s, &from, false, plain);
  run_both_ways(&s, &from, true, own);
  for (int back = 0; back < 2; back++)
    for (int o = 0; o < plain[back].nout; o++)
      CHECK(!memcmp(plain[back].out[o], own[back].out[o], sl_type_bytes(&own[back].out_type[o])),
            "output %d of %s has other bits than %s (%lld positions)", o, own[back].op->name,
            plain[back].op->name, (long long)s.length);
  for (int back = 0; back < 2; back++) kernel_destroy(&plain[back]), kernel_destroy(&own[back]);
  kernel_destroy(&from);
}

static void all_chosen_is_plain_attention(uint64_t seed) {
  seed_random(seed);
  for (int i = 0; i < CASES; i++) {
    shape s = shape_random();
    check_all(s);
    s.attrs.numbers.bf16 = true;
    check_all(s);
  }
}

/* ---- every second block ---------------------------------------------------------------------- */

static void fill_second_lists(const shape *s, int32_t *list) {
  for (int64_t row = 0; row < sl_type_rows(&s->in[3]); row++, list += s->in[3].dim[3]) {
    int64_t n = 0;
    for (int64_t b = row % s->blocks; b >= 0; b -= 2) list[n++] = (int32_t)b;
    while (n < s->in[3].dim[3]) list[n++] = -1;
  }
}

/* Runs plain attention, or its gradients, with the number of a position's block modulo 2 as its
 * document. `made` has the forward call. */
static kernel within_documents(const shape *s, const kernel *from, const kernel *made) {
  static const int forward[] = {0, 1, 2, 3}, backward[] = {0, 1, 2, 4, 5, 6, 3};
  sl_type in[7], ids = SL_TYPE(SL_I32, s->batch, s->length);
  const int *of = made ? backward : forward;
  int n = made ? 7 : 4;
  for (int i = 0; i < n; i++) in[i] = of[i] == 3 ? ids : s->in[of[i]];
  kernel k =
      kernel_create(made ? &sl_op_attention_b : &sl_op_attention, s->attrs, n, in, made ? 3 : 2);
  for (int i = 0; i < n; i++) {
    const void *data = of[i] == 4 || of[i] == 5 ? made->out[of[i] - 4] : from->in[of[i]];
    for (int64_t e = 0; of[i] == 3 && e < sl_type_elements(&ids); e++)
      ((int32_t *)k.in[i])[e] = (int32_t)(e % s->length / 64 % 2);
    if (of[i] != 3) memcpy(k.in[i], data, sl_type_bytes(&in[i]));
  }
  kernel_run(&k, NULL);
  return k;
}

static void every_second_block_is_a_document(uint64_t seed) {
  seed_random(seed);
  for (int i = 0; i < CASES; i++) {
    shape s = shape_random();
    kernel from = kernel_create(&sl_op_attention_blocks_b, s.attrs, 7, s.in, 0), own[2], plain[2];
    for (int j = 0; j < 7; j++) array_random(from.in[j], &s.in[j], 1);
    fill_second_lists(&s, from.in[3]);
    run_both_ways(&s, &from, true, own);
    plain[0] = within_documents(&s, &from, NULL);
    plain[1] = within_documents(&s, &from, &plain[0]);
    for (int back = 0; back < 2; back++)
      for (int o = 0; o < plain[back].nout; o++)
        for (int64_t e = 0; e < sl_type_elements(&own[back].out_type[o]); e++) {
          double got = array_get(own[back].out[o], &own[back].out_type[o], e);
          double want = array_get(plain[back].out[o], &own[back].out_type[o], e);
          CHECK(fabs(got - want) < 2e-5 * (1 + fabs(want)),
                "%s: output %d, number %lld: %g, not %g", own[back].op->name, o, (long long)e, got,
                want);
        }
    for (int back = 0; back < 2; back++) kernel_destroy(&plain[back]), kernel_destroy(&own[back]);
    kernel_destroy(&from);
  }
}

/* ---- few blocks ------------------------------------------------------------------------------ */

static double *doubles(const void *from, const sl_type *type) {
  int64_t n = sl_type_elements(type);
  double *to = sli_calloc((size_t)n, sizeof *to);
  for (int64_t i = 0; i < n; i++) to[i] = array_get(from, type, i);
  return to;
}

static void few_chosen_have_the_values_of_a_reference(uint64_t seed) {
  seed_random(seed);
  for (int i = 0; i < CASES; i++) {
    shape s = shape_random();
    kernel k = kernel_create(&sl_op_attention_blocks, s.attrs, 4, s.in, 2);
    for (int j = 0; j < 3; j++) array_random(k.in[j], &s.in[j], 0);
    fill_lists(&s, k.in[3], 3);
    kernel_run(&k, NULL);
    double *in[4], *out[2];
    for (int j = 0; j < 4; j++) in[j] = doubles(k.in[j], &s.in[j]);
    for (int j = 0; j < 2; j++) out[j] = doubles(k.out[j], &k.out_type[j]);
    ref_attention_blocks(&s.attrs, s.in, in, out);
    for (int j = 0; j < 2; j++)
      for (int64_t e = 0; e < sl_type_elements(&k.out_type[j]); e++)
        CHECK(fabs(array_get(k.out[j], &k.out_type[j], e) - out[j][e]) < 1e-5,
              "number %lld of output %d is %g, not %g", (long long)e, j,
              array_get(k.out[j], &k.out_type[j], e), out[j][e]);
    for (int j = 0; j < 4; j++) free(in[j]);
    for (int j = 0; j < 2; j++) free(out[j]);
    kernel_destroy(&k);
  }
}

/* ---- the choice --------------------------------------------------------------------------------
 */

/* The f64 estimates behind the choice of a head. */
typedef struct head {
  const shape *s;
  const float *q, *k;         /* row 0 */
  int64_t q_row, k_row, last; /* the last queries start at position `last` */
  double *p;                  /* [last queries, length] probabilities */
} head;

static double product_of(const head *x, int64_t i, int64_t j) {
  double sum = 0, scale = (double)sli_attention_scale(&x->s->attrs, x->s->dim);
  for (int64_t d = 0; d < x->s->dim; d++)
    sum += (double)x->q[i * x->q_row + d] * (double)x->k[j * x->k_row + d];
  return sum * scale;
}

static head head_of(const shape *s, const kernel *c, int64_t b, int64_t h) {
  head x = {.s = s, .q_row = s->in[0].dim[2], .k_row = s->in[1].dim[2]};
  x.last = SLI_MAX(s->length - 64, 0);
  x.q = (const float *)c->in[0] + b * s->length * x.q_row + h * s->dim;
  x.k = (const float *)c->in[1] + b * s->length * x.k_row +
        h / (s->attrs.attention.heads / s->attrs.attention.kv_heads) * s->dim;
  x.p = sli_calloc((size_t)((s->length - x.last) * s->length), sizeof *x.p);
  for (int64_t i = x.last; i < s->length; i++) {
    double *p = x.p + (i - x.last) * s->length;
    for (int64_t j = 0; j < s->length; j++) p[j] = j <= i ? product_of(&x, i, j) : -INFINITY;
    ref_weights(p, s->length);
  }
  return x;
}

/* Returns the mean of all products of a block of queries with a block of keys: the product of their
 * means. */
static double mean_product(const head *x, int64_t m, int64_t n) {
  int64_t T = x->s->length, i1 = SLI_MIN(m * 64 + 64, T), j1 = SLI_MIN(n * 64 + 64, T);
  double scale = (double)sli_attention_scale(&x->s->attrs, x->s->dim), sum = 0;
  for (int64_t d = 0; d < x->s->dim; d++) {
    double q = 0, k = 0;
    for (int64_t i = m * 64; i < i1; i++) q += (double)x->q[i * x->q_row + d];
    for (int64_t j = n * 64; j < j1; j++) k += (double)x->k[j * x->k_row + d];
    sum += q * k;
  }
  return sum * scale / (double)((i1 - m * 64) * (j1 - n * 64));
}

/* Computes the estimates of the key blocks for block m of the queries, one element at a time. */
static void estimates_of(const head *x, int64_t m, double *estimate) {
  int64_t T = x->s->length, rows = T - x->last;
  double means[m + 1];
  for (int64_t n = 0; n <= m; n++) means[n] = mean_product(x, m, n);
  ref_weights(means, m + 1);
  for (int64_t n = 0; n <= m; n++) {
    double column = 0, distance = 0;
    for (int64_t i = x->last; i < T; i++)
      for (int64_t j = 0; j <= i; j++) {
        double p = x->p[(i - x->last) * T + j] / (double)rows;
        int64_t off = llabs(i - j - (m - n) * 64);
        if (j / 64 == n) column += p;
        if (off < 64) distance += p * (double)(64 - off) / 64;
      }
    estimate[n] = fmax(means[n], fmax(column, distance));
  }
}

/* Checks a list: it has the budgeted length, starts with its own block, ends with the first block,
 * and leaves out no better one. Returns the attention mass of the last queries within the list. */
static double check_list(const head *x, int64_t m, const int32_t *list, int64_t width) {
  int64_t count = sli_blocks_chosen(&x->s->attrs, m), T = x->s->length;
  double estimate[m + 1], lowest = INFINITY, mass = 0;
  bool chosen[m + 1];
  memset(chosen, 0, sizeof chosen);
  estimates_of(x, m, estimate);
  CHECK(list[0] == m && list[count - 1] == 0, "block %lld: from %d to %d", (long long)m, list[0],
        list[count - 1]);
  for (int64_t i = 0; i < width; i++) {
    CHECK(i < count ? !i || (list[i] >= 0 && list[i] < list[i - 1]) : list[i] == -1,
          "entry %lld of %lld is %d", (long long)i, (long long)count, list[i]);
    if (i >= count) continue;
    chosen[list[i]] = true;
    if (list[i] && list[i] < m) lowest = fmin(lowest, estimate[list[i]]);
  }
  for (int64_t n = 0; n <= m; n++)
    CHECK(chosen[n] || estimate[n] <= lowest + 1e-5,
          "block %lld of %lld is not chosen: estimate %g, lowest chosen %g", (long long)n,
          (long long)m, estimate[n], lowest);
  for (int64_t i = x->last; i < T; i++)
    for (int64_t j = 0; i / 64 == m && j <= i; j++)
      if (chosen[j / 64]) mass += x->p[(i - x->last) * T + j];
  return mass;
}

static void check_choice(shape s, float scale) {
  kernel k = kernel_create(&sl_op_choose_blocks, s.attrs, 2, s.in, 2);
  for (int j = 0; j < 2; j++) array_random(k.in[j], &s.in[j], 0);
  for (int64_t e = 0; e < sl_type_elements(&s.in[0]); e++) ((float *)k.in[0])[e] *= scale;
  kernel_run(&k, NULL);
  const int32_t *list = k.out[0];
  int64_t width = k.out_type[0].dim[3];
  for (int64_t h = 0; h < s.batch * s.attrs.attention.heads; h++) {
    head x = head_of(&s, &k, h / s.attrs.attention.heads, h % s.attrs.attention.heads);
    double mass = 0, recall = (double)((float *)k.out[1])[h];
    for (int64_t m = 0; m < s.blocks; m++, list += width) mass += check_list(&x, m, list, width);
    mass /= (double)(s.length - x.last);
    CHECK(fabs(mass - recall) < 1e-5, "recall %g, not %g", recall, mass);
    free(x.p);
  }
  kernel_destroy(&k);
}

static void choices_are_the_best_estimates(uint64_t seed) {
  seed_random(seed);
  for (int i = 0; i < CASES; i++) {
    shape s = shape_random();
    if (random_below(2)) s.attrs.attention.blocks = 2 + random_below(4);
    else s.attrs.attention.share = random_below(4) ? (float)(1 + random_below(99)) / 100 : 1;
    check_choice(s, (float)(1 + random_below(4)));
  }
}

/* Returns true if a list of four has both blocks. */
static bool has_both(const int32_t *list, int32_t m, int32_t n) {
  return (list[1] == m && list[2] == n) || (list[1] == n && list[2] == m);
}

/* All queries attend to key 200 and to the key 320 positions before them. The choice must find
 * both, for the last queries and for earlier ones, and lose almost nothing. */
static void lines_are_found(void) {
  enum { T = 1024, D = 64, COLUMN = 200, DISTANCE = 320 };
  shape s = shape_of(1, T, 1, 1, D, 4);
  s.attrs.attention.blocks = 4;
  s.attrs.attention.scale = 0.5f;
  kernel k = kernel_create(&sl_op_choose_blocks, s.attrs, 2, s.in, 2);
  float *q = k.in[0], *keys = k.in[1];
  seed_random(1);
  for (int64_t i = 0; i < T; i++)
    for (int64_t d = 0; d < D; d++)
      keys[i * D + d] = d ? (random_below(2) ? 1 : -1) : i == COLUMN ? D : 0;
  for (int64_t i = 0; i < T; i++)
    for (int64_t d = 0; d < D; d++) q[i * D + d] = d ? keys[(i + T - DISTANCE) % T * D + d] : 1;
  kernel_run(&k, NULL);
  const int32_t *list = k.out[0];
  CHECK(has_both(list + 15 * 4, COLUMN / 64, 10), "the last block has %d and %d", list[61],
        list[62]);
  CHECK(has_both(list + 9 * 4, COLUMN / 64, 4), "block 9 has %d and %d", list[37], list[38]);
  CHECK(((float *)k.out[1])[0] > 0.999f, "recall %g", (double)((float *)k.out[1])[0]);
  kernel_destroy(&k);
}

/* ---- errors ------------------------------------------------------------------------------------
 */

static void refuse(const sl_op *op, int nin, const shape *s, const char *text) {
  sl_type out[3];
  CHECK(op->infer(&s->attrs, nin, s->in, out) == SL_E_SHAPE && strstr(sl_detail(), text), "%s",
        sl_detail());
}

static void bad_shapes_are_refused(void) {
  shape s = shape_of(1, 130, 2, 1, 8, 2);
  s.attrs.attention.window = 5;
  refuse(&sl_op_attention_blocks, 4, &s, "without attrs.attention.window");
  s.attrs = (sl_attrs){.attention.heads = 2, .attention.kv_heads = 1, .attention.full = true};
  refuse(&sl_op_choose_blocks, 2, &s, "without attrs.attention.full");
  s.attrs.attention.full = false;
  refuse(&sl_op_choose_blocks, 2, &s, "attrs.attention.share must be a share");
  s.attrs.attention.blocks = 1;
  refuse(&sl_op_choose_blocks, 2, &s, "attrs.attention.blocks must be at least 2 blocks");
  s.attrs.attention.share = 0.5f;
  refuse(&sl_op_choose_blocks, 2, &s, "not both");
  s.in[3].dim[2] = 4;
  refuse(&sl_op_attention_blocks, 4, &s, "blocks must be i32[1, 2, 3, 2], got i32[1, 2, 4, 2]");
}

static void bad_lists_are_named(void) {
  shape s = shape_of(1, 130, 2, 1, 8, 3);
  kernel k = kernel_create(&sl_op_attention_blocks, s.attrs, 4, s.in, 2);
  int32_t *list = k.in[3];
  sl_call call = kernel_call(&k, NULL);
  fill_lists(&s, list, 1);
  CHECK(!sl_op_attention_blocks.check(&call), "%s", sl_detail());
  list[15] = 1;
  CHECK(sl_op_attention_blocks.check(&call) == SL_E_INPUT &&
            strstr(sl_detail(), "query block 2, head 1, begins with an invalid block 1"),
        "%s", sl_detail());
  list[15] = 2;
  list[17] = 1;
  CHECK(sl_op_attention_blocks.check(&call) == SL_E_INPUT &&
            strstr(sl_detail(), "query block 2, head 1, has block 1 after 1"),
        "%s", sl_detail());
  kernel_destroy(&k);
}

int main(int argc, char **argv) {
  RUN(bad_shapes_are_refused);
  RUN(bad_lists_are_named);
  RUN(lines_are_found);
  seeds s = seeds_of(argc, argv, 1, 2);
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    RUN_AS("all chosen", on_every_level(all_chosen_is_plain_attention, seed));
    RUN_AS("every second", on_every_level(every_second_block_is_a_document, seed));
    RUN_AS("few chosen", on_every_level(few_chosen_have_the_values_of_a_reference, seed));
    RUN_AS("choices", on_every_level(choices_are_the_best_estimates, seed));
  }
  return 0;
}
