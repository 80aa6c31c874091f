/* SPDX-License-Identifier: Apache-2.0 */
/* Products of served graphs write the valid rows and nothing else, however many there are, also
 * none; a row's bits do not depend on the others.
 * labels: unthreaded */
#include "ops/ops.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"

enum { ROOM = 9, K = 40, N = 37 };

static void run_rows(kernel *k, int32_t rows) {
  const int32_t in_rows[] = {rows, -1, -1, -1, -1};
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

static void check_all(uint64_t seed) {
  seed_random(seed);
  for (int i = 0; i < 8; i++) check_rows(i & 1, i & 2, i & 4);
}

int main(void) {
  RUN_AS("check_all", on_every_level(check_all, 1));
  return 0;
}
