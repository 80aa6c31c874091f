/* SPDX-License-Identifier: Apache-2.0 */
/* Products of served graphs write exactly the valid rows, also if there are none, and no row's bits
 * depend on other rows. Expert products match linear layers with the experts' weights, in f32 and
 * bf16; a row without an expert is 0.
 * labels: unthreaded */
#include "ops/ops.h"
#include "ops/storage.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"

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
  const sl_attrs attrs = {.exact = exact, .transposed = transposed};
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
static void linear_row(bool exact, const float *x, const float *w, float *y) {
  const sl_type none = {.ndim = -1};
  const sl_type in[] = {SL_TYPE(SL_F32, 1, 1, K), SL_TYPE(SL_F32, N, K), none, none,
                        SL_TYPE(SL_I32, 8)};
  kernel k = kernel_create(&sl_op_linear_served, (sl_attrs){.exact = exact}, 5, in, 1);
  memcpy(k.in[0], x, K * sizeof *x);
  memcpy(k.in[1], w, (size_t)N * K * sizeof *w);
  run_rows(&k, 1);
  memcpy(y, k.out[0], N * sizeof *y);
  kernel_destroy(&k);
}

static void check_against_linear(const kernel *k, bool exact, const float *w) {
  const int32_t *ids = k->in[1];
  const float *y = k->out[0];
  int64_t each = k->in_type[0].ndim == 3 ? EACH : 1;
  for (int64_t r = 0; r < IDS; r++) {
    float want[N] = {0};
    if (ids[r] >= 0)
      linear_row(exact, (const float *)k->in[0] + r / each * K, w + (int64_t)ids[r] * N * K, want);
    CHECK(!memcmp(y + r * N, want, sizeof want), "row %lld of expert %d", (long long)r, ids[r]);
  }
}

static void check_experts(bool exact, bool own, bool bf16) {
  const sl_type values = SL_TYPE(SL_F32, EXPERTS, N, K);
  sl_storage storage = bf16 ? SL_STORAGE_BF16 : SL_STORAGE_F32;
  const sl_type in[] = {own ? SL_TYPE(SL_F32, 1, ROOM, EACH, K) : SL_TYPE(SL_F32, 1, ROOM, K),
                        SL_TYPE(SL_I32, 1, ROOM, EACH), sli_storage_type(storage, &values),
                        SL_TYPE(SL_I32, 8)};
  kernel k = kernel_create(&sl_op_grouped_linear_served, (sl_attrs){.exact = exact}, 4, in, 1);
  float whole[IDS * N], *y = k.out[0], *w = array_create(&values);
  int32_t *ids = k.in[1];
  array_random(k.in[0], &in[0], 0);
  array_random(w, &values, 0);
  sli_storage_pack(storage, &values, w, k.in[2]);
  sli_storage_unpack(storage, &values, k.in[2], w);
  for (int i = 0; i < IDS; i++) ids[i] = (int32_t)random_below(EXPERTS) - (i % 7 == 3);
  run_rows(&k, ROOM);
  check_against_linear(&k, exact, w);
  memcpy(whole, y, sizeof whole);
  for (int32_t rows = 0; rows <= ROOM; rows++) {
    int64_t n = (int64_t)rows * EACH * N;
    memset(y, 0xff, sizeof whole);
    run_rows(&k, rows);
    CHECK(!memcmp(y, whole, (size_t)n * sizeof *y), "%d rows of %d have other bits", rows, ROOM);
    for (int64_t i = n * (int64_t)sizeof *y; i < (int64_t)sizeof whole; i++)
      CHECK(((const unsigned char *)y)[i] == 0xff, "%d rows: more is written", rows);
  }
  free(w);
  kernel_destroy(&k);
}

static void check_all(uint64_t seed) {
  seed_random(seed);
  for (int i = 0; i < 8; i++) check_rows(i & 1, i & 2, i & 4);
  for (int i = 0; i < 6; i++) check_experts(i % 3 == 2, i & 1, i % 3 == 1);
}

int main(void) {
  RUN_AS("check_all", on_every_level(check_all, 1));
  return 0;
}
