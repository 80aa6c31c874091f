/* SPDX-License-Identifier: Apache-2.0 */
/* Products in bf16 are products of rounded operands with f32 sums: the same bits for every team,
 * close to the double-precision reference, and as close to f32 as rounding allows.
 * labels: computes more */
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/team.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"

/* ---- rounding ------------------------------------------------------------------ */

static float from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Rounds to the nearer neighbour, ties to even. */
static float rounded(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (!isfinite(x)) return x;
  double low = from_bits(bits & 0xffff0000u), high = from_bits((bits & 0xffff0000u) + 0x10000u);
  if (!isfinite(high)) high = copysign(0x1p128, x);
  double below = fabs(x - low), above = fabs(high - x);
  bool up = above < below || (above == below && (bits >> 16 & 1));
  return (float)(up ? high : low);
}

/* AVX-512's conversion flushes numbers below 2^-126 to zero, as its products do. */
static bool flushes(int level) {
#if defined(__x86_64__)
  return level >= 3;
#else
  return (void)level, false;
#endif
}

static void rounding_goes_to_the_nearest(void) {
  enum { N = 3 * SLI_CHUNK_ELEMENTS + 37 };
  float *x = malloc(N * sizeof *x);
  uint16_t *y = malloc((N + 1) * sizeof *y);
  for (int i = 0; i < N; i++) { /* arbitrary bits, often a tie */
    uint32_t bits = (uint32_t)random_bits();
    x[i] = from_bits(i % 3 ? bits : (bits & 0xffff0000u) | 0x8000u);
  }
  x[0] = INFINITY, x[1] = -INFINITY, x[2] = NAN, x[3] = from_bits(0x7f800001u), x[4] = -0.0f;
  for (int level = 0; level <= sli_cpu_level(); level++) {
    y[N] = 0x1234;
    for (int i = 0; i < sli_chunk_count(N, SLI_CHUNK_ELEMENTS); i++)
      level_chunks(level)->round_bf16(&(sli_rounding){x, y, N}, i);
    for (int i = 0; i < N; i++) {
      float got = from_bits((uint32_t)y[i] << 16), want = rounded(x[i]);
      if (flushes(level) && fabsf(x[i]) < 0x1p-126f) want = copysignf(0, want);
      CHECK(isnan(x[i]) ? isnan(got) : got == want && signbit(got) == signbit(want),
            "%a becomes %a, not %a (CPU level %d)", (double)x[i], (double)got, (double)want, level);
    }
    CHECK(y[N] == 0x1234, "rounding writes past its end (CPU level %d)", level);
  }
  free(x);
  free(y);
}

/* ---- packed orders --------------------------------------------------------------- */

/* Returns element (k, n) of a matrix in its order; zero outside the matrix. */
static uint16_t element(const sli_turning *t, int64_t k, int64_t n) {
  if (k >= t->k || n >= t->n) return 0;
  uint32_t bits;
  float x = rounded(t->turned ? t->from[n * t->row + k] : t->from[k * t->row + n]);
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static void check_turned(const sli_turning *t, int level) {
  int64_t row = sli_turned_row(t->k);
  for (int64_t n = 0; n < t->n; n++)
    for (int64_t k = 0; k < row; k++) {
      int64_t at =
          t->strips ? n / 32 * 32 * row + k / 32 * 1024 + n % 32 * 32 + k % 32 : n * row + k;
      CHECK(t->to[at] == element(t, k, n),
            "[%lld, %lld] is turned wrongly at (%lld, %lld)%s (CPU level %d)", (long long)t->k,
            (long long)t->n, (long long)k, (long long)n, t->strips ? " of strips" : "", level);
    }
}

static void check_packed(const sli_turning *t, int level) {
  int64_t rows = sli_turned_row(t->k), columns = (t->n + t->block - 1) / t->block * t->block;
  for (int64_t n = 0; n < columns; n++)
    for (int64_t k = 0; k < rows; k++) {
      int64_t at = n / t->block * rows * t->block + k / 2 * 2 * t->block + n % t->block * 2 + k % 2;
      CHECK(t->to[at] == element(t, k, n),
            "[%lld, %lld] is packed wrongly at (%lld, %lld), blocks of %lld (CPU level %d)",
            (long long)t->k, (long long)t->n, (long long)k, (long long)n, (long long)t->block,
            level);
    }
}

static void check_orders(int64_t k, int64_t n, int64_t block, bool turned) {
  sl_type type = SL_TYPE(SL_F32, k, n);
  float *x = malloc((size_t)(k * n) * sizeof *x);
  size_t room = (size_t)(sli_turned_row(k) * (n + 64));
  uint16_t *y = malloc(room * sizeof *y);
  array_random(x, &type, 0);
  sli_turning t = {
      .from = x, .row = turned ? k : n, .k = k, .n = n, .block = block, .turned = turned, .to = y};
  for (int level = 0; level <= sli_cpu_level(); level++) {
    memset(y, 0xff, room * sizeof *y);
    for (int i = 0; i < sli_turn_chunks(&t); i++) level_chunks(level)->pack_bf16(&t, i);
    check_packed(&t, level);
    for (int strips = 0; strips < 2; strips++) {
      t.strips = strips;
      memset(y, 0xff, room * sizeof *y);
      for (int i = 0; i < sli_turn_chunks(&t); i++) level_chunks(level)->turn_bf16(&t, i);
      check_turned(&t, level);
    }
    t.strips = false;
  }
  free(x);
  free(y);
}

static void turning_and_packing_move_each_number_once(void) {
  for (int turned = 0; turned < 2; turned++) {
    check_orders(1, 1, 16, turned);
    check_orders(33, 5, 64, turned);
    check_orders(131, 1050, 48, turned);
    check_orders(64, 64, 64, turned);
    check_orders(1100, 97, 32, turned);
  }
}

/* ---- products ------------------------------------------------------------------- */

typedef struct shape {
  int64_t rows, k, n;
  bool transposed, bias;
} shape;

static const shape shapes[] = {
    {1, 1, 1, false, false},    {7, 33, 5, false, true},      {7, 33, 5, true, true},
    {130, 64, 96, true, true},  {300, 96, 130, false, false}, {517, 40, 64, true, false},
    {2048, 72, 48, true, true}, {40, 4200, 70, false, true},
};

/* Calls of a linear layer; inputs are random except for packed weights. */
typedef struct layer {
  const shape *s;
  kernel pack, forward, backward, weight;
  kernel packing_forward, packing_backward; /* pack the weight themselves */
} layer;

static void copy_input(kernel *to, int i, const kernel *from, int j) {
  memcpy(to->in[i], from->in[j], sl_type_bytes(&to->in_type[i]));
}

static layer layer_create(const shape *s) {
  sl_type x = SL_TYPE(SL_F32, s->rows, s->k), dy = SL_TYPE(SL_F32, s->rows, s->n);
  sl_type w = s->transposed ? SL_TYPE(SL_F32, s->k, s->n) : SL_TYPE(SL_F32, s->n, s->k);
  sl_type bias = SL_TYPE(SL_F32, s->n);
  if (!s->bias) bias.ndim = -1;
  sl_attrs attrs = {
      .product.transposed = s->transposed, .numbers.bf16 = true, .product.rows = s->rows};
  layer l = {.s = s, .pack = kernel_create(&sl_op_pack, attrs, 1, &w, 2)};
  array_random(l.pack.in[0], &w, 0);
  kernel_run(&l.pack, NULL);
  l.forward =
      kernel_create(&sl_op_linear, attrs, 4, (sl_type[]){x, w, bias, l.pack.out_type[0]}, 1);
  l.backward = kernel_create(&sl_op_linear_b, attrs, 3, (sl_type[]){dy, w, l.pack.out_type[1]}, 1);
  l.weight = kernel_create(&sl_op_linear_w, attrs, 2, (sl_type[]){x, dy}, 1);
  l.packing_forward = kernel_create(&sl_op_linear, attrs, 3, (sl_type[]){x, w, bias}, 1);
  l.packing_backward = kernel_create(&sl_op_linear_b, attrs, 2, (sl_type[]){dy, w}, 1);
  array_random(l.forward.in[0], &x, 0);
  array_random(l.backward.in[0], &dy, 0);
  if (s->bias) array_random(l.forward.in[2], &bias, 0);
  memcpy(l.forward.in[3], l.pack.out[0], sl_type_bytes(&l.pack.out_type[0]));
  memcpy(l.backward.in[2], l.pack.out[1], sl_type_bytes(&l.pack.out_type[1]));
  copy_input(&l.weight, 0, &l.forward, 0);
  copy_input(&l.weight, 1, &l.backward, 0);
  copy_input(&l.packing_forward, 0, &l.forward, 0);
  copy_input(&l.packing_forward, 1, &l.pack, 0);
  if (s->bias) copy_input(&l.packing_forward, 2, &l.forward, 2);
  copy_input(&l.packing_backward, 0, &l.backward, 0);
  copy_input(&l.packing_backward, 1, &l.pack, 0);
  return l;
}

static void layer_destroy(layer *l) {
  kernel_destroy(&l->pack);
  kernel_destroy(&l->forward);
  kernel_destroy(&l->backward);
  kernel_destroy(&l->weight);
  kernel_destroy(&l->packing_forward);
  kernel_destroy(&l->packing_backward);
}

/* A matrix as the reference reads it: element (i, j) at data[i * row + j * column]. */
typedef struct matrix {
  const float *data;
  int64_t row, column;
} matrix;

static double at(matrix m, int64_t i, int64_t j) {
  return (double)m.data[i * m.row + j * m.column];
}

/* Returns the matrix with its `count` elements rounded. */
static matrix rounded_matrix(matrix m, int64_t count) {
  float *data = malloc((size_t)count * sizeof *data);
  for (int64_t i = 0; i < count; i++) data[i] = rounded(m.data[i]);
  return (matrix){data, m.row, m.column};
}

/* Sums of f32 products are close to the sums of rounded products, and within two roundings of 2^-9
 * per term of the exact sums. */
static void check_product(const shape *s, const char *what, const float *got, const float *start,
                          int64_t m, int64_t n, int64_t k, matrix a, matrix b) {
  matrix ra = rounded_matrix(a, m * k), rb = rounded_matrix(b, k * n);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double near = start ? (double)start[j] : 0, exact = near, size = fabs(near);
      for (int64_t p = 0; p < k; p++) {
        double x = at(a, i, p), y = at(b, p, j);
        near += at(ra, i, p) * at(rb, p, j);
        exact += x * y;
        size += fabs(x * y);
      }
      double value = (double)got[i * n + j];
      CHECK(fabs(value - near) <= 1e-6 * size + 1e-7,
            "%s [%lld, %lld, %lld]: (%lld, %lld) is %.9g, rounded operands give %.9g", what,
            (long long)s->rows, (long long)s->k, (long long)s->n, (long long)i, (long long)j, value,
            near);
      CHECK(fabs(value - exact) <= 0x1.02p-8 * size, "%s: (%lld, %lld) is %.9g, f32 gives %.9g",
            what, (long long)i, (long long)j, value, exact);
    }
  free((float *)ra.data);
  free((float *)rb.data);
}

static void check_layer(const layer *l) {
  const shape *s = l->s;
  matrix x = {l->forward.in[0], s->k, 1}, dy = {l->backward.in[0], s->n, 1};
  matrix w = {l->pack.in[0], s->n, 1}; /* [k, n] */
  if (!s->transposed) w.row = 1, w.column = s->k;
  check_product(s, "linear", l->forward.out[0], l->forward.in[2], s->rows, s->n, s->k, x, w);
  matrix back = {w.data, w.column, w.row};
  check_product(s, "linear_b", l->backward.out[0], NULL, s->rows, s->k, s->n, dy, back);
  matrix xt = {x.data, 1, x.row}, dyt = {dy.data, 1, dy.row};
  if (s->transposed)
    check_product(s, "linear_w", l->weight.out[0], NULL, s->k, s->n, s->rows, xt, dy);
  else check_product(s, "linear_w", l->weight.out[0], NULL, s->n, s->k, s->rows, dyt, x);
}

/* A team gives the same bits. */
static void check_team(kernel *k, struct sl_team *team) {
  size_t bytes = sl_type_bytes(&k->out_type[0]);
  void *alone = malloc(bytes);
  memcpy(alone, k->out[0], bytes);
  memset(k->out[0], 0xff, bytes);
  kernel_run(k, team);
  CHECK(!memcmp(alone, k->out[0], bytes), "%s depends on the team", k->op->name);
  free(alone);
}

/* Packing inside the call gives the same bits as a separate pack. */
static void check_packing(const kernel *packed, kernel *packing) {
  kernel_run(packing, NULL);
  CHECK(!memcmp(packed->out[0], packing->out[0], sl_type_bytes(&packing->out_type[0])),
        "%s packs its weight otherwise than pack does", packing->op->name);
}

static void products_round_their_operands(struct sl_team *team) {
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    layer l = layer_create(&shapes[i]);
    kernel *runs[] = {&l.forward, &l.backward, &l.weight};
    for (int r = 0; r < 3; r++) kernel_run(runs[r], NULL);
    check_packing(&l.forward, &l.packing_forward);
    check_packing(&l.backward, &l.packing_backward);
    check_layer(&l);
    for (int r = 0; r < 3; r++) check_team(runs[r], team);
    layer_destroy(&l);
  }
}

static void sums_go_on_in_f32(void) {
  layer l = layer_create(&shapes[3]);
  kernel *k = &l.weight;
  kernel_run(k, NULL);
  int64_t n = sl_type_elements(&k->out_type[0]);
  float *once = malloc((size_t)n * sizeof *once), *twice = k->out[0];
  memcpy(once, twice, (size_t)n * sizeof *once);
  k->accumulate = 1;
  kernel_run(k, NULL);
  for (int64_t i = 0; i < n; i++)
    CHECK(fabsf(twice[i] - 2 * once[i]) <= 1e-4f, "%g and again is %g", (double)once[i],
          (double)twice[i]);
  free(once);
  layer_destroy(&l);
}

static void a_packed_weight_of_another_size_is_refused(void) {
  sl_type y, in[] = {SL_TYPE(SL_F32, 4, 8),
                     SL_TYPE(SL_F32, 8, 8),
                     {SL_F32, -1, {0}},
                     SL_TYPE(SL_BF16, 64, 128)};
  CHECK(sl_op_linear.infer(&(sl_attrs){0}, 4, in, &y) == SL_E_SHAPE &&
            strstr(sl_detail(), "packed weight must be bf16[64, 64]"),
        "%s", sl_detail());
  CHECK(sl_op_pack.infer(&(sl_attrs){0}, 1, &in[1], (sl_type[2]){{0}}) == SL_E_SHAPE,
        "rows are needed");
}

/* ---- tiles ---------------------------------------------------------------------- */

typedef struct tiles {
  uint16_t *a, *b;
  float *start, *want, *c, *bias;
  sli_tiles t;
} tiles;

enum { C_ROWS = 32, C_ROW = 112 };

static uint16_t *bf16_numbers(int64_t count) {
  uint16_t *x = aligned_alloc(64, ((size_t)count * sizeof *x + 63) / 64 * 64);
  for (int64_t i = 0; i < count; i++) {
    float value = (float)(int)(random_bits() % 2001 - 1000) / 1000;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    x[i] = (uint16_t)(bits >> 16);
  }
  return x;
}

static float *f32_numbers(int64_t count) {
  sl_type type = SL_TYPE(SL_F32, count);
  float *x = aligned_alloc(64, ((size_t)count * sizeof *x + 63) / 64 * 64);
  array_random(x, &type, 0);
  return x;
}

/* Returns the reference sum, with operands packed in strips and panels; starts from C, the bias or
 * zero. */
static double tile_sum(const tiles *x, int64_t row, int64_t column) {
  const sli_tiles *t = &x->t;
  double sum = t->adds   ? (double)x->start[row * C_ROW + column]
               : t->bias ? (double)t->bias[column]
                         : 0;
  for (int64_t k = 0; k < t->k; k++)
    sum +=
        (double)from_bits((uint32_t)x->a[k / 32 * 1024 + row * 32 + k % 32] << 16) *
        (double)from_bits(
            (uint32_t)x->b[column / 32 * t->b_panel + k / 2 * 64 + column % 32 * 2 + k % 2] << 16);
  return sum;
}

/* Returns whether a level sums products on tiles in AMX's order. */
static bool in_order_of_amx(int level) {
  const char *own = level_chunks(level)->bf16;
  return !own || !strcmp(own, "amx-bf16");
}

static void check_tile_sums(const tiles *x, const float *c) {
  for (int64_t row = 0; row < C_ROWS; row++)
    for (int64_t column = 0; column < C_ROW; column++) {
      bool of_c = row < x->t.rows && column < x->t.columns;
      double got = (double)c[row * C_ROW + column];
      double want = of_c ? tile_sum(x, row, column) : (double)x->start[row * C_ROW + column];
      CHECK(fabs(got - want) <= (of_c ? 1e-6 * (double)x->t.k + 1e-6 : 0),
            "(%lld, %lld) on tiles is %g, not %g", (long long)row, (long long)column, got, want);
    }
}

static void check_tiles(tiles *x) {
  size_t bytes = C_ROWS * C_ROW * sizeof(float);
  for (int level = 0; level <= sli_cpu_level(); level++) {
    x->t.c = level ? x->c : x->want;
    memcpy(x->t.c, x->start, bytes);
    level_chunks(level)->tile_product(&x->t, 0);
    check_tile_sums(x, x->t.c);
    CHECK(!level || !in_order_of_amx(level) || !memcmp(x->c, x->want, bytes),
          "%lld x %lld x %lld on tiles has other bits on CPU level %d", (long long)x->t.rows,
          (long long)x->t.k, (long long)x->t.columns, level);
  }
}

/* AMX computes exactly what its manual specifies; elements next to C are not touched. */
static void tiles_have_the_same_bits_on_all_levels(void) {
  static const int64_t shapes[][3] = {{32, 32, 32}, {32, 96, 64}, {5, 77, 160},
                                      {32, 33, 32}, {1, 1, 96},   {31, 112, 512}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int how = 0; how < 6; how++) {
      int64_t k = shapes[i][2], panels = (shapes[i][1] + 31) / 32;
      tiles x = {bf16_numbers(32 * k),
                 bf16_numbers(panels * 32 * k),
                 f32_numbers(C_ROWS * C_ROW),
                 f32_numbers(C_ROWS * C_ROW),
                 f32_numbers(C_ROWS * C_ROW),
                 f32_numbers(C_ROW),
                 {0}};
      x.t = (sli_tiles){.a = x.a,
                        .b = x.b,
                        .b_panel = 32 * k,
                        .k = k,
                        .rows = shapes[i][0],
                        .columns = shapes[i][1],
                        .c_row = C_ROW,
                        .adds = how % 3 == 1,
                        .bias = how % 3 == 2 ? x.bias : NULL,
                        .streams = how / 3};
      check_tiles(&x);
      free(x.a), free(x.b), free(x.start), free(x.want), free(x.c), free(x.bias);
    }
}

/* Chunk counts that are small are even; otherwise two threads would wait for each other a quarter
 * of the time. */
static void few_chunks_are_an_even_number(void) {
  for (int64_t m = 1; m < 2048; m++) {
    sli_product *product = NULL;
    sli_product_shape shape = {.m = m, .n = 16, .k = 16};
    if (m % 128 > 1) continue;
    CHECK(!sli_product_create(&shape, &product), "%s", sl_detail());
    int chunks = sli_product_chunks(product);
    CHECK(chunks == 1 || chunks > 8 || chunks % 2 == 0, "%lld rows are cut into %d chunks",
          (long long)m, chunks);
    sli_product_destroy(product);
  }
}

/* Tests the library where the processor multiplies bf16 or the library can emulate it, and tiles,
 * which work on any processor. */
static void check_products(uint64_t seed) {
  struct sl_team *team = sli_team_create(3, NULL, NULL);
  for (int tiles = 0; tiles < 2; tiles++) {
    setenv("SLUICE_CPU_BF16", tiles ? "tiles" : "1", 1);
    CHECK(!tiles || sl_cpu_bf16(), "no tiles");
    if (!sl_cpu_bf16()) continue;
    seed_random(seed);
    products_round_their_operands(team);
    sums_go_on_in_f32();
  }
  sli_team_destroy(team);
}

int main(void) {
  setenv("SLUICE_CPU_BF16", "1", 1);
  seed_random(7);
  RUN(rounding_goes_to_the_nearest);
  RUN(turning_and_packing_move_each_number_once);
  RUN(tiles_have_the_same_bits_on_all_levels);
  RUN(few_chunks_are_an_even_number);
  RUN(a_packed_weight_of_another_size_is_refused);
  RUN_AS("check_products", on_every_level(check_products, 7));
  return 0;
}
