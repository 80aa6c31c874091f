/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of the shipped ops, one constant each: sli_cpu_linear runs sl_op_linear. */
#ifndef SLUICE_KERNELS_CPU_KERNELS_H
#define SLUICE_KERNELS_CPU_KERNELS_H

#include <sluice/op.h>

#define OP(name) extern const sl_kernel sli_cpu_##name;
#include "ops/ops.def"
#undef OP

/* Returns the CPU kernel of an op: the op's own, otherwise the table entry with its name, or NULL
 * if there is none. */
const sl_kernel *sli_cpu_kernel(const sl_op *op);

#endif
