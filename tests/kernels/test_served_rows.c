/* SPDX-License-Identifier: Apache-2.0 */
/* Products of served graphs write exactly the valid rows, also if there are none, and no row's bits
 * depend on other rows. Expert products match linear layers with the experts' weights, in f32, bf16
 * and blocks; a row without an expert is 0.
 * labels: unthreaded */
#include "ops/ops.h"
#include "ops/storage.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/stored_weight.h"

enum { ROOM = 9, K = 40, N = 37 };

static void run_rows(kernel *k, int32_t rows) {
  bool experts = k->op == &sl_op_grouped_linear_served;
  const int32_t in_rows[] = {rows, experts ? rows : -1, -1, -1, -1};
  sl_call call = kernel_call(k, NULL);
  size_t bytes = k->kernel->scratch ? k->kernel->scratch(&call, 1) : 0;
  call.in_rows = in_rows;
  call.scratch = aligned_alloc(64, (bytes + 64) / 64 * 64);
  memset(k->out[0], 0xff, sl_type_bytes(&k->out_type[0]));
  k->kernel->run(&call);
  free(call.scratch);
}

static void check_rows(bool exact, bool transposed, bool bias) {
  const sl_type none = {.ndim = -1}, w = transposed ? SL_TYPE(SL_F32, K, N) : SL_TYPE(SL_F32, N, K);
  const sl_type in[] = {SL_TYPE(SL_F32, 1, ROOM, K), w, bias ? SL_TYPE(SL_F32, N) : none, none,
                        SL_TYPE(SL_I32, 8)};
  const sl_attrs attrs = {.numbers.exact = exact, .product.transposed = transposed};
  kernel k = kernel_create(&sl_op_linear_served, attrs, 5, in, 1);
  float whole[ROOM * N], *y = k.out[0];
  for (int i = 0; i < 3; i++)
    if (in[i].ndim >= 0) array_random(k.in[i], &in[i], 0);
  run_rows(&k, ROOM);
  memcpy(whole, y, sizeof whole);
  for (int32_t rows = 0; rows <= ROOM; rows++) {
    const unsigned char *rest = (const unsigned char *)(y + rows * N);
    run_rows(&k, rows);
    CHECK(!memcmp(y, whole, (size_t)(rows * N) * sizeof *y), "%d rows of %d have other bits", rows,
          ROOM);
    for (size_t i = 0; i < (size_t)((ROOM - rows) * N) * sizeof *y; i++)
      CHECK(rest[i] == 0xff, "%d rows: more is written (exact %d, transposed %d)", rows, exact,
            transposed);
  }
  kernel_destroy(&k);
}

/* ---- experts --------------------------------------------------------------------------------- */

enum { EXPERTS = 5, EACH = 2, IDS = ROOM * EACH };

/* Computes a row by a linear layer with an expert's weight. */
static void linear_row(bool exact, const float *x, const weight *w, float *y) {
  const sl_type none = {.ndim = -1};
  int64_t width = w->values.dim[1];
  const sl_type in[] = {SL_TYPE(SL_F32, 1, 1, width), w->lies, none, none, SL_TYPE(SL_I32, 8)};
  const sl_attrs attrs = {.numbers.exact = exact, .weight = {width, (int)w->storage}};
  kernel k = kernel_create(&sl_op_linear_served, attrs, 5, in, 1);
  memcpy(k.in[0], x, (size_t)width * sizeof *x);
  memcpy(k.in[1], w->stored, sl_type_bytes(&w->lies));
  run_rows(&k, 1);
  memcpy(y, k.out[0], N * sizeof *y);
  kernel_destroy(&k);
}

static void check_against_linear(const kernel *k, bool exact, const weight *experts) {
  const int32_t *ids = k->in[1];
  const float *y = k->out[0];
  int64_t each = k->in_type[0].ndim == 3 ? EACH : 1, width = sl_type_last(&k->in_type[0]);
  for (int64_t r = 0; r < IDS; r++) {
    float want[N] = {0};
    if (ids[r] >= 0)
      linear_row(exact, (const float *)k->in[0] + r / each * width, &experts[ids[r]], want);
    CHECK(!memcmp(y + r * N, want, sizeof want), "row %lld of expert %d", (long long)r, ids[r]);
  }
}

/* Rows of blocks are so wide that some experts' rows share their digits, and others' do not. */
static void check_experts(bool exact, bool own, const struct form *f) {
  int64_t width = f->numbers > 1 ? 33 * f->numbers : K;
  weight experts[EXPERTS];
  for (int e = 0; e < EXPERTS; e++) experts[e] = make_weight(f, N, width);
  sl_type lies = experts[0].lies;
  const sl_type in[] = {
      own ? SL_TYPE(SL_F32, 1, ROOM, EACH, width) : SL_TYPE(SL_F32, 1, ROOM, width),
      SL_TYPE(SL_I32, 1, ROOM, EACH), SL_TYPE(lies.dtype, EXPERTS, N, lies.dim[1]),
      SL_TYPE(SL_I32, 8)};
  const sl_attrs attrs = {.numbers.exact = exact, .weight = {width, (int)experts[0].storage}};
  kernel k = kernel_create(&sl_op_grouped_linear_served, attrs, 4, in, 1);
  float whole[IDS * N], *y = k.out[0];
  int32_t *ids = k.in[1];
  array_random(k.in[0], &in[0], 0);
  for (int e = 0; e < EXPERTS; e++)
    memcpy((char *)k.in[2] + (size_t)e * sl_type_bytes(&lies), experts[e].stored,
           sl_type_bytes(&lies));
  for (int i = 0; i < IDS; i++) ids[i] = (int32_t)random_below(EXPERTS) - (i % 7 == 3);
  run_rows(&k, ROOM);
  check_against_linear(&k, exact, experts);
  memcpy(whole, y, sizeof whole);
  for (int32_t rows = 0; rows <= ROOM; rows++) {
    int64_t n = (int64_t)rows * EACH * N;
    memset(y, 0xff, sizeof whole);
    run_rows(&k, rows);
    CHECK(!memcmp(y, whole, (size_t)n * sizeof *y), "%d rows of %d have other bits", rows, ROOM);
    for (int64_t i = n * (int64_t)sizeof *y; i < (int64_t)sizeof whole; i++)
      CHECK(((const unsigned char *)y)[i] == 0xff, "%d rows: more is written", rows);
  }
  for (int e = 0; e < EXPERTS; e++) free_weight(&experts[e]);
  kernel_destroy(&k);
}

static void check_all(uint64_t seed) {
  seed_random(seed);
  for (int i = 0; i < 8; i++) check_rows(i & 1, i & 2, i & 4);
  for (int i = 0; i < 2; i++) {
    for (size_t f = 0; f < SLI_COUNT(forms); f++)
      for (int exact = 0; exact < 2; exact++) check_experts(exact, i, &forms[f]);
  }
}

int main(void) {
  RUN_AS("check_all", on_every_level(check_all, 1));
  return 0;
}
