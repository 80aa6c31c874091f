/* SPDX-License-Identifier: Apache-2.0 */
/* Running statistics: parameters that are running averages of forward-pass values instead of being
 * trained, such as batch norm's mean and variance. */
#include "graph/build/build.h"

static const char *running_fault(sl_graph *g, const sl_tensor *param, const sl_tensor *value,
                                 float momentum) {
  char want[SL_TYPE_TEXT], got[SL_TYPE_TEXT];
  if (!param->param) return "is not a parameter";
  if (param->running) return "already follows a value";
  if (!value->producer) return "cannot follow a parameter; wrap it in sl_detach()";
  if (!(momentum >= 0 && momentum <= 1))
    return sli_arena_format(&g->arena, "needs momentum from 0 to 1, got %g", (double)momentum);
  if (sl_type_equal(&param->type, &value->type)) return NULL;
  return sli_arena_format(&g->arena, "is %s, so it cannot follow %s %s",
                          sl_type_format(want, &param->type), value->name,
                          sl_type_format(got, &value->type));
}

void sl_running_at(sl_here at, sl_graph *g, sl_tensor *param, sl_tensor *value, float momentum) {
  if (g->status || !param || !value) return;
  const char *wrong = running_fault(g, param, value, momentum);
  if (wrong) {
    sli_graph_fail_at(g, at, SL_E_USAGE, "sl_running: %s %s", param->name, wrong);
    return;
  }
  param->needs_grad = false;
  if (g->options.infer || g->frozen.builds) return;
  sli_running *running = sli_arena_alloc(&g->arena, sizeof *running);
  *running = (sli_running){value, momentum, at};
  param->running = running;
}

sl_tensor *sl_batch_norm_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *gain, sl_tensor *bias,
                            sl_tensor *mean, sl_tensor *variance, float momentum, float eps) {
  bool keep = g->options.infer || g->frozen.builds || momentum == SL_OFF;
  const sl_attrs attrs = {.norm.eps = eps, .norm.given = keep};
  sl_tensor *in[] = {x, gain, bias, mean, variance}, *out[4] = {NULL};
  if (mean && mean->param) mean->needs_grad = false;
  if (variance && variance->param) variance->needs_grad = false;
  sl_apply_at(at, g, &sl_op_batch_norm, &attrs, 5, in, 0, out);
  if (keep || !out[0]) return out[0];
  sl_running_at(at, g, mean, out[1], momentum);
  sl_running_at(at, g, variance, out[3], momentum);
  return g->status ? NULL : out[0];
}
