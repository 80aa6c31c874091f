/* Kernels of the shipped ops for CPUs, a constant each: sli_cpu_linear runs sl_op_linear. */
#ifndef SLUICE_CPU_KERNELS_H
#define SLUICE_CPU_KERNELS_H

#include <sluice/op.h>

#define OP(name) extern const sl_kernel sli_cpu_##name;
#include "ops/ops.def"
#undef OP

/* The kernel of an op for CPUs: the op's own, else by its name in the table. NULL: it has none. */
const sl_kernel *sli_cpu_kernel(const sl_op *op);

#endif
