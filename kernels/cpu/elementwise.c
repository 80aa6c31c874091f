/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of element-wise ops. */
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/ops.h"

#define CPU(name)                                               \
  static void name##_cpu(const sl_call *call) {                 \
    sli_for_elements(call, &call->in_type[0], sli_cpu()->name); \
  }

CPU(add)

CPU(mul)

CPU(mul_b)

CPU(gelu)

CPU(gelu_b)

CPU(relu)

CPU(relu_b)

CPU(tanh)

CPU(tanh_b)

CPU(swiglu)

CPU(swiglu_b)

const sl_kernel sli_cpu_add = {.backend = "cpu", .run = add_cpu};

const sl_kernel sli_cpu_mul = {.backend = "cpu", .run = mul_cpu};

const sl_kernel sli_cpu_mul_b = {.backend = "cpu", .run = mul_b_cpu};

const sl_kernel sli_cpu_gelu = {.backend = "cpu", .run = gelu_cpu};

const sl_kernel sli_cpu_gelu_b = {.backend = "cpu", .run = gelu_b_cpu};

const sl_kernel sli_cpu_relu = {.backend = "cpu", .run = relu_cpu};

const sl_kernel sli_cpu_relu_b = {.backend = "cpu", .run = relu_b_cpu};

const sl_kernel sli_cpu_tanh = {.backend = "cpu", .run = tanh_cpu};

const sl_kernel sli_cpu_tanh_b = {.backend = "cpu", .run = tanh_b_cpu};

const sl_kernel sli_cpu_swiglu = {.backend = "cpu", .run = swiglu_cpu};

const sl_kernel sli_cpu_swiglu_b = {.backend = "cpu", .run = swiglu_b_cpu};
