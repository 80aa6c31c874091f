/* SPDX-License-Identifier: Apache-2.0 */
/* Table of CPU kernels. */
#include <sluice/attention.h>
#include <sluice/functions.h>

#include "kernels/cpu/kernels.h"

#include <string.h>

#include "ops/ops.h"
#include "ops/splice.h"

static const struct {
  const sl_op *op;
  const sl_kernel *kernel;
} table[] = {
#define OP(name) {&sl_op_##name, &sli_cpu_##name},
#include "ops/ops.def"
#undef OP
};
enum { KERNELS = sizeof table / sizeof *table };

static const sl_kernel *find_named(const sl_op *op) {
  for (int i = 0; i < KERNELS; i++)
    if (!strcmp(table[i].op->name, op->name)) return table[i].kernel;
  return NULL;
}

const sl_kernel *sli_cpu_kernel(const sl_op *op) {
  const sl_kernel *own = sli_op_kernel(op, "cpu");
  if (own) return own;
  for (int i = 0; i < KERNELS; i++)
    if (table[i].op == op) return table[i].kernel;
  return find_named(op);
}
