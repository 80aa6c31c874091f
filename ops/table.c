/* SPDX-License-Identifier: Apache-2.0 */
/* The table of shipped ops. */
#include <string.h>

#include <sluice/attention.h>
#include <sluice/functions.h>

#include "ops/ops.h"
#include "ops/splice.h"

const sl_op *const sl_ops[] = {
#define OP(name) &sl_op_##name,
#include "ops/ops.def"
#undef OP
    NULL,
};

const sl_op *sl_op_find(const char *name) {
  for (int i = 0; sl_ops[i]; i++)
    if (!strcmp(sl_ops[i]->name, name)) return sl_ops[i];
  return NULL;
}
