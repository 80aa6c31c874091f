/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient rules with their arguments expanded: an argument that stands for all inputs or outputs
 * becomes one per input or output of the call. */
#include "ops/ops.h"

#include <string.h>

const sl_op_cut sl_cut_elements = {.pieces = SL_PIECES_ELEMENTS},
                sl_cut_rows = {.pieces = SL_PIECES_ROWS};

/* Maps SL_ARG_INS to SL_ARG_IN, and so on; returns SL_ARG_NONE for kinds of a single argument. */
static int one_of(int kind) {
  return kind == SL_ARG_INS     ? SL_ARG_IN
         : kind == SL_ARG_OUTS  ? SL_ARG_OUT
         : kind == SL_ARG_DOUTS ? SL_ARG_DOUT
                                : SL_ARG_NONE;
}

int sli_rule_arguments(const sl_grad_rule *rule, int nin, int nout) {
  int count = 0;
  while (sli_rule_argument(rule, nin, nout, count).kind) count++;
  return count;
}

sl_grad_arg sli_rule_argument(const sl_grad_rule *rule, int nin, int nout, int a) {
  for (int i = 0; i < SL_GRAD_ARGS && rule->in[i].kind; i++) {
    sl_grad_arg arg = rule->in[i];
    int one = one_of(arg.kind), count = 1;
    if (one) count = SLI_MAX((one == SL_ARG_IN ? nin : nout) - arg.index, 0);
    if (a >= count) {
      a -= count;
      continue;
    }
    if (!one) return arg;
    arg.kind = one;
    arg.index += a;
    return arg;
  }
  return (sl_grad_arg){SL_ARG_NONE, 0};
}

const sl_kernel *sli_op_kernel(const sl_op *op, const char *backend) {
  for (const sl_kernel *k = op->kernels; k && k->backend; k++)
    if (!strcmp(k->backend, backend)) return k;
  return NULL;
}

bool sli_op_fixed(const sl_op *op) {
  bool fixed = sli_op_rows(op)->fixed;
  for (const sl_kernel *k = op->kernels; k && k->backend; k++) fixed |= k->prepare != NULL;
  return fixed;
}
