/* SPDX-License-Identifier: Apache-2.0 */
/* State that calls keep exists once for all calls of a device that share it, and is freed with the
 * last one.
 * labels: unthreaded */
#include <sluice/ops.h>
#include <sluice/program.h>

#include "kernels/bind.h"
#include "ops/facets.h"
#include "tests/support/test.h"

static const sl_type x = SL_TYPE(SL_F32, 2, 5, 32);
static const sl_place place = {0, 0};

static sl_program_call turning(const sl_op *op, int heads, float theta) {
  return (sl_program_call){.op = op,
                           .attrs = {.rotary.heads = heads, .rotary.theta = theta},
                           .nin = 1,
                           .nout = 1,
                           .in_type = &x,
                           .out_type = &x,
                           .in = &place,
                           .out = &place};
}

static size_t keeps(const sl_program_call *c, uint64_t *which) {
  sl_call call = sli_call_shape(c);
  return sli_op_memory(c->op)->keeps(&call, which);
}

static void check_which(void) {
  sl_program_call calls[] = {turning(&sl_op_rotary, 2, 0), turning(&sl_op_rotary_b, 2, 10000),
                             turning(&sl_op_rotary, 4, 0), turning(&sl_op_rotary, 2, 500),
                             turning(&sl_op_rotary, 2, 0), turning(&sl_op_rotary, 2, 0),
                             turning(&sl_op_rotary, 2, 0)};
  static const sl_rope stretched = {.kind = SL_ROPE_LINEAR, .factor = 2}, in_part = {.part = 0.5};
  calls[4].attrs.place.length = 7;
  calls[5].attrs.user = &stretched;
  calls[6].attrs.user = &in_part;
  uint64_t which[7];
  size_t bytes[7];
  for (int i = 0; i < 7; i++) bytes[i] = keeps(&calls[i], &which[i]);
  CHECK(which[0] == which[1] &&
            sli_op_memory(calls[0].op)->keeps == sli_op_memory(calls[1].op)->keeps,
        "there and back: one table");
  for (int i = 2; i < 7; i++) CHECK(which[i] != which[0], "call %d has other angles", i);
  CHECK(bytes[0] >= 2 * 5 * 8 * sizeof(float) && bytes[0] < 2 * 5 * 8 * sizeof(float) + 64,
        "a table of 5 positions and 8 pairs has %zu bytes", bytes[0]);
}

static void check_sharing(void) {
  sl_program_call calls[3][2];
  sl_program programs[3];
  for (int p = 0; p < 3; p++) {
    calls[p][0] = turning(&sl_op_rotary, 2, 0);
    calls[p][1] = turning(&sl_op_rotary_b, p ? 2 : 4, 0);
    programs[p] = (sl_program){.ncalls = 2, .calls = calls[p], .nbases = 1, .device = p / 2};
    CHECK(!sl_program_prepare(&programs[p]), "%s", sl_detail());
  }
  CHECK(calls[0][0].state == calls[1][0].state && calls[1][0].state == calls[1][1].state,
        "programs of a device have one table");
  CHECK(calls[0][1].state != calls[0][0].state, "other angles are another table");
  CHECK(calls[2][0].state != calls[0][0].state && calls[2][0].state == calls[2][1].state,
        "another device has its own");
  void *kept = calls[1][0].state;
  sl_program_release(&programs[0]);
  CHECK(!sl_program_prepare(&programs[0]) && calls[0][0].state == kept,
        "it stays while it is used");
  for (int p = 0; p < 3; p++) sl_program_release(&programs[p]);
}

int main(void) {
  RUN(check_which);
  RUN(check_sharing);
  return 0;
}
