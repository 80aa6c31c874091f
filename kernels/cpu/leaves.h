/* SPDX-License-Identifier: Apache-2.0 */
/* Exact sums of gradients: calls that run leaf by leaf. */
#ifndef SLUICE_KERNELS_CPU_LEAVES_H
#define SLUICE_KERNELS_CPU_LEAVES_H

#include <sluice/op.h>

/* Runs the op's kernel on one leaf after another and adds the sums of the leaves in f64
 * (ops/leaves.h), for calls with attrs.numbers.leaves. */
extern const sl_kernel sli_cpu_leaves;

#endif
