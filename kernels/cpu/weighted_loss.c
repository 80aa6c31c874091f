/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of the cross entropy with weighted rows. Partial sums of chunks are added in chunk
 * order. */
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/loss.h"
#include "ops/ops.h"
#include "ops/target.h"

/* ---- kernels --------------------------------------------------------------------------- */

static void target_weight_cpu(const sl_call *call) {
  const int32_t *targets = call->in[0];
  sli_weighing w = sli_weighing_of(call, 1);
  int64_t n = sl_type_elements(&call->in_type[0]);
  double total = 0;
  for (int64_t i = 0; i < n; i++)
    if (sli_counts(&w, targets[i])) total += (double)sli_weight(&w, targets[i]);
  *(double *)call->out[0] = total;
}

static void cross_entropy_cpu(const sl_call *call) {
  const double total = *(const double *)call->in[2];
  sli_for_rows(call, &call->in_type[0], sli_cpu()->weighted_cross_entropy);
  if (call->out[0]) *(double *)call->out[0] = total == 0 ? 0 : sli_loss_sum(call) / total;
}

static void cross_entropy_b_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->weighted_cross_entropy_b);
}

static void part_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->weighted_cross_entropy_part);
}

static void join_cpu(const sl_call *call) {
  sli_loss_join(call, SLI_WEIGHTED_PART);
  if (call->out[0]) *(double *)call->out[0] = sli_loss_sum(call);
}

/* ---- tables ------------------------------------------------------------------------------ */

const sl_kernel sli_cpu_target_weight = {.backend = "cpu", .run = target_weight_cpu};

const sl_kernel sli_cpu_weighted_cross_entropy = {
    .backend = "cpu",
    .run = cross_entropy_cpu,
    .scratch = sli_loss_scratch,
};

const sl_kernel sli_cpu_weighted_cross_entropy_b = {.backend = "cpu", .run = cross_entropy_b_cpu};

const sl_kernel sli_cpu_weighted_cross_entropy_part = {.backend = "cpu", .run = part_cpu};

const sl_kernel sli_cpu_weighted_cross_entropy_join = {
    .backend = "cpu",
    .run = join_cpu,
    .scratch = sli_loss_scratch,
};
