/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of layer norm and RMS norm. */
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/ops.h"

#define CPU(name)                                           \
  static void name##_cpu(const sl_call *call) {             \
    sli_for_rows(call, &call->in_type[0], sli_cpu()->name); \
  }

CPU(layernorm)

CPU(layernorm_b)

CPU(rmsnorm)

CPU(rmsnorm_b)

static void layernorm_w_cpu(const sl_call *call) { sli_sum_rows(call, sli_cpu()->layernorm_w); }

static void rmsnorm_w_cpu(const sl_call *call) { sli_sum_rows(call, sli_cpu()->rmsnorm_w); }

const sl_kernel sli_cpu_layernorm = {.backend = "cpu", .run = layernorm_cpu};

const sl_kernel sli_cpu_layernorm_b = {.backend = "cpu", .run = layernorm_b_cpu};

const sl_kernel sli_cpu_layernorm_w = {
    .backend = "cpu",
    .run = layernorm_w_cpu,
    .scratch = sli_partials_scratch,
};

const sl_kernel sli_cpu_rmsnorm = {.backend = "cpu", .run = rmsnorm_cpu};

const sl_kernel sli_cpu_rmsnorm_b = {.backend = "cpu", .run = rmsnorm_b_cpu};

const sl_kernel sli_cpu_rmsnorm_w = {
    .backend = "cpu",
    .run = rmsnorm_w_cpu,
    .scratch = sli_partials_scratch,
};
