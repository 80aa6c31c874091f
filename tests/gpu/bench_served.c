/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the kernels of servers on this GPU, with shapes of Llama 3 8B: products with weights at
 * rest in each format, attention of answers and of prompts, and sampling. Prints lines of
 * `case<TAB>value<TAB>unit<TAB>share`. What reads memory, weights for few rows or pages, is in
 * GB/s, beside a plain copy in the same run; prompts are in TFLOP/s, beside a bf16 product of 8192
 * x 8192 x 8192.
 *
 *   bench_served [FILTER]      the two ceilings, and cases with FILTER in their names */
#include <sluice/attention.h>
#include <sluice/batch.h>

#include "ops/ops.h"
#include "ops/storage.h"
#include "tests/gpu/timed_call.h"

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define I32(...) SL_TYPE(SL_I32, __VA_ARGS__)
static const sl_type none = {.ndim = -1};
static const char *filter = "";
static double copied, multiplied; /* ceilings: bytes and flops per nanosecond */

enum { WIDTH = 4096, HIDDEN = 14336, HEADS = 32, KV_HEADS = 8, DIM = 128, VOCABULARY = 128256 };
enum { MANY_ROWS = 32 }; /* from here on, a product is measured in flops */

static void show_bytes(const char *name, double bytes, double ns) {
  printf("%s\t%.1f\tGB/s\t%.1f us, %.0f %% of a copy\n", name, bytes / ns, ns / 1e3,
         100 * bytes / ns / copied);
  fflush(stdout);
}

static void show_flops(const char *name, double flops, double ns) {
  printf("%s\t%.1f\tTFLOP/s\t%.1f us, %.0f %% of linear_8192\n", name, flops / ns / 1e3, ns / 1e3,
         100 * flops / ns / multiplied);
  fflush(stdout);
}

static double time_of(const sl_op *op, sl_attrs attrs, int nin, const sl_type *in, int nout) {
  kernel k = kernel_create(op, attrs, nin, in, nout);
  for (int i = 0; i < nin; i++) {
    if (!k.in[i]) continue;
    free(k.in[i]);
    k.in[i] = some_bytes(&in[i]);
  }
  double ns = time_call(&k);
  kernel_destroy(&k);
  return ns;
}

static void measure_ceilings(void) {
  const sl_type copy[] = {F32(64 << 20)}, square = SL_TYPE(SL_BF16, 8192, 8192);
  copied = 2 * (double)sl_type_bytes(copy) / time_of(&sl_op_copy, (sl_attrs){0}, 1, copy, 1);
  kernel k = {.op = &sl_op_linear, .nin = 2, .nout = 1, .in_type = {square, square}};
  k.out_type[0] = square;
  for (int i = 0; i < 2; i++) k.in[i] = some_bytes(&square);
  k.out[0] = some_bytes(&square);
  multiplied = 2.0 * 8192 * 8192 * 8192 / time_call(&k);
  for (int i = 0; i < 2; i++) free(k.in[i]);
  free(k.out[0]);
  printf("copy\t%.1f\tGB/s\nlinear_8192\t%.1f\tTFLOP/s\n", copied, multiplied / 1e3);
}

static void bench_product(sl_storage storage, int64_t rows, int64_t k, int64_t n) {
  const sl_type values = F32(n, k), lies = sli_storage_type(storage, &values);
  const sl_type in[] = {F32(1, rows, k), lies, none, none, I32(8)};
  char name[64];
  snprintf(name, sizeof name, "product_%s_%dx%d_%d_rows", sli_storage_name(storage), (int)n, (int)k,
           (int)rows);
  if (!strstr(name, filter)) return;
  double ns = time_of(&sl_op_linear_served, (sl_attrs){.weight = {k, (int)storage}}, 5, in, 1);
  if (rows < MANY_ROWS) show_bytes(name, (double)sl_type_bytes(&lies), ns);
  else show_flops(name, 2.0 * (double)rows * (double)k * (double)n, ns);
}

/* Fills a batch with `each` rows of each sequence, the last of which is at position length - 1. */
static void fill_batch(sl_batch *b, int sequences, int64_t each, int64_t length) {
  int32_t pages = (int32_t)((length + SL_PAGE - 1) / SL_PAGE);
  *b = (sl_batch){.most_rows = (int32_t)(sequences * each),
                  .most_sequences = sequences,
                  .most_picks = sequences,
                  .pages = pages,
                  .sequences = sequences};
  for (int32_t i = 0; i < sequences; i++) {
    for (int32_t p = 0; p < pages; p++) ((int32_t *)sl_batch_table(b, i))[p] = p * sequences + i;
    for (int64_t r = 0; r < each; r++, b->rows++) {
      ((int32_t *)sl_batch_position(b))[b->rows] = (int32_t)(length - each + r);
      ((int32_t *)sl_batch_sequence_of(b))[b->rows] = i;
    }
  }
}

static void bench_attention(bool bf16, int sequences, int64_t each, int64_t length) {
  int64_t rows = sequences * each, pages = (length + SL_PAGE - 1) / SL_PAGE;
  int64_t ints = (int64_t)(sl_batch_bytes(rows, sequences, sequences, pages) / sizeof(int32_t));
  const sl_type in[] = {F32(1, rows, (HEADS + 2 * KV_HEADS) * DIM), none, I32(ints)};
  const sl_attrs attrs = {.attention.heads = HEADS,
                          .attention.kv_heads = KV_HEADS,
                          .pages.count = sequences * pages,
                          .place.length = pages * SL_PAGE,
                          .numbers.bf16 = bf16};
  char name[64];
  snprintf(name, sizeof name, "attention_%s_%dx%d_of_%d", bf16 ? "bf16" : "f32", sequences,
           (int)each, (int)length);
  if (!strstr(name, filter)) return;
  kernel k = kernel_create(&sl_op_attention_packed_served, attrs, 3, in, 3);
  array_random(k.in[0], &in[0], 0);
  fill_batch(k.in[2], sequences, each, length);
  free(k.out[1]);
  k.out[1] = NULL;
  double ns = time_call(&k), keys = (double)length - ((double)each - 1) / 2;
  if (each == 1)
    show_bytes(name, (double)(sequences * length) * 2 * KV_HEADS * DIM * (bf16 ? 2 : 4), ns);
  else show_flops(name, 4.0 * (double)rows * keys * HEADS * DIM, ns);
  kernel_destroy(&k);
}

static void bench_sample(int picks, float temperature) {
  int64_t ints = (int64_t)(sl_batch_bytes(picks, picks, picks, 1) / sizeof(int32_t)) + 8;
  const sl_type in[] = {F32(1, picks, VOCABULARY), I32(ints)};
  char name[64];
  snprintf(name, sizeof name, "sample_%s_%d_picks", temperature > 0 ? "top_p" : "greedy", picks);
  if (!strstr(name, filter)) return;
  kernel k = kernel_create(&sl_op_sample, (sl_attrs){0}, 2, in, 1);
  array_random(k.in[0], &in[0], 0);
  sl_batch *b = k.in[1];
  fill_batch(b, picks, 1, 1);
  b->picks = picks;
  for (int i = 0; i < picks; i++) {
    ((int32_t *)sl_batch_pick(b))[i] = i;
    ((sl_batch_sequence *)sl_batch_settings(b))[i] =
        (sl_batch_sequence){.seed = {1, (uint32_t)i}, .temperature = temperature, .top_p = 0.9f};
  }
  show_bytes(name, (double)picks * VOCABULARY * sizeof(float), time_call(&k));
  kernel_destroy(&k);
}

int main(int argc, char **argv) {
  static const sl_storage storages[] = {SL_STORAGE_BF16, SL_STORAGE_Q8_0, SL_STORAGE_Q4_1,
                                        SL_STORAGE_F32};
  static const int64_t rows[] = {1, 8, 16, 32, 64, 256, 1024};
  need_gpu();
  if (argc > 1) filter = argv[1];
  measure_ceilings();
  for (size_t s = 0; s < SLI_COUNT(storages); s++)
    for (size_t r = 0; r < SLI_COUNT(rows); r++) {
      bench_product(storages[s], rows[r], WIDTH, HIDDEN);
      bench_product(storages[s], rows[r], WIDTH, WIDTH);
      if (rows[r] == 1) bench_product(storages[s], 1, HIDDEN, WIDTH);
    }
  for (int bf16 = 1; bf16 >= 0; bf16--) {
    bench_attention(bf16, 1, 1, 4096);
    bench_attention(bf16, 16, 1, 4096);
    bench_attention(bf16, 64, 1, 1024);
    bench_attention(bf16, 1, 512, 512);
    bench_attention(bf16, 1, 512, 4096);
  }
  bench_sample(1, 0);
  bench_sample(32, 0);
  bench_sample(32, 1);
  return 0;
}
