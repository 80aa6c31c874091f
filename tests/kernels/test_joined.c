/* SPDX-License-Identifier: Apache-2.0 */
/* Products of served graphs run as one call where none reads or overwrites another one's output,
 * and only there. */
#include <stdlib.h>

#include "base/base.h"
#include "kernels/cpu/joined.h"
#include "ops/ops.h"
#include "tests/support/test.h"

enum { WEIGHTS, REGISTER, WORKSPACE, BASES, PART = 4096 };

static const sl_type in_type[5] = {SL_TYPE(SL_F32, 1, 4, 32),
                                   SL_TYPE(SL_F32, 16, 32),
                                   {.ndim = -1},
                                   {.ndim = -1},
                                   SL_TYPE(SL_I32, 8)};
static const sl_type out_type[1] = {SL_TYPE(SL_F32, 1, 4, 16)};

/* A product that reads part `from` of the workspace and writes part `to` of a base. */
static sl_program_call product(sl_place *places, int from, int base, int to) {
  places[0] = (sl_place){WORKSPACE, (size_t)from * PART};
  places[1] = (sl_place){WEIGHTS, 0};
  places[2] = places[3] = (sl_place){-1, 0};
  places[4] = (sl_place){REGISTER, PART};
  places[5] = (sl_place){base, (size_t)to * PART};
  return (sl_program_call){.op = &sl_op_linear_served,
                           .nin = 5,
                           .nout = 1,
                           .in_type = in_type,
                           .out_type = out_type,
                           .in = places,
                           .out = places + 5};
}

int main(void) {
  static const struct {
    int from, base, to, joined;
  } want[] = {
      {0, WORKSPACE, 1, 3},  {0, WORKSPACE, 2, 2},   {0, WORKSPACE, 3, 1}, /* the same input */
      {1, WORKSPACE, 4, 1},                          /* another one's output */
      {4, WORKSPACE, 5, 1},  {5, WORKSPACE, 6, 1},   /* reads another one's output */
      {7, WORKSPACE, 8, 1},  {7, WORKSPACE, 8, 1},   /* to the same place */
      {9, WORKSPACE, 10, 1}, {11, WORKSPACE, 9, 1},  /* over an input of the first */
      {12, REGISTER, 13, 1}, {12, WORKSPACE, 14, 1}, /* to a register, whose slots another actor may
                                                        own */
  };
  enum { COUNT = SLI_COUNT(want) };
  sl_place places[COUNT][6];
  sl_program_call calls[COUNT];
  for (int i = 0; i < COUNT; i++)
    calls[i] = product(places[i], want[i].from, want[i].base, want[i].to);
  /* The group is tested as if something else separated it from the rest. */
  for (int from = 0, n; from < COUNT; from += n) {
    for (n = 1; from + n < COUNT && want[from + n].from == want[from].from;) n++;
    if (from == 4 || from == 8) n = 2;
    const sl_program program = {.ncalls = n, .calls = calls + from, .nbases = BASES};
    int32_t *found = sli_joined_find(&program);
    for (int i = 0; i < n; i++)
      CHECK(found[i] == want[from + i].joined, "call %d: %d run as one", from + i, found[i]);
    free(found);
  }
  /* Five products of one input: four run together, and one alone. */
  for (int i = 0; i < 5; i++) calls[i] = product(places[i], 0, WORKSPACE, i + 1);
  int32_t *found = sli_joined_find(&(sl_program){.ncalls = 5, .calls = calls, .nbases = BASES});
  CHECK(found[0] == SLI_JOINED && found[4] == 1, "no more than there is room for");
  free(found);
  /* Variants do not run together. */
  found =
      sli_joined_find(&(sl_program){.ncalls = 2, .nvariants = 2, .calls = calls, .nbases = BASES});
  CHECK(found[0] == 2 && found[1] == 1 && found[2] == 2 && found[3] == 1, "each variant by itself");
  free(found);
  return 0;
}
