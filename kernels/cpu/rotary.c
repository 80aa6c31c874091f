/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of rotary positions. The table of angles is a state shared by all calls of a device
 * with the same angles. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/served.h"
#include "ops/layout.h"
#include "ops/ops.h"
#include "ops/rotary.h"

static void fill_angles(sli_rotary *r, const sl_attrs *attrs, const double *frequency,
                        double scale) {
  for (int64_t t = 0; t < r->positions; t++) {
    double position = (double)sli_rope_position(attrs, t),
           by = scale * sli_rope_sharpness(attrs, t);
    for (int64_t j = 0; j < r->pairs; j++) {
      double angle = position * frequency[j];
      r->cos[t * r->pairs + j] = (float)(by * cos(angle));
      r->sin[t * r->pairs + j] = (float)(by * sin(angle));
    }
  }
}

static sl_status rotary_prepare(const sl_call *call, void **state) {
  sli_rotary_shape by = sli_rotary_shape_of(call);
  size_t count = (size_t)(by.positions * by.pairs);
  sli_rotary *r = malloc(sli_rotary_table_bytes(&by));
  double *frequency = malloc((size_t)by.pairs * sizeof *frequency);
  if (!r || !frequency) {
    free(r);
    free(frequency);
    return sl_fail(SL_E_MEMORY, "out of memory for a table of %zu angles", count);
  }
  *r = (sli_rotary){by.positions, by.pairs, (float *)(r + 1), (float *)(r + 1) + count};
  fill_angles(r, call->attrs, frequency, sli_rope_frequencies(call->attrs, by.pairs, frequency));
  free(frequency);
  *state = r;
  return SL_OK;
}

static void rotary_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->rotary);
}

static void rotary_b_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->rotary_b);
}

const sl_kernel sli_cpu_rotary = {
    .backend = "cpu",
    .run = rotary_cpu,
    .prepare = rotary_prepare,
    .release = free,
};

const sl_kernel sli_cpu_rotary_b = {
    .backend = "cpu",
    .run = rotary_b_cpu,
    .prepare = rotary_prepare,
    .release = free,
};

/* ---- serving: positions of any sequences ------------------------------------------------ */

static void rotary_served_cpu(const sl_call *call) {
  sl_team_for(call->team, sli_batch_of(call)->rows, sli_cpu()->rotary_served, (void *)call);
}

const sl_kernel sli_cpu_rotary_served = {
    .backend = "cpu",
    .run = rotary_served_cpu,
    .prepare = rotary_prepare,
    .release = free,
};
