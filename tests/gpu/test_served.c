/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of served graphs give on a GPU the results of the CPU's kernels, within the precision of
 * sums. A row has the same bits alone and in any batch, and so has a prompt in any chunks. Sampled
 * tokens are the CPU's. So do ops on frozen weights as they are stored.
 *
 *   test_served [SEED] */
#include <unistd.h>

#include <sluice/attention.h>
#include <sluice/batch.h>

#include "io/small.h"
#include "ops/batch.h"
#include "ops/ops.h"
#include "ops/storage.h"
#include "tests/gpu/device_call.h"
#include "tests/support/seeds.h"
#include "tests/support/stored_weight.h"

#ifdef SLUICE_EMULATED
extern int emulated_backwards;
#else
static int emulated_backwards; /* order of emulated threads; unused on a GPU */
#endif

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define I32(...) SL_TYPE(SL_I32, __VA_ARGS__)
static const sl_type none = {.ndim = -1};

/* ---- calls ----------------------------------------------------------------------------------- */

/* Runs a call on the device, with outputs that start as they are in k, and puts them there. */
static void run_device(kernel *k) {
  void *got[MAX_OUT] = {0};
  device_call d;
  for (int o = 0; o < k->nout; o++)
    if (k->out[o]) got[o] = array_create(&k->out_type[o]);
  device_call_create(&d, k);
  device_call_run(&d, k, k->out, got);
  device_call_destroy(&d);
  for (int o = 0; o < k->nout; o++) {
    if (!k->out[o]) continue;
    memcpy(k->out[o], got[o], sl_type_bytes(&k->out_type[o]));
    free(got[o]);
  }
}

/* Returns copies of the call's outputs. */
typedef struct outputs {
  void *of[MAX_OUT];
} outputs;

static outputs outputs_of(const kernel *k) {
  outputs x = {0};
  for (int o = 0; o < k->nout; o++) {
    if (!k->out[o]) continue;
    x.of[o] = array_create(&k->out_type[o]);
    memcpy(x.of[o], k->out[o], sl_type_bytes(&k->out_type[o]));
  }
  return x;
}

static void put_outputs(kernel *k, const outputs *x) {
  for (int o = 0; o < k->nout; o++)
    if (k->out[o]) memcpy(k->out[o], x->of[o], sl_type_bytes(&k->out_type[o]));
}

static void free_outputs(const outputs *x) {
  for (int o = 0; o < MAX_OUT; o++) free(x->of[o]);
}

static void drop(kernel *k, int o) {
  free(k->out[o]);
  k->out[o] = NULL;
}

static void check_near(const kernel *k, const float *got, const float *want, int64_t n,
                       double tolerance) {
  for (int64_t i = 0; i < n; i++) {
    double g = (double)got[i], w = (double)want[i];
    CHECK(fabs(g - w) <= tolerance * (1 + fabs(w)) || (isnan(g) && isnan(w)),
          "%s: element %lld is %.9g, on the CPU %.9g", k->op->name, (long long)i, g, w);
  }
}

/* Runs the call on the CPU and on the device, there in two orders of threads. Output 0 is close;
 * the outputs of `same` have the same bits. */
static void check_call(kernel *k, double tolerance, uint32_t same) {
  outputs start = outputs_of(k);
  kernel_run(k, NULL);
  outputs want = outputs_of(k), once = {0};
  for (emulated_backwards = 0; emulated_backwards < 2; emulated_backwards++) {
    put_outputs(k, &start);
    run_device(k);
    if (!emulated_backwards) once = outputs_of(k);
    for (int o = 0; o < k->nout; o++) {
      if (!k->out[o]) continue;
      size_t bytes = sl_type_bytes(&k->out_type[o]);
      CHECK(!memcmp(k->out[o], once.of[o], bytes), "%s gives other bits the second time",
            k->op->name);
      if (same >> o & 1)
        CHECK(!memcmp(k->out[o], want.of[o], bytes), "%s: output %d has other bits", k->op->name,
              o);
    }
  }
  emulated_backwards = 0;
  check_near(k, k->out[0], want.of[0], sl_type_elements(&k->out_type[0]), tolerance);
  free_outputs(&start);
  free_outputs(&want);
  free_outputs(&once);
}

/* ---- products and tables --------------------------------------------------------------------- */

/* Replaces the scales of a row of blocks by small numbers: of 0.01, or with parts of 1e-4, as each
 * part multiplies them by up to 63. */
static void fill_scales(sl_storage storage, int64_t k, size_t bytes, unsigned char *row) {
  const struct form *f = forms;
  bool split = sli_forms[storage].layout == SLI_LAYOUT_SPLIT;
  int least = split || sli_storage_block(storage) == 32 ? 0x20 : 0x08;
  while (sli_storage_named(f->type) != storage) f++;
  for (size_t i = sli_storage_scales_at(storage, k); split && i + 1 < bytes; i += 2) {
    uint16_t power = (uint16_t)((118 + random_below(4)) << 7);
    row[i + 1] = (unsigned char)(least + (int)random_below(8));
    if (storage == SL_STORAGE_MXFP4) memcpy(row + i, &power, sizeof power);
  }
  for (int64_t b = 0; !split && b < k / f->numbers; b++)
    for (int h = 0; h < f->nhalves; h++)
      row[b * f->bytes + f->halves[h] + 1] = (unsigned char)(least + (int)random_below(4));
}

/* Fills blocks of floats of 8 or 4 bits. A negative factor is a divisor. */
static void fill_small(sl_storage storage, int64_t numbers, unsigned char *to) {
  size_t bytes = (size_t)sli_storage_block_bytes(storage);
  for (int64_t b = 0; b < numbers / sli_storage_block(storage); b++, to += bytes) {
    float factor = (float)(1 + random_below(8)) * 1e-3f;
    for (size_t i = 0; i < bytes - sizeof factor; i++) {
      to[i] = (unsigned char)random_below(256);
      to[i] ^= (to[i] & 127) == 127;
      if (storage == SL_STORAGE_NVFP4 && i >= SLI_NVFP4_SCALES) to[i] = 0x30 + to[i] % 16;
    }
    if (storage == SL_STORAGE_NVFP4 && b % 2) factor = -1 / factor;
    memcpy(to + bytes - sizeof factor, &factor, sizeof factor);
  }
}

/* Fills weights of a storage format, grouped as on a device. */
static void fill_weights(sl_storage storage, const sl_type *values, void *to) {
  sl_type lies = sli_storage_type(storage, values);
  if (!sli_storage_blocks(storage)) {
    float *from = array_create(values);
    array_random(from, values, 0);
    sli_storage_pack(storage, values, from, to);
    free(from);
    return;
  }
  unsigned char *bytes = to;
  if (sli_storage_small(storage)) return fill_small(storage, sl_type_elements(values), to);
  int64_t rows = sl_type_rows(&lies), k = sl_type_last(values);
  size_t row = sl_type_bytes(&lies) / (size_t)rows;
  for (size_t i = 0; i < sl_type_bytes(&lies); i++) bytes[i] = (unsigned char)random_below(256);
  for (int64_t r = 0; r < rows; r++) fill_scales(storage, k, row, bytes + (size_t)r * row);
  sli_storage_group(storage, &lies, to);
}

static kernel make_product(sl_storage storage, int64_t rows, int64_t k, int64_t n, bool turned,
                           bool bias) {
  sl_type values = turned ? F32(k, n) : F32(n, k), lies = sli_storage_type(storage, &values);
  const sl_type in[] = {F32(1, rows, k), lies, bias ? F32(n) : none, none, I32(8)};
  const sl_attrs attrs = {.product.transposed = turned, .weight = {k, (int)storage}};
  kernel x = kernel_create(&sl_op_linear_served, attrs, 5, in, 1);
  array_random(x.in[0], &in[0], 0);
  if (bias) array_random(x.in[2], &in[2], 0);
  fill_weights(storage, &values, x.in[1]);
  return x;
}

/* Row `at` alone has the bits that it has among others. */
static void check_row_alone(const kernel *k, int64_t at) {
  int64_t width = sl_type_last(&k->in_type[0]), n = sl_type_last(&k->out_type[0]);
  sl_type in[5];
  memcpy(in, k->in_type, sizeof in);
  in[0].dim[1] = 1;
  kernel one = kernel_create(k->op, k->attrs, 5, in, 1);
  memcpy(one.in[0], (float *)k->in[0] + at * width, (size_t)width * sizeof(float));
  for (int i = 1; i < 4; i++)
    if (k->in[i]) memcpy(one.in[i], k->in[i], sl_type_bytes(&in[i]));
  run_device(&one);
  CHECK(!memcmp(one.out[0], (float *)k->out[0] + at * n, (size_t)n * sizeof(float)),
        "row %lld alone has other bits", (long long)at);
  kernel_destroy(&one);
}

/* Returns the tolerance of sums of `width` products. On tensor cores, x has 16 bits. */
static double tolerance_of(sl_storage storage, int64_t width) {
  if (storage != SL_STORAGE_F32) return 2e-5 * sqrt((double)width);
  return 2e-5 * (width > 64 ? sqrt((double)width / 64) : 1);
}

static void check_product(sl_storage storage, int64_t rows, int64_t width, int64_t n, bool turned,
                          bool bias) {
  kernel k = make_product(storage, rows, width, n, turned, bias);
  check_call(&k, tolerance_of(storage, width), 0);
  check_row_alone(&k, random_below(rows));
  kernel_destroy(&k);
}

static const sl_storage parts[] = {SL_STORAGE_Q2_K, SL_STORAGE_Q3_K, SL_STORAGE_Q4_K,
                                   SL_STORAGE_Q5_K, SL_STORAGE_Q6_K, SL_STORAGE_IQ4_XS};

/* Blocks of 256 numbers, with few rows, several and many. */
static void check_products_of_parts(void) {
  for (size_t s = 0; s < SLI_COUNT(parts); s++) {
    check_product(parts[s], 1, 256, 3, false, false);
    check_product(parts[s], 3, 1792, 5, false, true);
    check_product(parts[s], 5, 768, 37, false, true);
    check_product(parts[s], 7, 2304, 19, false, false);
    check_product(parts[s], 27, 512, 33, false, false);
    check_product(parts[s], 67, 1280, 21, false, true);
  }
  check_product(SL_STORAGE_Q6_K, 65, 256, 12300, false, false);
}

/* Floats of 8 and 4 bits. */
static const sl_storage small[] = {SL_STORAGE_SCALED, SL_STORAGE_NVFP4};

static void check_products_of_small(void) {
  for (size_t s = 0; s < SLI_COUNT(small); s++) {
    check_product(small[s], 1, 128, 3, false, false);
    check_product(small[s], 5, 640, 37, false, true);
    check_product(small[s], 67, 1152, 21, false, true);
  }
  check_product(SL_STORAGE_SCALED, 65, 128, 12300, false, false);
}

static const sl_storage short_blocks[] = {SL_STORAGE_Q5_1, SL_STORAGE_IQ4_NL, SL_STORAGE_MXFP4};

static void check_products(void) {
  static const sl_storage storages[] = {SL_STORAGE_F32,    SL_STORAGE_BF16, SL_STORAGE_F16,
                                        SL_STORAGE_Q8_0,   SL_STORAGE_Q4_1, SL_STORAGE_Q5_1,
                                        SL_STORAGE_IQ4_NL, SL_STORAGE_MXFP4};
  for (size_t s = 0; s < SLI_COUNT(storages); s++) {
    check_product(storages[s], 1, 32, 3, false, false);
    check_product(storages[s], 3, 96, 37, false, true);
    check_product(storages[s], 11, 672, 20, false, true);
    check_product(storages[s], 27, 320, 33, false, false);
    check_product(storages[s], 70, 2368, 21, false, true);
    if (s && storages[s] != SL_STORAGE_F16)
      check_product(storages[s], 65, 64, 12300, false, false); /* a warp has rows of its own */
  }
  check_product(SL_STORAGE_F32, 5, 33, 19, false, true);
  check_product(SL_STORAGE_BF16, 2, 7, 5, false, false);
  check_product(SL_STORAGE_F16, 3, 7, 5, false, true);
  check_product(SL_STORAGE_F32, 4, 33, 19, true, true);
  check_product(SL_STORAGE_F32, 9, 64, 5, true, false);
}

/* Experts: some places have none. */
static void check_experts(bool own, sl_storage storage) {
  enum { TOKENS = 9, EACH = 3, EXPERTS = 4, COLUMNS = 37 };
  int64_t block = sli_storage_block(storage), width = block > 1 ? 3 * block : 40;
  const sl_type values = F32(EXPERTS, COLUMNS, width);
  const sl_type in[] = {own ? F32(1, TOKENS, EACH, width) : F32(1, TOKENS, width),
                        I32(1, TOKENS, EACH), sli_storage_type(storage, &values), I32(8)};
  kernel k = kernel_create(&sl_op_grouped_linear_served,
                           (sl_attrs){.weight = {width, (int)storage}}, 4, in, 1);
  array_random(k.in[0], &in[0], 0);
  fill_weights(storage, &values, k.in[2]);
  for (int i = 0; i < TOKENS * EACH; i++)
    ((int32_t *)k.in[1])[i] = (int32_t)random_below(EXPERTS) - (i % 7 == 3);
  check_call(&k, tolerance_of(storage, width), 0);
  kernel_destroy(&k);
}

static void check_table(sl_storage storage, int64_t first, bool partial) {
  int64_t width = 2 * SLI_MAX(sli_storage_block(storage), 32);
  sl_type values = F32(21, width), lies = sli_storage_type(storage, &values);
  const sl_type in[] = {I32(1, 30), lies, I32(8)};
  const sl_attrs attrs = {
      .weight = {width, (int)storage}, .place.first = first, .place.partial = partial};
  kernel k = kernel_create(&sl_op_embedding_served, attrs, 3, in, 1);
  array_random(k.in[0], &in[0], 25);
  fill_weights(storage, &values, k.in[1]);
  check_call(&k, 1e-6, 0);
  kernel_destroy(&k);
}

/* Products, gradients and tables of frozen weights in training. */
static void check_frozen(const struct form *f, int64_t m, int64_t n) {
  weight w = make_weight(f, n, 256);
  const sl_op *const ops[] = {&sl_op_linear_stored, &sl_op_linear_b_stored,
                              &sl_op_embedding_stored};
  for (int i = 0; i < 3; i++) {
    const sl_type in[] = {i == 2 ? I32(1, m) : F32(1, m, i ? n : 256), w.lies, F32(n)};
    kernel k = kernel_create(ops[i], attrs_of(&w, false), i ? 2 : 3, in, 1);
    array_random(k.in[0], &in[0], (int)n);
    memcpy(k.in[1], w.stored, sl_type_bytes(&in[1]));
    if (!i) array_random(k.in[2], &in[2], 0);
    check_call(&k, 2e-4, 0);
    kernel_destroy(&k);
  }
  free_weight(&w);
}

/* ---- batches --------------------------------------------------------------------------------- */

enum { SEQUENCES = 3, PAGES = 12, OWN = 4, MOST_ROWS = 200 };
static const int32_t tables[SEQUENCES][OWN] = {{4, 1, 6, 9}, {2, 5, 0, 7}, {3, 8, 10, 11}};

static int64_t batch_ints(int64_t rows) {
  return (int64_t)(sl_batch_bytes(rows, SEQUENCES, rows, OWN) / sizeof(int32_t)) + 64;
}

/* Fills a batch with `rows` rows of each sequence from a position on. */
static void fill_batch(sl_batch *b, const int64_t *from, const int64_t *rows) {
  int64_t all = rows[0] + rows[1] + rows[2];
  *b = (sl_batch){.most_rows = (int32_t)all,
                  .most_sequences = SEQUENCES,
                  .most_picks = (int32_t)all,
                  .pages = OWN,
                  .sequences = SEQUENCES};
  for (int32_t i = 0; i < SEQUENCES; i++) {
    memcpy((int32_t *)sl_batch_table(b, i), tables[i], sizeof tables[i]);
    for (int64_t r = 0; r < rows[i]; r++, b->rows++) {
      ((int32_t *)sl_batch_position(b))[b->rows] = (int32_t)(from[i] + r);
      ((int32_t *)sl_batch_sequence_of(b))[b->rows] = i;
    }
  }
}

static void check_positions(void) {
  const int64_t from[] = {0, 17, 90}, rows[] = {5, 1, 3};
  const sl_rope half = {.part = 0.5, .factor = 1};
  const sl_type in[] = {F32(1, 9, 60), I32(batch_ints(9))};
  const sl_attrs attrs[] = {{.rotary.heads = 3, .place.length = 100},
                            {.rotary.heads = 3, .place.length = 100, .user = &half}};
  for (int i = 0; i < 2; i++) {
    kernel k = kernel_create(&sl_op_rotary_served, attrs[i], 2, in, 1);
    array_random(k.in[0], &in[0], 0);
    fill_batch(k.in[1], from, rows);
    check_call(&k, 2e-5, 0);
    kernel_destroy(&k);
  }
  const sl_type table[] = {in[0], F32(100, 60), in[1]};
  kernel k = kernel_create(&sl_op_position_served, (sl_attrs){0}, 3, table, 1);
  array_random(k.in[0], &table[0], 0);
  array_random(k.in[1], &table[1], 0);
  fill_batch(k.in[2], from, rows);
  check_call(&k, 2e-5, 0);
  kernel_destroy(&k);
}

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct shape {
  const sl_op *op;
  sl_attrs attrs;
  int64_t dim;
  int nin;
} shape;

/* Numbers of all positions of the sequences, and attention's results. */
static float numbers[5][SEQUENCES][MOST_ROWS * 300], found[2][SEQUENCES][MOST_ROWS * 300];

static int64_t width_of(const shape *s, int input) {
  int64_t kv = s->attrs.attention.kv_heads ? s->attrs.attention.kv_heads : s->attrs.attention.heads;
  if (s->op == &sl_op_attention_packed_served) return (s->attrs.attention.heads + 2 * kv) * s->dim;
  if (s->op == &sl_op_attention_sinks_served && input == 3) return s->attrs.attention.heads;
  return (input == 1 || input == 2 ? kv : s->attrs.attention.heads) * s->dim;
}

static kernel make_attention(const shape *s, const int64_t *from, const int64_t *rows) {
  int64_t all = rows[0] + rows[1] + rows[2];
  sl_type in[6];
  int nin = s->op->max_in, given = s->nin;
  for (int i = 0; i < nin - 1; i++) in[i] = i < given ? F32(1, all, width_of(s, i)) : none;
  in[nin - 1] = I32(batch_ints(all));
  kernel k = kernel_create(s->op, s->attrs, nin, in, 3);
  fill_batch(k.in[nin - 1], from, rows);
  for (int i = 0; i < given; i++) {
    int64_t width = width_of(s, i);
    float *to = k.in[i];
    for (int q = 0; q < SEQUENCES; to += rows[q++] * width)
      memcpy(to, numbers[i][q] + from[q] * width, (size_t)(rows[q] * width) * sizeof *to);
  }
  drop(&k, 1);
  return k;
}

static void note_rows(const kernel *k, const int64_t *from, const int64_t *rows,
                      float (*to)[MOST_ROWS * 300]) {
  int64_t width = sl_type_last(&k->out_type[0]);
  const float *y = k->out[0];
  for (int q = 0; q < SEQUENCES; y += rows[q++] * width)
    memcpy(to[q] + from[q] * width, y, (size_t)(rows[q] * width) * sizeof *y);
}

/* Attends to whole sequences in one tick, as the CPU does, and in ticks of some rows each. */
static void check_attention(const shape *s) {
  const int64_t begin[SEQUENCES] = {0}, length[] = {150, 1 + random_below(70), 3};
  int64_t from[SEQUENCES] = {0}, rows[SEQUENCES];
  for (int i = 0; i < 5; i++)
    for (int q = 0; q < SEQUENCES; q++) {
      sl_type all = F32(MOST_ROWS * 300);
      array_random(numbers[i][q], &all, 0);
    }
  kernel whole = make_attention(s, begin, length);
  size_t bytes = sl_type_bytes(&whole.out_type[2]);
  void *pages = array_create(&whole.out_type[2]);
  check_call(&whole, 2e-5, 4);
  note_rows(&whole, begin, length, found[0]);
  memset(pages, 0xff, bytes);
  while (from[0] < length[0] || from[1] < length[1] || from[2] < length[2]) {
    for (int q = 0; q < SEQUENCES; q++) {
      rows[q] = random_below(2) ? 1 : random_below(40);
      rows[q] = SLI_MIN(rows[q], length[q] - from[q]);
    }
    if (!(rows[0] + rows[1] + rows[2])) continue;
    kernel k = make_attention(s, from, rows);
    memcpy(k.out[2], pages, bytes);
    run_device(&k);
    memcpy(pages, k.out[2], bytes);
    note_rows(&k, from, rows, found[1]);
    for (int q = 0; q < SEQUENCES; q++) from[q] += rows[q];
    kernel_destroy(&k);
  }
  for (int q = 0; q < SEQUENCES; q++)
    CHECK(!memcmp(found[0][q], found[1][q],
                  (size_t)(length[q] * sl_type_last(&whole.out_type[0])) * sizeof(float)),
          "%s: sequence %d has other bits in parts", s->op->name, q);
  kernel_destroy(&whole);
  free(pages);
}

static void check_all_attention(void) {
#define COMMON .pages.count = PAGES, .place.length = OWN * SL_PAGE
#define Q8_0 .pages.storage = SL_STORAGE_Q8_0
#define FP8 .pages.storage = SL_STORAGE_FP8
  const shape shapes[] = {
      {&sl_op_attention_served, {COMMON, .attention.heads = 2}, 20, 3},
      {&sl_op_attention_served,
       {COMMON, .attention.heads = 6, .attention.kv_heads = 2, .pages.storage = SL_STORAGE_BF16},
       16,
       3},
      {&sl_op_attention_served,
       {COMMON, .attention.heads = 4, .attention.kv_heads = 1, .attention.window = 37},
       24,
       3},
      {&sl_op_attention_served,
       {COMMON, .attention.heads = 4, .attention.window = 37, .attention.cap = 0.4f},
       24,
       3},
      {&sl_op_attention_served,
       {COMMON, .attention.heads = 4, .attention.kv_heads = 2, Q8_0},
       40,
       3},
      {&sl_op_attention_packed_served,
       {COMMON, .attention.heads = 3, .attention.kv_heads = 1, Q8_0},
       32,
       1},
      {&sl_op_attention_served,
       {COMMON, .attention.heads = 4, .attention.kv_heads = 2, FP8},
       40,
       3},
      {&sl_op_attention_served, {COMMON, .attention.heads = 2, FP8}, 32, 3},
      {&sl_op_attention_served,
       {COMMON, .attention.heads = 1, .attention.window = 30, .attention.shown = 5},
       72,
       3},
      {&sl_op_attention_served,
       {.pages.count = PAGES, .place.length = 4000, .attention.heads = 1},
       8,
       3},
      {&sl_op_attention_packed_served,
       {COMMON, .attention.heads = 4, .attention.kv_heads = 2},
       8,
       1},
      {&sl_op_attention_sinks_served,
       {COMMON, .attention.heads = 4, .attention.kv_heads = 2, .attention.window = 70},
       8,
       4},
      {&sl_op_attention_dual_served,
       {COMMON, .attention.heads = 4, .attention.kv_heads = 2, .attention.chunk = 64},
       8,
       5},
      {&sl_op_attention_dual_served,
       {COMMON, .attention.heads = 4, .attention.kv_heads = 2, .attention.chunk = 64},
       16,
       5},
      {&sl_op_attention_packed_served,
       {COMMON, .attention.heads = 2, .attention.kv_heads = 1, .pages.storage = SL_STORAGE_BF16},
       64,
       1},
      {&sl_op_attention_served,
       {COMMON, .attention.heads = 3, .attention.kv_heads = 1, .attention.window = 37},
       80,
       3},
      {&sl_op_attention_served,
       {COMMON, .attention.heads = 1, .attention.window = 30, .attention.shown = 5},
       144,
       3},
      {&sl_op_attention_sinks_served,
       {COMMON, .attention.heads = 6, .attention.kv_heads = 1, .attention.window = 70},
       32,
       4},
      {&sl_op_attention_served,
       {COMMON, .attention.heads = 1, .pages.storage = SL_STORAGE_BF16},
       288,
       3},
  };
  for (size_t i = 0; i < SLI_COUNT(shapes); i++) check_attention(&shapes[i]);
}

/* Fills lists of positions up to each row's own. */
static void fill_lists(const sl_batch *b, int32_t *lists, int64_t count) {
  for (int64_t i = 0; i < b->rows * count; i++) {
    int32_t most = sl_batch_position(b)[i / count] + 1, j = (int32_t)(i % count);
    lists[i] = j < most ? (int32_t)((int64_t)j * most / SLI_MIN(count, most)) : -1;
  }
}

/* Latent attention: a prompt of each sequence in one tick, then one more row of each; to `count`
 * chosen positions if that is not 0. */
static void check_latents(sl_storage storage, int64_t count) {
  enum { HEADS = 3, NOPE = 12, ROPE = 8, RANK = 24, VALUES = 10 };
  const int64_t begin[2][SEQUENCES] = {{0}, {70, 5, 1}},
                rows[2][SEQUENCES] = {{70, 5, 1}, {1, 1, 1}};
  kernel k[2];
  for (int t = 0; t < 2; t++) {
    int64_t all = rows[t][0] + rows[t][1] + rows[t][2];
    const sl_type in[] = {F32(1, all, HEADS * (NOPE + ROPE)),
                          F32(1, all, RANK),
                          F32(1, all, ROPE),
                          F32(HEADS * (NOPE + VALUES), RANK),
                          count ? I32(1, all, count) : none,
                          I32(batch_ints(all))};
    sl_attrs attrs = {
        .attention.heads = HEADS, .pages.count = PAGES, .place.length = OWN * SL_PAGE};
    attrs.pages.storage = storage;
    k[t] = kernel_create(&sl_op_attention_latent_served, attrs, 6, in, 2);
    for (int i = 0; i < 4; i++) array_random(k[t].in[i], &in[i], 0);
    fill_batch(k[t].in[5], begin[t], rows[t]);
    if (count) fill_lists(k[t].in[5], k[t].in[4], count);
    if (t) memcpy(k[1].out[1], k[0].out[1], sl_type_bytes(&k[1].out_type[1]));
    check_call(&k[t], 2e-5, 2);
  }
  for (int t = 0; t < 2; t++) kernel_destroy(&k[t]);
}

/* The choice of tokens, whose scores are whole numbers with many ties: the same two ticks. */
static void check_choice(sl_storage storage) {
  enum { HEADS = 3, DIM = 40, COUNT = 9 };
  const int64_t begin[2][SEQUENCES] = {{0}, {70, 5, 1}},
                rows[2][SEQUENCES] = {{70, 5, 1}, {1, 1, 1}};
  kernel k[2];
  for (int t = 0; t < 2; t++) {
    int64_t all = rows[t][0] + rows[t][1] + rows[t][2];
    const sl_type in[] = {F32(1, all, HEADS * DIM), F32(1, all, DIM), F32(1, all, HEADS),
                          I32(batch_ints(all))};
    sl_attrs attrs = {.attention.heads = HEADS,
                      .attention.tokens = COUNT,
                      .pages.count = PAGES,
                      .place.length = OWN * SL_PAGE};
    attrs.pages.storage = storage;
    k[t] = kernel_create(&sl_op_choose_tokens_served, attrs, 4, in, 2);
    for (int i = 0; i < 3; i++)
      for (int64_t n = 0; n < sl_type_elements(&in[i]); n++)
        ((float *)k[t].in[i])[n] = n % 32 || i != 1 ? (float)(random_below(5) - 2) : 127;
    fill_batch(k[t].in[3], begin[t], rows[t]);
    if (t) memcpy(k[1].out[1], k[0].out[1], sl_type_bytes(&k[1].out_type[1]));
    check_call(&k[t], 0, 2);
  }
  for (int t = 0; t < 2; t++) kernel_destroy(&k[t]);
}

/* ---- sampling -------------------------------------------------------------------------------- */

enum { PICKS = 12, VOCABULARY = 333, WORDS = 11, EDITS = 3 };

static void draw_settings(sl_batch *b, int i) {
  sl_batch_sequence *how = (sl_batch_sequence *)sl_batch_settings(b) + i;
  *how = (sl_batch_sequence){.seed = {(uint32_t)random_bits(), (uint32_t)random_bits()},
                             .temperature = random_below(4) ? 0.5f + (float)random_below(3) : 0,
                             .top_k = random_below(3) ? 0 : 1 + (int32_t)random_below(400),
                             .top_p = random_below(3) ? 0 : 0.1f * (float)(1 + random_below(9)),
                             .min_p = random_below(3) ? 0 : 0.2f * (float)(1 + random_below(5)),
                             .logprobs = (int32_t)random_below(24) - 2,
                             .hash = 1,
                             .place = (int32_t)random_below(100),
                             .constrained = (int32_t)random_below(2),
                             .edit = i * EDITS,
                             .edits = (int32_t)random_below(EDITS + 1)};
}

static kernel make_sample(void) {
  int64_t ints = (int64_t)(sl_batch_bytes(PICKS, PICKS, PICKS, 1) / sizeof(int32_t)) +
                 PICKS * EDITS * (int64_t)(sizeof(sl_batch_edit) / sizeof(int32_t));
  const sl_type in[] = {F32(1, PICKS, VOCABULARY), I32(ints), I32(PICKS, WORDS)};
  kernel k = kernel_create(&sl_op_sample, (sl_attrs){.sampling.words = PICKS * EDITS}, 3, in, 1);
  array_random(k.in[0], &in[0], 0);
  for (int i = 0; i < PICKS * VOCABULARY; i++) ((float *)k.in[0])[i] *= 5;
  for (int i = 0; i < PICKS * WORDS; i++) ((int32_t *)k.in[2])[i] = (int32_t)random_bits();
  sl_batch *b = k.in[1];
  memset(b, 0, (size_t)ints * sizeof(int32_t));
  *b = (sl_batch){.rows = PICKS,
                  .sequences = PICKS,
                  .picks = PICKS,
                  .most_rows = PICKS,
                  .most_sequences = PICKS,
                  .most_picks = PICKS,
                  .pages = 1,
                  .edits = PICKS * EDITS,
                  .most_edits = PICKS * EDITS};
  for (int i = 0; i < PICKS; i++) {
    ((int32_t *)sl_batch_sequence_of(b))[i] = ((int32_t *)sl_batch_pick(b))[i] = i;
    ((int32_t *)sl_batch_given(b))[i] = random_below(5) ? 0 : 1 + (int32_t)random_below(VOCABULARY);
    draw_settings(b, i);
  }
  for (int i = 0; i < PICKS * EDITS; i++)
    ((sl_batch_edit *)sl_batch_edits(b))[i] =
        (sl_batch_edit){(int32_t)random_below(4), (float)random_unit() * 20, 1.5f, 0.25f};
  return k;
}

static void check_sampled(const sl_sampled *got, const sl_sampled *want, int i) {
  CHECK(got->token == want->token && got->finite == want->finite && got->ntop == want->ntop,
        "pick %d: token %d, on the CPU %d", i, got->token, want->token);
  CHECK(!memcmp(got->hash, want->hash, sizeof got->hash), "pick %d: another hash", i);
  CHECK(!memcmp(got->top, want->top, sizeof got->top), "pick %d: other likely tokens", i);
  CHECK(fabsf(got->logprob - want->logprob) < 1e-4f, "pick %d: log-probability %g, not %g", i,
        (double)got->logprob, (double)want->logprob);
  for (int t = 0; t < want->ntop; t++)
    CHECK(fabsf(got->top_logprob[t] - want->top_logprob[t]) < 1e-4f, "pick %d, token %d", i, t);
}

static void check_sample(void) {
  kernel k = make_sample();
  if (random_below(2)) ((float *)k.in[0])[random_below(PICKS * VOCABULARY)] = INFINITY;
  kernel_run(&k, NULL);
  outputs want = outputs_of(&k);
  for (emulated_backwards = 0; emulated_backwards < 2; emulated_backwards++) {
    run_device(&k);
    for (int i = 0; i < PICKS; i++)
      check_sampled((sl_sampled *)k.out[0] + i, (sl_sampled *)want.of[0] + i, i);
  }
  emulated_backwards = 0;
  free_outputs(&want);
  kernel_destroy(&k);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 2);
  need_gpu();
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    seed_random(seed);
    RUN(check_products);
    RUN(check_products_of_parts);
    RUN(check_products_of_small);
    for (int i = 0; i < 2; i++) {
      RUN(check_experts, i, small[i]);
      RUN(check_table, small[i], 5, i);
    }
    RUN(check_table, SL_STORAGE_F32, 0, false);
    RUN(check_table, SL_STORAGE_BF16, 0, false);
    RUN(check_table, SL_STORAGE_F16, 0, false);
    RUN(check_table, SL_STORAGE_Q8_0, 2, true);
    RUN(check_table, SL_STORAGE_Q4_1, 0, false);
    for (size_t i = 0; i < SLI_COUNT(forms); i++) RUN(check_frozen, &forms[i], 3 + 6 * (i % 2), 19);
    RUN(check_positions);
    RUN(check_all_attention);
    for (int i = 0; i < 6; i++) RUN(check_latents, (sl_storage)(i % 3), i < 3 ? 0 : 7);
    RUN(check_latents, SL_STORAGE_FP8, 0);
    RUN(check_latents, SL_STORAGE_FP8, 7);
    for (int i = 0; i < 3; i++) RUN(check_choice, (sl_storage)i);
    for (int i = 0; i < 8; i++) RUN(check_experts, i & 1, (sl_storage)(i / 2));
    for (size_t i = 0; i < SLI_COUNT(parts); i++) {
      RUN(check_table, parts[i], 0, i % 2);
      RUN(check_experts, i & 1, parts[i]);
    }
    for (size_t i = 0; i < SLI_COUNT(short_blocks); i++) {
      RUN(check_table, short_blocks[i], 0, i % 2);
      RUN(check_experts, i & 1, short_blocks[i]);
    }
    for (int i = 0; i < 6; i++) RUN(check_sample);
  }
  return 0;
}
